//! A table of rules, and what it does with a packet.
//!
//! Rules are read as `nft -j list table` prints them, and followed as the kernel does: kube-proxy's and
//! ours alike, by the same function, which knows neither. An expression that it does not know is an
//! error, so that nothing is passed over.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};
use zonewise_common::cidr::Cidr;

/// A table: chains with their rules, sets and maps with their elements.
pub(super) struct Ruleset {
    /// The chains of each hook in the order of their priorities.
    hooks: BTreeMap<String, Vec<String>>,
    chains: BTreeMap<String, Vec<Vec<Value>>>,
    /// Of sets, `[element, null]`.
    elements: BTreeMap<String, Vec<(Value, Value)>>,
    /// Seconds for which elements stay.
    timeouts: BTreeMap<String, u64>,
}

/// The first packet of a connection.
#[derive(Clone)]
pub(super) struct Packet {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: String,
    pub(super) port: u64,
    /// Sent by a process of the node.
    pub(super) from_node: bool,
    /// For a process of the node.
    pub(super) to_node: bool,
}

/// A packet on its way.
struct Walk<'a> {
    original: &'a Packet,
    destination: Value,
    port: Value,
    is_translated: bool,
    mark: u64,
    is_masqueraded: bool,
    /// Seconds for which the client stays with its endpoint.
    affinity: Option<u64>,
    /// What `numgen random` yields, and the number of possible values of the last one.
    random: u64,
    choices: u64,
}

/// How a chain or a rule ends.
enum Flow {
    /// The next rule.
    Next,
    /// Back to the chain that jumped here.
    Return,
    /// No more rules of this hook.
    Accept,
    /// A new destination: no more rules of this hook.
    Translated,
    Drop,
    Reject,
}

impl Ruleset {
    pub(super) fn new(listing: &Value) -> Self {
        let mut base: BTreeMap<String, Vec<(i64, String)>> = BTreeMap::new();
        let mut ruleset = Self {
            hooks: BTreeMap::new(),
            chains: BTreeMap::new(),
            elements: BTreeMap::new(),
            timeouts: BTreeMap::new(),
        };
        for object in listing["nftables"].as_array().unwrap() {
            let (kind, object) = object.as_object().unwrap().iter().next().unwrap();
            let name = object["name"].as_str().unwrap_or_default().to_owned();
            match kind.as_str() {
                "chain" => {
                    if let Some(hook) = object["hook"].as_str() {
                        let priority = object["prio"].as_i64().unwrap();
                        base.entry(hook.into()).or_default().push((priority, name.clone()));
                    }
                    ruleset.chains.entry(name).or_default();
                }
                "rule" => {
                    let chain = object["chain"].as_str().unwrap().to_owned();
                    let rule = object["expr"].as_array().unwrap().clone();
                    ruleset.chains.entry(chain).or_default().push(rule);
                }
                "set" | "map" => {
                    ruleset.timeouts.extend(object["timeout"].as_u64().map(|s| (name.clone(), s)));
                    let all = object["elem"].as_array().into_iter().flatten();
                    ruleset.elements.insert(name, all.map(|one| element(one, kind)).collect());
                }
                _ => {}
            }
        }
        for (hook, mut chains) in base {
            chains.sort();
            ruleset.hooks.insert(hook, chains.into_iter().map(|(_, name)| name).collect());
        }
        ruleset
    }

    /// What can become of a packet, and how often of a thousand times.
    pub(super) fn outcomes(&self, packet: &Packet) -> BTreeMap<String, u64> {
        let (mut counts, mut random) = (BTreeMap::<String, u64>::new(), 0);
        loop {
            let (outcome, choices) = self.outcome(packet, random);
            *counts.entry(outcome).or_default() += 1;
            random += 1;
            if random >= choices {
                return counts.into_iter().map(|(what, n)| (what, n * 1_000 / choices)).collect();
            }
        }
    }

    fn outcome(&self, packet: &Packet, random: u64) -> (String, u64) {
        let mut walk = Walk {
            original: packet,
            destination: json!(packet.destination),
            port: json!(packet.port),
            is_translated: false,
            mark: 0,
            is_masqueraded: false,
            affinity: None,
            random,
            choices: 1,
        };
        let hooks: &[&str] = match (packet.from_node, packet.to_node) {
            (true, true) => &["output", "input"],
            (true, false) => &["output"],
            (false, true) => &["prerouting", "input"],
            (false, false) => &["prerouting", "forward"],
        };
        for hook in hooks {
            if let Some(end) = self.hook(hook, &mut walk) {
                return (end.to_owned(), walk.choices);
            }
            if walk.is_translated {
                break;
            }
        }
        if !walk.is_translated {
            return ("untouched".into(), walk.choices);
        }
        self.hook("postrouting", &mut walk);
        let masqueraded = if walk.is_masqueraded { " masqueraded" } else { "" };
        let sticky = walk.affinity.map_or(String::new(), |seconds| format!(" for {seconds} s"));
        let to = format!("{} port {}{masqueraded}{sticky}", walk.destination, walk.port);
        (to, walk.choices)
    }

