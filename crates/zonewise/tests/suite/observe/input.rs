//! Wrong input: the message names position and remedy, and the exit code is an error.

use crate::observe::run::{cluster, document, is_thorough, root, run, run_on};
use serde_json::json;

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n";

/// Arguments, standard input, exit code, and what standard error says.
type Row = (&'static [&'static str], &'static str, i32, &'static str);

const PLAN: &[&str] = &["plan", "-f", "-"];

const ROWS: [Row; 35] = [
    (PLAN, "", 1, "the input is empty"),
    (PLAN, "# nothing\n---\n", 1, "kubectl get nodes,pods,services,endpointslices -A -o yaml"),
    (PLAN, "kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n", 1, "but 1 ConfigMap"),
    (
        PLAN,
        "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"na",
        1,
        "standard input: document 1, line 1: the file ends inside this object",
    ),
    (
        PLAN,
        "kind: Pod\n\tapiVersion: v1\n",
        1,
        "standard input: document 1, line 1: this is not YAML",
    ),
    (PLAN, "\u{1f}\u{8b}", 1, "standard input"),
    (
        PLAN,
        "kind: Service\napiVersion: v1\nmetadata: {name: web}\nspec:\n  ports: 5\n",
        1,
        "document 1, line 1: Service default/web: `spec.ports`: a list is needed, not integer `5`",
    ),
    (
        PLAN,
        "kind: Service\napiVersion: v1\nmetadata: {name: web}\nspec: {ports: 5}\n",
        1,
        "pass --keep-going to continue without it",
    ),
    (
        PLAN,
        "kind: EndpointSlice\napiVersion: discovery.k8s.io/v1beta1\nmetadata: {name: s}\n",
        1,
        "kubectl get endpointslices.v1.discovery.k8s.io",
    ),
    (PLAN, NODE, 1, "there is no Service"),
    (
        &["plan", "-f", "-", "--keep-going"],
        "kind: Service\napiVersion: v1\nmetadata: {name: web}\nspec: {ports: 5}\n---\nkind: Service\napiVersion: v1\nmetadata: {name: ok}\nspec: {selector: {a: b}}\n",
        0,
        "warning: standard input: document 1, line 1: Service default/web",
    ),
    (&["plan", "-f", "no-such-file"], "", 1, "cannot read no-such-file"),
    (&["plan", "-f", "crates"], "", 1, "has no .yaml, .yml or .json file"),
    (&["plan", "-f", "-", "--service", "a/b/c"], NODE, 2, "invalid Service `a/b/c`"),
    (
        &["plan", "-f", "examples/shop", "--service", "web"],
        "",
        1,
        "there is no Service default/web; did you mean shop/web?",
    ),
    (
        &["plan", "-f", "examples/shop", "--max-endpoints-per-slice", "0"],
        "",
        2,
        "must be 1 to 1000, not 0",
    ),
    (
        &["route", "-f", "examples/shop", "--node", "z9"],
        "",
        1,
        "there is no node `z9`; the nodes are a1, a2",
    ),
    (&["route", "-f", "examples/shop"], "", 2, "--node"),
    (
        &["route", "-f", "examples/shop", "--from", "mars"],
        "",
        0,
        "no node is in zone `mars`; the zones are eu-a, eu-b, eu-c",
    ),
    (&["explain", "-f", "examples/shop", "--cost-per-gb", "-1"], "", 2, "cost-per-gb"),
    (&["explain", "-f", "examples/shop", "--cost-per-gb", "1"], "", 2, "a price needs an amount"),
    (
        &["explain", "-f", "examples/shop", "--gb", "1", "--provider", "asw"],
        "",
        2,
        "no prices of provider `asw` are known; did you mean aws?, or pass --cost-per-gb or --prices",
    ),
    (
        &["explain", "-f", "examples/shop", "--gb", "1", "--prices", "no-such-file"],
        "",
        1,
        "cannot read no-such-file",
    ),
    (
        &["explain", "-f", "examples/shop", "--gb", "1", "--prices", "README.md"],
        "",
        1,
        "README.md: line",
    ),
    (&["explain"], "", 1, "pass --kubeconfig FILE"),
    (&["explain", "-f", "examples/shop", "-n", "shp"], "", 1, "did you mean `shop`?"),
    (&["explain", "-f", "examples/shop", "-n", "mars"], "", 1, "pass another one with -n, or -A"),
    (&["explain", "-f", "examples/shop", "shop/wbe"], "", 1, "did you mean shop/web?"),
    (&["explain", "-f", "examples/shop", "shop/q"], "", 1, "`zonewise explain -A` lists all"),
    (&["explain", "-f", "examples/shop", "-A", "-n", "shop"], "", 2, "cannot be used with"),
    (&["explain", "-f", "examples/shop", "-A", "web"], "", 2, "leave --all-namespaces out"),
    (&["route", "-f", "examples/shop", "--from", "eu-aa"], "", 0, "did you mean `eu-a`?"),
    (&["route", "-f", "examples/shop", "--node", "contrl"], "", 1, "did you mean `control`?"),
    (&["reasons", "TooFewForBalnce"], "", 2, "did you mean `TooFewForBalance`?"),
    (&["reasons", "mars"], "", 2, "`zonewise reasons` lists them all"),
];

