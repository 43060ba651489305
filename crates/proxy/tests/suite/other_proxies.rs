//! Another kube-proxy's rules, found and removed, and nothing else with them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed unwrap is the failure report"
)]

use std::io::Write as _;
use std::process::{Command, Stdio};

use zonewise_netns::{Namespace, veth};
use zonewise_nft::{Batch, Family, Socket, TableFlags};
use zonewise_proxy::other_proxies::{self, OtherProxy, Removal};
use zonewise_proxy::testing::TABLE;

/// What `nft` prints for a script, run in a namespace.
fn nft(namespace: &Namespace, script: &str) -> String {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = namespace.spawn(command);
    let mut child = child.expect("the nft program is needed: apt-get install nftables");
    // It wants a new line behind every block.
    let script = script.replace('}', "}\n");
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft: {} {errors}\n{script}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// All rules there are, one word apart.
fn listed(namespace: &Namespace) -> String {
    words(&nft(namespace, "list ruleset"))
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn find(namespace: &Namespace) -> Vec<OtherProxy> {
    namespace.enter(other_proxies::find).unwrap()
}

fn remove(namespace: &Namespace, which: &[OtherProxy]) -> Removal {
    namespace.enter(|| other_proxies::remove(which))
}

fn removed<const N: usize>(removed: [&str; N]) -> Removal {
    Removal { removed: removed.map(str::to_owned).to_vec(), problems: Vec::new() }
}

/// As kube-proxy's nftables mode makes it, shortened.
fn nftables_mode(family: &str, address: &str) -> String {
    format!(
        "table {family} kube-proxy {{
            map service-ips {{
                type {} . inet_proto . inet_service : verdict
                elements = {{ {address} . tcp . 80 : goto service-ULMVA6XW-ns1/svc1/tcp/p80 }}
            }}
            chain service-ULMVA6XW-ns1/svc1/tcp/p80 {{ drop; }}
            chain services {{ {family} daddr . meta l4proto . th dport vmap @service-ips; }}
            chain nat-prerouting {{
                type nat hook prerouting priority dstnat;
                jump services
            }}
        }}\n",
        if family == "ip" { "ipv4_addr" } else { "ipv6_addr" },
    )
}

/// As kube-proxy's iptables mode and the kubelet make it by way of nftables, with rules of others.
/// What is between the brackets is kube-proxy's.
fn iptables_mode(family: &str) -> String {
    let nat_chains = "KUBE-MARK-MASQ KUBE-POSTROUTING KUBE-NODEPORTS KUBE-SERVICES \
                      KUBE-PROXY-CANARY KUBE-SVC-A KUBE-SVL-A KUBE-SEP-A KUBE-FW-A KUBE-EXT-A";
    let filter_chains = "KUBE-SERVICES KUBE-EXTERNAL-SERVICES KUBE-FORWARD KUBE-NODEPORTS \
                         KUBE-PROXY-FIREWALL KUBE-PROXY-CANARY";
    let empty = |names: &str| -> String {
        names.split_whitespace().map(|name| format!("chain {name} {{ }}\n")).collect()
    };
    format!(
        "table {family} nat {{
            [ {} ]
            chain KUBE-KUBELET-CANARY {{ }}
            chain MINE {{ tcp dport 7 accept; }}
            chain PREROUTING {{
                type nat hook prerouting priority dstnat; policy accept;
                tcp dport 1 accept
                [ counter jump KUBE-SERVICES comment \"kubernetes service portals\" ]
                tcp dport 2 jump MINE
            }}
            chain OUTPUT {{
                type nat hook output priority -100; policy accept;
                [ counter jump KUBE-SERVICES ]
            }}
            chain POSTROUTING {{
                type nat hook postrouting priority srcnat; policy accept;
                [ goto KUBE-POSTROUTING ]
                tcp dport 3 masquerade
            }}
        }}
        table {family} filter {{
            [ {} ]
            chain KUBE-FIREWALL {{ tcp dport 4 drop; }}
            chain INPUT {{
                type filter hook input priority filter; policy accept;
                [ ct state new jump KUBE-PROXY-FIREWALL
                jump KUBE-NODEPORTS
                ct state new jump KUBE-EXTERNAL-SERVICES ]
                jump KUBE-FIREWALL
            }}
            chain FORWARD {{
                type filter hook forward priority filter; policy drop;
                [ jump KUBE-FORWARD
                ct state new jump KUBE-SERVICES ]
            }}
        }}
        table {family} mangle {{
            [ {} ]
            chain KUBE-IPTABLES-HINT {{ }}
            chain KUBE-KUBELET-CANARY {{ }}
        }}
        table {family} else {{
            chain KUBE-SERVICES {{ tcp dport 5 drop; }}
        }}
        [ {} ]\n",
        empty(nat_chains),
        empty(filter_chains),
        empty("KUBE-PROXY-CANARY"),
        iptables_rules(family),
    )
}

