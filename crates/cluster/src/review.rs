//! Asks the API server who a client is (TokenReview) and what it, or this program itself, may do (SubjectAccessReview): delegated authentication
//! and authorization, as the servers of Kubernetes do it among each other.

use http::Method;
pub use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{self, ApiError};

/// The user that a token belongs to; `None` if the API server does not accept it, or if it is not meant for this
/// audience. Without an audience it must be meant for the API server.
pub async fn authenticate(
    client: &Client,
    token: &str,
    audience: Option<&str>,
) -> Result<Option<UserInfo>, ApiError> {
    let audiences = audience.map(|audience| vec![audience.to_owned()]);
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences };
    let review = TokenReview { spec, ..TokenReview::default() };
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let status = review_at(client, path, &review).await?.status.unwrap_or_default();
    // An API server that does not know audiences does not return any.
    let meant = audience
        .is_none_or(|audience| status.audiences.iter().flatten().any(|known| known == audience));
    Ok(status.user.filter(|_| status.authenticated == Some(true) && meant))
}

/// Whether a user may read a path that is no resource, such as `/metrics`.
pub async fn may_get(client: &Client, user: UserInfo, path: &str) -> Result<bool, ApiError> {
    let asked = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec { non_resource_attributes: Some(asked), ..about(user) };
    is_allowed(client, spec).await
}

/// Whether a user may list a resource. An empty namespace stands for all of them.
pub async fn may_list(
    client: &Client,
    user: &UserInfo,
    group: &str,
    resource: &str,
    namespace: &str,
) -> Result<bool, ApiError> {
    let asked = resource_attributes("list", group, resource, namespace);
    let spec = SubjectAccessReviewSpec { resource_attributes: Some(asked), ..about(user.clone()) };
    is_allowed(client, spec).await
}

fn resource_attributes(
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
) -> ResourceAttributes {
    ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    }
}

/// A question about a user.
fn about(user: UserInfo) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        ..SubjectAccessReviewSpec::default()
    }
}

async fn is_allowed(client: &Client, spec: SubjectAccessReviewSpec) -> Result<bool, ApiError> {
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let status = review_at(client, path, &review).await?.status.unwrap_or_default();
    Ok(status.allowed)
}

/// Whether the client's own user may do something with a resource. An empty namespace stands for all of them.
pub async fn may_i(
    client: &Client,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
) -> Result<bool, ApiError> {
    let asked = resource_attributes(verb, group, resource, namespace);
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(asked),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let status = review_at(client, path, &review).await?.status.unwrap_or_default();
    Ok(status.allowed)
}

/// Reviews are not stored: what was asked comes back with a status.
async fn review_at<T: Serialize + DeserializeOwned>(
    client: &Client,
    path: &str,
    review: &T,
) -> Result<T, ApiError> {
    let failed = |error: serde_json::Error| ApiError::Failed(format!("a review: {error}"));
    let body = serde_json::to_vec(review).map_err(failed)?;
    let answer = api::call(client, Method::POST, path, api::JSON, body).await?;
    serde_json::from_slice(&answer).map_err(failed)
}
