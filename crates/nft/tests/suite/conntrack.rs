//! Connection tracking: flows are listed, counted and deleted, and their end is told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::common::{in_namespace, nft};
use zonewise_nft::conntrack::{
    Carried, Conntrack, EndedFlows, EndedRead, EndedUnestablished, Flow, Unestablished,
};
use zonewise_nft::{Batch, Bytes, Data, Element, Family, Socket, Verb};

use crate::kernel::slots_to;

/// Asks for flows so that conntrack is there, has their bytes counted, and translates 127.1.1.1:53 to a closed port.
fn counted_flows(events: &str) -> Conntrack {
    let mut conntrack = Conntrack::open().unwrap();
    assert_eq!(flows(&mut conntrack), []);
    for (setting, value) in [("acct", "1"), ("events", events)] {
        std::fs::write(format!("/proc/sys/net/netfilter/nf_conntrack_{setting}"), value).unwrap();
    }
    Socket::open().unwrap().commit(&slots_to(&[9])).unwrap();
    conntrack
}

/// So many flows, translated. Nobody answers. All sockets are open at a time, so that no port comes twice.
fn send_from(clients: usize) {
    let clients: Vec<UdpSocket> =
        (0..clients).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for client in &clients {
        client.send_to(b"hello", "127.1.1.1:53").unwrap();
    }
}

/// Leads TCP connections to a port of 127.1.1.1 to one of 127.0.0.1.
fn translate(ports: &[(u16, u16)]) {
    let mut batch = Batch::new("zw");
    for (port, to) in ports {
        let key = Bytes::new().address([127, 1, 1, 1].into()).protocol(6).port(*port).number(0);
        let data = Bytes::new().address([127, 0, 0, 1].into()).port(*to);
        let element = Element::pair(key.as_slice(), Data::Value(data.as_slice()));
        batch.elements(Verb::Add, Family::Ip, "slots").push(&element);
    }
    Socket::open().unwrap().commit(&batch).unwrap();
}

fn end_all(conntrack: &mut Conntrack) -> Vec<Flow> {
    let open = flows(conntrack);
    open.iter().for_each(|flow| conntrack.delete(flow).unwrap());
    open
}

/// Neither answered nor translated: such flows began before there were rules for them.
#[test]
fn unanswered_flows_are_those_that_nobody_has_translated() {
    in_namespace(|| {
        let mut conntrack = counted_flows("0");
        send_from(3);
        let [server, client, early] = [(); 3].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let (at, of_client) = (server.local_addr().unwrap(), client.local_addr().unwrap());
        client.send_to(b"hello", at).unwrap();
        server.send_to(b"answer", of_client).unwrap();
        early.send_to(b"hello", "127.0.0.1:9").unwrap();
        assert_eq!(flows(&mut conntrack).len(), 5);
        let mut found = Vec::new();
        conntrack.unanswered(Family::Ip, &mut |flow| found.push(flow.original.sport)).unwrap();
        assert_eq!(found, [early.local_addr().unwrap().port()]);
    });
}