/// How its chains lead to each other.
fn iptables_rules(family: &str) -> String {
    format!(
        "add rule {family} nat KUBE-SERVICES tcp dport 80 jump KUBE-SVC-A
        add rule {family} nat KUBE-SERVICES fib daddr type local jump KUBE-NODEPORTS
        add rule {family} nat KUBE-NODEPORTS tcp dport 30080 jump KUBE-EXT-A
        add rule {family} nat KUBE-EXT-A jump KUBE-MARK-MASQ
        add rule {family} nat KUBE-EXT-A goto KUBE-SVL-A
        add rule {family} nat KUBE-FW-A jump KUBE-EXT-A
        add rule {family} nat KUBE-SVC-A numgen random mod 2 0 jump KUBE-SEP-A
        add rule {family} nat KUBE-SVL-A jump KUBE-SEP-A
        add rule {family} nat KUBE-SEP-A jump KUBE-MARK-MASQ
        add rule {family} nat KUBE-SEP-A tcp dport 80 dnat to :8080
        add rule {family} nat KUBE-MARK-MASQ meta mark set meta mark or 0x4000
        add rule {family} nat KUBE-POSTROUTING meta mark and 0x4000 != 0x4000 return
        add rule {family} nat KUBE-POSTROUTING masquerade
        add rule {family} filter KUBE-FORWARD meta mark and 0x4000 == 0x4000 accept\n"
    )
}

/// Everything, or what is left without kube-proxy.
fn bracketed(script: &str, with: bool) -> String {
    if with {
        return script.replace(['[', ']'], "");
    }
    let parts = script.split('[').map(|part| part.rsplit(']').next().unwrap());
    parts.collect()
}

/// What `nft` prints for these rules in a namespace that has no others.
fn alone(script: &str) -> String {
    let namespace = Namespace::new("expected").unwrap();
    nft(&namespace, script);
    listed(&namespace)
}

#[test]
fn a_node_without_other_proxies() {
    let namespace = Namespace::new("none").unwrap();
    assert_eq!(find(&namespace), []);
    nft(&namespace, "table inet kube-proxy { } table ip mine { chain KUBE-SERVICES { } }");
    let before = listed(&namespace);
    assert_eq!(find(&namespace), []);
    assert_eq!(remove(&namespace, &[]), Removal::default());
    assert_eq!(namespace.enter(other_proxies::remove_ours), Removal::default());
    assert_eq!(listed(&namespace), before);
}

#[test]
fn nftables_mode_goes_with_its_tables() {
    let namespace = Namespace::new("nftables-mode").unwrap();
    let mine = "table ip mine { chain c { jump d; } chain d { drop; } }\n";
    let theirs = nftables_mode("ip", "10.96.0.1") + &nftables_mode("ip6", "fd96::1");
    nft(&namespace, &(theirs + mine));
    let found = find(&namespace);
    let expected =
        [OtherProxy::Nftables { family: Family::Ip }, OtherProxy::Nftables { family: Family::Ip6 }];
    assert_eq!(found, expected);
    let gone = removed(["table ip kube-proxy", "table ip6 kube-proxy"]);
    assert_eq!(remove(&namespace, &found), gone);
    assert_eq!(listed(&namespace), alone(mine));
    assert_eq!(remove(&namespace, &found), Removal::default(), "what is gone is no error");
}

