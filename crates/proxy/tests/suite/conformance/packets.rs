//! Packets that are large, late, or of a protocol that the kernel has no sockets for.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recvfrom, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use serde_json::json;
use zonewise_netns::Namespace;
use zonewise_netns::traffic::OpenConnection;
use zonewise_netns::traffic::Protocol::Tcp;

use crate::common::objects::{ports, service, slice, with};
use crate::common::two_nodes::{FAMILIES, cluster_ip, full, node_port};
use crate::common::{LONG, at};
use crate::conformance::cluster::{ConformanceCluster, ready};

/// Sends back what one client says, over TCP and UDP.
fn echo(namespace: &Namespace, address: SocketAddr) {
    let (tcp, udp) = namespace
        .enter(|| (TcpListener::bind(address).unwrap(), UdpSocket::bind(address).unwrap()));
    thread::spawn(move || {
        while let Ok((mut stream, _)) = tcp.accept() {
            let mut responses = Vec::new();
            if stream.read_to_end(&mut responses).is_ok() {
                let _ = stream.write_all(&responses);
            }
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 9000];
        while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
            let _ = udp.send_to(&buffer[..length], peer);
        }
    });
}

fn said_udp(to: SocketAddr, message: &[u8]) -> Vec<u8> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.send_to(message, to).unwrap();
    let mut buffer = [0; 9000];
    let length = socket.recv(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

fn said_tcp(to: SocketAddr, message: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect_timeout(&to, LONG).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(message).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut responses = Vec::new();
    stream.read_to_end(&mut responses).unwrap();
    responses
}

/// A message of many packets, and a datagram in several pieces, there and back.
#[test]
fn large_messages_arrive_whole() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let there = cluster.network.add_pod(&cluster.nodes[1].node, "there").unwrap();
    for v6 in FAMILIES {
        echo(&there.namespace, at(there.address(v6), 8080));
    }
    cluster.offer(&full("svc", 1, json!({})), &[&there]);
    let message: Vec<u8> = (0..60_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    for v6 in FAMILIES {
        for to in [cluster_ip(1, v6), node_port(cluster.node(0), 1, v6)] {
            for from in [cluster.caller(0), &cluster.client.namespace] {
                let responses = from.enter(|| said_tcp(to, &message));
                assert!(responses == message, "TCP, {from:?} to {to}: {} bytes", responses.len());
                let responses = from.enter(|| said_udp(to, &message[..4000]));
                assert!(
                    responses == message[..4000],
                    "UDP, {from:?} to {to}: {} bytes",
                    responses.len()
                );
            }
        }
    }
}

// === SCTP ===

/// The checksum of SCTP.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

/// An INIT: "let us have an association".
fn init(from: u16, to: u16) -> Vec<u8> {
    let mut packet = [from.to_be_bytes(), to.to_be_bytes()].concat();
    packet.extend([0; 8]);
    packet.extend([1, 0, 0, 20, 1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 7]);
    let sum = crc32c(&packet).to_le_bytes();
    packet[8..12].copy_from_slice(&sum);
    packet
}

fn raw(v6: bool, protocol: SockProtocol) -> OwnedFd {
    let family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).unwrap();
    setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(5, 0)).unwrap();
    socket
}

/// Ports belong to the packet: the address of a raw socket has none.
fn send(socket: &OwnedFd, to: IpAddr, packet: &[u8]) {
    let to = SockaddrStorage::from(at(to, 0));
    sendto(socket.as_raw_fd(), packet, &to, MsgFlags::empty()).unwrap();
}

/// The destination port of the next packet.
fn port_of_next(socket: &OwnedFd, v6: bool) -> Option<u16> {
    let mut buffer = [0; 200];
    let (length, _) = recvfrom::<SockaddrStorage>(socket.as_raw_fd(), &mut buffer).ok()?;
    let header = if v6 { 0 } else { usize::from(buffer[0] & 15) * 4 };
    let sctp = buffer.get(header..length)?;
    Some(u16::from_be_bytes([*sctp.get(2)?, *sctp.get(3)?]))
}

