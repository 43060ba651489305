//! Validation of Services, with the messages of kube-apiserver.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::{has_address, has_health_port, has_node_ports};
use crate::objects::json::{list, number, text, texts};
use crate::objects::strategy::{invalid, labels, one_of};
use crate::objects::syntax;
use crate::status::FieldError;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

pub(in crate::objects::strategy) fn check(
    stored: Option<&Value>,
    service: &Value,
) -> Vec<FieldError> {
    let mut causes = ports(service);
    causes.extend(labels("spec.selector", service, "/spec/selector"));
    causes.extend(sessions(service));
    causes.extend(addresses(service));
    causes.extend(one_of("spec.type", service, "/spec/type", &TYPES));
    causes.extend(by_type(service));
    causes.extend(policies(service));
    causes.extend(external_ips(service));
    if let Some(stored) = stored {
        causes.extend(changes(stored, service));
    }
    causes
}

/// Checks `status.loadBalancer`, which only Services of type LoadBalancer may have.
pub(in crate::objects::strategy) fn check_status(service: &Value) -> Vec<FieldError> {
    let ingress = list(service, "/status/loadBalancer/ingress");
    if text(service, "/spec/type") == "LoadBalancer" || ingress.is_empty() {
        let fault = |(at, one): (usize, &Value)| {
            let address = one.get("ip")?.as_str()?;
            let field = format!("status.loadBalancer.ingress[{at}].ip");
            Some(FieldError::invalid(field, &json!(address), syntax::address_fault(address)?))
        };
        return ingress.iter().enumerate().filter_map(fault).collect();
    }
    let why = "may only be used when `spec.type` is 'LoadBalancer'";
    vec![FieldError::forbidden("status.loadBalancer.ingress", why)]
}

fn ports(service: &Value) -> Vec<FieldError> {
    let ports = list(service, "/spec/ports");
    let headless = text(service, "/spec/clusterIP") == "None";
    if ports.is_empty() && !headless && has_address(service) {
        return vec![FieldError::required("spec.ports", "")];
    }
    let mut names = BTreeSet::new();
    let mut causes: Vec<FieldError> = ports
        .iter()
        .enumerate()
        .flat_map(|(at, one)| port(&format!("spec.ports[{at}]"), one, ports.len() > 1, &mut names))
        .collect();
    if !has_node_ports(service) {
        let why = format!("may not be used when `type` is '{}'", text(service, "/spec/type"));
        let bound = |port: &Value| number(port, "/nodePort").unwrap_or(0) != 0;
        let bound = ports.iter().enumerate().filter(|(_, port)| bound(port));
        causes.extend(
            bound.map(|(at, _)| FieldError::forbidden(format!("spec.ports[{at}].nodePort"), &why)),
        );
    }
    let mut seen = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let (protocol, number) = (text(port, "/protocol"), number(port, "/port").unwrap_or(0));
        if !seen.insert((protocol, number)) {
            let value = format!(
                "{{\"Name\":\"\",\"Protocol\":\"{protocol}\",\"AppProtocol\":null,\
                 \"Port\":{number},\
                 \"TargetPort\":0,\"NodePort\":0}}"
            );
            let mut cause = FieldError::duplicate(format!("spec.ports[{at}]"), &Value::Null);
            cause.message = format!("Duplicate value: {value}");
            causes.push(cause);
        }
    }
    causes
}

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

