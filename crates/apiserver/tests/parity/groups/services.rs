//! Services: defaults, allocation, validation, updates.

use serde_json::{Value, json};

use super::{each, service, web};
use crate::requests::{
    Group, Step, delete, get, group, json_patch, merge_patch, post, put, strategic,
};

pub(crate) fn groups() -> Vec<Group> {
    vec![
        group("services-forms", forms()),
        group("services-ports", ports()),
        group("services-addresses", addresses()),
        group("services-fields", fields()),
        group("services-changes", changes()),
        group("services-families", families()),
        group("services-status", status()),
    ]
}

fn forms() -> Vec<Step> {
    let http = json!([{"port": 80}]);
    let mut steps = each(
        "services",
        vec![
            ("plain", web("plain")),
            ("without a selector", service("bare", json!({"ports": http}))),
            ("a node port", service("nodeport", json!({"type": "NodePort", "ports": http}))),
            (
                "a chosen node port",
                service(
                    "chosen",
                    json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30010}]}),
                ),
            ),
            (
                "a taken node port",
                service(
                    "taken",
                    json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30010}]}),
                ),
            ),
            (
                "a node port out of range",
                service(
                    "outside",
                    json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
                ),
            ),
            (
                "a load balancer",
                service("balancer", json!({"type": "LoadBalancer", "ports": http})),
            ),
            (
                "a local load balancer",
                service(
                    "local",
                    json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                        "ports": http}),
                ),
            ),
            (
                "a balancer without node ports",
                service(
                    "portless",
                    json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                        "ports": http}),
                ),
            ),
            (
                "headless",
                service(
                    "headless",
                    json!({"clusterIP": "None", "selector": {"app": "web"}, "ports": http}),
                ),
            ),
            (
                "headless without ports",
                service("headless-bare", json!({"clusterIP": "None", "selector": {"app": "web"}})),
            ),
            (
                "headless without a selector",
                service("headless-blind", json!({"clusterIP": "None", "ports": http})),
            ),
            (
                "a headless node port",
                service(
                    "headless-port",
                    json!({"type": "NodePort", "clusterIP": "None", "ports": http}),
                ),
            ),
            (
                "external",
                service(
                    "external",
                    json!({"type": "ExternalName", "externalName": "shop.example.com"}),
                ),
            ),
            (
                "external with ports",
                service(
                    "external-ports",
                    json!({"type": "ExternalName", "externalName": "shop.example.com",
                        "ports": http}),
                ),
            ),
            ("external without a name", service("external-none", json!({"type": "ExternalName"}))),
            (
                "external of a wrong name",
                service(
                    "external-wrong",
                    json!({"type": "ExternalName", "externalName": "no name"}),
                ),
            ),
            (
                "external with an address",
                service(
                    "external-address",
                    json!({"type": "ExternalName", "externalName": "a.example.com",
                        "clusterIP": "10.96.0.77"}),
                ),
            ),
            ("an unknown type", service("unknown", json!({"type": "Magic", "ports": http}))),
            (
                "no spec",
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "none"}}),
            ),
            (
                "a status of its own",
                json!({
                    "apiVersion": "v1", "kind": "Service", "metadata": {"name": "status"},
                    "spec": {"ports": http},
                    "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
                }),
            ),
        ],
    );
    steps.extend([
        get("all", "services"),
        get("by address", "services?fieldSelector=spec.clusterIP%3DNone"),
        get("by type", "services?fieldSelector=spec.type%3DExternalName"),
        delete("the chosen one goes", "services/chosen"),
        post(
            "its node port is free",
            "services",
            service(
                "next",
                json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30010}]}),
            ),
        ),
        delete("deleted", "services/plain"),
    ]);
    steps
}

