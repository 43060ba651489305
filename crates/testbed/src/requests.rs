//! Requests for objects: create, update, delete, list, watch.
//!
//! The API server ignores `status` when an object is created or replaced: a status needs a second request, to
//! the subresource. [`Objects`] sends it for every object that has a status.

use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use http::{Method, Request};
use kube::Client;
use kube::api::WatchEvent;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long a namespace may be unknown after it was created.
const NAMESPACE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests in flight at once: enough to keep the server busy, few enough not to be throttled.
const CONCURRENCY: usize = 16;

/// A kind of object and the path where the API server serves it.
struct Kind {
    name: &'static str,
    api: &'static str,
    plural: &'static str,
    namespaced: bool,
}

const fn namespaced(name: &'static str, api: &'static str, plural: &'static str) -> Kind {
    Kind { name, api, plural, namespaced: true }
}

const fn cluster_scoped(name: &'static str, api: &'static str, plural: &'static str) -> Kind {
    Kind { name, api, plural, namespaced: false }
}

const CORE: &str = "/api/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

const KINDS: &[Kind] = &[
    cluster_scoped("Namespace", CORE, "namespaces"),
    cluster_scoped("Node", CORE, "nodes"),
    namespaced("ConfigMap", CORE, "configmaps"),
    namespaced("Secret", CORE, "secrets"),
    namespaced("Pod", CORE, "pods"),
    namespaced("Service", CORE, "services"),
    namespaced("ServiceAccount", CORE, "serviceaccounts"),
    namespaced("Event", CORE, "events"),
    namespaced("EndpointSlice", "/apis/discovery.k8s.io/v1", "endpointslices"),
    namespaced("Lease", "/apis/coordination.k8s.io/v1", "leases"),
    namespaced("Deployment", "/apis/apps/v1", "deployments"),
    namespaced("HorizontalPodAutoscaler", "/apis/autoscaling/v2", "horizontalpodautoscalers"),
    cluster_scoped("APIService", "/apis/apiregistration.k8s.io/v1", "apiservices"),
    cluster_scoped("ServiceCIDR", "/apis/networking.k8s.io/v1", "servicecidrs"),
    namespaced("Role", RBAC, "roles"),
    namespaced("RoleBinding", RBAC, "rolebindings"),
    cluster_scoped(
        "ValidatingWebhookConfiguration",
        "/apis/admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
    ),
    cluster_scoped(
        "ValidatingAdmissionPolicy",
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
    ),
    cluster_scoped(
        "ValidatingAdmissionPolicyBinding",
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
    ),
    cluster_scoped(
        "MutatingWebhookConfiguration",
        "/apis/admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
    ),
    cluster_scoped(
        "MutatingAdmissionPolicy",
        "/apis/admissionregistration.k8s.io/v1",
        "mutatingadmissionpolicies",
    ),
    cluster_scoped(
        "MutatingAdmissionPolicyBinding",
        "/apis/admissionregistration.k8s.io/v1",
        "mutatingadmissionpolicybindings",
    ),
    cluster_scoped(
        "CustomResourceDefinition",
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
    ),
    namespaced("ZoneAllocation", "/apis/zonewise.dev/v1alpha1", "zoneallocations"),
    cluster_scoped("ZoneEvacuation", "/apis/zonewise.dev/v1alpha1", "zoneevacuations"),
    namespaced("PodMetrics", "/apis/metrics.k8s.io/v1beta1", "pods"),
    cluster_scoped("ClusterRole", RBAC, "clusterroles"),
    cluster_scoped("ClusterRoleBinding", RBAC, "clusterrolebindings"),
];

/// Reads and writes objects as one user. Like its client, it only works in the async runtime that it was
/// created in.
#[derive(Clone)]
pub struct Objects {
    client: Client,
}

impl Objects {
    /// Sends requests with `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Creates the objects, each with its status; in no order.
    pub async fn create(&self, objects: &[Value]) -> Result<()> {
        let plan =
            |object| with_status(Step::new(Method::POST, collection(object)?, object)?, object);
        self.run(objects.iter().map(plan).collect::<Result<_>>()?).await
    }

    /// Replaces the objects, each with its status; in no order.
    pub async fn update(&self, objects: &[Value]) -> Result<()> {
        let plan = |object| with_status(Step::new(Method::PUT, item(object)?, object)?, object);
        self.run(objects.iter().map(plan).collect::<Result<_>>()?).await
    }

