//! Which facts about slices have to be equal.
//!
//! | fact | compared |
//! |---|---|
//! | endpoints of each Service, address family and list of ports, with all their fields; labels of slices; no slice above its size | always |
//! | the addresses of a Service, with those of its Pods | unless a node is missing; there is a slice in any case |
//! | sizes of slices, and so their number | unless endpoints were packed by chance ([`Wanted::is_exact`]) |
//! | which slices have a trigger time; hints of `Auto` per zone | where a Service has one slice per address family |
//! | hints of `Auto` per endpoint | whether there are any: the reference gives all ready endpoints some, or none |
//! | names, unique ids, times | never |
//!
//! The reference keeps endpoints in maps without an order. Which of them fill a slice, and which one of
//! a zone serves another zone, is therefore different each time. Slices that are not written keep their
//! hints, so that the hints per zone also depend on that. What both do with the same slices in one sync is
//! compared elsewhere, with recorded runs of the reference (`crates/slices/tests/suite/recorded`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::wanted::Wanted;

const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The slices of one Service, address family and list of ports.
#[derive(Debug, Default)]
struct Set {
    labels: BTreeSet<String>,
    endpoints: Vec<String>,
    sizes: Vec<usize>,
    triggers: Vec<bool>,
    hints: BTreeMap<String, usize>,
}

/// All slices of a namespace.
#[derive(Debug, Default)]
pub(super) struct State {
    /// By Service and the rest.
    sets: BTreeMap<(String, String), Set>,
    addresses: BTreeMap<String, BTreeSet<String>>,
}

impl State {
    pub(super) fn new(slices: &[Value], wanted: &Wanted) -> Self {
        let mut state = Self::default();
        for slice in slices {
            state.add(slice, wanted);
        }
        for set in state.sets.values_mut() {
            set.endpoints.sort();
            set.sizes.sort_unstable();
        }
        state
    }

    fn add(&mut self, slice: &Value, wanted: &Wanted) {
        let labels = &slice["metadata"]["labels"];
        let service = labels["kubernetes.io/service-name"].as_str().unwrap_or_default();
        let key = (service.to_owned(), format!("{} {}", slice["addressType"], slice["ports"]));
        let set = self.sets.entry(key).or_default();
        // A Service without endpoints has a slice too.
        let addresses = self.addresses.entry(service.to_owned()).or_default();
        let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
        set.labels.insert(labels.to_string());
        set.sizes.push(endpoints.len());
        set.triggers.push(slice["metadata"]["annotations"][TRIGGER].is_string());
        for mut endpoint in endpoints {
            if slice["addressType"] == "IPv4" {
                let address = endpoint["addresses"][0].as_str().unwrap().to_owned();
                addresses.insert(address);
            }
            for zone in endpoint["hints"]["forZones"].as_array().into_iter().flatten() {
                *set.hints.entry(zone["name"].to_string()).or_default() += 1;
            }
            if wanted.is_auto(service) {
                endpoint["hints"] = json!(!endpoint["hints"]["forZones"].is_null());
            }
            endpoint["targetRef"]["uid"] = Value::Null;
            set.endpoints.push(endpoint.to_string());
        }
    }

    /// What is wrong whatever the other one holds.
    fn fault(&self, wanted: &Wanted) -> Option<String> {
        let mut sets = self.sets.iter();
        if let Some((key, set)) = sets.find(|(_, set)| set.sizes.iter().any(|&n| n > wanted.size)) {
            return Some(format!("{key:?}: {:?}", set.sizes));
        }
        let wrong = |name: &&String| {
            let Some(found) = self.addresses.get(*name) else { return true };
            wanted.addresses(name).is_some_and(|expected| expected != *found)
        };
        let name = wanted.names().find(wrong)?;
        let (expected, found) = (wanted.addresses(name), self.addresses.get(name));
        Some(format!("addresses of {name}:\n {found:?}\n instead of\n {expected:?}"))
    }

    fn is_single(&self, service: &str) -> bool {
        let mut families = BTreeMap::<&str, usize>::new();
        for ((_, key), set) in self.sets.iter().filter(|((name, _), _)| name == service) {
            let family = key.split(' ').next().unwrap_or_default();
            *families.entry(family).or_default() += set.sizes.len();
        }
        families.values().all(|&slices| slices == 1)
    }

    /// What is compared of a Service, with a name for each fact.
    fn facts(&self, service: &str, single: bool, exact: bool) -> BTreeMap<String, Value> {
        let mut facts = BTreeMap::new();
        for ((_, key), set) in self.sets.iter().filter(|((name, _), _)| name == service) {
            let mut add = |what: &str, value: Value| facts.insert(format!("{what} {key}"), value);
            add("labels", json!(set.labels));
            add("endpoints", json!(set.endpoints));
            if exact {
                add("sizes", json!(set.sizes));
            }
            if single {
                add("triggers", json!(set.triggers));
                add("hints", json!(set.hints));
            }
        }
        facts
    }
}

/// The first difference; empty when there is none.
pub(super) fn difference(theirs: &State, ours: &State, wanted: &Wanted) -> String {
    for (who, state) in [("theirs", theirs), ("ours", ours)] {
        if let Some(fault) = state.fault(wanted) {
            return format!("{who}: {fault}");
        }
    }
    let services: BTreeSet<&String> =
        theirs.sets.keys().chain(ours.sets.keys()).map(|(service, _)| service).collect();
    for service in services {
        let exact = wanted.is_exact(service);
        let single = exact && theirs.is_single(service) && ours.is_single(service);
        let theirs = theirs.facts(service, single, exact);
        let ours = ours.facts(service, single, exact);
        let keys: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
        if let Some(key) = keys.into_iter().find(|key| theirs.get(*key) != ours.get(*key)) {
            let (theirs, ours) = (theirs.get(key), ours.get(key));
            return format!("{service}: {key}:\n theirs {theirs:?}\n ours   {ours:?}");
        }
    }
    String::new()
}
