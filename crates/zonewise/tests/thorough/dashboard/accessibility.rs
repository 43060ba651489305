//! What axe-core finds: nothing serious, in any view, light, dark and on a phone.

use serde_json::Value;
use zonewise_testbed::{Tab, installed};

use super::page::{Dashboard, SHOP, tab};

/// The findings that matter, each with where it was found.
pub(super) fn findings(tab: &mut Tab) -> Vec<String> {
    let axe = std::fs::read_to_string(installed("axe.min.js").unwrap()).unwrap() + "\n;null";
    tab.evaluate(&axe).unwrap();
    let found = tab
        .evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)",
        )
        .unwrap();
    let serious = |one: &&Value| one["impact"] == "serious" || one["impact"] == "critical";
    let told = |one: &Value| {
        let nodes = one["nodes"].as_array().unwrap().iter();
        let places: Vec<String> = nodes
            .map(|node| format!("{} {}", node["target"], node["failureSummary"]))
            .take(3)
            .collect();
        format!("{}: {}\n  {}", one["id"], one["help"], places.join("\n  "))
    };
    found.as_array().unwrap().iter().filter(serious).map(told).collect()
}

#[test]
fn axe_finds_nothing_serious() {
    let dashboard =
        Dashboard::start(&[&SHOP[..], &["--cost-per-gb", "0.02", "--gb", "500"]].concat());
    let mut tab = tab(&dashboard, "");
    for (width, dark) in [(1280, false), (1280, true), (390, false)] {
        tab.size(width, 900).unwrap();
        tab.dark(dark).unwrap();
        for path in [
            "",
            "#/service/shop/cart",
            "#/service/shop/typo",
            "#/what-if/shop/cart?e.eu-a=7&lost=eu-b",
        ] {
            tab.open("about:blank").unwrap();
            tab.open(&format!("{}/{path}", dashboard.url)).unwrap();
            tab.until("document.querySelector('.rows .row, .matrix') !== null").unwrap();
            // Colours change slowly; what is looked at is where they end.
            tab.until("document.getAnimations().every((one) => one.playState === 'finished')")
                .unwrap();
            assert_eq!(
                findings(&mut tab),
                Vec::<String>::new(),
                "{path} at {width} px, dark: {dark}"
            );
        }
    }
}
