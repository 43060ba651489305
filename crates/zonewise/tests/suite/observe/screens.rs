//! Every screen, word for word. To renew them:
//! `UPDATE_SCREENS=1 cargo test -p zonewise --test suite observe::screens`; then read the change.

use std::io::BufRead;

use crate::observe::run::{program, root, run, run_on, run_with};

/// Name and arguments.
const SCREENS: [(&str, &[&str]); 21] = [
    ("plan", &["plan", "-f", "examples/shop"]),
    ("plan-explain", &["plan", "-f", "examples/shop", "--service", "shop/web", "--explain"]),
    ("plan-yaml", &["plan", "-f", "examples/shop", "--service", "web", "-n", "shop", "-o", "yaml"]),
    ("plan-json", &["plan", "-f", "examples/shop", "--service", "shop/search", "-o", "json"]),
    ("plan-upstream", &["plan", "-f", "examples/shop", "--compat", "upstream"]),
    ("plan-guard", &["plan", "-f", "examples/shop", "--mode", "guard"]),
    ("plan-diff", &["plan", "-f", "examples/shop", "-f", "examples/shop-slices.yaml", "--diff"]),
    (
        "plan-diff-json",
        &[
            "plan",
            "-f",
            "examples/shop",
            "-f",
            "examples/shop-slices.yaml",
            "-o",
            "json",
            "--service",
            "shop/cart",
        ],
    ),
    (
        "route-node",
        &["route", "-f", "examples/shop", "-f", "examples/shop-slices.yaml", "--node", "a1"],
    ),
    (
        "route-json",
        &[
            "route",
            "-f",
            "examples/shop",
            "-f",
            "examples/shop-slices.yaml",
            "--node",
            "a1",
            "--service",
            "shop/cart",
            "-o",
            "json",
        ],
    ),
    (
        "route-from",
        &["route", "-f", "examples/shop", "-f", "examples/shop-slices.yaml", "--from", "eu-c"],
    ),
    (
        "route-matrix",
        &[
            "route",
            "-f",
            "examples/shop",
            "-f",
            "examples/shop-slices.yaml",
            "--matrix",
            "--service",
            "shop/cart",
        ],
    ),
    (
        "route-matrix-json",
        &[
            "route",
            "-f",
            "examples/shop",
            "-f",
            "examples/shop-slices.yaml",
            "--matrix",
            "--service",
            "shop/cart",
            "-o",
            "json",
        ],
    ),
    ("explain", &["explain", "-f", "examples/shop", "-f", "examples/shop-slices.yaml"]),
    (
        "explain-cost",
        &[
            "explain",
            "-f",
            "examples/shop",
            "-f",
            "examples/shop-slices.yaml",
            "--cost-per-gb",
            "0.02",
            "--gb",
            "500",
        ],
    ),
    ("explain-fallback", &["explain", "shop/web", "-f", "examples/shop"]),
    (
        "explain-hints",
        &["explain", "shop/cart", "-f", "examples/shop", "-f", "examples/shop-slices.yaml"],
    ),
    ("explain-shares", &["explain", "shop/search", "-f", "examples/shop"]),
    ("explain-same-node", &["explain", "shop/dns", "-f", "examples/shop"]),
    ("explain-typo", &["explain", "shop/typo", "-f", "examples/shop"]),
    ("explain-json", &["explain", "shop/web", "-f", "examples/shop", "-o", "json"]),
];

/// Slices as they might be stored: those of a plan, with one hint that is wrong.
#[test]
fn the_example_s_slices_are_those_of_a_plan() {
    let plan = run(&["plan", "-f", "examples/shop", "-o", "yaml"]);
    assert_eq!(plan.code, 0, "{}", plan.err);
    let slices = plan.out.replacen("- name: eu-a", "- name: eu-b", 1);
    let path = root().join("examples/shop-slices.yaml");
    if std::env::var_os("UPDATE_SCREENS").is_some() {
        std::fs::write(&path, &slices).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), slices, "UPDATE_SCREENS=1 renews it");
}

