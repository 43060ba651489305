//! What a user may do, as `kubectl auth` asks for it. No I/O.
//!
//! Every user with a token may do everything.

use serde_json::{Value, json};

use crate::objects::kind::Kind;

/// A request for a review of oneself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    /// `kubectl auth can-i`.
    Access,
    /// `kubectl auth can-i --list`.
    Rules,
    /// `kubectl auth whoami`.
    Oneself,
}

impl Review {
    /// By group, version and plural.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        match (group, version, plural) {
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some(Self::Access),
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some(Self::Rules),
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Self::Oneself),
            _ => None,
        }
    }

    /// The kind of its objects, which are not stored.
    pub(crate) fn kind(self) -> &'static Kind {
        static ACCESS: Kind = Kind {
            group: "authorization.k8s.io",
            kind: "SelfSubjectAccessReview",
            ..Kind::DEFAULTS
        };
        static RULES: Kind = Kind {
            group: "authorization.k8s.io",
            kind: "SelfSubjectRulesReview",
            ..Kind::DEFAULTS
        };
        static ONESELF: Kind =
            Kind { group: "authentication.k8s.io", kind: "SelfSubjectReview", ..Kind::DEFAULTS };
        match self {
            Self::Access => &ACCESS,
            Self::Rules => &RULES,
            Self::Oneself => &ONESELF,
        }
    }

    /// The answer to a user's request, with the `spec` of the request if it is known.
    pub(crate) fn answer(self, user: &str, spec: &Value) -> Value {
        let status = match self {
            Self::Access => json!({"allowed": true}),
            Self::Rules => rules(),
            Self::Oneself => oneself(user),
        };
        let kind = self.kind();
        let mut answer = json!({
            "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": {}, "status": status,
        });
        if self != Self::Oneself {
            answer["spec"] = if spec.is_object() { spec.clone() } else { json!({}) };
        }
        answer
    }
}

fn rules() -> Value {
    json!({
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "incomplete": false,
    })
}

fn oneself(user: &str) -> Value {
    json!({"userInfo": {
        "username": user, "uid": user, "groups": ["system:masters", "system:authenticated"],
    }})
}