#[test]
fn wrong_input_is_answered_with_place_and_remedy() {
    for (arguments, input, code, expected) in ROWS {
        let ran = run_on(arguments, input.as_bytes());
        assert_eq!(ran.code, code, "{arguments:?} {input:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{arguments:?} {input:?}:\n{}", ran.err);
        assert!(code == 0 || ran.out.is_empty(), "{arguments:?}: {}", ran.out);
    }
}

#[test]
fn an_object_given_twice_is_named_and_the_later_counts() {
    let twice = format!(
        "{NODE}---\n{}kind: Service\napiVersion: v1\nmetadata: {{name: web}}\nspec: {{selector: {{a: b}}}}\n",
        NODE.replace("{name: a}", "{name: a, labels: {topology.kubernetes.io/zone: z}}") + "---\n"
    );
    let ran = run_on(&["explain", "web", "-f", "-"], twice.as_bytes());
    let expected = "warning: Node a is given twice: standard input: document 1, line 1 and standard input: document 2, line 5; the last one is used";
    assert!(ran.err.contains(expected), "{}", ran.err);
}

#[test]
fn bytes_per_service_are_read_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let explain = |text: &str| {
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        run(&[
            "explain",
            "-f",
            "examples/shop",
            "-f",
            "examples/shop-slices.yaml",
            "--cost-per-gb",
            "0.02",
            "--bytes",
            path,
            "-o",
            "json",
        ])
    };
    let ran = explain("service,bytes\nshop/legacy,500e9\n");
    let lines: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let legacy = lines["services"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["service"] == "shop/legacy")
        .unwrap();
    assert_eq!(legacy["cost"]["gb"], json!(500.0));
    let ran = explain("service,bytes\nshop/legacy,many\n");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("line 2: `many` is not a number of bytes"), "{}", ran.err);
}

/// kubectl writes `kind: List` last: a list without it was cut off, wherever that was.
#[test]
fn a_dump_that_was_cut_off_is_never_taken_as_whole() {
    let whole = run(&["plan", "-f", "examples/shop", "-o", "yaml"]).out;
    let listed =
        format!("apiVersion: v1\n{}kind: List\n", whole.split_once("kind: List\n").unwrap().1);
    let dump = |text: &str| run_on(&["plan", "-f", "examples/shop", "-f", "-"], text.as_bytes());
    assert_eq!(dump(&listed).code, 0, "{}", dump(&listed).err);
    let lines: Vec<&str> = listed.lines().collect();
    // A process for each of them: one of seven, unless `make test-all` asks for all.
    let step = if is_thorough() { 1 } else { 7 };
    for length in (3..lines.len() - 1).step_by(step) {
        let cut = dump(&lines[..length].join("\n"));
        assert_eq!(cut.code, 1, "{length} lines: {}", cut.out);
    }
}

