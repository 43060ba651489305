//! Counts of requests, from the API server's metrics.

use std::collections::BTreeMap;

/// Verb, resource and status code of requests.
pub(crate) type Request = (String, String, String);

/// Reads `apiserver_request_total`, summed over its other labels.
pub(crate) fn requests(text: &str) -> BTreeMap<Request, u64> {
    let mut counts = BTreeMap::new();
    for (request, count) in text.lines().filter_map(request) {
        *counts.entry(request).or_default() += count;
    }
    counts
}

fn request(line: &str) -> Option<(Request, u64)> {
    let (labels, value) = line.strip_prefix("apiserver_request_total{")?.rsplit_once("} ")?;
    let key = (label(labels, "verb")?, label(labels, "resource")?, label(labels, "code")?);
    Some((key, value.parse().ok()?))
}

fn label(labels: &str, name: &str) -> Option<String> {
    labels
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_besides_the_three_are_summed() {
        let text = r#"# TYPE apiserver_request_total counter
apiserver_request_total{code="200",group="",resource="pods",subresource="status",verb="PUT"} 3
apiserver_request_total{code="200",group="",resource="pods",subresource="",verb="PUT"} 4
apiserver_request_total{code="409",group="",resource="pods",subresource="",verb="PUT"} 1
apiserver_request_duration_seconds_count{resource="pods",verb="PUT"} 9
"#;
        let key = |code: &str| ("PUT".to_owned(), "pods".to_owned(), code.to_owned());
        assert_eq!(requests(text), BTreeMap::from([(key("200"), 7), (key("409"), 1)]));
    }
}
