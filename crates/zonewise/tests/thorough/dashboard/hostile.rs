//! Names, labels and annotations can be chosen by anyone: all of them are text.

use serde_json::{Value, json};

use super::export::saved;
use super::page::{shown, tab};
use crate::observe::run::{cluster, node};

const MARKUP: &str =
    "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>'\"&amp;";

/// Three zones with markup for names, a Service whose annotations are markup, and one of 256 KB.
fn hostile() -> Vec<Value> {
    let huge = "A".repeat(256 * 1024);
    let mut objects = cluster(
        &json!({
            "service.kubernetes.io/topology-mode": MARKUP,
            "zonewise.dev/routing-preference": huge,
            "zonewise.dev/routing-preferense": MARKUP,
        }),
        &[("4", 2), ("4", 2), ("4", 2)],
    );
    for object in &mut objects {
        if object["kind"] == "Node" {
            let zone = format!("{MARKUP}{}", object["metadata"]["name"].as_str().unwrap());
            object["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone);
        }
    }
    objects.push(node("javascript:alert(1)", "z\u{202e}z\u{0}\u{7}", "4"));
    let mut other = objects[0].clone();
    other["metadata"]["name"] = json!(MARKUP);
    other["metadata"]["uid"] = json!("other");
    objects.push(other);
    objects
}

#[test]
fn markup_quotes_and_long_texts_are_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let dashboard = shown(&hostile(), folder.path());
    let mut tab = tab(&dashboard, "");
    tab.until("document.querySelectorAll('.rows .row').length === 2").unwrap();
    let names = tab
        .evaluate("[...document.querySelectorAll('.rows .row a')].map((a) => a.textContent).sort()")
        .unwrap();
    assert_eq!(names, json!([format!("shop/{MARKUP}"), "shop/web"]));
    for path in [
        "#/service/shop/web",
        "#/what-if/shop/web",
        "#/?query=%3Cscript%3E",
        "#/service/%3Cscript%3E/x",
        "#/%3Cb%3E",
    ] {
        tab.open("about:blank").unwrap();
        tab.open(&format!("{}/{path}", dashboard.url)).unwrap();
        tab.until("document.querySelector('#view h1') !== null && !/Reading|Computing/.test(document.querySelector('#view').innerText)").unwrap();
        let found = tab.evaluate("[window.pwned ?? null, document.querySelectorAll('#view img, #view script').length]").unwrap();
        assert_eq!(found, json!([null, 0]), "{path}");
    }
    // A name with markup has a page, too.
    tab.open("about:blank").unwrap();
    tab.open(&dashboard.url).unwrap();
    tab.until("document.querySelectorAll('.rows .row').length === 2").unwrap();
    tab.click(".rows .row a[href*=script]").unwrap();
    tab.until("document.querySelector('.matrix, #why') !== null").unwrap();
    assert_eq!(
        tab.evaluate("document.querySelector('h1').textContent").unwrap(),
        format!("shop/{MARKUP}")
    );
    assert_eq!(tab.evaluate("window.pwned ?? null").unwrap(), Value::Null);
    let records = tempfile::tempdir().unwrap();
    tab.save_files_in(records.path()).unwrap();
    for view in ["", "#/service/shop/web", "#/what-if/shop/web"] {
        tab.open("about:blank").unwrap();
        tab.open(&format!("{}/{view}", dashboard.url)).unwrap();
        tab.until("document.querySelector('.rows .row, .matrix') !== null").unwrap();
        for kind in ["html", "svg"] {
            tab.click(&format!("[data-export={}]", kind.to_uppercase())).unwrap();
            let file = records.path().join(format!("record.{kind}"));
            let text = saved(records.path(), kind);
            std::fs::write(&file, text).unwrap();
            tab.open(&format!("file://{}", file.display())).unwrap();
            let found = tab.evaluate("[window.pwned ?? null, document.querySelectorAll('img, script').length, document.documentElement.textContent.includes('onerror')]").unwrap();
            assert_eq!(found, json!([null, 0, true]), "{kind} of {view}");
            std::fs::remove_file(file).unwrap();
            tab.open(&format!("{}/{view}", dashboard.url)).unwrap();
            tab.until("document.querySelector('.rows .row, .matrix') !== null").unwrap();
        }
    }
    tab.open(&format!("{}/#/service/shop/web", dashboard.url)).unwrap();
    tab.until("document.querySelector('#fixes') !== null").unwrap();
    let fixes = tab.text("#fixes").unwrap();
    assert!(fixes.contains("(262,144 characters)"), "what is too long is cut: {}", fixes.len());
    assert!(fixes.len() < 50_000, "{}", fixes.len());
    let complaints: Vec<String> =
        tab.complaints().into_iter().filter(|text| !text.contains("404")).collect();
    assert_eq!(complaints, Vec::<String>::new());
}