/// An object that is not a list may have a field `items`.
#[test]
fn items_of_other_objects_are_left_alone() {
    let manifest = format!(
        "kind: ConfigMap\napiVersion: v1\nmetadata: {{name: x}}\nitems: [a, b]\n---\n{NODE}---\nkind: Service\napiVersion: v1\nmetadata: {{name: web}}\nspec: {{selector: {{a: b}}}}\n"
    );
    let ran = run_on(PLAN, manifest.as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// Impossible numbers and dangerous names are reported like other faults.
#[test]
fn hostile_numbers_and_names_do_no_harm() {
    let mut objects = cluster(
        &json!({"service.kubernetes.io/topology-mode": "Auto"}),
        &[("4", 3), ("1e30", 3), ("-5", 3)],
    );
    objects[0]["spec"]["ports"] = json!([{"port": 99999, "targetPort": "http"}]);
    objects[2]["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("'; rm -rf / #\n");
    let plan = document(&["plan"], &objects);
    assert_eq!(plan["services"][0]["explanation"]["reason"], "NodeInformationMissing");
}

#[test]
fn services_are_named_as_kubectl_names_them() {
    let expected = run(&["explain", "shop/web", "-f", "examples/shop"]);
    for name in ["svc/web", "service/web", "services/web", "web", "svc/shop/web"] {
        let ran = run(&["explain", name, "-n", "shop", "-f", "examples/shop"]);
        assert_eq!((ran.code, &ran.out), (0, &expected.out), "{name}: {}", ran.err);
    }
    let plan = run(&["plan", "--service", "svc/web", "-n", "shop", "-f", "examples/shop"]);
    assert!(plan.out.contains("1 Service: "), "{}{}", plan.out, plan.err);
    let all = run(&["explain", "-f", "examples/shop", "-A"]);
    assert_eq!(all.out, run(&["explain", "-f", "examples/shop"]).out);
}

/// The Service of the API server is in every cluster; that it has no selector is no news.
#[test]
fn the_service_of_the_api_server_is_no_reason_for_a_warning() {
    let service = |namespace: &str| {
        format!(
            "kind: Service\napiVersion: v1\nmetadata: {{name: kubernetes, namespace: {namespace}}}\nspec: {{clusterIP: 10.96.0.1}}\n"
        )
    };
    let warned = |namespace: &str| {
        run_on(&["plan", "-f", "-", "-f", "examples/shop"], service(namespace).as_bytes()).err
    };
    assert_eq!(warned("default"), "");
    assert!(warned("other").contains("1 Service without a selector"), "{}", warned("other"));
}

#[test]
fn a_service_whose_traffic_is_not_known_costs_nothing_that_is_known() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "shop/web,1000000000\nshop/crt,5\n").unwrap();
    let path = file.path().to_str().unwrap();
    let files = ["-f", "examples/shop", "-f", "examples/shop-slices.yaml"];
    let priced = ["explain", "--cost-per-gb", "1", "--bytes", path, "-o", "json"];
    let ran = run(&[&priced[..], &files].concat());
    assert!(ran.err.contains("did you mean shop/cart?"), "{}", ran.err);
    assert!(ran.err.contains("the cost of 5 Services is not known"), "{}", ran.err);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let priced: Vec<&str> = document["services"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line.get("cost").is_some())
        .map(|line| line["service"].as_str().unwrap())
        .collect();
    assert_eq!(priced, ["shop/web"]);
}

#[test]
fn prices_can_be_those_of_a_table_of_the_user() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let explain = |provider: &[&str]| {
        let files = ["-f", "examples/shop", "-f", "examples/shop-slices.yaml"];
        let asked = ["explain", "--prices", path, "--gb", "100", "-o", "json"];
        run(&[&asked[..], provider, &files].concat())
    };
    let cost = |provider: &[&str]| {
        let ran = explain(provider);
        let document: serde_json::Value = serde_json::from_str(&ran.out).expect(&ran.err);
        document["services"][0]["cost"]["now"].as_f64().unwrap()
    };
    std::fs::write(&file, "contract,0,0.5,1\n").unwrap();
    let contract = cost(&[]);
    assert!(contract > 0.0);
    std::fs::write(&file, "contract,0,0.5,1\nlist,0,1,1\n").unwrap();
    assert_eq!(cost(&["--provider", "contract"]), contract);
    assert!((cost(&["--provider", "list"]) - 2.0 * contract).abs() < 1e-9);
    let ran = explain(&[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("pass --provider, one of contract, list"), "{}", ran.err);
}

#[test]
fn reasons_are_explained_one_by_one_or_all() {
    let one = run(&["reasons", "toofewforbalance"]);
    assert!(one.out.starts_with("TooFewForBalance (not active)\n"), "{}", one.out);
    let page = std::fs::read_to_string(root().join("docs/reasons.md")).unwrap();
    let all = run(&["reasons"]).out;
    let codes = page
        .lines()
        .filter_map(|line| line.split('`').nth(1))
        .filter(|code| *code != "zonewise reasons");
    for code in codes {
        assert!(all.lines().any(|line| line.starts_with(&format!("{code} ("))), "{code}");
    }
    assert_eq!(all.lines().find(|line| line.chars().count() > 80), None);
}

/// Whoever has a kubeconfig with a mistake sees the mistake once.
#[test]
fn errors_of_connections_name_server_and_context_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        &file,
        "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: production, context: {cluster: c, user: u}}]\ncurrent-context: production\n",
    )
    .unwrap();
    let path = file.path().to_str().unwrap();
    let said = |arguments: &[&str]| run(&[&["explain"], arguments].concat()).err;
    let refused = said(&["--kubeconfig", path]);
    assert!(
        refused.starts_with(
            "error: cannot read the cluster at http://127.0.0.1:1 (context `production`): "
        ),
        "{refused}"
    );
    let context = said(&["--kubeconfig", path, "--context", "producton"]);
    assert!(context.contains("did you mean `production`?"), "{context}");
    for missing in [said(&[]), said(&["--kubeconfig", "/none"]), said(&["--context", "any"])] {
        assert_eq!(missing.matches("No such file or directory").count(), 1, "{missing}");
        assert_eq!(missing.lines().count(), 1, "{missing}");
    }
}
