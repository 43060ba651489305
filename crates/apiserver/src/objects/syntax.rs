//! How names, labels and addresses must be written. Each check returns what is wrong, with the
//! messages of apimachinery (pkg/util/validation).

use std::net::IpAddr;

use zonewise_common::cidr::Cidr;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters \
    or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', \
    regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character \
    (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start \
                         and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
                         '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, \
    '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
    'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or \
    '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
    '[-._a-zA-Z0-9]+')";

/// The message about a text that is not an address.
pub(crate) const NOT_AN_ADDRESS: &str =
    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// The message about a text that is not a network.
pub(crate) const NOT_A_NETWORK: &str =
    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// What is wrong with an address.
pub(crate) fn address_fault(text: &str) -> Option<&'static str> {
    if text.parse::<IpAddr>().is_ok() {
        return None;
    }
    let bare = |part: &str| part.parse::<u8>().map(|number| number.to_string());
    let bare: Result<Vec<String>, _> = text.split('.').map(bare).collect();
    let padded = bare.is_ok_and(|parts| parts.join(".").parse::<IpAddr>().is_ok());
    Some(if padded { "must not have leading 0s" } else { NOT_AN_ADDRESS })
}

fn is_label(text: &str) -> bool {
    let inner = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit();
    text.starts_with(inner)
        && text.ends_with(inner)
        && text.chars().all(|one| inner(one) || one == '-')
}

fn is_qualified(text: &str) -> bool {
    let edge = |one: char| one.is_ascii_alphanumeric();
    text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|one| edge(one) || "-_.".contains(one))
}

/// An RFC 1123 label: names of Services, namespaces, containers and ports.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push("must be no more than 63 characters".into());
    }
    if !is_label(text) {
        wrong.push(LABEL.into());
    }
    wrong
}

/// An RFC 1123 subdomain: names of most objects.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push("must be no more than 253 characters".into());
    }
    if !text.split('.').all(is_label) {
        wrong.push(SUBDOMAIN.into());
    }
    wrong
}

/// A qualified name, `prefix/name` or `name`: keys of labels, annotations and taints, and
/// finalizers.
pub(crate) fn qualified(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        ["", name] => {
            wrong.push("prefix part must be non-empty".into());
            name
        }
        [prefix, name] => {
            wrong.extend(subdomain(prefix).iter().map(|why| format!("prefix part {why}")));
            name
        }
        _ => {
            let tail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {QUALIFIED} {tail}")];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 bytes".into());
    }
    if !is_qualified(name) {
        wrong.push(format!("name part {QUALIFIED}"));
    }
    wrong
}

/// The value of a label.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 63 {
        wrong.push("must be no more than 63 bytes".into());
    }
    if !text.is_empty() && !is_qualified(text) {
        wrong.push(VALUE.into());
    }
    wrong
}

/// The name of a container port, which Services use as `targetPort`.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |bad: bool, why: &str| {
        if bad {
            wrong.push(why.to_owned());
        }
    };
    let plain = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit();
    check(text.len() > 15, "must be no more than 15 characters");
    check(
        !text.chars().all(|one| plain(one) || one == '-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    check(
        !text.contains(|one: char| one.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    check(text.contains("--"), "must not contain consecutive hyphens");
    check(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen");
    wrong
}

/// The key of a ConfigMap.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > 253 {
        wrong.push("must be no more than 253 characters".into());
    }
    if text.is_empty()
        || !text.chars().all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one))
    {
        wrong.push(CONFIG_KEY.into());
    } else if text == "." || text == ".." {
        wrong.push(format!("must not be '{text}'"));
    } else if text.starts_with("..") {
        wrong.push("must not start with '..'".into());
    }
    wrong
}

