use proptest::prelude::*;
use serde_json::json;

use super::*;

fn kind(plural: &str) -> &'static Kind {
    crate::objects::kind::KINDS.iter().find(|kind| kind.plural == plural).unwrap()
}

fn refusal(plural: &str, labels: &str, fields: &str) -> String {
    match Selector::parse(kind(plural), labels, fields) {
        Ok(selector) => panic!("{labels} {fields} was understood: {selector:?}"),
        Err(error) => {
            assert_eq!((error.code, error.reason), (400, "BadRequest"));
            error.message
        }
    }
}

#[test]
fn labels_are_selected() {
    let object = json!({"metadata": {"labels": {"a": "b", "n": "5", "in": "in"}}});
    for (selector, selected) in [
        ("", true),
        ("a", true),
        ("!a", false),
        ("! c", true),
        ("a=b", true),
        ("a==b", true),
        ("a!=b", false),
        ("c!=b", true),
        ("a=", false),
        ("a in (b, c)", true),
        ("a in(c)", false),
        ("a notin (c)", true),
        ("c notin (c)", true),
        ("a in ()", false),
        ("a in (,b)", true),
        ("n>4,n<6", true),
        ("n > 5", false),
        ("a>4", false),
        ("in in (in)", true),
        ("a=b,n=5,!c", true),
        ("a=b,n=6", false),
    ] {
        let parsed = Selector::parse(kind("services"), selector, "").unwrap();
        assert_eq!(parsed.matches(&object), selected, "{selector}");
    }
    assert!(Selector::parse(kind("services"), "!a", "").unwrap().matches(&json!({})));
}

#[test]
fn invalid_label_selectors_get_the_messages_of_kubernetes() {
    for (selector, message) in [
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        (
            "a<x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' \
             operators, the value must be an integer",
        ),
    ] {
        assert_eq!(refusal("services", selector, ""), message, "{selector}");
    }
    let key = refusal("services", "-a=b", "");
    assert!(
        key.starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": name part")
    );
    let value = refusal("services", "a=-b", "");
    assert!(
        value.starts_with("unable to parse requirement: values[0][a]: Invalid value: \"-b\": a")
    );
}

#[test]
fn fields_are_selected() {
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "a,b"},
        "status": {"phase": "Running"}});
    let event = json!({"involvedObject": {"name": "x"}, "reportingComponent": "c"});
    for (plural, object, selector, selected) in [
        ("pods", &pod, "metadata.name=p,metadata.namespace==n", true),
        ("pods", &pod, "metadata.name!=p", false),
        ("pods", &pod, "spec.nodeName=a\\,b,", true),
        ("pods", &pod, "spec.nodeName=", false),
        ("pods", &pod, "spec.hostNetwork=false", true),
        ("pods", &pod, "status.phase!=Pending", true),
        ("nodes", &json!({}), "spec.unschedulable=true", false),
        ("nodes", &json!({"spec": {"unschedulable": true}}), "spec.unschedulable=true", true),
        ("services", &json!({"spec": {"clusterIP": "None"}}), "spec.clusterIP=None", true),
        ("events", &event, "involvedObject.name=x,source=c", true),
    ] {
        let parsed = Selector::parse(kind(plural), "", selector).unwrap();
        assert_eq!(parsed.matches(object), selected, "{plural} {selector}");
    }
    let new = Kind::find("events.k8s.io", "v1", "events").unwrap();
    assert!(Selector::parse(new, "", "regarding.name=x").unwrap().matches(&event));
}

#[test]
fn invalid_field_selectors_get_the_messages_of_kubernetes() {
    for (plural, selector, message) in [
        ("services", "foo=x", "field label not supported: foo"),
        ("nodes", "metadata.namespace=x", "field label not supported: metadata.namespace"),
        ("events", "regarding.name=x", "field label not supported: regarding.name"),
        (
            "leases",
            "foo=x",
            "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        ),
        (
            "services",
            "metadata.name",
            "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
        ),
        ("pods", "metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("pods", "metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
    ] {
        assert_eq!(refusal(plural, "", selector), message, "{plural} {selector}");
    }
}

proptest! {
    /// Of a test and its opposite exactly one holds.
    #[test]
    fn opposites(
        value in "[a-c]?",
        tested in proptest::collection::vec("[a-c]", 1..3),
        with in any::<bool>(),
    ) {
        let object = if with { json!({"metadata": {"labels": {"k": value}}}) } else { json!({}) };
        let list = tested.join(",");
        for (one, other) in [
            (format!("k in ({list})"), format!("k notin ({list})")),
            (format!("k={}", tested[0]), format!("k!={}", tested[0])),
            ("k".to_owned(), "!k".to_owned()),
        ] {
            let holds = |text: &str| {
                Selector::parse(kind("pods"), text, "").unwrap().matches(&object)
            };
            prop_assert_ne!(holds(&one), holds(&other), "{} {}", one, other);
        }
    }

    /// Requirements are an "and", in any order.
    #[test]
    fn conjunction(a in "[ab]", b in "[ab]") {
        let object = json!({"metadata": {"labels": {"x": a, "y": b}}});
        let holds = |text: &str| Selector::parse(kind("pods"), text, "").unwrap().matches(&object);
        prop_assert_eq!(holds("x=a,y=b"), holds("x=a") && holds("y=b"));
        prop_assert_eq!(holds("x=a,y=b"), holds("y=b,x=a"));
    }

    #[test]
    fn nothing_panics(labels in ".{0,20}", fields in ".{0,20}") {
        let _ = Selector::parse(kind("pods"), &labels, &fields);
    }
}
