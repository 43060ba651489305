//! Five thousand Services: rows come as one scrolls, and a search is answered while one types.

use serde_json::{Value, json};
use zonewise_testbed::Keystroke;

use super::page::{assert_quiet, shown, tab};
use crate::observe::run::node;

const SERVICES: usize = 5000;

/// Services with three endpoints each, in fifty namespaces and three zones.
fn many() -> Vec<Value> {
    let mut objects: Vec<Value> = ["a", "b", "c"].map(|zone| node(zone, zone, "8")).into();
    for number in 0..SERVICES {
        let (space, name) = (format!("team-{:02}", number % 50), format!("service-{number:04}"));
        let mode = if number % 3 == 0 {
            json!({"service.kubernetes.io/topology-mode": "Auto"})
        } else {
            json!({})
        };
        let ip = format!("10.{}.{}.{}", 96 + number / 65536, number / 256 % 256, number % 256);
        objects.push(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": space, "annotations": mode},
            "spec": {"clusterIP": ip, "clusterIPs": [ip], "ipFamilies": ["IPv4"], "selector": {"app": name},
                "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
        }));
        let endpoints = ["a", "b", "c"].iter().enumerate().map(|(at, zone)| {
            let address = number * 3 + at;
            json!({
                "addresses": [format!("10.{}.{}.{}", 128 + address / 65536, address / 256 % 256, address % 256)],
                "conditions": {"ready": true}, "nodeName": zone, "zone": zone,
            })
        });
        objects.push(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{name}-1"), "namespace": space, "labels": {
                "kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
            "endpoints": endpoints.collect::<Vec<_>>(),
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }));
    }
    objects
}

#[test]
fn five_thousand_services_scroll_and_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let dashboard = shown(&many(), folder.path());
    let mut tab = tab(&dashboard, "#/?sort=name");
    tab.until_text("[data-filter=all] .figure", "5,000").unwrap();
    let painted = tab
        .evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null")
        .unwrap();
    let rows = "document.querySelectorAll('.rows .row').length";
    assert!(tab.evaluate(rows).unwrap().as_u64().unwrap() < 100, "only what can be seen is drawn");
    tab.evaluate("document.querySelector('.list').focus()").unwrap();
    tab.press(Keystroke::DOWN).unwrap();
    tab.press(Keystroke::END).unwrap();
    tab.until("document.activeElement.innerText === 'team-49/service-4999'").unwrap();
    // How long it takes to draw, from one end to the other.
    let frames = tab.evaluate(
        "(async () => { const list = document.querySelector('.list'); const times = []; \
         for (let step = 0; step < 60; step += 1) { const begin = performance.now(); \
         list.scrollTop = list.scrollHeight * step / 60; await new Promise(requestAnimationFrame); \
         times.push(performance.now() - begin) } times.sort((a, b) => a - b); return [times[30], times[59]] })()",
    );
    let frames = frames.unwrap();
    tab.press(Keystroke::SLASH).unwrap();
    let begin = std::time::Instant::now();
    tab.write("service-1234").unwrap();
    tab.until(&format!("{rows} === 1")).unwrap();
    println!(
        "5,000 Services: first paint {painted} ms; a frame while scrolling {frames} ms (median, longest); search {} ms",
        begin.elapsed().as_millis()
    );
    tab.click(".rows .row a").unwrap();
    tab.until("document.querySelector('.matrix') !== null").unwrap();
    assert_quiet(&tab);
}