    /// Replaces only the status of the objects: one request each.
    pub async fn update_status(&self, objects: &[Value]) -> Result<()> {
        let plan = |object| Ok(vec![status(object)?]);
        self.run(objects.iter().map(plan).collect::<Result<_>>()?).await
    }

    /// Deletes the objects without a grace period, because no kubelet would end it.
    pub async fn delete(&self, objects: &[Value]) -> Result<()> {
        self.delete_with(objects, &json!({ "gracePeriodSeconds": 0 })).await
    }

    /// Deletes the objects with their grace period. A Pod stays terminating until [`Objects::delete`].
    pub async fn terminate(&self, objects: &[Value]) -> Result<()> {
        self.delete_with(objects, &json!({})).await
    }

    /// All objects of a kind, in one namespace or in all.
    pub async fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Vec<Value>> {
        let path = path(find(kind)?, namespace);
        let mut list: Value = self.client.request(request(Method::GET, &path, Vec::new())?).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("GET {path}: items is {other}, not a list"),
        }
    }

    /// One object; `None` if it does not exist.
    pub async fn get(
        &self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>> {
        let path = format!("{}/{name}", path(find(kind)?, namespace));
        match self.client.request(request(Method::GET, &path, Vec::new())?).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            answer => answer.map(Some).with_context(|| format!("GET {path}")),
        }
    }

    /// Watches a kind. Existing objects come first, as added. `T` is the part of an object to decode.
    pub async fn watch<T>(&self, kind: &str, namespace: Option<&str>) -> Result<Watch<T>>
    where
        T: Clone + DeserializeOwned + Send + 'static,
    {
        self.watch_after(kind, namespace, "").await
    }

    /// Watches a kind from the changes after a resource version on; as [`Self::watch`] if that is empty.
    pub async fn watch_after<T>(
        &self,
        kind: &str,
        namespace: Option<&str>,
        version: &str,
    ) -> Result<Watch<T>>
    where
        T: Clone + DeserializeOwned + Send + 'static,
    {
        let path = path(find(kind)?, namespace);
        // Without a time of ours, the server ends a watch after five to ten minutes. A benchmark takes longer.
        let path = format!("{path}?watch=true&timeoutSeconds=7200&resourceVersion={version}");
        let request = request(Method::GET, &path, Vec::new())?;
        let events = self.client.request_events::<T>(request).await?;
        Ok(Watch { events: Box::pin(events) })
    }

    /// All objects of each known kind that the API server serves, in all namespaces.
    pub(crate) async fn list_everything(&self) -> Result<Vec<(&'static str, Vec<Value>)>> {
        let list = async |kind: &'static Kind| match self.list(kind.name, None).await {
            Ok(items) => Ok(Some((kind.name, items))),
            Err(error) if code(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        };
        let lists = stream::iter(KINDS).map(list).buffer_unordered(CONCURRENCY);
        lists.try_filter_map(async |list| Ok(list)).try_collect().await
    }

    /// Deletes all objects of a kind in a namespace.
    pub(crate) async fn delete_all(&self, kind: &str, namespace: &str) -> Result<()> {
        self.delete_path(&path(find(kind)?, Some(namespace))).await
    }

    /// Deletes an object, which may be gone already.
    pub(crate) async fn delete_if_there(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<()> {
        self.delete_path(&format!("{}/{name}", path(find(kind)?, Some(namespace)))).await
    }

    /// Deletes a namespace for good. The controller that would do it does not run, and nothing of what is in the namespace
    /// is looked at.
    pub(crate) async fn end_namespace(&self, name: &str) -> Result<()> {
        self.delete_if_there("Namespace", "", name).await?;
        let ended = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []},
        });
        let path = format!("/api/v1/namespaces/{name}/finalize");
        self.send_if_there(&Method::PUT, &path, &ended).await
    }

    async fn delete_path(&self, path: &str) -> Result<()> {
        self.send_if_there(&Method::DELETE, path, &json!({ "gracePeriodSeconds": 0 })).await
    }

    /// Sends a request about an object that may be gone already.
    async fn send_if_there(&self, method: &Method, path: &str, body: &Value) -> Result<()> {
        let request = request(method.clone(), path, serde_json::to_vec(body)?)?;
        match self.client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            answer => answer.map(drop).with_context(|| format!("{method} {path}")),
        }
    }

    async fn delete_with(&self, objects: &[Value], options: &Value) -> Result<()> {
        let plan = |object| Ok(vec![Step::new(Method::DELETE, item(object)?, options)?]);
        self.run(objects.iter().map(plan).collect::<Result<_>>()?).await
    }

    /// Sends the steps of each plan in order, and several plans at once.
    async fn run(&self, plans: Vec<Vec<Step>>) -> Result<()> {
        let plans = stream::iter(plans).map(Ok);
        plans.try_for_each_concurrent(CONCURRENCY, |plan| self.send(plan)).await
    }

    async fn send(&self, plan: Vec<Step>) -> Result<()> {
        for Step { method, path, body } in plan {
            let context = format!("{method} {path}");
            self.send_one(&method, &path, body).await.context(context)?;
        }
        Ok(())
    }

    /// Sends a request; again while the API server does not know a namespace that was just created. Its admission
    /// sees namespaces through a watch, which may be late on a busy machine.
    async fn send_one(&self, method: &Method, path: &str, body: Vec<u8>) -> Result<()> {
        let deadline = Instant::now() + NAMESPACE_TIMEOUT;
        loop {
            let answer =
                self.client.request_text(request(method.clone(), path, body.clone())?).await;
            match answer {
                Err(kube::Error::Api(status))
                    if is_unknown_namespace(&status) && Instant::now() < deadline =>
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                answer => return Ok(answer.map(drop)?),
            }
        }
    }
}