/// A network as new objects may hold it, or what is wrong with it.
pub(crate) fn network(text: &str) -> Result<Cidr, &'static str> {
    let (address, length) = text.split_once('/').ok_or(NOT_A_NETWORK)?;
    let address: IpAddr = address.parse().map_err(|_| NOT_A_NETWORK)?;
    let length: u8 = length.parse().map_err(|_| NOT_A_NETWORK)?;
    if address.to_canonical() != address {
        return Err("must not have an IPv4-mapped IPv6 address");
    }
    let network = Cidr::new(address, length).ok_or(NOT_A_NETWORK)?;
    if network.address() != address {
        return Err("must not have bits set beyond the prefix length");
    }
    Ok(network)
}

/// Why an address may not be an endpoint or an external IP.
pub(crate) fn special_address_fault(address: IpAddr) -> Option<&'static str> {
    let linklocal = |six: std::net::Ipv6Addr| six.segments()[0] & 0xffc0 == 0xfe80;
    let linklocal_multicast = |six: std::net::Ipv6Addr| six.segments()[0] & 0xff0f == 0xff02;
    let (loopback, linklocal, multicast) = match address {
        IpAddr::V4(four) => {
            let multicast = four.octets()[..3] == [224, 0, 0];
            (four.is_loopback(), four.is_link_local(), multicast)
        }
        IpAddr::V6(six) => (six.is_loopback(), linklocal(six), linklocal_multicast(six)),
    };
    if address.is_unspecified() {
        return Some(if address.is_ipv4() {
            "may not be unspecified (0.0.0.0)"
        } else {
            "may not be unspecified (::)"
        });
    }
    [
        (loopback, "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (linklocal, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ]
    .into_iter()
    .find_map(|(bad, why)| bad.then_some(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_accepted() {
        for (check, texts) in [
            (label as fn(&str) -> Vec<String>, &["a", "1a", "a-b"][..]),
            (subdomain, &["a", "a.b-c.d"]),
            (qualified, &["a", "A.b_c", "example.com/Name"]),
            (label_value, &["", "A_b", "12345"]),
            (port_name, &["http", "a1-b"]),
            (config_key, &["a", ".a", "A_b-c"]),
        ] {
            for text in texts {
                assert_eq!(check(text), Vec::<String>::new(), "{text}");
            }
        }
    }

    #[test]
    fn invalid_names_get_the_messages_of_kubernetes() {
        let long = "a".repeat(254);
        let cases: [(Vec<String>, Vec<String>); 8] = [
            (label("A_"), vec![LABEL.into()]),
            (label(&"a".repeat(64)), vec!["must be no more than 63 characters".into()]),
            (
                subdomain(&long),
                vec!["must be no more than 253 characters".into(), SUBDOMAIN.into()][..1].to_vec(),
            ),
            (
                qualified("a.b/"),
                vec!["name part must be non-empty".into(), format!("name part {QUALIFIED}")],
            ),
            (qualified("/b"), vec!["prefix part must be non-empty".into()]),
            (
                port_name("1234567890123456"),
                vec![
                    "must be no more than 15 characters".into(),
                    "must contain at least one letter (a-z)".into(),
                ],
            ),
            (config_key(".."), vec!["must not be '..'".into()]),
            (config_key("..a"), vec!["must not start with '..'".into()]),
        ];
        for (told, wanted) in cases {
            assert_eq!(told, wanted);
        }
    }

    #[test]
    fn networks_have_no_bits_beyond_their_prefix() {
        assert_eq!(network("10.96.0.0/16"), Ok(Cidr::parse("10.96.0.0/16").unwrap()));
        assert_eq!(network("::/0"), Ok(Cidr::parse("::/0").unwrap()));
        assert_eq!(network("10.97.0.1/16"), Err("must not have bits set beyond the prefix length"));
        assert_eq!(
            network("::ffff:10.0.0.0/112"),
            Err("must not have an IPv4-mapped IPv6 address")
        );
        assert_eq!(network("foo"), Err(NOT_A_NETWORK));
        assert_eq!(network("10.0.0.0/33"), Err(NOT_A_NETWORK));
    }
}
