//! What is stored, and read back by another leader.

use zonewise_demand::state::{MAX_BYTES, State, StateError};
use zonewise_demand::window::{MAX_SERVICES, Window};

use crate::fleet::{Fleet, INTERVAL, WEB, report};

/// A fleet whose demand has been measured for a while: zone a sends three quarters.
fn measured() -> Fleet {
    let mut fleet = Fleet::new(&[("a", 4), ("a", 4), ("b", 8)]);
    fleet.deliver_all();
    for _ in 0..20 {
        fleet.interval(&[600, 600, 400]);
    }
    fleet
}

#[test]
fn a_state_is_written_as_it_is_documented_and_read_back() {
    let fleet = measured();
    let text = fleet.state.encode();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["v"], 1);
    assert_eq!(document["at"], fleet.now);
    assert_eq!(document["zones"], serde_json::json!(["a", "b"]));
    let service = document["services"][WEB].as_object().unwrap();
    let keys: Vec<&str> = service.keys().map(String::as_str).collect();
    assert_eq!(keys, ["a", "n", "r", "s"]);
    let again = State::decode(&text).unwrap();
    assert_eq!(again.encode(), text);
    let shares = |state: &State| {
        state
            .shares(WEB)
            .unwrap()
            .map(|(zone, share)| (zone.to_string(), share))
            .collect::<Vec<_>>()
    };
    assert_eq!(shares(&again), shares(&fleet.state));
}

