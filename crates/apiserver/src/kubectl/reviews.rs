//! What a user may do, as `kubectl auth` asks for it, and as other servers ask who their clients are. No I/O.
//!
//! Every user with a token may do everything.

use serde_json::{Value, json};

use crate::Token;
use crate::objects::kind::Kind;

/// A request for a review, of oneself or of another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    /// `kubectl auth can-i`.
    Access,
    /// `kubectl auth can-i --list`.
    Rules,
    /// `kubectl auth whoami`.
    Oneself,
    /// Whose token another server was given.
    Token,
    /// What another server's client may do.
    Subject,
}

/// What a review is answered from.
pub(crate) struct Known<'a> {
    /// The user that asks.
    pub(crate) user: &'a str,
    /// The token that the review is about, if it is one.
    pub(crate) token: Option<&'a Token>,
    /// Everybody with a token.
    pub(crate) users: &'a [Token],
}

/// The audience of tokens for the API server.
const API_AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";

impl Review {
    /// By group, version and plural.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Self> {
        match (group, version, plural) {
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => Some(Self::Access),
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => Some(Self::Rules),
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => Some(Self::Oneself),
            ("authentication.k8s.io", "v1", "tokenreviews") => Some(Self::Token),
            ("authorization.k8s.io", "v1", "subjectaccessreviews") => Some(Self::Subject),
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
        static TOKEN: Kind =
            Kind { group: "authentication.k8s.io", kind: "TokenReview", ..Kind::DEFAULTS };
        static SUBJECT: Kind =
            Kind { group: "authorization.k8s.io", kind: "SubjectAccessReview", ..Kind::DEFAULTS };
        match self {
            Self::Access => &ACCESS,
            Self::Rules => &RULES,
            Self::Oneself => &ONESELF,
            Self::Token => &TOKEN,
            Self::Subject => &SUBJECT,
        }
    }

    /// The answer to a user's request, with the `spec` of the request if it is known.
    pub(crate) fn answer(self, known: &Known<'_>, spec: &Value) -> Value {
        let status = match self {
            Self::Access => json!({"allowed": true}),
            Self::Rules => rules(),
            Self::Oneself => json!({"userInfo": user_info(known.user)}),
            Self::Token => token_status(known.token, &spec["audiences"]),
            Self::Subject => {
                let is_known = |token: &Token| spec["user"] == *token.user;
                json!({"allowed": known.users.iter().any(is_known)})
            }
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

fn user_info(user: &str) -> Value {
    json!({"username": user, "uid": user, "groups": ["system:masters", "system:authenticated"]})
}

/// Whose token it is, if it is meant for one of the audiences that are asked for; without any, for the API server.
fn token_status(token: Option<&Token>, audiences: &Value) -> Value {
    let asked: Vec<&str> =
        audiences.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let asked = if asked.is_empty() { vec![API_AUDIENCE] } else { asked };
    let meant = token.map(|token| (token, token.audience.as_deref().unwrap_or(API_AUDIENCE)));
    match meant.filter(|(_, audience)| asked.contains(audience)) {
        Some((token, audience)) => {
            json!({"authenticated": true, "user": user_info(&token.user), "audiences": [audience]})
        }
        None => json!({"user": {}, "error": "invalid bearer token"}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Vec<Token> {
        let token = |user: &str, audience: Option<&str>| Token {
            user: user.into(),
            secret: user.into(),
            audience: audience.map(Into::into),
        };
        vec![token("admin", None), token("reader", Some("them"))]
    }

    fn status(review: Review, spec: &Value) -> Value {
        let users = tokens();
        let token = users.iter().find(|token| spec["token"] == *token.secret);
        let known = Known { user: "admin", token, users: &users };
        review.answer(&known, spec)["status"].clone()
    }

    #[test]
    fn a_token_is_its_user_s_for_those_alone_that_it_is_meant_for() {
        let rows = [
            (json!({"token": "admin"}), Some(("admin", API_AUDIENCE))),
            (json!({"token": "admin", "audiences": ["them"]}), None),
            (json!({"token": "reader", "audiences": ["us", "them"]}), Some(("reader", "them"))),
            (json!({"token": "reader", "audiences": ["us"]}), None),
            (json!({"token": "reader"}), None),
            (json!({"token": "nobody"}), None),
            (json!({}), None),
        ];
        for (spec, expected) in rows {
            let status = status(Review::Token, &spec);
            let user = expected.map(|(user, _)| json!(user)).unwrap_or_default();
            let audiences = expected.map(|(_, audience)| json!([audience])).unwrap_or_default();
            let authenticated = expected.map(|_| json!(true)).unwrap_or_default();
            assert_eq!(status["authenticated"], authenticated, "{spec}");
            assert_eq!(status["user"]["username"], user, "{spec}");
            assert_eq!(status["audiences"], audiences, "{spec}");
        }
    }

    #[test]
    fn those_with_a_token_may_do_everything_and_others_nothing() {
        for (user, allowed) in [("admin", true), ("reader", true), ("nobody", false)] {
            assert_eq!(
                status(Review::Subject, &json!({"user": user}))["allowed"],
                allowed,
                "{user}"
            );
        }
        assert_eq!(status(Review::Subject, &Value::Null)["allowed"], false);
    }
}
