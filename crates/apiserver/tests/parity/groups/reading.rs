//! Lists: selectors, pages, versions.

use serde_json::json;

use super::{config_map, labelled, lease};
use crate::requests::{Group, Step, delete, get, group, other, post};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("selectors", selectors()),
        group("pages", pages()),
        group("versions", versions()),
        group("collections", collections()),
        group("watches-refused", watches_refused()),
    ]
}

/// Four ConfigMaps with labels.
fn four() -> Vec<Step> {
    vec![
        post(
            "a",
            "configmaps",
            labelled(config_map("a", json!({})), json!({"app": "web", "tier": "front", "n": "1"})),
        ),
        post(
            "b",
            "configmaps",
            labelled(config_map("b", json!({})), json!({"app": "web", "tier": "back", "n": "2"})),
        ),
        post(
            "c",
            "configmaps",
            labelled(config_map("c", json!({})), json!({"app": "shop", "n": "3"})),
        ),
        post("d", "configmaps", config_map("d", json!({}))),
    ]
}

fn selectors() -> Vec<Step> {
    let mut steps = four();
    let labels = [
        "app=web",
        "app==web",
        "app!=web",
        "app",
        "!app",
        "app in (web,shop)",
        "app in (web, shop),tier",
        "app notin (web)",
        "app=web,tier=back",
        "tier=",
        "tier!=front,app=web",
        "app in ()",
        "app in (web",
        "app=web,",
        ",app=web",
        "=web",
        "app=a b",
        "app>1",
        "n>1",
        "n<3",
        "n>x",
        "app=web=shop",
        "a b=c",
        "in",
        "in in (a)",
        "zonewise.dev/x=y",
        "zonewise.dev/=y",
        "/x=y",
        "app in (web),app notin (shop)",
        "!app=web",
        "app = web , tier = front",
        "-a=b",
        "a=-b",
        "app in web",
    ];
    let fields = [
        "metadata.name=a",
        "metadata.name==a",
        "metadata.name!=a",
        "metadata.namespace={ns}",
        "metadata.namespace=other",
        "metadata.name=a,metadata.namespace={ns}",
        "metadata.name=a,metadata.name=b",
        "data.x=1",
        "metadata.labels.app=web",
        "nothing",
        "metadata.name in (a)",
        "metadata.name=",
        "=a",
        "metadata.name=a\\,b",
        "metadata.name=a\\",
        "metadata.name=a,",
    ];
    steps.extend(labels.map(|text| {
        get(&format!("labels {text}"), &format!("configmaps?labelSelector={}", escape(text)))
    }));
    steps.extend(fields.map(|text| {
        get(&format!("fields {text}"), &format!("configmaps?fieldSelector={}", escape(text)))
    }));
    steps.extend([
        get("both", "configmaps?labelSelector=app%3Dweb&fieldSelector=metadata.name%3Da"),
        get("with a plus", "configmaps?labelSelector=app+in+(web)"),
        get("of all namespaces", "/api/v1/configmaps?fieldSelector=metadata.namespace%3D{ns}"),
        get("one by its name does not care", "configmaps/a?labelSelector=app%3Dshop"),
        get("a field of another kind", "services?fieldSelector=status.phase%3DRunning"),
        get("a field of leases", "leases?fieldSelector=spec.holderIdentity%3Dme"),
        get("a field of slices", "endpointslices?fieldSelector=metadata.name%3Da"),
        get("a field of slices that is none", "endpointslices?fieldSelector=addressType%3DIPv4"),
    ]);
    steps
}

/// Percent-escapes for a query.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._{}".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn pages() -> Vec<Step> {
    let mut steps: Vec<Step> = (0..7)
        .map(|n| {
            let parity = if n % 2 == 0 { "even" } else { "odd" };
            post(
                &format!("m{n}"),
                "configmaps",
                labelled(config_map(&format!("m{n}"), json!({})), json!({"n": parity})),
            )
        })
        .collect();
    steps.extend([
        get("first", "configmaps?limit=3").keep("next", "/metadata/continue"),
        get("second", "configmaps?limit=3&continue={next}").keep("last", "/metadata/continue"),
        get("second again", "configmaps?limit=3&continue={next}"),
        get("last", "configmaps?limit=3&continue={last}"),
        get("the rest at once", "configmaps?continue={next}"),
        get("all", "configmaps?limit=7"),
        get("more than all", "configmaps?limit=500"),
        get("no limit", "configmaps?limit=0"),
        get("first, selected", "configmaps?limit=2&labelSelector=n%3Deven")
            .keep("even", "/metadata/continue"),
        get("second, selected", "configmaps?limit=2&labelSelector=n%3Deven&continue={even}"),
        get("a wrong limit", "configmaps?limit=many"),
        get("a negative limit", "configmaps?limit=-1"),
        get("a wrong token", "configmaps?limit=3&continue=abc"),
        get("a token that is no base64", "configmaps?limit=3&continue=%25%25"),
        get("a token and a version", "configmaps?limit=3&continue={next}&resourceVersion=7"),
        get("a token and version 0", "configmaps?limit=3&continue={next}&resourceVersion=0"),
        post("between", "configmaps", config_map("m55", json!({}))),
        delete("and one goes", "configmaps/m4"),
        get("second of the past", "configmaps?limit=3&continue={next}"),
        get(
            "of all namespaces",
            "/api/v1/configmaps?limit=1&fieldSelector=metadata.namespace%3D{ns}",
        ),
        get("at version 0", "configmaps?limit=3&resourceVersion=0"),
        get("as a table", "configmaps?limit=3").table(),
    ]);
    steps
}