#[test]
fn iptables_mode_goes_and_everything_else_stays() {
    let namespace = Namespace::new("iptables-mode").unwrap();
    let script = iptables_mode("ip") + &iptables_mode("ip6");
    nft(&namespace, &bracketed(&script, true));
    let found = find(&namespace);
    let tables = [("filter", 6), ("mangle", 1), ("nat", 10)];
    let of = |family| tables.map(|(table, chains)| OtherProxy::Iptables { family, table, chains });
    assert_eq!(found, [of(Family::Ip), of(Family::Ip6)].concat());
    let gone = removed([
        "table ip filter: chains of kube-proxy (6), rules that led to them (5)",
        "table ip mangle: chains of kube-proxy (1), rules that led to them (0)",
        "table ip nat: chains of kube-proxy (10), rules that led to them (3)",
        "table ip6 filter: chains of kube-proxy (6), rules that led to them (5)",
        "table ip6 mangle: chains of kube-proxy (1), rules that led to them (0)",
        "table ip6 nat: chains of kube-proxy (10), rules that led to them (3)",
    ]);
    assert_eq!(remove(&namespace, &found), gone);
    assert_eq!(listed(&namespace), alone(&bracketed(&script, false)));
    assert_eq!(find(&namespace), []);
    assert_eq!(remove(&namespace, &found), Removal::default(), "what is gone is no error");
}

/// Plugins for host ports have their packets masqueraded by kube-proxy's chains.
#[test]
fn chains_that_masquerade_for_others_stay() {
    let namespace = Namespace::new("marks").unwrap();
    let marks = "chain KUBE-MARK-MASQ { meta mark set meta mark | 0x00004000; }
                 chain KUBE-POSTROUTING { masquerade; }
                 chain CNI-HOSTPORT-SETMARK { jump KUBE-MARK-MASQ; }
                 chain POSTROUTING {
                     type nat hook postrouting priority srcnat; policy accept;
                     jump KUBE-POSTROUTING
                 }";
    let stays = format!("table ip nat {{ {marks} }}\n");
    let services = "table ip nat { chain KUBE-SERVICES { jump KUBE-MARK-MASQ; } }";
    nft(&namespace, &(stays.clone() + services));
    let found = find(&namespace);
    assert_eq!(found, [OtherProxy::Iptables { family: Family::Ip, table: "nat", chains: 3 }]);
    let gone = removed(["table ip nat: chains of kube-proxy (1), rules that led to them (0); \
                         KUBE-MARK-MASQ and KUBE-POSTROUTING stay for CNI-HOSTPORT-SETMARK"]);
    assert_eq!(remove(&namespace, &found), gone);
    assert_eq!(listed(&namespace), alone(&stays));
    assert_eq!(find(&namespace), [], "they translate no Service");
}

/// 1,000 Services with 3 endpoints each: one batch.
#[test]
fn a_large_iptables_mode_goes_in_one_batch() {
    let namespace = Namespace::new("large").unwrap();
    let mut chains = String::new();
    let mut rules = String::new();
    for service in 0..1000 {
        chains += &format!("chain KUBE-SVC-{service} {{ }}\n");
        rules +=
            &format!("add rule ip nat KUBE-SERVICES tcp dport {service} jump KUBE-SVC-{service}\n");
        for endpoint in 0..3 {
            let name = format!("KUBE-SEP-{service}-{endpoint}");
            chains += &format!("chain {name} {{ accept; }}\n");
            rules += &format!("add rule ip nat KUBE-SVC-{service} jump {name}\n");
        }
    }
    nft(&namespace, &format!("table ip nat {{ chain KUBE-SERVICES {{ }}\n {chains} }}\n{rules}"));
    let generation = || namespace.enter(|| Socket::open().unwrap().generation().unwrap());
    let before = generation();
    let found = find(&namespace);
    assert_eq!(found, [OtherProxy::Iptables { family: Family::Ip, table: "nat", chains: 4001 }]);
    let gone = removed(["table ip nat: chains of kube-proxy (4001), rules that led to them (0)"]);
    assert_eq!(remove(&namespace, &found), gone);
    assert_eq!(generation(), before + 1);
    assert_eq!(listed(&namespace), "table ip nat { }");
}

