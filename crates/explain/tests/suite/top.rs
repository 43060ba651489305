//! What flows.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use zonewise_explain::top::flows::{self, FlowsError};
use zonewise_explain::top::{Basis, Endpoints, Flow, Flows, Top, TopBy, sort_top, top};
use zonewise_explain::{LIST_PRICES, Pricing, Tariff};

fn flow(service: &str, from: &str, to: &str, connections: f64, bytes: Option<f64>) -> Flow {
    Flow { service: service.into(), from: from.into(), to: to.into(), connections, bytes }
}

fn all(flows: Vec<Flow>) -> Flows {
    Flows { flows, source: "a test".into(), seconds: 10.0, warnings: Vec::new() }
}

fn endpoints(all: &[(&str, &[(&str, u64)])]) -> Endpoints {
    let zones = |zones: &[(&str, u64)]| {
        zones.iter().map(|(zone, count)| ((*zone).into(), *count)).collect()
    };
    all.iter().map(|(service, of)| ((*service).into(), zones(of))).collect()
}

/// Zone a sends 70 % and has a third of the endpoints: at best a third and what the others send stays.
#[test]
fn what_need_not_cross_is_the_difference_to_the_best() {
    let flows = all(vec![
        flow("shop/web", "a", "a", 7.0, Some(100.0)),
        flow("shop/web", "a", "b", 7.0, Some(600.0)),
        flow("shop/web", "b", "b", 2.0, Some(100.0)),
        flow("shop/web", "b", "c", 2.0, Some(100.0)),
        flow("shop/web", "c", "c", 1.0, Some(100.0)),
    ]);
    let found = top(flows, &endpoints(&[("shop/web", &[("a", 2), ("b", 2), ("c", 2)])]), None);
    assert_eq!((found.basis, found.total, found.crossing), (Basis::Bytes, 1000.0, 700.0));
    let web = &found.services[0];
    let best = 1.0 / 3.0 + 0.2 + 0.1;
    assert!((web.best.unwrap() - best).abs() < 1e-9, "{web:?}");
    assert!((web.in_zone.unwrap() - 0.3).abs() < 1e-9, "{web:?}");
    assert!((web.can_save - (best - 0.3) * 1000.0).abs() < 1e-6, "{web:?}");
    assert_eq!(web.largest_crossing, Some(("a".into(), "b".into())));
    assert_eq!(found.zones, ["a".into(), "b".into(), "c".into()]);
    assert_eq!(found.matrix, [[100.0, 600.0, 0.0], [0.0, 100.0, 100.0], [0.0, 0.0, 100.0]]);
}

#[test]
fn without_bytes_connections_are_counted_and_nothing_is_priced() {
    let flows =
        all(vec![flow("shop/web", "a", "b", 4.0, None), flow("shop/idle", "a", "a", 0.0, None)]);
    let pricing = Pricing { tariff: Tariff::flat(1.0), regions: BTreeMap::new() };
    let found = top(flows, &Endpoints::new(), Some(&pricing));
    assert_eq!((found.basis, found.total, found.cost_per_month), (Basis::Connections, 4.0, None));
    let idle = &found.services[0];
    assert_eq!(
        (&*idle.service, idle.in_zone, idle.best, idle.can_save),
        ("shop/idle", None, None, 0.0)
    );
    let web = &found.services[1];
    assert_eq!(
        (web.in_zone, web.best, web.can_save),
        (Some(0.0), None, 0.0),
        "no endpoint is known"
    );
}

#[test]
fn prices_depend_on_the_regions_of_both_ends() {
    let regions =
        [("a", "eu"), ("b", "eu"), ("x", "us")].map(|(zone, region)| (zone.into(), region.into()));
    let tariff = Tariff { same_zone: 0.001, cross_region: 0.09, ..Tariff::flat(0.01) };
    let pricing = Pricing { tariff, regions: regions.into() };
    let rows = [
        ("a", "a", 0.001),
        ("a", "b", 0.01),
        ("a", "x", 0.09),
        ("x", "x", 0.001),
        ("a", "?", 0.01),
    ];
    for (from, to, expected) in rows {
        assert_eq!(pricing.per_gb(from, to), expected, "{from} {to}");
    }
    // 1 kB per second is 2.63 GB in a month.
    let flows = all(vec![
        flow("shop/web", "a", "x", 1.0, Some(1000.0)),
        flow("shop/web", "a", "b", 1.0, Some(1000.0)),
    ]);
    let found = top(flows, &Endpoints::new(), Some(&pricing));
    assert!((found.cost_per_month.unwrap() - 2.6298 * 0.1).abs() < 1e-9, "{found:?}");
}

