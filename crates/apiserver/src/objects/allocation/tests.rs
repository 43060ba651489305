use proptest::prelude::*;

use super::*;

fn dual() -> Allocator {
    Allocator::new(["10.96.0.0/16", "fd00:96::/108"].map(|text| Cidr::parse(text).unwrap()).into())
}

fn service(spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": "x"}});
    service["spec"] = spec;
    let spec = map(&mut service, "spec");
    crate::objects::json::default(spec, "type", "ClusterIP");
    if let Some(address) = spec.get("clusterIP").cloned() {
        crate::objects::json::default(spec, "clusterIPs", json!([address]));
    }
    service
}

fn given(allocator: &mut Allocator, spec: Value) -> Value {
    let mut service = service(spec);
    allocator.assign(None, &mut service).unwrap();
    service
}

fn refusal(allocator: &mut Allocator, spec: Value) -> String {
    let mut sent = service(spec.clone());
    let message = allocator.assign(None, &mut sent).unwrap_err().message;
    assert_eq!(sent, service(spec), "a Service that was refused is as it was");
    message
}

#[test]
fn families_and_addresses() {
    let four = json!({"clusterIP": "10.96.1.1", "clusterIPs": ["10.96.1.1"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "type": "ClusterIP"});
    let both = json!({"clusterIP": "10.96.1.1", "clusterIPs": ["10.96.1.1", "fd00:96::101"],
        "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack", "type": "ClusterIP"});
    let six_first = json!({"clusterIP": "fd00:96::101", "clusterIPs": ["fd00:96::101", "10.96.1.1"],
        "ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack", "type": "ClusterIP"});
    let asked = json!({"clusterIP": "fd00:96::55", "clusterIPs": ["fd00:96::55"],
        "ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack", "type": "ClusterIP"});
    let headless = json!({"clusterIP": "None", "clusterIPs": ["None"],
        "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack", "type": "ClusterIP"});
    let selecting = json!({"clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack", "type": "ClusterIP", "selector": {"a": "b"}});
    for (spec, wanted) in [
        (json!({}), four),
        (json!({"ipFamilyPolicy": "PreferDualStack"}), both),
        (json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}), six_first),
        (json!({"clusterIP": "fd00:96::55"}), asked),
        (json!({"clusterIP": "None"}), headless),
        (json!({"clusterIP": "None", "selector": {"a": "b"}}), selecting),
        (json!({"type": "ExternalName"}), json!({"type": "ExternalName"})),
    ] {
        assert_eq!(given(&mut dual(), spec)["spec"], wanted);
    }
}

#[test]
fn refused_addresses_get_the_messages_of_kubernetes() {
    let mut allocator = dual();
    given(&mut allocator, json!({"clusterIP": "10.96.0.1"}));
    let both = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
    for (spec, message) in [
        (json!({"clusterIP": "10.96.0.1"}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.1\"]: failed to allocate IP 10.96.0.1: \
             provided IP is already allocated".to_owned()),
        (json!({"clusterIP": "10.96.255.255"}),
            "spec.clusterIPs: Invalid value: [\"10.96.255.255\"]: failed to allocate IP \
             10.96.255.255: the provided IP (10.96.255.255) is not in the valid range. The range \
             of valid IPs is 10.96.0.0/16".into()),
        (json!({"clusterIP": "fd01::1"}),
            "spec.clusterIPs: Invalid value: [\"fd01::1\"]: failed to allocate IP fd01::1: the \
             provided network does not match the current range".into()),
        (json!({"clusterIP": "10.96.5.5", "ipFamilies": ["IPv6"]}),
            "spec.clusterIPs[0]: Invalid value: \"10.96.5.5\": expected an IPv6 value as indicated \
             by `ipFamilies[0]`".into()),
        (json!({"ipFamilies": ["IPv4", "IPv6"]}),
            format!("spec.ipFamilyPolicy: Invalid value: \"SingleStack\": {both} IP families are \
                     specified")),
        (json!({"clusterIP": "10.96.9.8", "clusterIPs": ["10.96.9.8", "fd00:96::8"]}),
            format!("spec.ipFamilyPolicy: Invalid value: \"SingleStack\": {both} cluster IPs are \
                     specified")),
    ] {
        let message_found = refusal(&mut allocator, spec);
        assert_eq!(message_found, format!("Service \"x\" is invalid: {message}"));
    }
}

#[test]
fn node_ports() {
    let mut allocator = dual();
    let tcp_udp = json!({"type": "NodePort", "ports": [
        {"port": 53, "protocol": "TCP", "name": "a"},
        {"port": 53, "protocol": "UDP", "name": "b"}]});
    let first = given(&mut allocator, tcp_udp);
    let nodes: Vec<&Value> =
        list(&first, "/spec/ports").iter().map(|port| &port["nodePort"]).collect();
    assert_eq!(nodes, [30086, 30086]);
    let fixed =
        json!({"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP", "nodePort": 30086}]});
    assert_eq!(
        refusal(&mut allocator, fixed.clone()),
        "Service \"x\" is invalid: spec.ports[0].nodePort: Invalid value: 30086: provided port is \
         already allocated"
    );
    let low =
        json!({"type": "NodePort", "ports": [{"port": 1, "protocol": "TCP", "nodePort": 99}]});
    assert_eq!(
        refusal(&mut allocator, low),
        "Service \"x\" is invalid: spec.ports[0].nodePort: Invalid value: 99: provided port is not \
         in the valid range. The range of valid ports is 30000-32767"
    );
    allocator.release(&first);
    given(&mut allocator, fixed);
    let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "allocateLoadBalancerNodePorts": false, "ports": [{"port": 1, "protocol": "TCP"}]});
    let local = given(&mut allocator, local);
    assert_eq!(local.pointer("/spec/ports/0/nodePort"), None);
    assert_eq!(local["spec"]["healthCheckNodePort"], 30087);
}

