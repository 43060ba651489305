//! Discovery, OpenAPI and the version.

use crate::requests::{Group, get, group};

pub(crate) fn groups() -> Vec<Group> {
    let aggregated =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    vec![group(
        "discovery",
        vec![
            get("core versions", "/api"),
            get("groups", "/apis"),
            get("core", "/api/v1"),
            get("apps", "/apis/apps"),
            get("coordination", "/apis/coordination.k8s.io"),
            get("coordination v1", "/apis/coordination.k8s.io/v1"),
            get("discovery", "/apis/discovery.k8s.io"),
            get("discovery v1", "/apis/discovery.k8s.io/v1"),
            get("events", "/apis/events.k8s.io"),
            get("events v1", "/apis/events.k8s.io/v1"),
            get("networking v1", "/apis/networking.k8s.io/v1"),
            get("core, aggregated", "/api").header("accept", aggregated),
            get("groups, aggregated", "/apis").header("accept", aggregated),
            get("no group", "/apis/example.com"),
            get("no version", "/apis/discovery.k8s.io/v7"),
            get("no version of the core", "/api/v7"),
            get("version", "/version"),
            get("health", "/healthz"),
            get("live", "/livez"),
            get("ready", "/readyz"),
            get("openapi v3", "/openapi/v3"),
            get("nothing", "/nothing"),
        ],
    )]
}