fn port<'a>(
    field: &str,
    port: &'a Value,
    named: bool,
    names: &mut BTreeSet<&'a str>,
) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let name = text(port, "/name");
    let at_name = format!("{field}.name");
    if name.is_empty() {
        causes.extend(named.then(|| FieldError::required(&at_name, "")));
    } else {
        causes.extend(invalid(&at_name, name, &syntax::label(name)));
        if !names.insert(name) {
            causes.push(FieldError::duplicate(&at_name, &json!(name)));
        }
    }
    let range = |key: &str, value: &Value| {
        let fine = value.as_i64().is_some_and(|number| (1..=65535).contains(&number));
        (!fine).then(|| FieldError::invalid(format!("{field}.{key}"), value, PORT_RANGE))
    };
    causes.extend(range("port", port.get("port").unwrap_or(&json!(0))));
    causes.extend(one_of(&format!("{field}.protocol"), port, "/protocol", &PROTOCOLS));
    match port.get("targetPort") {
        Some(Value::String(name)) => {
            causes.extend(invalid(&format!("{field}.targetPort"), name, &syntax::port_name(name)));
        }
        Some(target) => causes.extend(range("targetPort", target)),
        None => {}
    }
    if let Some(Value::String(protocol)) = port.get("appProtocol") {
        causes.extend(invalid(
            &format!("{field}.appProtocol"),
            protocol,
            &syntax::qualified(protocol),
        ));
    }
    causes
}

fn sessions(service: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let known = ["ClientIP", "None"];
    causes.extend(one_of("spec.sessionAffinity", service, "/spec/sessionAffinity", &known));
    if let Some(seconds) = service.pointer("/spec/sessionAffinityConfig/clientIP/timeoutSeconds")
        && !seconds.as_i64().is_some_and(|seconds| (1..=86400).contains(&seconds))
    {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        causes.push(FieldError::invalid(
            field,
            seconds,
            "must be greater than 0 and less than 86400",
        ));
    }
    causes
}

fn addresses(service: &Value) -> Vec<FieldError> {
    const FIELD: &str = "spec.clusterIPs";
    let first = text(service, "/spec/clusterIP");
    let all: Vec<&str> = texts(service, "/spec/clusterIPs").collect();
    if !has_address(service) {
        let why = "may not be set for ExternalName services";
        return if all.is_empty() { vec![] } else { vec![FieldError::forbidden(FIELD, why)] };
    }
    let whole = |why: &str| vec![FieldError::invalid(FIELD, &json!(all), why)];
    if all.is_empty() {
        return families(service);
    }
    let mut causes = Vec::new();
    if first.is_empty() {
        causes.extend(whole("must be empty when `clusterIP` is not specified"));
    } else if all.first() != Some(&first) {
        return whole("first value must match `clusterIP`");
    }
    if all.len() > 1 && all.contains(&"None") {
        causes.extend(whole("'None' must be the first and only value"));
        return causes;
    }
    let faults: Vec<FieldError> = all
        .iter()
        .enumerate()
        .filter(|(_, one)| **one != "None")
        .filter_map(|(at, one)| {
            let why = syntax::address_fault(one)?;
            Some(FieldError::invalid(format!("{FIELD}[{at}]"), &json!(one), why))
        })
        .collect();
    causes.extend(faults);
    if all.len() > 2 {
        causes.extend(whole("may only hold up to 2 values"));
    } else if let [Ok(one), Ok(two)] =
        all.iter().map(|one| one.parse::<IpAddr>()).collect::<Vec<_>>()[..]
        && one.is_ipv4() == two.is_ipv4()
    {
        causes.extend(whole("may specify no more than one IP for each IP family"));
    }
    if all == ["None"] && has_node_ports(service) {
        let why = format!("may not be set to 'None' for {} services", text(service, "/spec/type"));
        causes.push(FieldError::invalid(format!("{FIELD}[0]"), &json!("None"), &why));
    }
    causes.extend(families(service));
    causes
}

fn families(service: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, family) in texts(service, "/spec/ipFamilies").enumerate() {
        let field = format!("spec.ipFamilies[{at}]");
        if !["IPv4", "IPv6"].contains(&family) {
            causes.push(FieldError::unsupported(field, &json!(family), &["IPv4", "IPv6"]));
        } else if !seen.insert(family) {
            causes.push(FieldError::duplicate(field, &json!(family)));
        }
    }
    let known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    causes.extend(one_of("spec.ipFamilyPolicy", service, "/spec/ipFamilyPolicy", &known));
    causes
}

