//! What proxies serve by default, and where: other programs read it.

/// The port of metrics, on loopback: that of kube-proxy (`ProxyStatusPort` in
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/cluster/ports/ports.go>).
pub const METRICS_PORT: u16 = 10249;
/// The port of counted connections.
pub const COUNTS_PORT: u16 = 10274;
/// The path of counted connections.
pub const COUNTS_PATH: &str = "/demand";
/// The metric of connections by Service and zone.
pub const SERVICE_CONNECTIONS: &str = "zonewise_service_connections_total";
/// The metric of bytes by Service and zone.
pub const SERVICE_BYTES: &str = "zonewise_service_bytes_total";
