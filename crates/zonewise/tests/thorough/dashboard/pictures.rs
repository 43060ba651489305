//! The pictures in docs/pictures: `UPDATE_PICTURES=1 cargo test … dashboard::pictures` takes them anew.

use std::path::PathBuf;

use zonewise_testbed::Tab;

use super::page::{Dashboard, SHOP, assert_quiet, tab};
use crate::observe::run::root;

/// Name, address, width, height, dark.
const PICTURES: [(&str, &str, u32, u32, bool); 6] = [
    ("dashboard-overview", "", 1280, 720, false),
    ("dashboard-overview-dark", "", 1280, 720, true),
    ("dashboard-service", "#/service/shop/cart", 1280, 1000, false),
    ("dashboard-service-dark", "#/service/shop/typo", 1280, 1000, true),
    ("dashboard-what-if", "#/what-if/shop/cart?e.eu-a=7&lost=eu-c", 1280, 1000, false),
    ("dashboard-phone", "#/service/shop/cart", 390, 844, false),
];

/// Keeps a picture of what a tab shows, if pictures are taken anew.
pub(super) fn keep(tab: &mut Tab, name: &str) {
    tab.until("document.getAnimations().every((one) => one.playState === 'finished')").unwrap();
    let picture = tab.picture().unwrap();
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        std::fs::write(file(name), &picture).unwrap();
    }
    assert!(file(name).is_file(), "docs/pictures/{name}.png is missing: make pictures");
}

fn file(name: &str) -> PathBuf {
    root().join("docs/pictures").join(format!("{name}.png"))
}

/// Every view but that of a lab, which has its own test, is drawn for its picture, whether that is kept or not.
#[test]
fn every_view_has_a_picture() {
    let dashboard =
        Dashboard::start(&[&SHOP[..], &["--cost-per-gb", "0.02", "--gb", "500"]].concat());
    let mut tab = tab(&dashboard, "");
    for (name, path, width, height, dark) in PICTURES {
        tab.size(width, height).unwrap();
        tab.dark(dark).unwrap();
        tab.open("about:blank").unwrap();
        tab.open(&format!("{}/{path}", dashboard.url)).unwrap();
        tab.until("document.querySelector('.rows .row, .matrix') !== null").unwrap();
        keep(&mut tab, name);
    }
    assert_quiet(&tab);
}
