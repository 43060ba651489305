//! The output on the documentation's pages is real. To renew it: `UPDATE_DOCS=1 make test`.
//!
//! A block that begins with `$ zonewise …` is that command and what it prints; `slices.yaml` is a
//! file with slices that are stored.

use crate::run::{root, run};
use crate::screens::stored;

const PAGES: [&str; 4] = ["plan.md", "route.md", "explain.md", "why-no-hints.md"];

const FENCE: &str = "```console\n$ zonewise ";

/// The page with every block as the program prints it now.
fn renewed(page: &str, slices: &str) -> String {
    let mut parts = page.split(FENCE);
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (command, rest) = part.split_once('\n').unwrap();
        let (_, after) = rest.split_once("```\n").unwrap();
        let words =
            command.split(' ').map(|word| if word == "slices.yaml" { slices } else { word });
        let ran = run(&words.collect::<Vec<_>>());
        let shown = format!("{}{}", ran.out, ran.err).replace(slices, "slices.yaml");
        text.push_str(&format!("{FENCE}{command}\n{shown}```\n{after}"));
    }
    text
}

#[test]
fn the_pages_show_what_the_program_prints() {
    let slices = stored();
    for name in PAGES {
        let path = root().join("docs").join(name);
        let page = std::fs::read_to_string(&path).unwrap();
        let now = renewed(&page, slices.path().to_str().unwrap());
        assert!(page.contains(FENCE), "{name} shows no command");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &now).unwrap();
        } else {
            assert_eq!(page, now, "docs/{name} is out of date: run UPDATE_DOCS=1 make test");
        }
    }
}