fn ports() -> Vec<Step> {
    let with = |ports: Value| service("one", json!({"selector": {"app": "web"}, "ports": ports}));
    each(
        "services?dryRun=All",
        vec![
            ("no ports", with(json!([]))),
            ("port zero", with(json!([{"port": 0}]))),
            ("no port", with(json!([{"name": "http"}]))),
            ("a large port", with(json!([{"port": 65536}]))),
            ("a negative port", with(json!([{"port": -1}]))),
            ("a target", with(json!([{"port": 80, "targetPort": 8080}]))),
            ("a named target", with(json!([{"port": 80, "targetPort": "http"}]))),
            ("a wrong target", with(json!([{"port": 80, "targetPort": "Not A Name"}]))),
            ("a long target", with(json!([{"port": 80, "targetPort": "abcdefghijklmnop"}]))),
            ("a target out of range", with(json!([{"port": 80, "targetPort": 70000}]))),
            ("udp", with(json!([{"port": 53, "protocol": "UDP"}]))),
            ("sctp", with(json!([{"port": 53, "protocol": "SCTP"}]))),
            ("a small protocol", with(json!([{"port": 53, "protocol": "tcp"}]))),
            ("an unknown protocol", with(json!([{"port": 53, "protocol": "ICMP"}]))),
            ("two without names", with(json!([{"port": 80}, {"port": 81}]))),
            (
                "two of one name",
                with(json!([{"port": 80, "name": "a"}, {"port": 81, "name": "a"}])),
            ),
            (
                "two of one number",
                with(json!([{"port": 80, "name": "a"}, {"port": 80, "name": "b"}])),
            ),
            (
                "one number, two protocols",
                with(json!([
                    {"port": 53, "name": "a"},
                    {"port": 53, "name": "b", "protocol": "UDP"},
                ])),
            ),
            ("a wrong name", with(json!([{"port": 80, "name": "A_b"}]))),
            ("a long name", with(json!([{"port": 80, "name": "a".repeat(64)}]))),
            (
                "a protocol for applications",
                with(json!([{"port": 80, "appProtocol": "kubernetes.io/h2c"}])),
            ),
            (
                "a wrong protocol for applications",
                with(json!([{"port": 80, "appProtocol": "no protocol"}])),
            ),
            ("a node port where none is", with(json!([{"port": 80, "nodePort": 30014}]))),
        ],
    )
}

fn addresses() -> Vec<Step> {
    let with = |name: &str, mut spec: Value| {
        spec["ports"] = json!([{"port": 80}]);
        service(name, spec)
    };
    let mut steps = each(
        "services",
        vec![
            ("chosen", with("chosen", json!({"clusterIP": "10.96.7.7"}))),
            ("taken", with("taken", json!({"clusterIP": "10.96.7.7"}))),
            ("outside", with("outside", json!({"clusterIP": "10.1.2.3"}))),
            ("no address", with("wrong", json!({"clusterIP": "somewhere"}))),
            ("with zeros", with("zeros", json!({"clusterIP": "010.096.007.008"}))),
            ("the other family", with("six", json!({"clusterIP": "fd00:96::77"}))),
            (
                "two that differ",
                with("differ", json!({"clusterIP": "10.96.7.9", "clusterIPs": ["10.96.7.10"]})),
            ),
            (
                "two of one family",
                with("same", json!({"clusterIPs": ["10.96.7.11", "10.96.7.12"]})),
            ),
            ("dual", with("dual", json!({"ipFamilyPolicy": "PreferDualStack"}))),
            ("dual, required", with("required", json!({"ipFamilyPolicy": "RequireDualStack"}))),
            (
                "dual, six first",
                with(
                    "six-first",
                    json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}),
                ),
            ),
            (
                "dual, chosen",
                with(
                    "dual-chosen",
                    json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.96.7.20",
                        "clusterIPs": ["10.96.7.20", "fd00:96::20"]}),
                ),
            ),
            (
                "single, two families",
                with(
                    "single",
                    json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}),
                ),
            ),
            ("six alone", with("six-alone", json!({"ipFamilies": ["IPv6"]}))),
            ("an unknown family", with("ipx", json!({"ipFamilies": ["IPX"]}))),
            (
                "a family twice",
                with(
                    "twice",
                    json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv4"]}),
                ),
            ),
            ("an unknown policy", with("policy", json!({"ipFamilyPolicy": "Both"}))),
            (
                "a family that does not fit",
                with("misfit", json!({"clusterIP": "10.96.7.30", "ipFamilies": ["IPv6"]})),
            ),
            (
                "headless dual",
                with(
                    "headless",
                    json!({"clusterIP": "None", "selector": {"a": "b"},
                        "ipFamilyPolicy": "PreferDualStack"}),
                ),
            ),
            ("headless blind", with("blind", json!({"clusterIP": "None"}))),
            (
                "headless and an address",
                with("mixed", json!({"clusterIPs": ["None", "10.96.7.31"]})),
            ),
            ("external addresses", with("external", json!({"externalIPs": ["192.0.2.10"]}))),
            (
                "wrong external addresses",
                with("wrong-external", json!({"externalIPs": ["127.0.0.1", "a"]})),
            ),
        ],
    );
    steps.extend([
        delete("the chosen one goes", "services/chosen"),
        post("its address is free", "services", with("next", json!({"clusterIP": "10.96.7.7"}))),
        post(
            "dry runs take nothing",
            "services?dryRun=All",
            with("dry", json!({"clusterIP": "10.96.7.40"})),
        ),
        post("what a dry run wanted", "services", with("wet", json!({"clusterIP": "10.96.7.40"}))),
    ]);
    steps
}