#[test]
fn services_are_sorted_by_what_is_asked_for() {
    let flows = || {
        all(vec![
            flow("s/a", "a", "a", 9.0, Some(50.0)),
            flow("s/b", "a", "b", 1.0, Some(20.0)),
            flow("s/c", "b", "a", 2.0, Some(30.0)),
        ])
    };
    // The one of s/b is where it is needed, the one of s/c is not.
    let endpoints = endpoints(&[("s/a", &[("a", 1)]), ("s/b", &[("a", 1)]), ("s/c", &[("a", 1)])]);
    let rows = [
        (TopBy::Crossing, ["s/c", "s/b", "s/a"]),
        (TopBy::Saving, ["s/b", "s/a", "s/c"]),
        (TopBy::Total, ["s/a", "s/c", "s/b"]),
        (TopBy::Connections, ["s/a", "s/c", "s/b"]),
        (TopBy::Name, ["s/a", "s/b", "s/c"]),
    ];
    for (by, expected) in rows {
        let mut found = top(flows(), &endpoints, None);
        sort_top(&mut found, by);
        let names: Vec<&str> = found.services.iter().map(|service| &*service.service).collect();
        assert_eq!(names, expected, "{by:?}");
    }
}

#[test]
fn the_page_has_the_prices_of_the_program() {
    let page = include_str!("../../../../docs/cost.md");
    assert!(
        page.contains(LIST_PRICES),
        "docs/cost.md does not show crates/explain/src/tariffs.csv"
    );
}

#[test]
fn a_gigabyte_is_what_the_provider_bills() {
    let tariffs = Tariff::read("list", LIST_PRICES).unwrap();
    let billed = tariffs.iter().map(|tariff| (&*tariff.name, tariff.bytes_per_gb));
    assert_eq!(
        billed.collect::<Vec<_>>(),
        [("aws", 1_073_741_824.0), ("azure", 1e9), ("gcp", 1_073_741_824.0)]
    );
    let flows = || all(vec![flow("shop/web", "a", "b", 1.0, Some(1000.0))]);
    let cost = |tariff: &Tariff| {
        let pricing = Pricing { tariff: tariff.clone(), regions: BTreeMap::new() };
        top(flows(), &Endpoints::new(), Some(&pricing)).cost_per_month.unwrap()
    };
    // A month has 2,629,800 seconds.
    assert!((cost(&tariffs[0]) - 2_629_800_000.0 / 1_073_741_824.0 * 0.02).abs() < 1e-9);
    assert_eq!(cost(&tariffs[1]), 0.0);
}