/// SCTP to a ClusterIP and a NodePort arrives at the endpoint's port. Packets are made by hand: the
/// kernel needs no module for what only passes through.
#[test]
fn sctp_is_led_to_its_endpoint() {
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let there = cluster.pod(1, "there");
    let wanted = json!([{"name": "sig", "port": 5060, "protocol": "SCTP", "nodePort": 30_060}]);
    let object = service("svc", &["10.96.0.1", "fd96::1"]);
    cluster.service(&with(object, json!({"type": "NodePort", "ports": wanted})));
    for v6 in FAMILIES {
        let object = slice("svc", &format!("svc-{v6}"), &ready(&[&there], v6));
        cluster.slice(&ports(object, &[("sig", 5061, "SCTP")]));
    }
    cluster.sync().assert_clean();
    for v6 in FAMILIES {
        let inbox = there.namespace.enter(|| raw(v6, SockProtocol::Sctp));
        let to = [at(cluster_ip(1, v6).ip(), 5060), at(cluster.node(0).address(v6), 30_060)];
        for (source, to) in (4000..).zip(to) {
            let packet = init(source, to.port());
            cluster.caller(0).enter(|| send(&raw(v6, SockProtocol::Sctp), to.ip(), &packet));
            assert_eq!(port_of_next(&inbox, v6), Some(5061), "{to}");
        }
    }
}

// === packets that conntrack does not believe ===

/// The Internet checksum of a TCP segment between two addresses.
fn tcp_sum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let length = u16::try_from(segment.len()).unwrap().to_be_bytes();
    let all = [&octets(from), &octets(to), &[0, 6][..], &length, segment].concat();
    let words = all.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}

/// An acknowledgement, with numbers of our choice.
fn segment(from: SocketAddr, to: SocketAddr, sequence: u32, acknowledged: u32) -> Vec<u8> {
    let mut segment = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    segment.extend(sequence.to_be_bytes());
    segment.extend(acknowledged.to_be_bytes());
    segment.extend([5 << 4, 1 << 4, 16, 0, 0, 0, 0, 0]);
    let sum = tcp_sum(from.ip(), to.ip(), &segment).to_be_bytes();
    segment[16..18].copy_from_slice(&sum);
    segment
}

/// The next numbers of a client and of the server it talks to, from its first acknowledgement.
fn numbers(inbox: &OwnedFd, client: SocketAddr) -> (u32, u32) {
    loop {
        let mut buffer = [0; 200];
        recvfrom::<SockaddrStorage>(inbox.as_raw_fd(), &mut buffer).unwrap();
        let header = if client.is_ipv6() { 0 } else { usize::from(buffer[0] & 15) * 4 };
        let number = |at: usize| u32::from_be_bytes(buffer[header + at..][..4].try_into().unwrap());
        let is_theirs = number(0) >> 16 == u32::from(client.port());
        if is_theirs && buffer[header + 13] & 0x12 == 0x10 {
            return (number(4), number(8));
        }
    }
}

/// Packets of the server that are out of the window: one from long ago, one from far ahead. What
/// conntrack calls invalid it does not translate, the client does not know where it comes from and
/// resets the connection: unless the kernel is told to be liberal, as `--conntrack-tcp-be-liberal`
/// does. (Kernels of today forgive the one from long ago by themselves.)
#[test]
fn strange_packets_reset_nothing_where_conntrack_is_liberal() {
    const LONG_AGO: u32 = 100_000_u32.wrapping_neg();
    const FAR_AHEAD: u32 = 10_000_000;
    let mut cluster = ConformanceCluster::new(&["a", "b"]);
    let there = cluster.pod(1, "there");
    cluster.offer(&full("svc", 1, json!({})), &[&there]);
    let caller = cluster.nodes[0].caller.clone();
    let rows = [("1", LONG_AGO, true), ("1", FAR_AHEAD, true), ("0", FAR_AHEAD, false)];
    for (port, (liberal, distance, expected)) in (40_000..).zip(rows) {
        let setting = "net/netfilter/nf_conntrack_tcp_be_liberal";
        cluster.node(0).namespace.write_sysctl(setting, liberal).unwrap();
        for v6 in FAMILIES {
            let inbox = there.namespace.enter(|| raw(v6, SockProtocol::Tcp));
            let (client, server) = (at(caller.address(v6), port), at(there.address(v6), 8080));
            let to = cluster_ip(1, v6);
            let mut held =
                OpenConnection::open(&caller.namespace, Tcp, Some(client), to, LONG).unwrap();
            let (mine, theirs) = numbers(&inbox, client);
            assert_eq!(held.probe().to_string(), "there");
            let mine = mine.wrapping_add(u32::try_from("hold\n".len()).unwrap());
            let strange = segment(server, client, theirs.wrapping_add(distance), mine);
            there.namespace.enter(|| send(&inbox, client.ip(), &strange));
            let stands = held.probe().name() == Some("there");
            assert_eq!(stands, expected, "liberal {liberal}, {distance}, IPv6 {v6}");
        }
    }
}