fn fields() -> Vec<Step> {
    let with =
        |field: &str, value: Value| service("one", json!({"ports": [{"port": 80}], field: value}));
    let local = |kind: &str, field: &str, value: Value| {
        service("one", json!({"type": kind, "ports": [{"port": 80}], field: value}))
    };
    each(
        "services?dryRun=All",
        vec![
            ("a wrong selector key", with("selector", json!({"a b": "c"}))),
            ("a wrong selector value", with("selector", json!({"a": "b c"}))),
            ("an empty selector", with("selector", json!({}))),
            ("close traffic", with("trafficDistribution", json!("PreferClose"))),
            ("traffic in the zone", with("trafficDistribution", json!("PreferSameZone"))),
            ("traffic on the node", with("trafficDistribution", json!("PreferSameNode"))),
            ("unknown traffic", with("trafficDistribution", json!("PreferFar"))),
            ("empty traffic", with("trafficDistribution", json!(""))),
            ("local inside", with("internalTrafficPolicy", json!("Local"))),
            ("unknown inside", with("internalTrafficPolicy", json!("Zone"))),
            ("outside without outside", with("externalTrafficPolicy", json!("Local"))),
            ("local outside", local("NodePort", "externalTrafficPolicy", json!("Local"))),
            ("unknown outside", local("NodePort", "externalTrafficPolicy", json!("Zone"))),
            ("affinity", with("sessionAffinity", json!("ClientIP"))),
            ("unknown affinity", with("sessionAffinity", json!("Cookie"))),
            (
                "affinity for a time",
                service(
                    "one",
                    json!({"ports": [{"port": 80}], "sessionAffinity": "ClientIP",
                        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}),
                ),
            ),
            (
                "affinity for too long",
                service(
                    "one",
                    json!({"ports": [{"port": 80}], "sessionAffinity": "ClientIP",
                        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 90000}}}),
                ),
            ),
            (
                "a time without affinity",
                with("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 60}})),
            ),
            ("not ready ones too", with("publishNotReadyAddresses", json!(true))),
            ("a class", local("LoadBalancer", "loadBalancerClass", json!("zonewise.dev/lab"))),
            ("a class where none is", with("loadBalancerClass", json!("zonewise.dev/lab"))),
            ("a wrong class", local("LoadBalancer", "loadBalancerClass", json!("no class"))),
            (
                "source ranges",
                local("LoadBalancer", "loadBalancerSourceRanges", json!(["192.0.2.0/24"])),
            ),
            (
                "wrong source ranges",
                local("LoadBalancer", "loadBalancerSourceRanges", json!(["192.0.2.0"])),
            ),
            ("a health port where none is", with("healthCheckNodePort", json!(30015))),
            ("a name with a digit first", service("1one", json!({"ports": [{"port": 80}]}))),
            ("a name with a dot", service("a.b", json!({"ports": [{"port": 80}]}))),
            ("a long name", service(&"a".repeat(64), json!({"ports": [{"port": 80}]}))),
            (
                "much is wrong",
                service(
                    "One",
                    json!({"type": "Magic", "ports": [{"port": 0, "protocol": "x", "name": "A"}],
                        "sessionAffinity": "y"}),
                ),
            ),
        ],
    )
}