    /// The end of the packet, if it has one here.
    fn hook(&self, hook: &str, walk: &mut Walk<'_>) -> Option<&'static str> {
        for chain in self.hooks.get(hook).into_iter().flatten() {
            match self.chain(chain, walk) {
                Flow::Drop => return Some("dropped"),
                Flow::Reject => return Some("rejected"),
                Flow::Translated => walk.is_translated = true,
                Flow::Next | Flow::Return | Flow::Accept => {}
            }
        }
        None
    }

    fn chain(&self, name: &str, walk: &mut Walk<'_>) -> Flow {
        for rule in &self.chains[name] {
            match self.rule(rule, walk) {
                Flow::Next => {}
                Flow::Return => return Flow::Next,
                end => return end,
            }
        }
        Flow::Next
    }

    /// Runs the expressions of a rule until one does not match.
    fn rule(&self, rule: &[Value], walk: &mut Walk<'_>) -> Flow {
        for expression in rule {
            if let Some(text) = expression.as_str() {
                walk.affinity = Some(affinity(text));
                continue;
            }
            let (kind, content) = expression.as_object().unwrap().iter().next().unwrap();
            match kind.as_str() {
                "match" if !self.matches(content, walk) => return Flow::Next,
                "match" | "counter" => {}
                "mangle" => walk.mark = walk.number(&content["value"]),
                "masquerade" => {
                    walk.is_masqueraded = true;
                    return Flow::Accept;
                }
                "set" => {
                    let name = content["set"].as_str().unwrap().trim_start_matches('@');
                    walk.affinity = self.timeouts.get(name).copied();
                }
                "dnat" => match self.target(content, walk) {
                    Some((address, port)) => {
                        (walk.destination, walk.port) = (address, port);
                        return Flow::Translated;
                    }
                    None => return Flow::Next,
                },
                "vmap" => {
                    let key = walk.value(&content["key"]);
                    let Some(verdict) = self.lookup(&content["data"], &key) else {
                        return Flow::Next;
                    };
                    return self.verdict(&verdict, walk);
                }
                _ => return self.verdict(expression, walk),
            }
        }
        Flow::Next
    }

    fn verdict(&self, verdict: &Value, walk: &mut Walk<'_>) -> Flow {
        let (kind, content) = verdict.as_object().unwrap().iter().next().unwrap();
        match kind.as_str() {
            "jump" => self.chain(content["target"].as_str().unwrap(), walk),
            "goto" => match self.chain(content["target"].as_str().unwrap(), walk) {
                Flow::Next => Flow::Return,
                end => end,
            },
            "return" => Flow::Return,
            "accept" => Flow::Accept,
            "drop" => Flow::Drop,
            "reject" => Flow::Reject,
            _ => panic!("a verdict that this test does not know: {verdict}"),
        }
    }

    /// Where a `dnat` leads: nowhere if its map has no such element.
    fn target(&self, dnat: &Value, walk: &mut Walk<'_>) -> Option<(Value, Value)> {
        if dnat["addr"].is_string() {
            return Some((dnat["addr"].clone(), dnat["port"].clone()));
        }
        let key = walk.value(&dnat["addr"]["map"]["key"]);
        let found = self.lookup(&dnat["addr"]["map"]["data"], &key)?;
        Some((found["concat"][0].clone(), found["concat"][1].clone()))
    }

    fn matches(&self, content: &Value, walk: &mut Walk<'_>) -> bool {
        let left = walk.value(&content["left"]);
        let right = &content["right"];
        let found = if right.is_string() && right.as_str().unwrap().starts_with('@')
            || right["set"].is_array()
        {
            self.lookup(right, &left).is_some()
        } else {
            contains(right, &left)
        };
        match content["op"].as_str() {
            Some("==" | "in") => found,
            Some("!=") => !found,
            _ => panic!("a comparison that this test does not know: {content}"),
        }
    }

    /// The element of a named or nameless map or set.
    fn lookup(&self, data: &Value, key: &Value) -> Option<Value> {
        let nameless: Vec<(Value, Value)>;
        let elements = match data.as_str() {
            Some(name) => &self.elements[name.trim_start_matches('@')],
            None => {
                let all = data["set"].as_array().unwrap().iter();
                nameless = all
                    .map(|one| element(one, if one.is_array() { "map" } else { "set" }))
                    .collect();
                &nameless
            }
        };
        elements.iter().find(|(known, _)| contains(known, key)).map(|(_, value)| value.clone())
    }
}

impl Walk<'_> {
    /// What an expression yields for this packet.
    fn value(&mut self, expression: &Value) -> Value {
        let Some(object) = expression.as_object() else { return expression.clone() };
        let (kind, content) = object.iter().next().unwrap();
        let key = content["key"].as_str().or(content["field"].as_str()).unwrap_or_default();
        match (kind.as_str(), key) {
            ("concat", _) => {
                let parts: Vec<Value> =
                    content.as_array().unwrap().iter().map(|part| self.value(part)).collect();
                json!({ "concat": parts })
            }
            ("payload", "saddr") => json!(self.original.source),
            ("payload", "daddr") => self.destination.clone(),
            ("payload", "dport") => self.port.clone(),
            ("meta", "l4proto") => json!(self.original.protocol),
            ("meta", "mark") => json!(self.mark),
            ("ct", "state") => json!("new"),
            ("ct", "status") => json!(if self.is_translated { "dnat" } else { "none" }),
            ("ct", "ip daddr" | "ip6 daddr") => json!(self.original.destination),
            ("ct", "proto-dst") => json!(self.original.port),
            ("fib", _) if content["flags"] == json!(["saddr"]) && content["result"] == "type" => {
                json!(if self.original.from_node { "local" } else { "unicast" })
            }
            ("numgen", _) => {
                self.choices = content["mod"].as_u64().unwrap();
                json!(self.random % self.choices + content["offset"].as_u64().unwrap())
            }
            // Flags of which some are looked at: the packet has one at most, since its connection is not confirmed.
            ("&", _) if content[1].is_array() => {
                let flag = self.value(&content[0]);
                if content[1].as_array().unwrap().contains(&flag) { flag } else { json!("none") }
            }
            ("|" | "&" | "^", _) => json!(self.number(expression)),
            _ => panic!("an expression that this test does not know: {expression}"),
        }
    }

