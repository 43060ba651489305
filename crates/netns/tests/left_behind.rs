//! Nothing is left behind. In a test binary of its own, because it counts the descriptors and threads of
//! the whole process.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

use std::fs;
use std::time::Duration;

use zonewise_netns::ClusterNetwork;
use zonewise_netns::traffic::{OpenConnection, ProbeResult, Server, probe_tcp};

/// Open descriptors, threads, and the links of the host.
fn resources() -> (usize, usize, String) {
    let entries = |path| fs::read_dir(path).unwrap().count();
    let names = fs::read_to_string("/proc/net/dev").unwrap();
    let names = names.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    (entries("/proc/self/fd"), entries("/proc/self/task"), names.collect::<Vec<_>>().join(" "))
}

#[test]
fn nothing_is_left_behind() {
    let before = resources();
    for _ in 0..3 {
        let mut network = ClusterNetwork::new().unwrap();
        let node = network.add_node("one", "a").unwrap();
        let pod = network.add_pod(&node, "web").unwrap();
        let client = network.add_client("client").unwrap();
        let server = Server::both(&pod.namespace, "web", (pod.v4, 80).into()).unwrap();
        let timeout = Duration::from_secs(5);
        let answer = probe_tcp(&client.namespace, server.address(), timeout);
        assert_eq!(answer, ProbeResult::answered_by("web", client.v4));
        let mut connection =
            OpenConnection::tcp(&client.namespace, server.address(), timeout).unwrap();
        assert_eq!(connection.probe(), ProbeResult::answered_by("web", client.v4));
        assert_eq!(resources().2, before.2, "the host sees no link of ours");
        // The server is dropped while a connection is open.
        drop(server);
    }
    // A thread that has ended is listed for a moment longer.
    for _ in 0..100 {
        if resources() == before {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(resources(), before);
}
