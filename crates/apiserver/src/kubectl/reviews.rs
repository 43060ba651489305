//! What a user may do, as `kubectl auth` asks for it. No I/O.
//!
//! Every user with a token may do everything.

use serde_json::{Value, json};

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

    /// The answer to a user's request, with the `spec` of the request if it is known.
    pub(crate) fn answer(self, user: &str, spec: &Value) -> Value {
        let (kind, group, status) = match self {
            Self::Access => {
                ("SelfSubjectAccessReview", "authorization.k8s.io", json!({"allowed": true}))
            }
            Self::Rules => ("SelfSubjectRulesReview", "authorization.k8s.io", rules()),
            Self::Oneself => ("SelfSubjectReview", "authentication.k8s.io", oneself(user)),
        };
        let mut answer = json!({
            "kind": kind, "apiVersion": format!("{group}/v1"), "metadata": {}, "status": status,
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