fn versions() -> Vec<Step> {
    let one = "configmaps/one";
    vec![
        post("made", "configmaps", config_map("one", json!({"a": "1"})))
            .keep("first", "/metadata/resourceVersion"),
        other("PATCH", "changed", one)
            .raw("application/merge-patch+json", r#"{"data":{"a":"2"}}"#)
            .keep("second", "/metadata/resourceVersion"),
        // kube-apiserver waits until its cache has this version; "any" is then no older.
        get("at least the second", &format!("{one}?resourceVersion={{second}}")),
        get("any", &format!("{one}?resourceVersion=0")),
        get("at least the first", &format!("{one}?resourceVersion={{first}}")),
        get("one of the future", &format!("{one}?resourceVersion=999999999999999999")),
        get("a wrong one", &format!("{one}?resourceVersion=abc")),
        get("a negative one", &format!("{one}?resourceVersion=-1")),
        get("list, any", "configmaps?resourceVersion=0"),
        get("list, at least", "configmaps?resourceVersion={first}"),
        get(
            "list, not older",
            "configmaps?resourceVersion={first}&resourceVersionMatch=NotOlderThan",
        ),
        get(
            "list, exactly the first",
            "configmaps?resourceVersion={first}&resourceVersionMatch=Exact",
        ),
        get(
            "list, exactly the second",
            "configmaps?resourceVersion={second}&resourceVersionMatch=Exact",
        ),
        get(
            "list, exactly with a limit",
            "configmaps?resourceVersion={first}&resourceVersionMatch=Exact&limit=1",
        ),
        get("list, exactly 0", "configmaps?resourceVersion=0&resourceVersionMatch=Exact"),
        get("list, a match and no version", "configmaps?resourceVersionMatch=Exact"),
        get(
            "list, an unknown match",
            "configmaps?resourceVersion={first}&resourceVersionMatch=Roughly",
        ),
        get("list, of the future", "configmaps?resourceVersion=999999999999999999"),
        get("list, a wrong one", "configmaps?resourceVersion=abc"),
        get("initial events without a watch", "configmaps?sendInitialEvents=true"),
        get(
            "a get with a match",
            &format!("{one}?resourceVersion={{first}}&resourceVersionMatch=Exact"),
        ),
    ]
}

fn collections() -> Vec<Step> {
    let mut steps = four();
    steps.extend([
        post("lease", "leases", lease("x", json!({}))),
        other("DELETE", "some, dry", "configmaps?labelSelector=app%3Dweb&dryRun=All"),
        other("DELETE", "some", "configmaps?labelSelector=app%3Dweb"),
        get("what is left", "configmaps"),
        other("DELETE", "by a field", "configmaps?fieldSelector=metadata.name%3Dc"),
        other("DELETE", "a wrong selector", "configmaps?labelSelector=a%20b"),
        other("DELETE", "all", "configmaps"),
        other("DELETE", "all of nothing", "configmaps"),
        get("nothing is left", "configmaps"),
        get("others stay", "leases"),
        other("DELETE", "leases", "leases"),
        other("DELETE", "services", "services"),
    ]);
    steps
}

/// Watches that are refused.
fn watches_refused() -> Vec<Step> {
    [
        "resourceVersion=abc",
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=Exact",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=NotOlderThan&resourceVersion=5",
        "sendInitialEvents=perhaps",
        "timeoutSeconds=soon",
        "labelSelector=a%20b",
        "fieldSelector=data.a%3D1",
        "limit=1&continue=abc",
    ]
    .map(|query| get(query, &format!("configmaps?watch=true&timeoutSeconds=1&{query}")))
    .into()
}
