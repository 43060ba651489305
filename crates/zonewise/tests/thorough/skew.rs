//! Proxies follow the slices of the reference's controller, which knows no subsets.

use std::collections::BTreeMap;

use serde_json::json;

use crate::nodes::controller;
use crate::nodes::subsets::{EACH_ITS_OWN, EVERYWHERE, PER_ZONE, SUBSETTING, Subsets, UNDIVIDED};

/// Our controller is replaced by the reference's while proxies follow its subsets, and comes back. The reference
/// takes the labels away with the next change of the Service.
#[tokio::test(flavor = "multi_thread")]
async fn a27_c7_proxies_follow_a_controller_that_knows_no_subsets_and_back() {
    let mut subsets = Subsets::start().await;
    subsets.annotate(json!({SUBSETTING: "Auto"})).await;
    subsets.expect("ours", PER_ZONE, EACH_ITS_OWN).await;
    let connections = subsets.connections(subsets.to);
    subsets.controller.take().unwrap().stop().await.unwrap();
    let reference = subsets.cluster.controller_manager(&[]).unwrap();
    subsets.set_pods(&["a4"], false).await;
    subsets.expect("the reference", UNDIVIDED, EVERYWHERE).await;
    reference.stop().await.unwrap();
    subsets.controller = Some(controller(&subsets.cluster));
    subsets.set_pods(&["a4"], true).await;
    subsets.expect("ours again", PER_ZONE, EACH_ITS_OWN).await;
    connections.more(30).await;
    assert_eq!(connections.failures(), BTreeMap::new());
    connections.end();
}