    fn number(&mut self, expression: &Value) -> u64 {
        let mut operands = |operator: &str| {
            let all = expression[operator].as_array()?;
            let [left, right] = [&all[0], &all[1]].map(|one| self.value(one).as_u64().unwrap());
            Some((left, right))
        };
        if let Some((left, right)) = operands("|") {
            left | right
        } else if let Some((left, right)) = operands("&") {
            left & right
        } else if let Some((left, right)) = operands("^") {
            left ^ right
        } else {
            panic!("a calculation that this test does not know: {expression}")
        }
    }
}

/// An element with what it leads to.
fn element(listed: &Value, kind: &str) -> (Value, Value) {
    let (key, value) =
        if kind == "map" { (&listed[0], &listed[1]) } else { (listed, &Value::Null) };
    // Elements with a comment are wrapped.
    let key = if key["elem"].is_object() { &key["elem"]["val"] } else { key };
    (key.clone(), value.clone())
}

/// Whether an element is a value, or a prefix or range that contains it.
fn contains(element: &Value, value: &Value) -> bool {
    let address = |value: &Value| value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    if let (Some(parts), Some(values)) = (element["concat"].as_array(), value["concat"].as_array())
    {
        return parts.len() == values.len()
            && parts.iter().zip(values).all(|(part, value)| contains(part, value));
    }
    if let (Some(prefix), Some(value)) = (element["prefix"].as_object(), address(value)) {
        let text = format!("{}/{}", prefix["addr"].as_str().unwrap(), prefix["len"]);
        return Cidr::parse(&text).unwrap().contains(value);
    }
    if let (Some(range), Some(value)) = (element["range"].as_array(), address(value)) {
        return address(&range[0]) <= Some(value) && Some(value) <= address(&range[1]);
    }
    assert!(element.get("prefix").is_none() && element.get("range").is_none(), "{element}");
    element == value || address(element).is_some() && address(element) == address(value)
}

/// The seconds of `update @affinity-… { … timeout 10m : … }`, which `nft` prints as text.
fn affinity(text: &str) -> u64 {
    let time = text
        .strip_prefix("update @affinity-")
        .and_then(|rest| rest.split_once("timeout ")?.1.split(' ').next());
    let time = time.unwrap_or_else(|| panic!("a text that this test does not know: {text}"));
    let seconds = |time: &str| -> Option<u64> {
        match time.strip_suffix('m') {
            Some(minutes) => Some(60 * minutes.parse::<u64>().ok()?),
            None => time.strip_suffix('s')?.parse().ok(),
        }
    };
    seconds(time).unwrap_or_else(|| panic!("a time that this test does not know: {time}"))
}