#[test]
fn a_table_of_prices_is_read_or_its_wrong_line_is_named() {
    let mine = "# ours\nprovider,same_zone,cross_zone,cross_region\n\n mine , 0 ,0.005,\"0.01\"\n";
    let tariff = Tariff { name: "mine".into(), cross_region: 0.01, ..Tariff::flat(0.005) };
    assert_eq!(Tariff::read("mine.csv", mine), Ok(vec![tariff]));
    let rows = [
        ("", "mine.csv: line 1: no prices (example: mine,0,0.02,0.05,1000000000)"),
        ("a,1\n", "mine.csv: line 1: 2 fields, where a name, three prices"),
        (",1,1,1\n", "mine.csv: line 1: the name of the provider is missing"),
        ("#\na,1,-1,1\n", "mine.csv: line 2: invalid price `-1`: use a number of at least 0"),
        ("a,1,NaN,1\n", "invalid price `NaN`"),
        ("a,1,1,inf\n", "invalid price `inf`"),
        ("a,1,1,1,0\n", "invalid bytes of a GB `0`: use 1000000000 or 1073741824"),
        ("a,1,1,1\na,2,2,2\n", "mine.csv: line 2: the prices of `a` are there twice"),
    ];
    for (text, expected) in rows {
        let error = Tariff::read("mine.csv", text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

/// An API server with two proxies: one whose counters grow by ten connections and a kilobyte at each reading, and one
/// that does what it is told to.
fn api(other: &'static str) -> Client {
    let readings = Arc::new(AtomicU32::new(0));
    let answer = move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        let (status, body) = match path.rsplit('/').next() {
            Some("pods") => (200, pods().to_string()),
            _ if path.contains("/proxy-2:10249/") => match other {
                "" => (503, "error trying to reach service: connection refused".to_owned()),
                page => (200, page.to_owned()),
            },
            _ => {
                assert_eq!(
                    path,
                    "/api/v1/namespaces/zonewise-system/pods/proxy-1:9999/proxy/metrics"
                );
                let n = readings.fetch_add(1, Ordering::SeqCst) + 1;
                let labels = r#"namespace="shop",service="web",from_zone="a",to_zone="b""#;
                let bytes = format!(
                    r#"zonewise_service_bytes_total{{{labels},direction="to_endpoint"}} {}"#,
                    1000 * n
                );
                (
                    200,
                    format!("zonewise_service_connections_total{{{labels}}} {}\n{bytes}\n", 10 * n),
                )
            }
        };
        let response =
            Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap();
        async move { Ok::<_, Infallible>(response) }
    };
    Client::new(tower::service_fn(answer), "default")
}

fn pods() -> Value {
    let pod = |name: &str, ports: Value| json!({"metadata": {"name": name}, "spec": {"containers": [{"ports": ports}]}});
    let own = json!([{"name": "metrics", "containerPort": 9999}]);
    json!({
        "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
        "items": [pod("proxy-1", own), pod("proxy-2", json!([]))],
    })
}

/// Time stands still, so that rates are exact.
#[tokio::test(start_paused = true)]
async fn proxies_are_read_twice_and_those_that_fail_are_named() {
    let read = flows::of_proxies(&api(""), Duration::from_secs(10)).await.unwrap();
    assert_eq!(read.flows, [flow("shop/web", "a", "b", 1.0, Some(100.0))]);
    assert_eq!((&*read.source, read.seconds, read.warnings.len()), ("1 proxies", 10.0, 1));
    assert!(read.warnings[0].starts_with("1 of 2 proxies are missing"), "{:?}", read.warnings);
    assert!(read.warnings[0].contains("proxy-2"), "{:?}", read.warnings);
    let read = flows::of_proxies(&api("# nothing\n"), Duration::from_secs(10)).await.unwrap();
    assert_eq!((read.flows.len(), read.warnings.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_keeps_top_from_showing_anything_is_said() {
    let none = |_: Request<Body>| async {
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
        Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
    };
    let client = Client::new(tower::service_fn(none), "default");
    let error = flows::of_proxies(&client, Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error, FlowsError::NoProxy), "{error}");
    let refused = |request: Request<Body>| async move {
        let (status, body) = match request.uri().path().rsplit('/').next() {
            Some("pods") => (200, pods().to_string()),
            _ => (503, "no".to_owned()),
        };
        let response =
            Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap();
        Ok::<_, Infallible>(response)
    };
    let client = Client::new(tower::service_fn(refused), "default");
    let error = flows::of_proxies(&client, Duration::from_secs(1)).await.unwrap_err().to_string();
    assert!(error.contains("none of the 2 proxies") && error.contains("exposeMetrics"), "{error}");
}

/// The whole document, for those who look for a field that is gone.
#[test]
fn a_document_has_every_field_that_it_may_have() {
    let flows = all(vec![flow("shop/web", "a", "b", 1.0, Some(1.0))]);
    let pricing = Pricing { tariff: Tariff::flat(1.0), regions: BTreeMap::new() };
    let found: Top = top(flows, &endpoints(&[("shop/web", &[("b", 1)])]), Some(&pricing));
    let value = serde_json::to_value(&found).unwrap();
    for field in [
        "source",
        "seconds",
        "basis",
        "total",
        "crossing",
        "canSave",
        "costPerMonth",
        "zones",
        "matrix",
    ] {
        assert!(!value[field].is_null(), "{field}: {value}");
    }
    assert_eq!(value["services"][0]["largestCrossing"], json!(["a", "b"]));
}
