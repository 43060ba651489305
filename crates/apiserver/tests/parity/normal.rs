//! Replaces what differs from run to run by names: versions, uids, times, allocated addresses and
//! ports.
//!
//! Each value gets the number of its first appearance in the group, so that equal values stay
//! equal: an update that changes nothing must keep its version.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

/// Remembers the names that it has given.
#[derive(Clone, Default)]
pub(crate) struct Normal {
    names: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
    /// The text of the requests: values in it stay as they are.
    said: String,
}

impl Normal {
    /// Adds a request: values that it contains were not chosen by the server.
    pub(crate) fn add_request(&mut self, request: &str) {
        self.said.push_str(request);
        self.said.push('\n');
    }

    /// The body of an answer.
    pub(crate) fn body(&mut self, body: &mut Value) {
        let many = body.get("items").is_some() || body.get("rows").is_some();
        if let (true, Some(Value::Object(metadata))) = (many, body.get_mut("metadata")) {
            // The version of a list depends on the whole server, not on this group alone.
            hide(metadata, "resourceVersion");
        }
        self.value(body);
    }

    /// A text, such as the output of a program.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let text = self.uids(text);
        let text = self.addresses(&text);
        let text = self.ports(&text);
        let text = self.given(&text);
        let text: String =
            text.split_inclusive(char::is_whitespace).map(|word| moment(word, false)).collect();
        text.split_inclusive('\n').map(version_line).collect()
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.fields(fields),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::String(text) => *text = self.string(text),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &mut Map<String, Value>) {
        hide(fields, "continue");
        self.generated(fields);
        // In the order of names, so that numbers do not depend on the order of fields.
        let mut keys: Vec<String> = fields.keys().cloned().collect();
        keys.sort();
        for key in keys {
            let Some(mut value) = fields.remove(&key) else { continue };
            self.field(&key, &mut value);
            // Managed fields name elements of lists by what identifies them.
            fields.insert(if key.starts_with("k:") { self.uids(&key) } else { key }, value);
        }
    }

    fn field(&mut self, key: &str, value: &mut Value) {
        match (key, &mut *value) {
            ("resourceVersion", Value::String(text)) if is_number(text) => {
                *text = self.name("version", text);
            }
            ("managedFields", Value::Array(entries)) => {
                // They are in the order of their seconds, and a second may pass on one side only.
                entries.sort_by_key(|entry| {
                    ["operation", "manager", "subresource"].map(|key| entry[key].to_string())
                });
                entries.iter_mut().for_each(|entry| self.value(entry));
            }
            ("nodePort" | "healthCheckNodePort", Value::Number(port)) => {
                let port = port.to_string();
                *value = self.port(&port).into();
            }
            ("cells", Value::Array(cells)) => cells.iter_mut().for_each(|cell| {
                if let Value::String(text) = cell {
                    *text = age(&self.string(text));
                }
            }),
            _ => self.value(value),
        }
    }

    /// Names that the server made from `generateName`.
    fn generated(&mut self, fields: &Map<String, Value>) {
        let text = |key| fields.get(key).and_then(Value::as_str);
        let (Some(prefix), Some(name)) = (text("generateName"), text("name")) else { return };
        if name.len() == prefix.len() + 5 && name.starts_with(prefix) && !self.said.contains(name) {
            self.name("generated", name);
        }
    }

    fn string(&mut self, text: &str) -> String {
        if text.contains('\n') {
            return self.text(text);
        }
        let time = moment(text, true);
        if time != text {
            return time;
        }
        let text = self.uids(text);
        let text = self.addresses(&text);
        let text = self.ports(&text);
        let text = self.given(&text);
        current(&text)
    }

    /// The name of a value; a new one gets the next number.
    fn name(&mut self, what: &'static str, value: &str) -> String {
        if let Some(name) = self.names.get(value) {
            return name.clone();
        }
        let count = self.counts.entry(what).or_default();
        *count += 1;
        let name = format!("<{what} {count}>");
        self.names.insert(value.to_owned(), name.clone());
        name
    }

    fn uids(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) =
            (0..rest.len()).find(|&at| rest.get(at..at + 36).is_some_and(is_uid))
        {
            let (before, after) = rest.split_at(start);
            let (uid, after) = after.split_at(36);
            out.push_str(before);
            if self.said.contains(uid) && !self.names.contains_key(uid) {
                out.push_str(uid);
            } else {
                out.push_str(&self.name("uid", uid));
            }
            rest = after;
        }
        out + rest
    }

    /// Cluster IPs that the server chose.
    fn addresses(&mut self, text: &str) -> String {
        words(text, |word| {
            let address: IpAddr = word.parse().ok()?;
            let (what, ours) = match address {
                IpAddr::V4(four) => ("IPv4", four.octets().starts_with(&[10, 96])),
                IpAddr::V6(six) => ("IPv6", six.segments().starts_with(&[0xfd00, 0x96])),
            };
            (ours && !self.said.contains(word)).then(|| self.name(what, word))
        })
    }

    fn port(&mut self, port: &str) -> String {
        if self.said.contains(port) { port.to_owned() } else { self.name("port", port) }
    }

    /// `80:31234/TCP`: the node port may have been chosen by the server.
    fn ports(&mut self, text: &str) -> String {
        let mut parts = text.split('/');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            if let Some((head, port)) = out.rsplit_once(':')
                && self.names.contains_key(port)
            {
                out = format!("{head}:{}", self.port(port));
            }
            out = format!("{out}/{part}");
        }
        out
    }

    /// Generated names that were seen before.
    fn given(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (value, name) in self.names.iter().filter(|(_, name)| name.starts_with("<generated")) {
            text = text.replace(value, name);
        }
        text
    }
}