/// What the kernel knows of TCP connections that are not established: the endpoint answers nothing, refuses, or accepts
/// while its answer does not arrive.
#[test]
fn connections_that_are_not_established_are_told_apart() {
    const SILENT: u16 = 9;
    const REFUSES: u16 = 10;
    in_namespace(|| {
        let mut conntrack = counted_flows("1");
        let [accepts, unheard] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [open, lost] = [&accepts, &unheard].map(|server| server.local_addr().unwrap().port());
        translate(&[(80, open), (81, SILENT), (82, REFUSES), (83, lost)]);
        nft(&[&format!(
            "add table ip wall; add chain ip wall in {{ type filter hook input priority 0; }}; \
             add rule ip wall in tcp dport {SILENT} drop; add rule ip wall in tcp sport 83 drop"
        )]);
        let mut ended = EndedUnestablished::open(1 << 20).unwrap();
        let established = TcpStream::connect("127.1.1.1:80").unwrap();
        let refused = TcpStream::connect("127.1.1.1:82").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        for port in [81, 83] {
            let to = ([127, 1, 1, 1], port).into();
            let waited = TcpStream::connect_timeout(&to, Duration::from_millis(50));
            assert_eq!(waited.unwrap_err().kind(), ErrorKind::TimedOut);
        }
        send_from(3);

        let seen = |one: &Unestablished| (one.flow.original.dport, one.replied, one.state);
        let mut listed = BTreeSet::new();
        let mut listing = Conntrack::open().unwrap().unestablished(Family::Ip).unwrap();
        let mut note = |one: &Unestablished| {
            listed.insert(seen(one));
        };
        while listing.read(&mut note).unwrap() {}
        let open = [(81, false, SYN_SENT), (83, true, SYN_RECV)].into();
        assert_eq!(listed, open);
        // The kernel ends a flow that is refused at once, so it is never listed. Its end says so.
        let mut told = Vec::new();
        ended.read(100, &mut |one| told.push(*one)).unwrap();
        assert_eq!(told.iter().map(seen).collect::<Vec<_>>(), [(82, false, CLOSE)]);
        assert!(told[0].is_refused());
        // The ends of an established connection, of UDP, and of a connection that is not translated say nothing.
        drop(TcpStream::connect(accepts.local_addr().unwrap()).unwrap());
        drop(established);
        conntrack.flush(Family::Ip).unwrap();
        told.clear();
        ended.read(100, &mut |one| told.push(*one)).unwrap();
        assert_eq!(told.iter().map(seen).collect::<BTreeSet<_>>(), open);
        assert!(told.iter().all(|one| !one.is_refused()));
    });
}

/// The kernel leaves out what a socket is not for: it takes no room in its buffer, which is full after a few messages.
#[test]
fn flows_that_nobody_asked_for_take_no_room() {
    in_namespace(|| {
        let mut conntrack = counted_flows("1");
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        translate(&[(80, at.port())]);
        let mut of_services = EndedFlows::open(4096).unwrap();
        let mut unestablished = EndedUnestablished::open(4096).unwrap();
        let mut end_connections = |to: SocketAddr| {
            drop((0..50).map(|_| TcpStream::connect(to).unwrap()).collect::<Vec<_>>());
            conntrack.flush(Family::Ip).unwrap();
        };
        let none = EndedRead { overruns: 0, more: false };
        end_connections(at);
        assert_eq!(of_services.read(1000, &mut |_, _| panic!("not translated")).unwrap(), none);
        end_connections(([127, 1, 1, 1], 80).into());
        assert!(of_services.read(1000, &mut |_, _| ()).unwrap().overruns > 0, "too many of these");
        assert_eq!(unestablished.read(1000, &mut |_| panic!("established")).unwrap(), none);
        send_from(100);
        conntrack.flush(Family::Ip).unwrap();
        assert_eq!(unestablished.read(1000, &mut |_| panic!("UDP")).unwrap(), none);
    });
}

/// Numbers of TCP's states in `nf_conntrack_tcp.h`.
const SYN_SENT: u8 = 1;
const SYN_RECV: u8 = 2;
const CLOSE: u8 = 8;

/// Flows that end are told with what they have carried; where there is no room for more of them, that is told, too.
#[test]
fn flows_that_end_are_told_with_their_bytes() {
    in_namespace(|| {
        let mut conntrack = counted_flows("1");
        let mut ended = EndedFlows::open(1 << 20).unwrap();
        let mut crowded = EndedFlows::open(4096).unwrap();
        send_from(100);
        let open = end_all(&mut conntrack);
        assert_eq!(open.len(), 100);
        let mut told = Vec::new();
        let some = ended.read(30, &mut |flow, carried| told.push((*flow, carried))).unwrap();
        assert_eq!((some, told.len()), (EndedRead { overruns: 0, more: true }, 30));
        let all = ended.read(1000, &mut |flow, carried| told.push((*flow, carried))).unwrap();
        assert_eq!((all, told.len()), (EndedRead { overruns: 0, more: false }, 100));
        // 20 bytes of IP, 8 of UDP, 5 of data; nobody answers.
        assert!(told.iter().all(|(_, carried)| (carried.original, carried.reply) == (33, 0)));
        let of = |flows: Vec<Flow>| flows.into_iter().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(of(told.iter().map(|(flow, _)| *flow).collect()), of(open));
        let mut some = 0;
        let read = crowded.read(1000, &mut |_, _| some += 1).unwrap();
        assert!(read.overruns > 0 && some < 100, "{read:?} {some}");
    });
}

