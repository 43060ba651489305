//! From rules as kube-proxy writes them to ours, and from ours to those of another version, while connections are made all
//! the time: none fails. (kube-proxy itself, and the way back to it, are in `thorough`.)

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use zonewise_netns::NetnsPod;
use zonewise_netns::traffic::OpenConnection;
use zonewise_testbed::{eventually, eventually_equals};

use crate::nodes::connections::Connections;
use crate::nodes::tables::{OURS, THEIRS, nft, others, stop, tables, texts};
use crate::nodes::{
    PROBE_TIMEOUT, TestNodes, cluster, cluster_ip, controller, pod_object, responders,
    service_object, set, stored,
};

/// The table of kube-proxy's nftables mode with one Service.
fn table(to: SocketAddr, pods: &[NetnsPod]) -> String {
    let (family, kind) = if to.is_ipv6() { ("ip6", "ipv6_addr") } else { ("ip", "ipv4_addr") };
    let at = |pod: &NetnsPod| SocketAddr::new(pod.address(to.is_ipv6()), 8080);
    let numbered = || pods.iter().enumerate();
    let chosen: Vec<String> = numbered().map(|(n, _)| format!("{n} : goto endpoint-{n}")).collect();
    let endpoints: String = numbered()
        .map(|(n, pod)| format!("chain endpoint-{n} {{ meta l4proto tcp dnat to {}; }}\n", at(pod)))
        .collect();
    format!(
        "table {family} kube-proxy {{
            {endpoints}
            chain service-ULMVA6XW-default/web/tcp/http {{
                numgen random mod {} vmap {{ {} }}
            }}
            map service-ips {{
                type {kind} . inet_proto . inet_service : verdict
                elements = {{ {} . tcp . {} : goto service-ULMVA6XW-default/web/tcp/http }}
            }}
            chain services {{ {family} daddr . meta l4proto . th dport vmap @service-ips; }}
            chain nat-prerouting {{ type nat hook prerouting priority dstnat; jump services; }}
            chain nat-output {{ type nat hook output priority -100; jump services; }}
        }}\n",
        pods.len(),
        chosen.join(", "),
        to.ip(),
        to.port(),
    )
}

/// Writes rules on a node.
fn write(nodes: &TestNodes, rules: &str) {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let child = nodes.node("n1").namespace.spawn(command);
    let mut child = child.expect("the nft program is needed: apt-get install nftables");
    // It wants a new line behind every block.
    let rules = rules.replace('}', "}\n");
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{rules}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn from_rules_of_kube_proxy_to_ours_and_of_a_newer_version_no_connection_fails() {
    let cluster = cluster().await;
    let mut nodes = TestNodes::new();
    let mut objects = vec![nodes.add(&cluster, "n1", "a"), nodes.add(&cluster, "n2", "b")];
    let pods = [nodes.add_server("n1", "here"), nodes.add_server("n2", "there")];
    objects.extend(pods.iter().map(|pod| pod_object(pod, "web")));
    objects.push(service_object("web", "web", &json!({})));
    objects.extend(others());
    cluster.create(&objects).await.unwrap();
    let _controller = controller(&cluster);
    let caller = nodes.add_pod("n1", "caller").namespace;
    let service = stored(&cluster, "web").await;
    let ways = [false, true].map(|v6| cluster_ip(&service, v6));
    for to in ways {
        write(&nodes, &table(to, &pods));
        assert_eq!(responders(&caller, to, 24), set(&["here", "there"]), "as with kube-proxy");
    }
    // Ours finds the endpoints that kube-proxy has had.
    eventually(async || {
        let slices = cluster.list("EndpointSlice", Some("default")).await.unwrap();
        let of_web =
            |slice: &&Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == "web";
        let endpoints = |slice: &Value| slice["endpoints"].as_array().map_or(0, Vec::len);
        let found: Vec<usize> = slices.iter().filter(of_web).map(endpoints).collect();
        if found == [2, 2] { Ok(()) } else { Err(format!("{found:?} endpoints")) }
    })
    .await;
    let mut connection = OpenConnection::tcp(&caller, ways[0], PROBE_TIMEOUT).unwrap();
    let before = connection.probe();
    let node = nodes.node("n1").namespace.clone();
    let froms = [&caller, &node].into_iter().flat_map(|from| ways.map(|to| (from.clone(), to)));
    let connections = Connections::start(froms.collect());
    connections.more(50).await;
    assert_eq!(tables(&nodes), texts(&THEIRS));

    nodes.start_proxy(&cluster, "n1", &["--take-over"]);
    eventually_equals("taken over", texts(&OURS), || tables(&nodes)).await;
    connections.more(200).await;
    assert_eq!(connections.failures(), BTreeMap::new(), "while ours took over");
    assert_eq!(connection.probe(), before);

    // Another mark means other rules, as in another version.
    stop(&mut nodes).await;
    connections.more(50).await;
    nodes.start_proxy(&cluster, "n1", &["--masquerade-bit=20"]);
    let marks = || nft(&nodes, &["list", "table", "ip", "zonewise"]).contains("0x00100000");
    eventually_equals("the rules have the other mark", true, marks).await;
    connections.more(200).await;
    assert_eq!(connections.failures(), BTreeMap::new(), "while a newer version took over");
    assert_eq!(connection.probe(), before);
    connections.end();
    nodes.proxy("n1").check().unwrap();
}