#[test]
fn every_screen_is_as_it_was() {
    let mut changed = Vec::new();
    for (name, arguments) in SCREENS {
        let ran = run(arguments);
        let shown = format!("$ zonewise {}\n{}{}", arguments.join(" "), ran.out, ran.err);
        assert_eq!(ran.code, 0, "{shown}");
        let path = root().join(format!("crates/zonewise/tests/suite/observe/screens/{name}.txt"));
        if std::env::var_os("UPDATE_SCREENS").is_some() {
            std::fs::write(&path, &shown).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != shown {
            changed.push(format!("{name}:\n{shown}"));
        }
    }
    assert!(changed.is_empty(), "UPDATE_SCREENS=1 renews these:\n{}", changed.join("\n"));
}

#[test]
fn a_plan_of_what_a_plan_wrote_changes_nothing() {
    let plan = run(&["plan", "-f", "examples/shop", "-o", "yaml"]);
    let again = run_on(&["plan", "-f", "examples/shop", "-f", "-"], plan.out.as_bytes());
    assert!(again.out.ends_with("0 to create, 0 to update, 0 to delete\n"), "{}", again.out);
    let nothing =
        run_on(&["plan", "-f", "examples/shop", "-f", "-", "-o", "yaml"], plan.out.as_bytes());
    assert_eq!(nothing.out, "apiVersion: v1\nkind: List\nitems: []\n");
}

/// Text from the cluster cannot reach the terminal as commands.
#[test]
fn hostile_text_is_shown_as_text() {
    let manifest = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    zonewise.dev/routing-preference: \"\\e[31mred\\e]0;title\\a\"\nspec:\n  selector: {app: web}\n";
    let ran = run_on(&["explain", "web", "-f", "-"], manifest.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.out.contains('\u{1b}') && !ran.out.contains('\u{7}'), "{:?}", ran.out);
    assert!(ran.out.contains("\\u{1b}[31mred"), "{}", ran.out);
}

#[test]
fn help_teaches() {
    for command in ["plan", "route", "explain"] {
        let ran = run(&[command, "--help"]);
        assert_eq!(ran.code, 0);
        let page = format!("docs/{command}.md explains the output.");
        assert!(ran.out.contains("Examples:") && ran.out.contains(&page), "{}", ran.out);
        assert!(root().join(format!("docs/{command}.md")).exists(), "{page}");
    }
}

/// `make install` ends with this script.
#[test]
fn installing_puts_everything_in_its_place() {
    let prefix = tempfile::tempdir().unwrap();
    let script = root().join("scripts/install");
    let mut command = std::process::Command::new(script);
    let ended = command.arg(env!("CARGO_BIN_EXE_zonewise")).arg(prefix.path()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    for file in [
        "bin/zonewise",
        "bin/kubectl-zonewise",
        "bin/kubectl_complete-zonewise",
        "share/man/man1/zonewise.1",
        "share/man/man1/zonewise-explain.1",
        "share/bash-completion/completions/zonewise",
        "share/zsh/site-functions/_zonewise",
        "share/fish/vendor_completions.d/zonewise.fish",
    ] {
        assert!(prefix.path().join(file).metadata().unwrap().len() > 0, "{file}");
    }
}

#[test]
fn completions_and_man_pages_know_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&["man", folder.path().to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for command in ["simulate", "controller", "proxy", "plan", "route", "explain"] {
        assert!(completed(&["zonewise", command]).contains(&command.to_owned()), "{command}");
        assert!(folder.path().join(format!("zonewise-{command}.1")).exists(), "{command}");
    }
}

/// What bash is told to complete the last word with.
fn completed(words: &[&str]) -> Vec<String> {
    let mut command = program(&["--"]);
    command.args(words).env("ZONEWISE_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string());
    let ended = command.output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{words:?}: {ended:?}");
    String::from_utf8(ended.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_names_too() {
    let shop = |words: &[&str]| {
        completed(&[&["zonewise", "explain", "-f", "examples/shop"], words].concat())
    };
    assert_eq!(shop(&["shop/c"]), ["shop/cart"]);
    assert_eq!(shop(&["shop/"]).len(), 6);
    assert_eq!(shop(&["-n", "shop", "l"]), ["legacy"]);
    assert_eq!(shop(&["-n", "sh"]), ["shop"]);
    assert_eq!(completed(&["zonewise", "reasons", "ClusterW"]), ["ClusterWide"]);
    assert_eq!(completed(&["zonewise", "explain", "--sort", "o"]), ["overload"]);
    // Without a cluster there is nothing to name, and no error.
    assert_eq!(completed(&["zonewise", "explain", "shop/"]), [""; 0]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(&["completions", shell]).out;
        assert!(script.contains("ZONEWISE_COMPLETE"), "{shell}: {script}");
    }
}

/// Names of any length, at every usual width.
#[test]
fn no_row_of_a_table_is_wider_than_the_terminal() {
    let shop = std::fs::read_to_string(root().join("examples/shop/services.yaml")).unwrap();
    let long = shop.replace("name: cart", "name: cart-with-a-name-that-nobody-can-remember-at-all");
    assert_ne!(shop, long);
    let commands: [&[&str]; 4] = [
        &["explain", "-f", "-", "-f", "examples/shop/nodes.yaml"],
        &[
            "explain",
            "-f",
            "-",
            "-f",
            "examples/shop-slices.yaml",
            "--cost-per-gb",
            "2",
            "--gb",
            "500",
        ],
        &["plan", "-f", "-"],
        &[
            "route",
            "-f",
            "-",
            "-f",
            "examples/shop/nodes.yaml",
            "-f",
            "examples/shop-slices.yaml",
            "--node",
            "a1",
        ],
    ];
    for command in commands {
        let columns = |columns: &str| run_with(command, long.as_bytes(), &[("COLUMNS", columns)]);
        let ran = columns("80");
        assert_eq!(ran.code, 0, "{}", ran.err);
        let wide = ran.out.lines().find(|line| line.chars().count() > 80);
        assert_eq!(wide, None, "{command:?}");
        assert!(
            ran.out.contains('…') && !columns("").out.contains('…'),
            "{command:?}\n{}",
            ran.out
        );
    }
}

#[test]
fn services_are_sorted_by_what_can_be_saved_or_as_asked() {
    let files = ["-f", "examples/shop", "-f", "examples/shop-slices.yaml", "-o", "json"];
    let order = |flags: &[&str]| {
        let ran = run(&[&["explain"], flags, &files].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let services = document["services"].as_array().unwrap().clone();
        services
            .iter()
            .map(|line| line["service"].as_str().unwrap().trim_start_matches("shop/").to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(order(&[]), "legacy typo web cart dns search");
    assert_eq!(order(&["--sort", "name"]), "cart dns legacy search typo web");
    assert_eq!(order(&["--sort", "in-zone"]), "legacy typo web search cart dns");
    assert_eq!(order(&["--sort", "overload"]), "cart dns legacy search typo web");
    let priced = ["--cost-per-gb", "1", "--gb", "1"];
    assert_eq!(
        order(&[&["--sort", "cost"], &priced[..]].concat()),
        "legacy typo web search cart dns"
    );
    assert!(run(&["explain", "--sort", "cost"]).err.contains("needs --cost-per-gb"));
}

/// A file that changes while it is watched.
#[test]
fn watching_shows_what_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("objects.yaml");
    let shop = std::fs::read_to_string(root().join("examples/shop/services.yaml")).unwrap();
    std::fs::write(&file, &shop).unwrap();
    let mut child = program(&["explain", "--watch=20ms", "--sort", "name", "-f"])
        .arg(&file)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.find(|line| line.as_ref().unwrap().contains("shop/cart")).unwrap().unwrap();
    // A file that appears whole: it is never read half written.
    let renamed = folder.path().join("new");
    std::fs::write(&renamed, shop.replace("name: cart", "name: basket")).unwrap();
    std::fs::rename(&renamed, &file).unwrap();
    let second = lines.find(|line| line.as_ref().unwrap().contains("shop/basket"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(first.contains("shop/cart") && second.is_some());
    let stdin = run(&["explain", "--watch", "-f", "-"]);
    assert!(stdin.code == 2 && stdin.err.contains("standard input"), "{}", stdin.err);
}