#[test]
fn a_change_of_type_releases_addresses_and_ports() {
    let mut allocator = dual();
    let ports = json!([{"port": 1, "protocol": "TCP", "nodePort": 30500}]);
    let stored = given(
        &mut allocator,
        json!({"type": "NodePort", "ports": ports, "clusterIP": "10.96.0.7"}),
    );
    let mut named =
        service(json!({"type": "ExternalName", "ports": [{"port": 1, "protocol": "TCP"}]}));
    allocator.assign(Some(&stored), &mut named).unwrap();
    let other = json!({"type": "NodePort", "ports": ports, "clusterIP": "10.96.0.7"});
    assert_eq!(given(&mut allocator, other)["spec"]["clusterIP"], "10.96.0.7");
}

#[test]
fn an_update_keeps_its_address_and_may_get_a_second_one() {
    let mut allocator = dual();
    let stored = given(&mut allocator, json!({}));
    let mut same = stored.clone();
    allocator.assign(Some(&stored), &mut same).unwrap();
    assert_eq!(same, stored);
    let mut more = stored.clone();
    more["spec"]["ipFamilyPolicy"] = "PreferDualStack".into();
    allocator.assign(Some(&stored), &mut more).unwrap();
    assert_eq!(more["spec"]["clusterIPs"], json!(["10.96.1.1", "fd00:96::101"]));
}

#[test]
fn a_full_range_is_an_error_until_an_address_is_released() {
    let mut allocator = Allocator::new(vec![Cidr::parse("10.0.0.0/30").unwrap()]);
    let first = given(&mut allocator, json!({}));
    given(&mut allocator, json!({}));
    let full = "Internal error occurred: failed to allocate a serviceIP: range is full";
    assert_eq!(refusal(&mut allocator, json!({})), full);
    allocator.release(&first);
    assert_eq!(given(&mut allocator, json!({}))["spec"]["clusterIP"], first["spec"]["clusterIP"]);
}

proptest! {
    /// Whatever is created and deleted, no address and no port has two owners.
    #[test]
    fn nothing_is_allocated_twice(
        steps in proptest::collection::vec((any::<bool>(), 0..8_usize), 1..60),
    ) {
        let mut allocator = Allocator::new(vec![Cidr::parse("10.0.0.0/28").unwrap()]);
        let mut held: Vec<Value> = Vec::new();
        for (create, which) in steps {
            if !create && !held.is_empty() {
                let gone = held.remove(which % held.len());
                allocator.release(&gone);
                continue;
            }
            let ports = json!([{"port": 1, "protocol": "TCP"}]);
            let mut one = service(json!({"type": "NodePort", "ports": ports}));
            match allocator.assign(None, &mut one) {
                Ok(()) => {
                    for other in &held {
                        prop_assert_ne!(&other["spec"]["clusterIP"], &one["spec"]["clusterIP"]);
                        prop_assert_ne!(&other["spec"]["ports"], &one["spec"]["ports"]);
                    }
                    held.push(one);
                }
                Err(error) => {
                    prop_assert_eq!(held.len(), 14);
                    prop_assert!(error.message.ends_with("range is full"));
                }
            }
        }
    }
}
