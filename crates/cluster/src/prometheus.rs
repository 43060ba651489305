//! A client of Prometheus' query API, which Thanos, Mimir and VictoriaMetrics speak too.
//!
//! ```text
//!  POST URL/api/v1/query   query=…   ─► series with labels and a number, or what is wrong in words
//! ```
//!
//! Answers are bounded in size and time, and whatever is not an answer is an error that says what to do. Token and
//! certificate of the authority are read from files again and again, because they are replaced while the process runs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use zonewise_common::media_type::JSON;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::{Client, Config};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use thiserror::Error;
use tokio::time::timeout;

use crate::api::with_causes;

/// The most bytes of an answer: 10,000 Services in 5 zones have 10 MB.
const LARGEST: usize = 64 << 20;
/// Who asks, where a server has several tenants (Mimir, Cortex, Loki).
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
/// How much of an answer that is no answer is shown.
const SHOWN: usize = 200;

/// Where a Prometheus is, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its address without `/api/v1`, such as `http://prometheus.monitoring:9090`; it may have a path.
    pub url: String,
    /// A file with a bearer token.
    pub bearer_token_file: Option<PathBuf>,
    /// A file with the certificates of authorities, instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// The tenant, for servers that have several.
    pub tenant: Option<String>,
    /// Time for one answer.
    pub limit: Duration,
}

impl Server {
    /// Whether the address can be one.
    ///
    /// # Errors
    /// If it cannot.
    pub fn check(&self) -> Result<http::Uri, PrometheusError> {
        let url = &self.url;
        let wrong = |cause: &str| {
            PrometheusError::Settings(format!(
                "`{url}` is not the URL of a Prometheus: {cause} (example: http://prometheus.monitoring:9090)"
            ))
        };
        let uri: http::Uri =
            url.parse().map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        match uri.scheme_str() {
            Some("http" | "https") if uri.host().is_some() => Ok(uri),
            _ => Err(wrong("it begins with http:// or https:// and names a host")),
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PrometheusError {
    /// The address, the token or the certificates cannot be used.
    #[error("{0}")]
    Settings(String),
    /// Nothing answers.
    #[error(
        "Prometheus at {url} cannot be reached: {cause}; check the URL, and that nothing keeps the connection out"
    )]
    Unreachable {
        /// Its address.
        url: String,
        /// Why.
        cause: String,
    },
    /// It has not answered in time.
    #[error("Prometheus at {url} has not answered within {} s; it is overloaded, or the query is too large", .limit.as_secs())]
    Late {
        /// Its address.
        url: String,
        /// How long it had.
        limit: Duration,
    },
    /// It does not accept who asks.
    #[error(
        "Prometheus at {url} refuses the request with status {status}; check bearerTokenFile and tenant"
    )]
    Refused {
        /// Its address.
        url: String,
        /// The status.
        status: u16,
    },
    /// The query is wrong, or cannot be answered.
    #[error("Prometheus at {url} cannot answer the query: {cause}; the query was: {query}")]
    Query {
        /// Its address.
        url: String,
        /// What Prometheus says.
        cause: String,
        /// The query.
        query: String,
    },
    /// The answer is too large.
    #[error(
        "the answer of Prometheus at {url} has more than {LARGEST} bytes; sum up more labels in the query: {query}"
    )]
    TooLarge {
        /// Its address.
        url: String,
        /// The query.
        query: String,
    },
    /// The answer is not what Prometheus answers.
    #[error("what answers at {url} is not Prometheus, or not as it should be: {cause}")]
    Nonsense {
        /// The address.
        url: String,
        /// What is wrong.
        cause: String,
    },
}

impl PrometheusError {
    /// The names of all of them.
    pub const NAMES: [&'static str; 7] =
        ["settings", "unreachable", "late", "refused", "query", "too_large", "nonsense"];

    /// Its name in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Settings(_) => "settings",
            Self::Unreachable { .. } => "unreachable",
            Self::Late { .. } => "late",
            Self::Refused { .. } => "refused",
            Self::Query { .. } => "query",
            Self::TooLarge { .. } => "too_large",
            Self::Nonsense { .. } => "nonsense",
        }
    }
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Its value.
    pub value: f64,
}

/// A Prometheus that can be asked.
#[derive(Clone)]
pub struct Prometheus {
    client: Client,
    server: Server,
}

