//! The page of files on a phone and in the dark, while it changes, and what is asked of the browser beside clicks.

use zonewise_testbed::{Keystroke, Tab};

use super::page::{Dashboard, SHOP, assert_quiet, tab};

#[test]
fn a_search_a_filter_and_an_order_are_in_the_address() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    tab.until("document.querySelectorAll('.rows .row').length === 6").unwrap();
    tab.press(Keystroke::SLASH).unwrap();
    tab.write("web").unwrap();
    tab.until("document.querySelectorAll('.rows .row').length === 1").unwrap();
    tab.reload().unwrap();
    tab.until("document.querySelectorAll('.rows .row').length === 1").unwrap();
    tab.open(&dashboard.url).unwrap();
    tab.click("[data-filter=ignored]").unwrap();
    tab.until_text(".rows .row a", "shop/typo").unwrap();
    tab.click("[data-filter=ignored]").unwrap();
    tab.click("[data-sort=overload]").unwrap();
    tab.until_text(".rows .row a", "shop/cart").unwrap();
    // The same column again turns the order round, and the heading says which it is.
    for (order, first) in [("ascending", "shop/cart"), ("descending", "shop/web")] {
        tab.click("[data-sort=name]").unwrap();
        tab.until_text(".rows .row a", first).unwrap();
        let said = "document.querySelector('.c-name[aria-sort]').getAttribute('aria-sort')";
        assert_eq!(tab.evaluate(said).unwrap(), order);
    }
    tab.reload().unwrap();
    tab.until_text(".rows .row a", "shop/web").unwrap();
    assert_quiet(&tab);
}

#[test]
fn sliders_show_what_comes_of_the_others() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "#/what-if/shop/cart");
    tab.until("document.querySelector('#nodes-eu-a') !== null").unwrap();
    let cores = "Number(document.querySelector('#cores-eu-a').value)";
    let before = tab.evaluate(cores).unwrap().as_f64().unwrap();
    let nodes = "Number(document.querySelector('#nodes-eu-a').value)";
    let count = tab.evaluate(nodes).unwrap().as_f64().unwrap();
    let move_to = |tab: &mut Tab, slider: &str, to: f64| {
        tab.evaluate(&format!(
            "(() => {{ const s = document.querySelector('#{slider}'); s.value = {to}; s.dispatchEvent(new Event('input')) }})()"
        ))
        .unwrap();
    };
    move_to(&mut tab, "nodes-eu-a", count * 2.0);
    tab.until(&format!("{cores} === {}", before * 2.0)).unwrap();
    // As many cores as before are something to try then.
    move_to(&mut tab, "cores-eu-a", before);
    tab.until_text(".changes", &format!("{before} cores in eu-a instead of {}", before * 2.0))
        .unwrap();
    assert_quiet(&tab);
}

#[test]
fn a_phone_shows_everything_without_sideways_scrolling_and_dark_is_dark() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    tab.size(390, 844).unwrap();
    for path in ["", "#/service/shop/cart", "#/service/shop/typo", "#/what-if/shop/cart?e.eu-a=7"] {
        tab.open("about:blank").unwrap();
        tab.open(&format!("{}/{path}", dashboard.url)).unwrap();
        tab.until("document.querySelector('.rows .row, .matrix') !== null").unwrap();
        let widths = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]").unwrap();
        assert_eq!(widths[0], widths[1], "{path}");
    }
    let background = |tab: &mut Tab| {
        tab.evaluate("getComputedStyle(document.body).backgroundColor").unwrap().to_string()
    };
    tab.dark(false).unwrap();
    let light = background(&mut tab);
    tab.dark(true).unwrap();
    let dark = background(&mut tab);
    assert_ne!(light, dark);
    tab.size(1280, 800).unwrap();
    tab.click("#theme").unwrap();
    assert_eq!(background(&mut tab), light, "light by the button, whatever the system likes");
    tab.reload().unwrap();
    assert_eq!(background(&mut tab), light, "and after a reload");
    assert_quiet(&tab);
}

#[test]
fn what_has_the_focus_keeps_it_while_the_page_changes() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "#/?sort=name");
    tab.until("document.querySelectorAll('.rows .row').length === 6").unwrap();
    tab.evaluate("document.querySelector(\"a[href='#/service/shop/web']\").focus()").unwrap();
    // A Service that sorts before it goes; the rows below move up.
    let remove = "import('/state.js').then((own) => own.takeServices({services: [], removed: ['shop/cart'], touched: [], \
                  version: 1, complete: false, touchedAll: false}))";
    tab.evaluate(&format!("{remove}.then(() => null)")).unwrap();
    tab.until("document.querySelectorAll('.rows .row').length === 5").unwrap();
    assert_eq!(tab.evaluate("document.activeElement.innerText").unwrap(), "shop/web");

    let renewed = "import('/dom.js').then(({h, renew}) => {
        const element = h('div', {});
        const part = (text) => [h('p', {}, text), h('ul', {tabindex: 0}, h('li', {}, text)), h('button', {}, text)];
        renew(element, part('one'));
        const [, list, button] = element.children;
        renew(element, part('two'));
        return [element.textContent, list.parentElement === element, button.parentElement === element];
    })";
    let renewed = tab.evaluate(renewed).unwrap();
    assert_eq!(
        renewed,
        serde_json::json!(["twotwotwo", true, false]),
        "a button does what it was made for"
    );
    assert_quiet(&tab);
}

#[test]
fn a_copy_button_copies_the_command() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "#/service/shop/web");
    tab.until("document.querySelector('#fixes .copy') !== null").unwrap();
    tab.grant(&["clipboardReadWrite", "clipboardSanitizedWrite"]).unwrap();
    let wanted = tab.text("#fixes .command code").unwrap();
    tab.click("#fixes .copy").unwrap();
    tab.until_text("#fixes .copy", "Copied").unwrap();
    assert_eq!(tab.evaluate("navigator.clipboard.readText()").unwrap(), wanted);
    assert!(wanted.starts_with("kubectl -n shop "), "{wanted}");
}

/// A browser keeps pages that were left for a while, and only few connections for all of them.
#[test]
fn a_page_that_is_left_gives_its_connection_back() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    tab.until("document.querySelector('.rows .row') !== null").unwrap();
    // What has ended is listed.
    let ended = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/v1/stream')).length";
    assert_eq!(tab.evaluate(ended).unwrap(), 0);
    tab.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))").unwrap();
    tab.until(&format!("{ended} === 1")).unwrap();
    // Somebody who comes back sees it live again.
    tab.until_text("#connection", "From files").unwrap();
}
