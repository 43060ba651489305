use serde_json::json;
use zonewise_common::cidr::Cidr;

use super::*;

fn seeded() -> ApiState {
    let allocator = Allocator::new(vec![Cidr::parse("10.96.0.0/16").unwrap()]);
    let mut state = ApiState::new(Store::new(100, 1), allocator);
    seed::seed(&mut state, 6443, Timestamp::UNIX_EPOCH).unwrap();
    state
}

fn performed(state: &mut ApiState, verb: Verb, name: Option<&str>, object: &Value) -> Value {
    let kind = Kind::find("", "v1", "services").unwrap();
    let resource = ResourcePath {
        kind,
        namespace: Some("default".into()),
        name: name.map(str::to_owned),
        subresource: None,
    };
    let body = if object.is_null() { Vec::new() } else { serde_json::to_vec(object).unwrap() };
    let request = ApiRequest {
        resource: &resource,
        options: &Options::default(),
        content_type: "application/json",
        body: &body,
        agent: "test",
        now: Timestamp::UNIX_EPOCH,
        stale_version: None,
    };
    match perform(state, verb, &request).unwrap() {
        Outcome::Object(_, object) => object.value.clone(),
        other => panic!("{other:?}"),
    }
}

/// The update that removes the last finalizer also asks for a node port. The port is allocated for
/// the new state, so it must be released with it.
#[test]
fn a_service_removed_by_its_last_update_releases_its_new_port() {
    let mut state = seeded();
    let service = json!({
        "metadata": {"name": "s", "finalizers": ["a/b"]},
        "spec": {"ports": [{"port": 80}]},
    });
    performed(&mut state, Verb::Create, None, &service);
    let mut last = performed(&mut state, Verb::Delete, Some("s"), &Value::Null);
    last["metadata"]["finalizers"] = json!([]);
    last["spec"]["type"] = "NodePort".into();
    last["spec"]["ports"][0]["nodePort"] = 30007.into();
    performed(&mut state, Verb::Update, Some("s"), &last);
    assert!(state.store.get(SERVICES, "default/s").is_none());
    let again = json!({
        "metadata": {"name": "t"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30007}]},
    });
    let made = performed(&mut state, Verb::Create, None, &again);
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 30007);
}

#[test]
fn events_expire_an_hour_after_their_last_write() {
    let mut state = seeded();
    let event = |name: &str, count: u32| json!({"metadata": {"name": name}, "count": count});
    state.put(EVENTS, "default/a", event("a", 1));
    state.put(EVENTS, "default/b", event("b", 1));
    let between = Instant::now();
    state.put(EVENTS, "default/b", event("b", 2));
    let there = |state: &ApiState| -> Vec<String> {
        let events = state.store.snapshot(EVENTS, state.store.version()).unwrap();
        events.keys().map(ToString::to_string).collect()
    };
    state.expire_events(between + EVENT_TTL - Duration::from_secs(60));
    assert_eq!(there(&state), ["default/a", "default/b"]);
    for write in state.event_writes.iter_mut().take(2) {
        write.at -= Duration::from_secs(60);
    }
    state.expire_events(between + EVENT_TTL - Duration::from_secs(30));
    assert_eq!(there(&state), ["default/b"]);
    state.expire_events(between + EVENT_TTL * 2);
    assert_eq!(there(&state), [""; 0]);
}
