//! What the metrics API (`metrics.k8s.io`) says of the Pods of a namespace. metrics-server serves it, or an adapter.
//!
//! ```text
//!  GET …/namespaces/NAME/pods?limit=500&continue=…  ─► one item after another, or what is wrong in words
//! ```
//!
//! Who answers is a program of somebody else behind the API server. So answers are bounded in size, number and time, and nothing more
//! than one item of them is held. Whatever is not an answer is an error that says what to do.

use std::time::Duration;

use http::header::ACCEPT;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use thiserror::Error;
use tokio::time::timeout;
use zonewise_common::json_list::Cutter;
use zonewise_common::lenient::lenient;
use zonewise_common::media_type::JSON;

use crate::api::with_causes;
use crate::watch::{namespaced, query_parameter};

/// The path that lists those of all namespaces.
const PATH: &str = "/apis/metrics.k8s.io/v1beta1/pods";
const KIND: &str = "PodMetricsList";
/// Time for all pages of a namespace.
const LIMIT: Duration = Duration::from_secs(10);
/// Items of a page that are asked for. metrics-server gives all of them at once, whatever is asked for.
const PAGE_SIZE: usize = 500;
/// The most pages.
const PAGES: usize = 64;
/// The most bytes of a page: some 25,000 Pods with one container each.
const LARGEST: usize = 16 << 20;
/// How much of an answer that is no answer is shown.
const SHOWN: usize = 200;

/// Why the metrics API gives nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PodMetricsError {
    /// The API server does not know the group.
    #[error(
        "the API server has no metrics.k8s.io; install metrics-server, or another program that serves PodMetrics"
    )]
    Missing,
    /// This program may not list them.
    #[error(
        "the API server does not let this program list PodMetrics ({0}); apply deploy/demand/pod-metrics.yaml, or set \
         demand.podMetrics to true in the values of the chart"
    )]
    Forbidden(u16),
    /// Nothing answers, or it says that it cannot.
    #[error(
        "the metrics API is not available: {0}; look at the APIService v1beta1.metrics.k8s.io and at the Pods of \
         metrics-server"
    )]
    Unavailable(String),
    /// It has not answered in time.
    #[error(
        "the metrics API has not answered within {} s; look at the Pods of metrics-server", LIMIT.as_secs()
    )]
    Late,
    /// The answer is too large.
    #[error(
        "the metrics API gives more than {LARGEST} bytes at once, or more than {PAGES} pages, for the namespace {0}; use \
         endpoint-weight cpu-use for Services in namespaces with fewer Pods"
    )]
    TooLarge(String),
    /// The answer is something else.
    #[error(
        "what answers as the metrics API does not give a list of PodMetrics: {0}; look at the APIService \
         v1beta1.metrics.k8s.io and at what serves it"
    )]
    Nonsense(String),
}

impl PodMetricsError {
    /// The names of all of them.
    pub const NAMES: [&'static str; 6] =
        ["missing", "forbidden", "unavailable", "late", "too_large", "nonsense"];

    /// Its name in metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Forbidden(_) => "forbidden",
            Self::Unavailable(_) => "unavailable",
            Self::Late => "late",
            Self::TooLarge(_) => "too_large",
            Self::Nonsense(_) => "nonsense",
        }
    }

    /// Whether questions about other namespaces would fail as well.
    pub fn is_general(&self) -> bool {
        match self {
            Self::Missing | Self::Forbidden(_) | Self::Unavailable(_) | Self::Late => true,
            Self::TooLarge(_) | Self::Nonsense(_) => false,
        }
    }
}

/// Lists the PodMetrics of a namespace, and calls `take` with each of them, in JSON.
///
/// # Errors
/// If there is no whole answer. What has arrived until then was taken.
pub async fn list(
    client: &Client,
    namespace: &str,
    mut take: impl FnMut(&[u8]) + Send,
) -> Result<(), PodMetricsError> {
    let pages = async {
        let mut next = String::new();
        for _ in 0..PAGES {
            next = page(client, namespace, &next, &mut take).await?;
            if next.is_empty() {
                return Ok(());
            }
        }
        Err(PodMetricsError::TooLarge(namespace.to_owned()))
    };
    timeout(LIMIT, pages).await.unwrap_or(Err(PodMetricsError::Late))
}

