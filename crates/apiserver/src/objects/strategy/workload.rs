//! Defaults and validation of Deployments and ReplicaSets.

use serde_json::{Value, json};

use super::{default_in, pod};
use crate::objects::json::{default, entries, list, map, number, text, texts};
use crate::objects::kind::Kind;
use crate::objects::selectors::Selector;
use crate::objects::strategy::one_of;
use crate::status::FieldError;

pub(super) fn deployment_defaults(object: &mut Value) {
    let spec = map(object, "spec");
    default(spec, "progressDeadlineSeconds", 600);
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "strategy", json!({}));
    if let Some(strategy) = spec.get_mut("strategy").and_then(Value::as_object_mut) {
        default(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            default(strategy, "rollingUpdate", json!({}));
        }
    }
    if spec["strategy"]["rollingUpdate"].is_object() {
        let limits = [("maxUnavailable", json!("25%")), ("maxSurge", json!("25%"))];
        default_in(&mut spec["strategy"], "rollingUpdate", &limits);
    }
    defaults(object);
}

pub(super) fn replica_set_defaults(object: &mut Value) {
    defaults(object);
    default(map(object, "status"), "replicas", 0);
}

fn defaults(object: &mut Value) {
    let spec = map(object, "spec");
    default(spec, "replicas", 1);
    default(spec, "template", json!({}));
    if let Some(template) = spec.get_mut("template") {
        map(template, "metadata");
        pod::template_defaults(template);
    }
    map(object, "status");
}

pub(super) fn check(kind: &Kind, stored: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let mut causes = numbers(object);
    causes.extend(selector(kind, object));
    causes.extend(template(object));
    let known = ["Recreate", "RollingUpdate"];
    causes.extend(one_of("spec.strategy.type", object, "/spec/strategy/type", &known));
    let same = |stored: &Value| stored["spec"]["selector"] == object["spec"]["selector"];
    if stored.is_some_and(|stored| !same(stored)) {
        let selector = &object["spec"]["selector"];
        causes.push(FieldError::invalid("spec.selector", selector, "field is immutable"));
    }
    causes
}

fn numbers(object: &Value) -> Vec<FieldError> {
    let fields = ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"];
    let negative = |field: &&str| number(object, &format!("/spec/{field}")).filter(|one| *one < 0);
    let wrong = fields.iter().filter_map(|field| Some((field, negative(field)?)));
    wrong
        .map(|(field, value)| {
            let why = "must be greater than or equal to 0";
            FieldError::invalid(format!("spec.{field}"), &json!(value), why)
        })
        .collect()
}

fn selector(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    let mismatch = || {
        let why = "`selector` does not match template `labels`";
        FieldError::invalid("spec.template.metadata.labels", &shown(labels), why)
    };
    let selector = &object["spec"]["selector"];
    if selector.is_null() {
        return vec![FieldError::required("spec.selector", ""), mismatch()];
    }
    let is_empty = |key: &str| {
        selector[key].as_object().is_none_or(serde_json::Map::is_empty)
            && selector[key].as_array().is_none_or(Vec::is_empty)
    };
    if is_empty("matchLabels") && is_empty("matchExpressions") {
        let why = format!("empty selector is invalid for {}", kind.singular);
        return vec![FieldError::invalid("spec.selector", selector, &why)];
    }
    let parsed = match Selector::parse(kind, &selector_text(selector), "") {
        Ok(parsed) => parsed,
        Err(error) => {
            return vec![FieldError::invalid("spec.selector", selector, &error.message)];
        }
    };
    if parsed.matches(&json!({"metadata": {"labels": labels}})) {
        return Vec::new();
    }
    vec![mismatch()]
}

/// Labels as messages show them.
fn shown(labels: &Value) -> Value {
    if labels.is_null() { json!({}) } else { labels.clone() }
}

/// The template is checked as a Pod.
fn template(object: &Value) -> Vec<FieldError> {
    let template = &object["spec"]["template"];
    let mut causes = pod::check(None, template);
    for cause in &mut causes {
        cause.field = format!("spec.template.{}", cause.field);
    }
    let policy = text(template, "/spec/restartPolicy");
    if !["", "Always"].contains(&policy) {
        causes.push(FieldError::unsupported(
            "spec.template.spec.restartPolicy",
            &json!(policy),
            &["Always"],
        ));
    }
    causes
}

/// The selector as text, as `/scale` shows it: `app=web,tier in (a,b)`.
pub(crate) fn selector_text(selector: &Value) -> String {
    let equal = entries(selector, "/matchLabels")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = list(selector, "/matchExpressions").iter().map(|one| {
        let key = text(one, "/key");
        let values: Vec<&str> = texts(one, "/values").collect();
        match text(one, "/operator") {
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            _ => format!("{key} in ({})", values.join(",")),
        }
    });
    equal.chain(expressions).collect::<Vec<_>>().join(",")
}
