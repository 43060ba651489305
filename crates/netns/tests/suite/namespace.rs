//! One namespace: its initial state, how threads and processes enter it, and that it is removed.

use std::fs;
use std::net::{IpAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use zonewise_common::cidr::Cidr;
use zonewise_netns::{Address, Namespace, Route, add_bridge_port, bridge, veth};

/// Set for the copy of this program that runs without root.
const UNPRIVILEGED: &str = "ZONEWISE_TEST_UNPRIVILEGED";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn run(namespace: &Namespace, mut command: Command) -> String {
    command.stdout(Stdio::piped());
    let output = namespace.spawn(command).unwrap().wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The namespace of the calling thread, as the kernel names it.
fn here() -> String {
    fs::read_link("/proc/thread-self/ns/net").unwrap().display().to_string()
}

#[test]
fn a_new_namespace_has_a_loopback_of_both_families_and_forwards_nothing() {
    let namespace = Namespace::new("new").unwrap();
    let address = |address, prefix| Address { interface: "lo".into(), address, prefix };
    assert_eq!(
        namespace.addresses().unwrap(),
        [address(ip("127.0.0.1"), 8), address(ip("::1"), 128)]
    );
    for (path, value) in [
        ("net/ipv4/ip_forward", "0"),
        ("net/ipv6/conf/all/forwarding", "0"),
        ("net/ipv4/conf/default/rp_filter", "0"),
    ] {
        assert_eq!(namespace.read_sysctl(path).unwrap(), value, "{path}");
    }
    namespace.enter(|| TcpListener::bind("[::1]:0").unwrap());
}

#[test]
fn settings_stay_inside() {
    let path = "net/ipv4/ip_default_ttl";
    let [one, two] = ["one", "two"].map(|name| Namespace::new(name).unwrap());
    let before =
        (two.read_sysctl(path).unwrap(), fs::read_to_string("/proc/sys/".to_owned() + path));
    one.write_sysctl(path, "99").unwrap();
    assert_eq!(one.read_sysctl(path).unwrap(), "99");
    let after =
        (two.read_sysctl(path).unwrap(), fs::read_to_string("/proc/sys/".to_owned() + path));
    assert_eq!((before.0, before.1.unwrap()), (after.0, after.1.unwrap()));
}

#[test]
fn only_the_thread_inside_is_inside() {
    let before = here();
    let namespace = Namespace::new("inside").unwrap();
    let inside = namespace.enter(here);
    assert_ne!(inside, before);
    assert_eq!(namespace.clone().enter(here), inside, "a copy is the same namespace");
    assert_eq!(here(), before);
    let joined = std::thread::spawn(move || namespace.join().map(|()| here()));
    assert_eq!(joined.join().unwrap().unwrap(), inside);
}

#[test]
fn a_panic_inside_reaches_the_caller() {
    let namespace = Namespace::new("panic").unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| namespace.enter(|| panic!("from inside"))));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "from inside");
    assert_eq!(namespace.enter(|| 1), 1, "and the namespace still works");
}

