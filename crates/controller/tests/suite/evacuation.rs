//! Zones that are emptied and get their traffic back, on a real API server, with nothing but the rights of
//! `deploy/controller/rbac.yaml`.

use serde_json::{Value, json};
use zonewise_inventory::evacuation::{self, EvacuationSpec, Phase};
use zonewise_testbed::eventually;
use zonewise_testbed::objects::{pod, service, set_ready};

use crate::common::evacuation::{
    ALL, SPACE, WITHOUT_A, endpoints, expect, reached, spec, status, told, with_web,
};
use crate::common::{Running, hints, slices, turn, zonal_pods};

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_is_emptied_and_gets_its_traffic_back() {
    let _turn = turn().await;
    let (cluster, client) = with_web().await;
    // Services that stay: one whose Pods are all in the zone, and a headless one.
    let mut headless = service(SPACE, "peers", "web");
    headless["spec"]["clusterIP"] = "None".into();
    let lonely = [service(SPACE, "lonely", "lonely"), headless];
    cluster.create(&lonely).await.unwrap();
    cluster.create(&[pod(SPACE, "lonely-1", "lonely", "a1", "10.9.0.1")]).await.unwrap();
    let running = Running::start(&cluster, "").await;
    expect(&cluster, "web", ALL).await;

    evacuation::ask(&client, &spec(1, 3600)).await.unwrap();
    let empty = reached(&client, Phase::Empty).await;
    expect(&cluster, "web", WITHOUT_A).await;
    // The clients of the zone are served by the others.
    let web = slices(&cluster, SPACE, "web").await;
    assert_eq!(hints(&web), [("a".to_owned(), 4), ("b".to_owned(), 2), ("c".to_owned(), 2)].into());
    assert_eq!((empty.percent, &*empty.reason, empty.services), (0, "EvacuationEmpty", 3));
    assert_eq!(empty.kept.len(), 2, "{empty:?}");
    assert!(empty.kept[0].starts_with("default/lonely: no ready endpoint outside the zone"));
    assert!(empty.kept[1].starts_with("default/peers: it is headless"), "{:?}", empty.kept);
    let alone = endpoints(&cluster, "lonely").await;
    assert_eq!(alone, [("a".to_owned(), (1, 0))].into());
    assert_eq!(endpoints(&cluster, "peers").await["a"], (2, 0));
    let metric = running.metric("zonewise_zone_in_use_percent").await;
    assert_eq!(metric, [("zone=\"a\"".to_owned(), 0.0)].into());

    let back = EvacuationSpec { restore: true, ..spec(1, 3600) };
    evacuation::ask(&client, &back).await.unwrap();
    let ended = reached(&client, Phase::Ended).await;
    assert_eq!((ended.percent, &*ended.reason), (100, "EvacuationRestored"));
    expect(&cluster, "web", ALL).await;
    eventually(|| async {
        let told = told(&cluster).await;
        let expected = [("EvacuationMoving", 4), ("EvacuationEmpty", 1), ("EvacuationRestored", 5)];
        let expected = expected.map(|(reason, count)| (reason.to_owned(), count)).into();
        if told == expected { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_refused_with_figures_and_begins_anew_when_it_is_asked_for_again() {
    let _turn = turn().await;
    let (cluster, client) = with_web().await;
    cluster.create(&[service(SPACE, "uneven", "uneven")]).await.unwrap();
    let pods: Vec<Value> = ["a1", "a2", "a1", "b1"]
        .into_iter()
        .enumerate()
        .map(|(n, node)| pod(SPACE, &format!("uneven-{n}"), "uneven", node, &format!("10.9.1.{n}")))
        .collect();
    cluster.create(&pods).await.unwrap();
    let running = Running::start(&cluster, "").await;
    expect(&cluster, "web", ALL).await;
    evacuation::ask(&client, &spec(1, 3600)).await.unwrap();
    let refused = reached(&client, Phase::Refused).await;
    assert_eq!((refused.percent, &*refused.reason), (100, "EvacuationOverLimit"));
    assert_eq!(
        refused.over_limit,
        [
            "default/uneven: an endpoint would get 400 % of its present load, 160 % are allowed (3 endpoints in the zone, 1 elsewhere)"
        ]
    );
    expect(&cluster, "web", ALL).await;
    // Whoever knows better may allow it.
    let allowed = EvacuationSpec { limit_percent: Some(400), ..spec(1, 3600) };
    evacuation::ask(&client, &allowed).await.unwrap();
    eventually(|| async {
        let status = status(&client).await;
        if status.phase == Phase::Empty { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    expect(&cluster, "web", WITHOUT_A).await;
    // When the object goes, the zone has everything back.
    let stored = cluster.list("ZoneEvacuation", None).await.unwrap().remove(0);
    cluster.delete(&[json!({
        "apiVersion": "zonewise.dev/v1alpha1", "kind": "ZoneEvacuation", "metadata": stored["metadata"],
    })])
    .await
    .unwrap();
    expect(&cluster, "web", ALL).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_zone_goes_back_when_the_others_fail() {
    let _turn = turn().await;
    let (cluster, client) = with_web().await;
    let running = Running::start(&cluster, "").await;
    expect(&cluster, "web", ALL).await;
    evacuation::ask(&client, &spec(1, 3600)).await.unwrap();
    reached(&client, Phase::Empty).await;
    let mut failing = zonal_pods(SPACE, "web", 2)
        .into_iter()
        .filter(|pod| ["b1", "c1"].contains(&pod["spec"]["nodeName"].as_str().unwrap()));
    let mut pod = failing.next().unwrap();
    set_ready(&mut pod, false);
    cluster.objects().unwrap().update_status(&[pod]).await.unwrap();
    let back = reached(&client, Phase::GoneBack).await;
    assert_eq!((back.percent, &*back.reason), (100, "EvacuationOthersFailing"), "{back:?}");
    eventually(|| async {
        let found = endpoints(&cluster, "web").await["a"];
        if found == (2, 0) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    running.stop().await.unwrap();
}