/// One page. Returns what to ask for the next one with; empty after the last.
async fn page(
    client: &Client,
    namespace: &str,
    next: &str,
    take: &mut (impl FnMut(&[u8]) + Send),
) -> Result<String, PodMetricsError> {
    let path = namespaced(namespace, PATH);
    let path = format!("{path}?limit={PAGE_SIZE}{}", query_parameter("continue", next));
    let request = Request::get(&path).header(ACCEPT, JSON).body(Body::empty());
    let request = request.map_err(|error| PodMetricsError::Nonsense(error.to_string()))?;
    let answer = client.send(request).await;
    let answer = answer.map_err(|error| PodMetricsError::Unavailable(with_causes(&error)))?;
    let status = answer.status();
    let mut list = List { cutter: Cutter::default(), bytes: 0, begin: Vec::new() };
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| PodMetricsError::Unavailable(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        if !status.is_success() {
            list.remember(&data);
            if list.begin.len() == SHOWN {
                break;
            }
        } else if !list.feed(&data, take) {
            return Err(PodMetricsError::TooLarge(namespace.to_owned()));
        }
    }
    list.end(status)
}

/// A page that is read.
struct List {
    cutter: Cutter,
    bytes: usize,
    /// How it begins, to show it.
    begin: Vec<u8>,
}

impl List {
    /// False if it is too large.
    fn feed(&mut self, data: &[u8], take: &mut impl FnMut(&[u8])) -> bool {
        self.bytes += data.len();
        self.remember(data);
        if self.bytes > LARGEST {
            return false;
        }
        self.cutter.feed(data, &mut *take);
        true
    }

    fn remember(&mut self, data: &[u8]) {
        let room = SHOWN - self.begin.len();
        self.begin.extend_from_slice(&data[..data.len().min(room)]);
    }

    fn end(self, status: StatusCode) -> Result<String, PodMetricsError> {
        let begin = String::from_utf8_lossy(&self.begin);
        if !status.is_success() {
            return Err(match status.as_u16() {
                404 => PodMetricsError::Missing,
                code @ (401 | 403) => PodMetricsError::Forbidden(code),
                code => PodMetricsError::Unavailable(format!("status {code}, {begin:?}")),
            });
        }
        match serde_json::from_slice::<Rest>(self.cutter.rest()) {
            Ok(rest) if rest.kind == KIND => Ok(rest.metadata.next),
            Ok(rest) => Err(PodMetricsError::Nonsense(format!("it is a {:?}", shown(&rest.kind)))),
            Err(error) => Err(PodMetricsError::Nonsense(format!("{error}: {begin:?}"))),
        }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// A list without its items.
#[derive(Deserialize)]
struct Rest {
    #[serde(default, deserialize_with = "lenient")]
    kind: String,
    #[serde(default, deserialize_with = "lenient")]
    metadata: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    #[serde(rename = "continue", deserialize_with = "lenient")]
    next: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&[u8]], status: u16) -> (Vec<String>, Result<String, PodMetricsError>) {
        let mut items = Vec::new();
        let mut list = List { cutter: Cutter::default(), bytes: 0, begin: Vec::new() };
        let mut take = |item: &[u8]| items.push(String::from_utf8_lossy(item).into_owned());
        for chunk in chunks {
            assert!(list.feed(chunk, &mut take));
        }
        (items, list.end(StatusCode::from_u16(status).unwrap()))
    }

    #[test]
    fn a_list_is_cut_into_items_and_anything_else_is_told_by_what_it_is() {
        let whole = [
            &br#"{"kind":"PodMetricsList","metadata":{"continue":"x"},"items":[{"a":1},{"#[..],
            &br#""b":2}]}"#[..],
        ];
        let items = vec![r#"{"a":1}"#.to_owned(), r#"{"b":2}"#.to_owned()];
        assert_eq!(read(&whole, 200), (items, Ok("x".to_owned())));
        let rows: [(&[u8], u16, &str, &str); 8] = [
            (b"404 page not found", 404, "missing", "install metrics-server"),
            (b"{}", 403, "forbidden", "(403); apply deploy/demand/pod-metrics.yaml"),
            (b"{}", 401, "forbidden", "(401)"),
            (b"service unavailable", 503, "unavailable", "status 503, \"service unavailable\""),
            (b"", 500, "unavailable", "APIService"),
            (br#"{"kind":"PodList","items":[]}"#, 200, "nonsense", r#"it is a "PodList""#),
            (b"<html>", 200, "nonsense", "<html>"),
            (b"", 200, "nonsense", "EOF"),
        ];
        for (body, status, name, text) in rows {
            let (_, result) = read(&[body], status);
            let error = result.unwrap_err();
            assert_eq!(error.name(), name, "{error}");
            assert!(
                PodMetricsError::NAMES.contains(&name) && error.to_string().contains(text),
                "{error}"
            );
        }
    }

    #[test]
    fn a_page_that_is_too_large_is_not_read_to_its_end() {
        let mut list = List { cutter: Cutter::default(), bytes: 0, begin: Vec::new() };
        let chunk = vec![b' '; 1 << 20];
        let fed = (0..100).take_while(|_| list.feed(&chunk, &mut |_| ())).count();
        assert_eq!(fed, LARGEST >> 20);
    }
}