#[test]
fn a_child_sees_the_interfaces_of_its_namespace() {
    let [one, two] = ["one", "two"].map(|name| Namespace::new(name).unwrap());
    veth(&one, "left", &two, "right").unwrap();
    let interfaces = |namespace: &Namespace| {
        let mut command = Command::new("cat");
        command.arg("/proc/net/dev");
        let text = run(namespace, command);
        let names = text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    assert_eq!([interfaces(&one), interfaces(&two)], [["left", "lo"], ["lo", "right"]]);
}

#[test]
fn the_path_leads_others_inside() {
    let namespace = Namespace::new("path").unwrap();
    assert_eq!(
        fs::read_link(namespace.path()).unwrap().display().to_string(),
        namespace.enter(here)
    );
    let path = namespace.path().display().to_string();
    assert_eq!(namespace.to_string(), format!("nsenter --net={path}"));
    assert_eq!(format!("{namespace:?}"), format!("path (nsenter --net={path})"));
}

#[test]
fn ports_of_a_bridge_reach_each_other() {
    let middle = Namespace::new("middle").unwrap();
    bridge(&middle, "br0").unwrap();
    let mac = middle.link("br0").unwrap().mac;
    let ends = ["10.0.0.1", "10.0.0.2"].map(|address| {
        let end = Namespace::new(address).unwrap();
        let port = format!("p{}", address.replace('.', "-"));
        veth(&middle, &port, &end, "eth0").unwrap();
        add_bridge_port(&middle, &port, "br0").unwrap();
        middle.set_up(&port).unwrap();
        end.set_up("eth0").unwrap();
        end.add_address("eth0", ip(address), 24).unwrap();
        end
    });
    let listener = ends[0].enter(|| TcpListener::bind("10.0.0.1:80")).unwrap();
    let stream = ends[1].enter(|| std::net::TcpStream::connect("10.0.0.1:80")).unwrap();
    assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
    assert_eq!(middle.link("br0").unwrap().mac, mac, "neighbours may remember the bridge");
}

#[test]
fn addresses_and_links_come_and_go() {
    let [one, two] = ["one", "two"].map(|name| Namespace::new(name).unwrap());
    veth(&one, "left", &two, "right").unwrap();
    for (address, prefix) in [(ip("10.0.0.1"), 24), (ip("fd00::1"), 64)] {
        let has = || one.addresses().unwrap().iter().any(|a| a.address == address);
        one.add_address("left", address, prefix).unwrap();
        assert!(has());
        one.delete_address("left", address, prefix).unwrap();
        assert!(!has());
    }
    one.set_up("left").unwrap();
    assert!(one.link("left").unwrap().up);
    one.set_down("left").unwrap();
    assert!(!one.link("left").unwrap().up);
    one.delete_link("left").unwrap();
    let names = |n: &Namespace| n.links().unwrap().into_iter().map(|l| l.name).collect::<Vec<_>>();
    assert_eq!([names(&one), names(&two)], [["lo"], ["lo"]], "both ends are gone");
}

#[test]
fn routes_decide_and_can_be_taken_back() {
    let namespace = Namespace::new("routes").unwrap();
    let peer = Namespace::new("peer").unwrap();
    veth(&namespace, "eth0", &peer, "eth0").unwrap();
    namespace.set_up("eth0").unwrap();
    namespace.add_address("eth0", ip("10.0.0.1"), 24).unwrap();
    // Which source a packet would get says which route it would take.
    let source = |to: &str| {
        namespace.enter(|| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((to, 1)).map(|()| socket.local_addr().unwrap().ip().to_string())
        })
    };
    assert!(source("192.0.2.1").is_err(), "no route yet");
    namespace.add_address("lo", ip("198.51.100.1"), 32).unwrap();
    let network = Cidr::parse("192.0.2.0/24").unwrap();
    namespace.add_route(&Route::to(network).via(ip("10.0.0.2"))).unwrap();
    assert_eq!(source("192.0.2.1").unwrap(), "10.0.0.1");
    namespace.add_route(&Route::to(network).device("eth0").source(ip("198.51.100.1"))).unwrap();
    assert_eq!(source("192.0.2.1").unwrap(), "198.51.100.1");
    namespace.delete_route(&Route::to(network)).unwrap();
    assert!(source("192.0.2.1").is_err());
    namespace.add_default_route(ip("10.0.0.2")).unwrap();
    assert_eq!(source("192.0.2.1").unwrap(), "10.0.0.1");
}

#[test]
fn errors_name_the_namespace_and_the_operation() {
    let namespace = Namespace::new("box").unwrap();
    namespace.add_address("lo", ip("10.0.0.1"), 32).unwrap();
    let cases = [
        (namespace.set_up("eth7"), "box: find link eth7: No such device (os error 19)"),
        (
            namespace.add_address("lo", ip("10.0.0.1"), 32),
            "box: add 10.0.0.1/32 to lo: File exists (os error 17): ipv4: Address already assigned",
        ),
        (
            namespace.write_sysctl("net/none", "1"),
            "box: write 1 to /proc/sys/net/none: No such file or directory (os error 2)",
        ),
    ];
    for (result, text) in cases {
        assert_eq!(result.unwrap_err().to_string(), text);
    }
}

/// The rest happens in a copy of this program that runs as the user `nobody`: see below.
#[test]
fn without_root_the_error_says_what_is_missing() {
    if std::env::var_os(UNPRIVILEGED).is_some() {
        let text = Namespace::new("box").unwrap_err().to_string();
        assert_eq!(
            text,
            "box: create it: run as root: creating a network namespace needs CAP_SYS_ADMIN, \
             changing it needs CAP_NET_ADMIN (Operation not permitted (os error 1))"
        );
        return;
    }
    // A copy, because the user `nobody` may not be allowed into the directory the program is built in.
    let copy = std::env::temp_dir().join(format!("zonewise-netns-{}", std::process::id()));
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = Command::new(&copy)
        .args(["--exact", "namespace::without_root_the_error_says_what_is_missing"])
        .env(UNPRIVILEGED, "1")
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output();
    fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

/// The kernel removes a namespace with its last descriptor, also when a process is killed.
#[test]
fn a_namespace_is_gone_with_its_last_copy() {
    let [one, two] = ["one", "two"].map(|name| Namespace::new(name).unwrap());
    veth(&one, "left", &two, "right").unwrap();
    let copy = two.clone();
    drop(two);
    assert!(copy.link("right").is_ok(), "the copy still holds it");
    drop(copy);
    // A veth pair is removed with either of its ends, but in the background.
    let deadline = Instant::now() + Duration::from_secs(30);
    while one.link("left").is_ok() {
        assert!(Instant::now() < deadline, "the veth pair is still there");
        sleep(Duration::from_millis(5));
    }
}