impl Prometheus {
    /// Nothing is asked yet. Has to be called in a runtime.
    pub fn new(server: Server) -> Result<Self, PrometheusError> {
        let uri = server.check()?;
        let Server { bearer_token_file, ca_file, tenant, limit, .. } = &server;
        let wrong = |cause: String| PrometheusError::Settings(cause);
        let mut config = Config::new(uri);
        (config.connect_timeout, config.read_timeout) = (Some(*limit), Some(*limit));
        (config.reset_reader_on_write, config.default_retry) = (true, false);
        config.root_cert_file.clone_from(ca_file);
        config.auth_info.token_file =
            bearer_token_file.as_ref().map(|file| file.display().to_string());
        if let Some(tenant) = tenant {
            let value = HeaderValue::from_str(tenant)
                .map_err(|error| wrong(format!("the tenant `{tenant}` cannot be used: {error}")))?;
            config.headers.push((TENANT, value));
        }
        let client = Client::try_from(config).map_err(|error| {
            wrong(format!(
                "Prometheus cannot be asked: {}; check bearerTokenFile and caFile",
                with_causes(&error)
            ))
        })?;
        Ok(Self { client, server })
    }

    /// What a query gives now.
    pub async fn query(&self, query: &str) -> Result<Vec<Series>, PrometheusError> {
        let Server { url, limit, .. } = &self.server;
        let asked = timeout(*limit, self.ask(query)).await;
        let late = || PrometheusError::Late { url: url.clone(), limit: *limit };
        let (status, body) = asked.map_err(|_| late())??;
        self.read(query, status, &body)
    }

    async fn ask(&self, query: &str) -> Result<(StatusCode, Vec<u8>), PrometheusError> {
        let url = || self.server.url.clone();
        let unreachable = |cause| PrometheusError::Unreachable { url: url(), cause };
        let form = format!("query={}", utf8_percent_encode(query, NON_ALPHANUMERIC));
        let request = Request::post("/api/v1/query")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, JSON)
            .body(Body::from(form.into_bytes()))
            .map_err(|error| unreachable(error.to_string()))?;
        let sent = self.client.send(request).await;
        let (head, body) = sent.map_err(|error| unreachable(with_causes(&error)))?.into_parts();
        let body = Limited::new(body, LARGEST).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => PrometheusError::TooLarge { url: url(), query: query.to_owned() },
            None => unreachable(error.to_string()),
        })?;
        Ok((head.status, body.to_bytes().to_vec()))
    }

    fn read(
        &self,
        query: &str,
        status: StatusCode,
        body: &[u8],
    ) -> Result<Vec<Series>, PrometheusError> {
        let url = || self.server.url.clone();
        if matches!(status.as_u16(), 401 | 403 | 407) {
            return Err(PrometheusError::Refused { url: url(), status: status.as_u16() });
        }
        let nonsense = |cause| PrometheusError::Nonsense { url: url(), cause };
        match serde_json::from_slice(body) {
            Ok(Answer::Success { data }) => data.series().map_err(nonsense),
            Ok(Answer::Error { error_type, error }) => Err(PrometheusError::Query {
                url: url(),
                cause: format!("{error_type}: {}", beginning(&error)),
                query: query.to_owned(),
            }),
            Err(error) => {
                let text = beginning(&String::from_utf8_lossy(body));
                Err(nonsense(format!("status {}, {error}: {text:?}", status.as_u16())))
            }
        }
    }
}

/// What Prometheus answers.
#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Answer {
    Success {
        data: Data,
    },
    Error {
        #[serde(rename = "errorType", default)]
        error_type: String,
        #[serde(default)]
        error: String,
    },
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    kind: String,
    result: serde_json::Value,
}

#[derive(Deserialize)]
struct Line {
    metric: BTreeMap<Box<str>, Box<str>>,
    value: (f64, String),
}

impl Data {
    fn series(self) -> Result<Vec<Series>, String> {
        if self.kind != "vector" {
            return Err(format!(
                "the query gives a {}, and an instant vector is needed, such as sum by (…) (rate(…[2m]))",
                beginning(&self.kind)
            ));
        }
        let lines: Vec<Line> =
            serde_json::from_value(self.result).map_err(|error| beginning(&error.to_string()))?;
        let series = lines.into_iter().map(|Line { metric: labels, value: (_, value) }| {
            let value = value.parse();
            let value = value.map_err(|_| format!("a value of {labels:?} is not a number"))?;
            Ok(Series { labels, value })
        });
        series.collect()
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
