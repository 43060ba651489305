//! The page of files: what it shows is what the commands print, and every way to use it works.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use zonewise_testbed::{Keystroke, Tab};

use super::page::{Dashboard, SHOP, assert_quiet, tab};
use crate::observe::run::run;

fn document(command: &[&str]) -> Value {
    let ran = run(&[command, &SHOP[..], &["-o", "json"][..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

fn percent(part: &Value) -> String {
    format!("{:.0}\u{a0}%", part.as_f64().unwrap() * 100.0)
}

/// The document at a path, read here: a script does not tell 1.0 from 1.
fn answer(tab: &mut Tab, path: &str) -> Value {
    let text = tab.evaluate(&format!("fetch('/api/v1/{path}').then((answer) => answer.text())"));
    serde_json::from_str(text.unwrap().as_str().unwrap()).unwrap()
}

/// The text of all elements that match a selector.
fn texts(tab: &mut Tab, selector: &str) -> Vec<String> {
    let selector = Value::from(selector);
    let all = tab
        .evaluate(&format!("[...document.querySelectorAll({selector})].map((e) => e.innerText)"));
    let all = all.unwrap();
    all.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_overview_shows_what_explain_prints() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    tab.until("document.querySelectorAll('.rows .row').length === 6").unwrap();
    let printed = document(&["explain"]);
    let names: Vec<String> = printed["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["service"].as_str().unwrap().to_owned())
        .collect();
    // Both begin with what can gain most.
    assert_eq!(texts(&mut tab, ".rows .row a"), names);
    let shares: Vec<String> = printed["services"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| percent(&line["inZone"]))
        .collect();
    assert_eq!(texts(&mut tab, ".rows .c-share .number"), shares);
    let asked = answer(&mut tab, "overview");
    let by_name = |document: &Value| {
        let mut lines = document["services"].as_array().unwrap().clone();
        lines.sort_by_key(|line| line["service"].as_str().unwrap().to_owned());
        lines
    };
    assert_eq!(by_name(&asked), by_name(&printed), "the very document");
    tab.until_text("#connection", "From files").unwrap();
    assert_quiet(&tab);
}

#[test]
fn the_page_of_a_service_shows_what_route_and_explain_print() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    tab.click("a[href='#/service/shop/cart']").unwrap();
    tab.until_text("h1", "shop/cart").unwrap();
    tab.until("document.querySelector('.matrix') !== null").unwrap();
    let matrix = document(&["route", "--matrix", "--service", "shop/cart"]);
    for row in matrix["matrices"][0]["from"].as_array().unwrap() {
        for (to, part) in row["to"].as_object().unwrap() {
            let cell =
                format!(".heat[data-from='{}'][data-to='{to}']", row["zone"].as_str().unwrap());
            assert_eq!(tab.text(&cell).unwrap(), percent(part), "{cell}");
        }
    }
    let explanation = document(&["explain", "shop/cart"]);
    let why = tab.text("#why").unwrap();
    assert!(why.contains(explanation["verdict"]["sentence"].as_str().unwrap()), "{why}");
    assert_eq!(texts(&mut tab, ".endpoint").len(), 10);
    let asked = answer(&mut tab, "service?name=shop%2Fcart");
    assert_eq!(asked["explanation"], explanation, "the very document");
    assert_eq!(asked["matrices"], matrix);
    assert_eq!(asked["plan"], document(&["plan", "--service", "shop/cart"]));
    tab.press(Keystroke::ESCAPE).unwrap();
    tab.until_text("h1", "Services").unwrap();
    assert_quiet(&tab);
}

#[test]
fn what_if_follows_the_hand_and_a_link_reproduces_it() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "#/service/shop/cart");
    tab.until("document.querySelector('.matrix') !== null").unwrap();
    tab.click("a[href='#/what-if/shop/cart']").unwrap();
    tab.until("document.querySelector('#outcome') !== null").unwrap();
    tab.drag("#endpoints-eu-a", 1.0).unwrap();
    // To its end, which is three times what the zone has.
    tab.until_text(".changes", "12 endpoints in eu-a instead of 4").unwrap();
    tab.press(Keystroke::LEFT).unwrap();
    tab.until_text(".changes", "11 endpoints in eu-a instead of 4").unwrap();
    tab.click("#lost-eu-c").unwrap();
    tab.until_text(".changes", "zone eu-c is lost").unwrap();
    tab.evaluate("(() => { const s = document.querySelector('#ask'); s.value = [...s.options].find((o) => o.textContent.endsWith('/balanced')).value; s.dispatchEvent(new Event('change')) })()").unwrap();
    tab.until_text("#yaml", "zonewise.dev/routing-preference: zonewise.dev/balanced").unwrap();
    let outcome = tab.text("#outcome").unwrap();
    tab.reload().unwrap();
    tab.until("document.querySelector('#outcome') !== null && document.querySelectorAll('.changes li').length === 3").unwrap();
    assert_eq!(tab.text("#outcome").unwrap(), outcome);
    let enabled = "document.querySelectorAll('[data-zone=eu-c]:not(:disabled)').length";
    assert_eq!(tab.evaluate(enabled).unwrap(), 0, "a lost zone has nothing to try");
    tab.click("#reset").unwrap();
    tab.until("document.querySelector('.changes') === null").unwrap();
    assert_eq!(tab.evaluate(enabled).unwrap(), 4);
    println!("from the hand to the answer: {} ms (median, longest)", reaction(&mut tab));
    assert_quiet(&tab);
}

/// How long it takes from the movement of a slider to the change of the answer, in milliseconds.
fn reaction(tab: &mut Tab) -> Value {
    let script = "(async () => {
        const slider = document.querySelector('#endpoints-eu-a');
        const result = document.querySelector('.what-if-result');
        const answered = () => new Promise((resolve) => new MutationObserver((_, observer) => {
            observer.disconnect();
            resolve();
        }).observe(result, {childList: true, subtree: true, characterData: true, attributes: true}));
        const times = [];
        for (let step = 0; step < 21; step += 1) {
            const [begin, answer] = [performance.now(), answered()];
            slider.value = 1 + step % 3;
            slider.dispatchEvent(new Event('input', {bubbles: true}));
            await answer;
            times.push(Math.round(performance.now() - begin));
        }
        times.sort((a, b) => a - b);
        return [times[10], times[20]];
    })()";
    tab.evaluate(script).unwrap()
}