fn by_type(service: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let of = text(service, "/spec/type");
    if of == "ExternalName" {
        let name = text(service, "/spec/externalName").trim_end_matches('.');
        if name.is_empty() {
            causes.push(FieldError::required("spec.externalName", ""));
        } else {
            causes.extend(invalid("spec.externalName", name, &syntax::subdomain(name)));
        }
    }
    if of != "LoadBalancer" {
        let why = "may only be used when `type` is 'LoadBalancer'";
        for key in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if service["spec"].get(key).is_some() {
                causes.push(FieldError::forbidden(format!("spec.{key}"), why));
            }
        }
        if !list(service, "/spec/loadBalancerSourceRanges").is_empty() {
            causes.push(FieldError::forbidden("spec.LoadBalancerSourceRanges", why));
        }
    }
    if let Some(class) = service["spec"]["loadBalancerClass"].as_str() {
        causes.extend(invalid("spec.loadBalancerClass", class, &syntax::qualified(class)));
    }
    for (at, range) in texts(service, "/spec/loadBalancerSourceRanges").enumerate() {
        if let Err(why) = syntax::network(range) {
            let field = format!("spec.LoadBalancerSourceRanges[{at}]");
            causes.push(FieldError::invalid(field, &json!(range), why));
        }
    }
    causes
}

fn policies(service: &Value) -> Vec<FieldError> {
    let known = ["Cluster", "Local"];
    let mut causes = Vec::new();
    causes.extend(one_of(
        "spec.internalTrafficPolicy",
        service,
        "/spec/internalTrafficPolicy",
        &known,
    ));
    if let Some(policy) = service.pointer("/spec/externalTrafficPolicy") {
        let reachable = has_node_ports(service) || !list(service, "/spec/externalIPs").is_empty();
        if reachable {
            let field = "spec.externalTrafficPolicy";
            causes.extend(one_of(field, service, "/spec/externalTrafficPolicy", &known));
        } else {
            let why = "may only be set for externally-accessible services";
            causes.push(FieldError::invalid("spec.externalTrafficPolicy", policy, why));
        }
    }
    let health = number(service, "/spec/healthCheckNodePort").unwrap_or(0);
    if health != 0 && !has_health_port(service) {
        let why =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(FieldError::invalid("spec.healthCheckNodePort", &json!(health), why));
    }
    let near = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    causes.extend(one_of("spec.trafficDistribution", service, "/spec/trafficDistribution", &near));
    causes
}

fn external_ips(service: &Value) -> Vec<FieldError> {
    let addresses = texts(service, "/spec/externalIPs").enumerate();
    let why = |address: &str| match address.parse() {
        Err(_) => syntax::address_fault(address),
        Ok(address) => syntax::special_address_fault(address),
    };
    addresses
        .filter_map(|(at, one)| {
            why(one)
                .map(|why| FieldError::invalid(format!("spec.externalIPs[{at}]"), &json!(one), why))
        })
        .collect()
}

fn changes(stored: &Value, service: &Value) -> Vec<FieldError> {
    let mut causes = Vec::new();
    if has_address(stored) && has_address(service) {
        let old = list(stored, "/spec/clusterIPs");
        let new = list(service, "/spec/clusterIPs");
        for (at, (one, other)) in old.iter().zip(new).enumerate() {
            if one != other {
                let field = format!("spec.clusterIPs[{at}]");
                causes.push(FieldError::invalid(field, &json!(new), "may not change once set"));
            }
        }
    }
    if has_health_port(stored)
        && has_health_port(service)
        && number(stored, "/spec/healthCheckNodePort")
            != number(service, "/spec/healthCheckNodePort")
    {
        causes.push(FieldError::forbidden("spec.healthCheckNodePort", "field is immutable"));
    }
    causes
}
