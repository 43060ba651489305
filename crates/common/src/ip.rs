//! IP addresses as Kubernetes has stored them over the years.
//!
//! Older versions accepted leading zeros (`172.30.0.041`) and read them as decimal numbers, so
//! clusters still hold such addresses. We read them the same way (`ParseIPSloppy` in
//! k8s.io/utils/net) and only ever write the canonical form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads an address, with leading zeros in its decimal parts. An IPv4 address written as IPv6
/// (`::ffff:10.0.0.1`) is an IPv4 address.
pub fn parse_address(text: &str) -> Option<IpAddr> {
    if !text.contains(':') {
        let exact = text.parse::<Ipv4Addr>().ok();
        return exact.or_else(|| v4_with_leading_zeros(text)).map(IpAddr::V4);
    }
    let exact = text.parse::<Ipv6Addr>().ok();
    exact.or_else(|| v6_with_leading_zeros(text)).map(|ip| IpAddr::V6(ip).to_canonical())
}

/// Whether an endpoint may have this address: not unspecified, loopback, link-local or multicast. The API server
/// validates slices in the same way (`ValidateEndpointIP` in pkg/apis/core/validation); packets to such an address
/// would reach something else on every node.
pub fn may_be_endpoint(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || link_local)
}

fn v4_with_leading_zeros(text: &str) -> Option<Ipv4Addr> {
    let mut parts = text.split('.').map(|part| u8::try_from(decimal(part)?).ok());
    let octets = [parts.next()??, parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then(|| octets.into())
}

/// Only the IPv4 tail of an IPv6 address has decimal parts.
fn v6_with_leading_zeros(text: &str) -> Option<Ipv6Addr> {
    let (head, tail) = text.rsplit_once(':')?;
    let tail = v4_with_leading_zeros(tail)?;
    format!("{head}:{tail}").parse().ok()
}

/// A number of digits only (no sign), with any number of zeros in front.
pub(crate) fn decimal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_addresses_of_their_own() {
        let may = |text: &&str| may_be_endpoint(parse_address(text).unwrap());
        let fine = ["10.0.0.1", "169.253.0.1", "fd00::1", "2001:db8::1", "203.0.113.1"];
        assert!(fine.iter().all(may));
        let special = [
            "0.0.0.0",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "224.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ];
        assert!(!special.iter().any(may));
    }

    #[test]
    fn addresses_with_leading_zeros_are_decimal() {
        let rows = [
            ("172.30.0.041", Some("172.30.0.41")),
            ("010.000.000.001", Some("10.0.0.1")),
            ("10.0.0.1", Some("10.0.0.1")),
            ("fd00::0001", Some("fd00::1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("::ffff:010.0.0.01", Some("10.0.0.1")),
            ("0000000000010.00.000.1", Some("10.0.0.1")),
            ("10.0.0.256", None),
            ("fd00::00001", None),
            (":", None),
            ("10.0.0", None),
            ("10.0.0.1.2", None),
            ("10.0.0.+1", None),
            ("10.0.0.", None),
            (" 10.0.0.1", None),
            ("fe80::1%eth0", None),
            ("", None),
            ("None", None),
            ("example.com", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_address(text).map(|ip| ip.to_string()).as_deref(), expected, "{text}");
        }
    }
}