#[test]
fn the_keyboard_reaches_everything() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "?sort=name");
    tab.open(&format!("{}/#/?sort=name", dashboard.url)).unwrap();
    tab.until("document.querySelectorAll('.rows .row').length === 6").unwrap();
    tab.evaluate("document.querySelector('.list').focus()").unwrap();
    tab.press(Keystroke::DOWN).unwrap();
    tab.press(Keystroke::DOWN).unwrap();
    let focused = "document.activeElement.innerText";
    assert_eq!(tab.evaluate(focused).unwrap(), "shop/dns");
    tab.press(Keystroke::END).unwrap();
    assert_eq!(tab.evaluate(focused).unwrap(), "shop/web");
    tab.press(Keystroke::ENTER).unwrap();
    tab.until_text("h1", "shop/web").unwrap();
    // The view has the focus, so that what is read begins there.
    assert_eq!(tab.evaluate("document.activeElement.id").unwrap(), "view");
    tab.press(Keystroke::TAB).unwrap();
    assert_eq!(tab.evaluate(focused).unwrap(), "Services");
    assert_quiet(&tab);
}

#[test]
fn wrong_questions_get_a_cause_and_a_remedy() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    let mut ask = |path: &str, body: &str| {
        let body = Value::from(body);
        let expression = format!(
            "fetch('/api/v1/{path}', {{method: 'POST', headers: {{'content-type': 'application/json'}}, body: {body}}})\
             .then(async (answer) => answer.status + ' ' + await answer.text())"
        );
        tab.evaluate(&expression).unwrap().as_str().unwrap().to_owned()
    };
    let cart = "what-if?name=shop%2Fcart";
    let rows = [
        ("what-if", "{}", "400 which Service?"),
        ("what-if?name=shop%2Fnone", "{}", "404 there is no Service shop/none"),
        (cart, "{", "400 this cannot be tried"),
        (cart, r#"{"endpoint": {}}"#, "400 this cannot be tried: unknown field `endpoint`"),
        (cart, r#"{"endpoints": {"eu-a": 99999}}"#, "422 100005 endpoints is more than the 2000"),
        (cart, r#"{"endpoints": {"moon": 1}}"#, "422 no node is in zone `moon`"),
        (cart, r#"{"demand": {"moon": 1}}"#, "422 no node is in zone `moon`"),
        (cart, r#"{"ask": {"key": "x"}}"#, "422 `x` is not a key that asks for routing"),
        (
            cart,
            r#"{"cores": {"eu-a": -1}}"#,
            "422 the figure of zone `eu-a` must be a number of at least 0",
        ),
        ("overview", "{}", "405 method not allowed"),
    ];
    for (path, body, expected) in rows {
        let answer = ask(path, body);
        assert!(answer.starts_with(expected), "{path} {body}: {answer}");
    }
}

/// The page of another site could have its own name lead to this address.
#[test]
fn only_its_own_page_may_ask_and_nothing_is_fetched_from_elsewhere() {
    let dashboard = Dashboard::start(&SHOP);
    let mut tab = tab(&dashboard, "");
    let port = dashboard.address().port();
    let policy = tab
        .evaluate("fetch('/').then((answer) => answer.headers.get('content-security-policy'))")
        .unwrap();
    let policy = policy.as_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
        "{policy}"
    );
    let fetched = tab
        .evaluate("performance.getEntriesByType('resource').map((one) => new URL(one.name).host)")
        .unwrap();
    let own = format!("127.0.0.1:{port}");
    assert!(fetched.as_array().unwrap().iter().all(|host| *host == own), "{fetched}");
    let status = |headers: &str| {
        let mut stream = TcpStream::connect(dashboard.address()).unwrap();
        let request =
            format!("GET /api/v1/overview HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(&format!("Host: {own}")), "200");
    assert_eq!(status("Host: evil.example"), "421");
    assert_eq!(status(&format!("Host: {own}\r\nOrigin: http://evil.example")), "403");
}
