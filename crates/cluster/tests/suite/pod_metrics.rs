//! Lists of PodMetrics from a server that answers by a script, with the faults of a metrics API that is broken or hostile.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use zonewise_cluster::pod_metrics::{PodMetricsError, list};

use crate::server::{Answer, JSON, answer};

/// What came of asking a server that gives these answers, a connection each, and then none any more: the names of the Pods, the error,
/// and how many pages were asked for.
async fn ask(answers: Vec<Answer>) -> (String, Result<(), PodMetricsError>, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config =
        kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let (asked, mut pages) = tokio::sync::mpsc::unbounded_channel();
    let server = tokio::spawn(async move {
        let mut answers = answers.into_iter();
        let mut held = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            asked.send(()).unwrap();
            let mut stream = read_request(stream).await;
            match answers.next() {
                // Who has read enough closes the connection.
                Some(answer) => drop(answer.send(&mut stream).await),
                None => held.push(stream),
            }
        }
    });
    let mut names = String::new();
    let take = |item: &[u8]| {
        let item: Value = serde_json::from_slice(item).unwrap();
        write!(names, "{} ", item["metadata"]["name"].as_str().unwrap()).unwrap();
    };
    let result = list(&client, "shop", take).await;
    server.abort();
    let mut count = 0;
    while pages.try_recv().is_ok() {
        count += 1;
    }
    (names.trim_end().to_owned(), result, count)
}

async fn read_request(stream: TcpStream) -> TcpStream {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line.trim().is_empty() {
            return stream.into_inner();
        }
    }
}

fn page(names: &[&str], next: &str) -> Answer {
    let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    let list = json!({"kind": "PodMetricsList", "metadata": {"continue": next}, "items": items});
    answer(JSON, list.to_string().into_bytes())
}

fn problem(result: Result<(), PodMetricsError>) -> &'static str {
    result.err().map_or("none", |error| error.name())
}

#[tokio::test]
async fn all_pages_are_read() {
    let (names, result, pages) = ask(vec![page(&["a", "b"], "more"), page(&["c"], "")]).await;
    assert_eq!((&*names, result, pages), ("a b c", Ok(()), 2));
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_middle_loses_only_the_rest() {
    let whole = page(&["a", "b"], "");
    let cut = String::from_utf8_lossy(&whole.body).find(r#"{"metadata":{"name":"b"#);
    let (names, result, _) = ask(vec![Answer { cut, ..whole }]).await;
    assert!(cut.is_some());
    assert_eq!((&*names, problem(result)), ("a", "unavailable"));
}

#[tokio::test]
async fn an_answer_without_end_and_pages_without_end_are_too_large() {
    let mut endless = page(&["a"], "").body;
    endless.extend(vec![b' '; 64 << 20]);
    let (names, result, pages) = ask(vec![answer(JSON, endless)]).await;
    assert_eq!((&*names, problem(result), pages), ("a", "too_large", 1));

    let circle = (0..100).map(|_| page(&[], "more")).collect();
    let (_, result, pages) = ask(circle).await;
    assert_eq!((problem(result), pages), ("too_large", 64));
}

/// On a paused clock that takes small steps, so that it does not run past what is on its way.
#[tokio::test(start_paused = true)]
async fn who_does_not_answer_is_not_waited_for() {
    tokio::spawn(async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let (names, result, pages) = ask(vec![page(&["a"], "more")]).await;
    assert_eq!((&*names, problem(result), pages), ("a", "late", 2));
}