#[test]
fn ipvs_mode_is_left_to_its_own_cleanup() {
    let namespace = Namespace::new("ipvs-mode").unwrap();
    veth(&namespace, "kube-ipvs0", &namespace, "peer").unwrap();
    assert_eq!(find(&namespace), [OtherProxy::Ipvs]);
    let problems = vec![OtherProxy::Ipvs.to_string()];
    let expected = Removal { removed: Vec::new(), problems };
    assert_eq!(remove(&namespace, &[OtherProxy::Ipvs]), expected);
}

/// A table that its owner does not let go keeps nobody from removing the next one.
#[test]
fn removal_goes_on_past_errors() {
    let namespace = Namespace::new("errors").unwrap();
    let owner = own(&namespace, "kube-proxy", &[Family::Ip], OWNED);
    nft(&namespace, &nftables_mode("ip6", "fd96::1"));
    let mut removal = remove(&namespace, &find(&namespace));
    let problem = removal.problems.pop().unwrap();
    assert_eq!(removal, removed(["table ip6 kube-proxy"]));
    assert!(problem.starts_with("cannot remove table ip kube-proxy: "), "{problem}");
    assert!(problem.contains("Operation not permitted"), "{problem}");
    drop(owner);
}

const OWNED: TableFlags = TableFlags { owner: true, persist: true };

/// Makes tables; they are owned for as long as the socket is.
fn own(
    namespace: &Namespace,
    table: &'static str,
    families: &[Family],
    flags: TableFlags,
) -> Socket {
    let mut socket = namespace.enter(Socket::open).unwrap();
    let mut batch = Batch::new(table);
    for family in families {
        batch.add_table(*family, flags, "");
        batch.add_chain(*family, "services", None, "");
    }
    socket
        .commit(&batch)
        .expect("this kernel knows owners that outlive their socket: 6.9 or later");
    socket
}

#[test]
fn our_tables_go_once_their_process_has_ended() {
    let namespace = Namespace::new("ours").unwrap();
    let mine = "table ip mine { chain c { drop; } }\n";
    nft(&namespace, mine);
    let owner = own(&namespace, TABLE, &Family::ALL, OWNED);
    let text = |family| {
        format!(
            "cannot remove table {family} zonewise: a running process owns it (netlink port {}): stop that \
             `zonewise proxy` first",
            owner.port()
        )
    };
    let problems = Family::ALL.map(text).to_vec();
    let before = listed(&namespace);
    let kept = Removal { removed: Vec::new(), problems };
    assert_eq!(namespace.enter(other_proxies::remove_ours), kept);
    assert_eq!(listed(&namespace), before);
    drop(owner);
    let gone = removed(["table ip zonewise", "table ip6 zonewise"]);
    assert_eq!(namespace.enter(other_proxies::remove_ours), gone);
    assert_eq!(listed(&namespace), alone(mine));
    assert_eq!(namespace.enter(other_proxies::remove_ours), Removal::default());
}

#[test]
fn our_tables_go_where_the_kernel_knows_no_owners() {
    let namespace = Namespace::new("unowned").unwrap();
    drop(own(&namespace, TABLE, &[Family::Ip6], TableFlags::default()));
    assert_eq!(namespace.enter(other_proxies::remove_ours), removed(["table ip6 zonewise"]));
    assert_eq!(listed(&namespace), "");
}