/// The status code of the answer that is an error.
pub(crate) fn code(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

fn is_unknown_namespace(status: &Status) -> bool {
    let kind = status.details.as_ref().map(|details| details.kind.as_str());
    status.code == 404 && kind == Some("namespaces")
}

/// A request to send. It owns its body, so that callers may move their work to other tasks.
struct Step {
    method: Method,
    path: String,
    body: Vec<u8>,
}

impl Step {
    fn new(method: Method, path: String, body: &Value) -> Result<Self> {
        Ok(Self { method, path, body: serde_json::to_vec(body)? })
    }
}

fn with_status(step: Step, object: &Value) -> Result<Vec<Step>> {
    let more = object["status"].is_object().then(|| status(object)).transpose()?;
    Ok(std::iter::once(step).chain(more).collect())
}

fn status(object: &Value) -> Result<Step> {
    Step::new(Method::PUT, format!("{}/status", item(object)?), object)
}

/// A change of a [`Watch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// Created, or existing when the watch began.
    Added(T),
    /// Changed.
    Modified(T),
    /// Deleted, with its last state.
    Deleted(T),
}

/// Changes as they happen.
pub struct Watch<T> {
    events: Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<T>>> + Send>>,
}

impl<T> Watch<T> {
    /// The next change; `None` when the server has closed the watch.
    pub async fn next(&mut self) -> Result<Option<Change<T>>> {
        while let Some(event) = self.events.try_next().await? {
            return Ok(Some(match event {
                WatchEvent::Added(object) => Change::Added(object),
                WatchEvent::Modified(object) => Change::Modified(object),
                WatchEvent::Deleted(object) => Change::Deleted(object),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => return Err(anyhow!("the watch failed: {status:?}")),
            }));
        }
        Ok(None)
    }
}

fn request(method: Method, path: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>> {
    let builder = Request::builder().method(method).uri(path);
    Ok(builder.header(http::header::CONTENT_TYPE, "application/json").body(body)?)
}

fn find(kind: &str) -> Result<&'static Kind> {
    KINDS.iter().find(|known| known.name == kind).with_context(|| {
        format!("the testbed does not know the kind {kind:?}: add it to KINDS in requests.rs")
    })
}

fn path(kind: &Kind, namespace: Option<&str>) -> String {
    let Kind { api, plural, .. } = kind;
    match namespace {
        Some(namespace) if kind.namespaced => format!("{api}/namespaces/{namespace}/{plural}"),
        _ => format!("{api}/{plural}"),
    }
}

fn collection(object: &Value) -> Result<String> {
    let kind = find(object["kind"].as_str().unwrap_or_default())?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    Ok(path(kind, Some(namespace)))
}

fn item(object: &Value) -> Result<String> {
    let name = object["metadata"]["name"].as_str();
    Ok(format!("{}/{}", collection(object)?, name.context("an object without a name")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_kind_and_namespace() {
        let pod = json!({ "kind": "Pod", "metadata": { "namespace": "shop", "name": "web" } });
        let node = json!({ "kind": "Node", "metadata": { "name": "n1" } });
        assert_eq!(item(&pod).unwrap(), "/api/v1/namespaces/shop/pods/web");
        assert_eq!(item(&node).unwrap(), "/api/v1/nodes/n1");
        assert!(item(&json!({ "kind": "Pot", "metadata": { "name": "a" } })).is_err());
    }
}