/// Replaces a value that cannot be compared.
fn hide(fields: &mut Map<String, Value>, key: &str) {
    if let Some(Value::String(text)) = fields.get_mut(key)
        && !text.is_empty()
    {
        *text = format!("<{key}>");
    }
}

/// A time of this run, as a name that tells whole seconds from fractions.
fn moment(text: &str, whole: bool) -> String {
    let bare = text.trim_end();
    let bare = if whole { bare } else { bare.trim_matches(['"', ',']) };
    let near = |time: Timestamp| {
        Timestamp::now().duration_since(time).abs() < SignedDuration::from_hours(1)
    };
    match bare.parse::<Timestamp>() {
        Ok(time) if near(time) => {
            let form = if bare.contains('.') { "<moment>" } else { "<time>" };
            text.replace(bare, form)
        }
        _ => text.to_owned(),
    }
}

/// Replaces the age of an object that this run made: less than an hour, such as `59s` or `2m5s`.
pub(crate) fn age(text: &str) -> String {
    let minutes = text.split_once('m');
    let (minutes, rest) = minutes.map_or(("0", text), |(minutes, rest)| (minutes, rest));
    let seconds =
        if rest.is_empty() && text.contains('m') { "0" } else { rest.trim_end_matches('s') };
    let is_age = text.ends_with(['m', 's']) && is_number(minutes) && is_number(seconds);
    if is_age && minutes.len() < 3 { "<age>".to_owned() } else { text.to_owned() }
}

/// Replaces the version in messages.
fn current(text: &str) -> String {
    for before in [", current: ", "ResourceVersion in record ("] {
        if let Some((head, rest)) = text.split_once(before) {
            let rest = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
            return format!("{head}{before}<version>{rest}");
        }
    }
    text.to_owned()
}

/// Replaces `resourceVersion: "7"`, in YAML and in JSON with line breaks.
fn version_line(line: &str) -> String {
    match line.split_once("resourceVersion") {
        Some((head, rest)) => {
            let digits = |letter: char| letter.is_ascii_digit();
            let rest: String = rest.split(digits).collect();
            format!("{head}resourceVersion{rest}")
        }
        None => line.to_owned(),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uid(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    })
}

/// Replaces words that consist of the characters of addresses.
fn words(text: &str, mut replace: impl FnMut(&str) -> Option<String>) -> String {
    let inside = |letter: char| letter.is_ascii_hexdigit() || letter == ':' || letter == '.';
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let skip = rest.find(inside).unwrap_or(rest.len());
        out.push_str(&rest[..skip]);
        rest = &rest[skip..];
        let end = rest.find(|letter| !inside(letter)).unwrap_or(rest.len());
        out.push_str(&replace(&rest[..end]).unwrap_or_else(|| rest[..end].to_owned()));
        rest = &rest[end..];
    }
    out
}
