use serde_json::json;

use super::*;

fn world() -> World {
    let allocator = Allocator::new(vec![([10, 96, 0, 0].into(), 16)]);
    let mut world = World::new(Store::new(100, 1), allocator);
    seed::seed(&mut world, 6443, Timestamp::UNIX_EPOCH).unwrap();
    world
}

fn does(world: &mut World, verb: Verb, name: Option<&str>, object: &Value) -> Value {
    let kind = Kind::find("", "v1", "services").unwrap();
    let resource = Resource {
        kind,
        namespace: Some("default".into()),
        name: name.map(str::to_owned),
        subresource: None,
    };
    let body = if object.is_null() { Vec::new() } else { serde_json::to_vec(object).unwrap() };
    let ask = Ask {
        resource: &resource,
        options: &Options::default(),
        content_type: "application/json",
        body: &body,
        agent: "test",
        now: Timestamp::UNIX_EPOCH,
        past: None,
    };
    match act(world, verb, &ask).unwrap() {
        Outcome::Object(_, object) => object.value.clone(),
        other => panic!("{other:?}"),
    }
}

/// The port was taken for the new state, and only what the old one had was given back.
#[test]
fn a_service_that_goes_with_its_last_change_keeps_no_port() {
    let mut world = world();
    let service = json!({
        "metadata": {"name": "s", "finalizers": ["a/b"]},
        "spec": {"ports": [{"port": 80}]},
    });
    does(&mut world, Verb::Create, None, &service);
    let mut last = does(&mut world, Verb::Delete, Some("s"), &Value::Null);
    last["metadata"]["finalizers"] = json!([]);
    last["spec"]["type"] = "NodePort".into();
    last["spec"]["ports"][0]["nodePort"] = 30007.into();
    does(&mut world, Verb::Update, Some("s"), &last);
    assert!(world.store.get(SERVICES, "default/s").is_none());
    let again = json!({
        "metadata": {"name": "t"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30007}]},
    });
    let made = does(&mut world, Verb::Create, None, &again);
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 30007);
}

#[test]
fn events_go_an_hour_after_they_were_written_last() {
    let mut world = world();
    let event = |name: &str, count: u32| json!({"metadata": {"name": name}, "count": count});
    world.put(EVENTS, "default/a", event("a", 1));
    world.put(EVENTS, "default/b", event("b", 1));
    let between = Instant::now();
    world.put(EVENTS, "default/b", event("b", 2));
    let there = |world: &World| -> Vec<String> {
        let events = world.store.at(EVENTS, world.store.version()).unwrap();
        events.keys().map(ToString::to_string).collect()
    };
    world.expire(between + EVENTS_STAY - Duration::from_secs(60));
    assert_eq!(there(&world), ["default/a", "default/b"]);
    world.written.iter_mut().take(2).for_each(|(at, ..)| *at -= Duration::from_secs(60));
    world.expire(between + EVENTS_STAY - Duration::from_secs(30));
    assert_eq!(there(&world), ["default/b"]);
    world.expire(between + EVENTS_STAY * 2);
    assert_eq!(there(&world), [""; 0]);
}