/// Why `nf_conntrack_events` has to be 1: with 2 the kernel does not tell about the end of flows that began before
/// somebody listened, with 1 it does. Of those that begin later it tells in both cases. Somebody is anybody on the machine:
/// the kernel does not look in which namespace, so that another test may be the one who listens.
#[test]
fn the_end_of_flows_that_began_before_is_told_with_events_on_only() {
    for (events, may_be_told) in [("1", [3, 3]), ("2", [0, 3])] {
        in_namespace(move || {
            let mut conntrack = counted_flows(events);
            send_from(3);
            let mut ended = EndedFlows::open(1 << 20).unwrap();
            assert_eq!(end_all(&mut conntrack).len(), 3);
            let mut told = 0;
            ended.read(1000, &mut |_, _| told += 1).unwrap();
            assert!(may_be_told.contains(&told), "events {events}: {told}");
            let told_of_earlier = told;
            send_from(4);
            assert_eq!(end_all(&mut conntrack).len(), 4);
            ended.read(1000, &mut |_, _| told += 1).unwrap();
            assert_eq!(told, told_of_earlier + 4, "events {events}");
        });
    }
}

/// Flows are listed in portions with what they have carried, only those whose destination was translated.
#[test]
fn flows_are_listed_in_portions_with_their_bytes() {
    in_namespace(|| {
        let mut conntrack = counted_flows("1");
        send_from(500);
        let direct = UdpSocket::bind("127.0.0.1:0").unwrap();
        direct.send_to(b"hello", "127.0.0.1:9").unwrap();
        let expected: BTreeMap<Flow, u64> = flows(&mut conntrack)
            .into_iter()
            .filter(|flow| flow.destination_translated)
            .map(|flow| (flow, 33))
            .collect();
        let mut listing = conntrack.carried(Family::Ip).unwrap();
        let (mut listed, mut portions) = (BTreeMap::new(), 1);
        let mut note = |flow: &Flow, carried: Carried| {
            listed.insert(*flow, carried.original);
        };
        while listing.read(&mut note).unwrap() {
            portions += 1;
        }
        assert_eq!((listed.len(), listed == expected), (500, true));
        assert!(portions > 2, "{portions}");
    });
}

fn flows(conntrack: &mut Conntrack) -> Vec<Flow> {
    let mut flows = Vec::new();
    conntrack.flows(Family::Ip, Some(17), &mut |flow| flows.push(*flow)).unwrap();
    flows
}

#[test]
fn slots_carry_traffic_and_conntrack_forgets_it() {
    in_namespace(|| {
        let servers: Vec<UdpSocket> =
            (0..3).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> =
            servers.iter().map(|server| server.local_addr().unwrap().port()).collect();
        Socket::open().unwrap().commit(&slots_to(&ports)).unwrap();
        let mut conntrack = Conntrack::open().unwrap();
        assert_eq!(flows(&mut conntrack), []);

        let clients: Vec<UdpSocket> =
            (0..60).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        for client in &clients {
            client.send_to(b"hello", "127.1.1.1:53").unwrap();
        }
        for server in &servers {
            server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            server.recv(&mut [0; 8]).expect("every slot is used");
        }
        let found = flows(&mut conntrack);
        assert_eq!(found.len(), clients.len());
        for flow in &found {
            assert_eq!((flow.protocol, flow.destination_translated), (17, true));
            assert_eq!(flow.original.dst.to_string(), "127.1.1.1");
            assert_eq!(flow.original.dport, 53);
            assert_eq!(flow.reply.src.to_string(), "127.0.0.1");
            assert!(ports.contains(&flow.reply.sport));
            assert_eq!(flow.reply.dport, flow.original.sport);
        }
        for flow in &found {
            conntrack.delete(flow).unwrap();
            conntrack.delete(flow).expect("gone already is no error");
        }
        assert_eq!(flows(&mut conntrack), []);
    });
}