#[test]
fn a_text_that_is_no_state_is_refused_and_the_error_says_what_to_do() {
    let one = |service: &str| {
        format!(r#"{{"v":1,"at":5,"zones":["a","b"],"services":{{"shop/web":{service}}}}}"#)
    };
    let rows = [
        (String::from("{"), "not the expected JSON"),
        (String::from(r#"{"v":2,"at":0,"zones":[],"services":{}}"#), "version 2"),
        (one(r#"{"s":[1000000],"n":[1,2],"r":1,"a":0}"#), "Service `shop/web`"),
        (one(r#"{"s":[500000,500001],"n":[1,2],"r":1,"a":0}"#), "Service `shop/web`"),
        (one(r#"{"s":[500000,500000],"n":[1,-2],"r":1,"a":0}"#), "not the expected JSON"),
    ];
    for (text, expected) in rows {
        let error = State::decode(&text).unwrap_err();
        let sentence = error.to_string();
        assert!(
            sentence.contains(expected) && sentence.contains("delete the object"),
            "{sentence}"
        );
    }
    let good = one(r#"{"s":[500000,500000],"n":[1,2],"r":1,"a":0}"#);
    assert!(State::decode(&good).is_ok());
    assert_eq!(State::decode(&good.replace(":1,", ":9,")), Err(StateError::Version(9)));
}

#[test]
fn zones_that_come_and_go_keep_the_others_proportions() {
    let mut fleet = measured();
    let before = fleet.in_force();
    // A third zone with half as much CPU as the other two together.
    fleet.nodes.push(crate::fleet::Node {
        name: "c-3".into(),
        zone: "c".into(),
        cpu_milli: 8000,
        total: 0,
        started: 1,
        sequence: 0,
    });
    fleet.set_nodes();
    fleet.now += INTERVAL;
    fleet.decide();
    let with = fleet.in_force();
    assert!((with[2] - 1.0 / 3.0).abs() < 1e-5, "the new one begins with its capacity: {with:?}");
    assert!((with[0] / with[1] - before[0] / before[1]).abs() < 1e-3);
    fleet.nodes.pop();
    fleet.set_nodes();
    fleet.decide();
    let without = fleet.in_force();
    assert!((without[0] - before[0]).abs() < 1e-3, "{without:?}");
}

#[test]
fn a_service_that_is_measured_no_longer_goes_back_to_the_model() {
    let mut fleet = measured();
    assert!(fleet.state.shares(WEB).is_some());
    let model = fleet.model();
    let mut window = Window::new();
    let decisions = fleet.state.decide(&model, &window.measure(&model, fleet.now), fleet.now);
    assert!(decisions.is_empty() && fleet.state.shares(WEB).is_none());
}

/// A fleet with one node in each zone, and what is in force for so many Services with these names. Each has another number of
/// connections, the later ones more.
fn many(zones: &[&str], names: &[String]) -> State {
    let nodes: Vec<(&str, u64)> = zones.iter().map(|zone| (*zone, 64)).collect();
    let mut fleet = Fleet::new(&nodes);
    fleet.window.set_services(names.iter().map(String::as_str));
    assert!(fleet.window.services_left_out().is_empty());
    for step in 1..=2u64 {
        fleet.now += INTERVAL;
        for node in 0..fleet.nodes.len() {
            let total = |number: usize| step * (1 + number as u64 / 100);
            let totals: Vec<(&str, u64)> =
                names.iter().enumerate().map(|(n, name)| (name.as_str(), total(n))).collect();
            fleet.nodes[node].sequence = step;
            let (asked, report) =
                (fleet.nodes[node].name.clone(), report(&fleet.nodes[node], &totals));
            fleet.window.add(&asked, &report, fleet.now).unwrap();
        }
    }
    let model = fleet.model();
    fleet.state.decide(&model, &fleet.window.measure(&model, fleet.now), fleet.now);
    fleet.state
}

#[test]
fn ten_thousand_services_fit_and_where_they_do_not_as_few_as_possible_are_left_out() {
    let names = |letters: usize| -> Vec<String> {
        (0..MAX_SERVICES).map(|number| format!("{:n<1$}/web{number:05}", "", letters - 9)).collect()
    };
    let (text, left_out) = many(&["a", "b", "c"], &names(20)).encode_counting();
    assert_eq!(left_out, 0, "{} bytes", text.len());
    assert_eq!(State::decode(&text).unwrap().services().count(), MAX_SERVICES);

    let names = names(60);
    let (text, left_out) = many(&["a", "b", "c", "d"], &names).encode_counting();
    assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 200, "{} bytes", text.len());
    let kept = State::decode(&text).unwrap();
    assert_eq!(kept.services().count() + left_out, MAX_SERVICES);
    assert!(left_out > 0 && kept.shares(&names[MAX_SERVICES - 1]).is_some(), "the busiest stay");
    assert!(kept.shares(&names[0]).is_none(), "the quietest do not");
}

#[test]
fn a_state_that_is_too_long_leaves_out_services_with_few_connections() {
    let mut fleet = Fleet::new(&[("a", 64), ("b", 64), ("c", 64), ("d", 64)]);
    let name = |number: usize| format!("{:n<63}/{:s<58}{number:05}", "", "");
    let names: Vec<String> = (0..5000).map(name).collect();
    fleet.window.set_services(names.iter().map(String::as_str));
    let nodes: Vec<String> = fleet.nodes.iter().map(|node| node.name.clone()).collect();
    for step in 1..=2u64 {
        fleet.now += INTERVAL;
        for (node, asked) in nodes.iter().enumerate() {
            fleet.nodes[node].sequence = step;
            let total = |number: usize| step * (1 + number as u64 % 100);
            let totals: Vec<(&str, u64)> = names
                .iter()
                .enumerate()
                .map(|(number, name)| (name.as_str(), total(number)))
                .collect();
            let report = report(&fleet.nodes[node], &totals);
            fleet.window.add(asked, &report, fleet.now).unwrap();
        }
    }
    let model = fleet.model();
    fleet.state.decide(&model, &fleet.window.measure(&model, fleet.now), fleet.now);
    let text = fleet.state.encode();
    assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES / 2, "{}", text.len());
    let kept = State::decode(&text).unwrap();
    let sample = |state: &State, name: &str| {
        state
            .services()
            .find(|(known, _)| ***known == *name)
            .map(|(_, one)| one.memory.iter().sum::<f64>())
    };
    assert!(sample(&kept, &names[99]).is_some(), "the busiest are kept");
    assert_eq!(sample(&kept, &names[0]), None, "the quietest are not");
}
