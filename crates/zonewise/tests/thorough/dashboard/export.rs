//! What is seen, as files.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::page::{Dashboard, SHOP, assert_quiet, tab};

/// The content of the file with this ending, once it is there.
pub(super) fn saved(folder: &Path, ending: &str) -> String {
    let begin = Instant::now();
    loop {
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let mut files = files.filter(|file| file.extension().is_some_and(|own| own == ending));
        if let Some(file) = files.next() {
            let text = std::fs::read_to_string(&file).unwrap();
            if !text.is_empty() {
                std::fs::remove_file(file).unwrap();
                return text;
            }
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no .{ending} was saved");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_is_seen_is_saved_as_json_csv_svg_and_html() {
    let folder = tempfile::tempdir().unwrap();
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "#/service/shop/cart");
    tab.save_files_in(folder.path()).unwrap();
    tab.until("document.querySelector('.matrix') !== null").unwrap();
    tab.click("[data-export=JSON]").unwrap();
    let json: Value = serde_json::from_str(&saved(folder.path(), "json")).unwrap();
    assert_eq!(json["explanation"]["service"], "shop/cart");
    assert!(json["at"].is_string() && json["matrices"]["kind"] == "Matrices", "{json:#}");
    tab.click("[data-export=CSV]").unwrap();
    let csv = saved(folder.path(), "csv");
    assert!(csv.starts_with("from,share,to eu-a,to eu-b,to eu-c,dropped,mode,reason\r\neu-a,0.4,1,0,0,0,same-zone,SameZoneHints\r\n"), "{csv}");
    tab.click("[data-export=SVG]").unwrap();
    let svg = saved(folder.path(), "svg");
    assert!(
        svg.starts_with("<svg") && svg.contains("shop/cart") && !svg.contains("<script"),
        "{svg}"
    );
    tab.click("[data-export=HTML]").unwrap();
    let html = saved(folder.path(), "html");
    assert!(!html.contains("<script") && !html.contains("src="), "it needs no other file");
    let file = folder.path().join("record.html");
    std::fs::write(&file, html).unwrap();
    assert_quiet(&tab);
    // Without the server, it shows the same.
    drop(dashboard);
    tab.open(&format!("file://{}", file.display())).unwrap();
    tab.until_text("h1", "shop/cart").unwrap();
    tab.until_text(".matrix", "80\u{a0}%").unwrap();
    let colour = tab
        .evaluate("getComputedStyle(document.querySelector('.heat.home')).backgroundColor")
        .unwrap();
    assert_ne!(colour, "rgba(0, 0, 0, 0)", "with its style");
}

#[test]
fn the_record_of_all_services_has_those_that_are_not_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    tab.save_files_in(folder.path()).unwrap();
    tab.until("document.querySelectorAll('.rows .row').length === 6").unwrap();
    tab.evaluate("document.querySelectorAll('.rows .row').forEach((row) => row.remove())").unwrap();
    tab.click("[data-export=HTML]").unwrap();
    let html = saved(folder.path(), "html");
    tab.click("[data-export=SVG]").unwrap();
    let svg = saved(folder.path(), "svg");
    for name in ["cart", "dns", "legacy", "search", "typo", "web"] {
        assert!(html.contains(&format!("shop/{name}")), "{name}");
        assert!(svg.contains(&format!("shop/{name}")), "{name}");
    }
}

#[test]
fn the_record_of_a_question_has_what_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "#/what-if/shop/cart?lost=eu-b");
    tab.save_files_in(folder.path()).unwrap();
    tab.until_text(".changes", "zone eu-b is lost").unwrap();
    tab.click("[data-export=HTML]").unwrap();
    let file = folder.path().join("record.html");
    std::fs::write(&file, saved(folder.path(), "html")).unwrap();
    tab.open(&format!("file://{}", file.display())).unwrap();
    tab.until_text(".changes", "zone eu-b is lost").unwrap();
    let lost = "[...document.querySelectorAll('.lost input')].map((box) => box.checked)";
    assert_eq!(tab.evaluate(lost).unwrap(), serde_json::json!([false, true, false]));
}

#[test]
fn a_spreadsheet_computes_nothing_of_what_is_saved() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    let text = tab.evaluate("import('/export.js').then((own) => own.csvText([['=1+1', '+x', '@y', '-z', 'a\"b', 'c,d', -0.5, null]]))");
    assert_eq!(text.unwrap(), "'=1+1,'+x,'@y,'-z,\"a\"\"b\",\"c,d\",-0.5,\r\n");
}
