//! What only time moves: a watch without changes follows the bookmarks of kube-apiserver.

use serde_json::json;

use crate::nodes::{TestNodes, cluster, controller, is_ready, pod_object, service_object};

/// The Service `kubernetes` has no endpoints here, so the proxy watches the slices of other zones for it, and nothing
/// changes there. How far that watch has got is known once the API server says so, which it does once a minute.
#[tokio::test(flavor = "multi_thread")]
async fn d12_a_service_is_ready_once_a_bookmark_has_come() {
    let cluster = cluster().await;
    let mut nodes = TestNodes::new();
    let node = nodes.add(&cluster, "n1", "a");
    let server = nodes.add_server("n1", "web");
    let mut service = service_object("web", "web", &json!({}));
    service["metadata"]["annotations"] = json!({"zonewise.dev/routing-preference": "Zone"});
    cluster.create(&[node, pod_object(&server, "web"), service]).await.unwrap();
    let _controller = controller(&cluster);
    nodes.start_proxy(&cluster, "n1", &[]);
    is_ready(&cluster, "web").await;
}
