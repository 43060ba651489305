//! Nothing stays behind. Alone in its file: it counts what the whole process holds.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

use std::fs;
use std::time::Duration;

use zonewise_netns::World;
use zonewise_netns::traffic::{Answer, Held, Server, ask_tcp};

/// Open descriptors, threads, and the links of the host.
fn holdings() -> (usize, usize, String) {
    let entries = |path| fs::read_dir(path).unwrap().count();
    let names = fs::read_to_string("/proc/net/dev").unwrap();
    let names = names.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    (entries("/proc/self/fd"), entries("/proc/self/task"), names.collect::<Vec<_>>().join(" "))
}

#[test]
fn nothing_is_left_behind() {
    let before = holdings();
    for _ in 0..3 {
        let mut world = World::new().unwrap();
        let node = world.node("one", "a").unwrap();
        let pod = world.pod(&node, "web").unwrap();
        let client = world.client("client").unwrap();
        let server = Server::both(&pod.namespace, "web", (pod.v4, 80).into()).unwrap();
        let timeout = Duration::from_secs(5);
        let answer = ask_tcp(&client.namespace, server.address(), timeout);
        assert_eq!(answer, Answer::by("web", client.v4));
        let mut held = Held::tcp(&client.namespace, server.address(), timeout).unwrap();
        assert_eq!(held.ask(), Answer::by("web", client.v4));
        assert_eq!(holdings().2, before.2, "the host sees no link of ours");
        // The server goes while a connection is open.
        drop(server);
    }
    assert_eq!(holdings(), before);
}