fn changes() -> Vec<Step> {
    let one = "services/one";
    let mut moved = web("one");
    moved["spec"]["clusterIP"] = "10.96.9.9".into();
    vec![
        post("made", "services", web("one")),
        put("replaced without its address", one, web("one")),
        put("another address", one, moved),
        json_patch("no address", one, json!([{"op": "remove", "path": "/spec/clusterIP"}])),
        merge_patch("another selector", one, json!({"spec": {"selector": {"app": "shop"}}})),
        merge_patch("no selector", one, json!({"spec": {"selector": null}})),
        strategic("a port more", one, json!({"spec": {"ports": [{"port": 443, "name": "https"}]}})),
        strategic(
            "a port more, both named",
            one,
            json!({"spec": {"ports": [{"port": 80, "name": "http"},
                {"port": 443, "name": "https"}]}}),
        ),
        strategic("a target", one, json!({"spec": {"ports": [{"port": 80, "targetPort": "web"}]}})),
        merge_patch("to a node port", one, json!({"spec": {"type": "NodePort"}})),
        merge_patch("local outside", one, json!({"spec": {"externalTrafficPolicy": "Local"}})),
        merge_patch("to a load balancer", one, json!({"spec": {"type": "LoadBalancer"}})),
        merge_patch("no health port", one, json!({"spec": {"externalTrafficPolicy": "Cluster"}})),
        merge_patch("to a cluster address", one, json!({"spec": {"type": "ClusterIP"}})),
        merge_patch(
            "external",
            one,
            json!({"spec": {"type": "ExternalName", "externalName": "a.example.com"}}),
        ),
        merge_patch("and back", one, json!({"spec": {"type": "ClusterIP", "externalName": null}})),
        merge_patch("to headless", one, json!({"spec": {"clusterIP": "None"}})),
        merge_patch("traffic", one, json!({"spec": {"trafficDistribution": "PreferSameZone"}})),
        merge_patch("no traffic", one, json!({"spec": {"trafficDistribution": null}})),
        merge_patch("affinity", one, json!({"spec": {"sessionAffinity": "ClientIP"}})),
        merge_patch("no affinity", one, json!({"spec": {"sessionAffinity": "None"}})),
        post(
            "headless",
            "services",
            service("headless", json!({"clusterIP": "None", "ports": [{"port": 80}]})),
        ),
        merge_patch(
            "from headless",
            "services/headless",
            json!({"spec": {"clusterIP": "10.96.9.10"}}),
        ),
        get("read", one),
    ]
}

fn families() -> Vec<Step> {
    let one = "services/one";
    vec![
        post("made", "services", web("one")),
        merge_patch("to dual", one, json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}})),
        merge_patch("required", one, json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}})),
        merge_patch("to single", one, json!({"spec": {"ipFamilyPolicy": "SingleStack"}})),
        merge_patch("the other family", one, json!({"spec": {"ipFamilies": ["IPv6"]}})),
        merge_patch(
            "dual by hand",
            one,
            json!({"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}}),
        ),
        merge_patch("turned round", one, json!({"spec": {"ipFamilies": ["IPv6", "IPv4"]}})),
        merge_patch(
            "single by hand",
            one,
            json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}),
        ),
    ]
}

fn status() -> Vec<Step> {
    let one = "services/one/status";
    vec![
        post(
            "made",
            "services",
            service("one", json!({"type": "LoadBalancer", "ports": [{"port": 80}]})),
        ),
        merge_patch(
            "an ingress",
            one,
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}),
        ),
        merge_patch(
            "a wrong ingress",
            one,
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "nowhere"}]}}}),
        ),
        merge_patch(
            "a host",
            one,
            json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}}),
        ),
        merge_patch(
            "a condition",
            one,
            json!({"status": {"conditions": [{"type": "zonewise.dev/Routed", "status": "True",
                "reason": "Yes", "message": "", "lastTransitionTime": "2025-01-01T00:00:00Z"}]}}),
        ),
        strategic(
            "another condition",
            one,
            json!({"status": {"conditions": [{"type": "zonewise.dev/Other", "status": "False",
                "reason": "No", "message": "m", "lastTransitionTime": "2025-01-01T00:00:00Z"}]}}),
        ),
        merge_patch(
            "a wrong condition",
            one,
            json!({"status": {"conditions": [{"type": "a", "status": "Maybe"}]}}),
        ),
        merge_patch(
            "a spec through /status",
            one,
            json!({"spec": {"sessionAffinity": "ClientIP"}}),
        ),
        merge_patch(
            "a status through the main resource",
            "services/one",
            json!({"status": {"loadBalancer": null, "conditions": null}}),
        ),
        get("read", one),
        merge_patch("no balancer", "services/one", json!({"spec": {"type": "ClusterIP"}})),
    ]
}
