//! Lists and watches of a server that answers by a script over real connections, with the faults of a wire.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use zonewise_cluster::api::ApiError;
use zonewise_cluster::watch::{self, WatchListener};
use zonewise_common::encoded::{DecodeError, Encoded};
use zonewise_common::name::{Key, Keyed, Name};
use zonewise_common::protobuf::MEDIA_TYPE;
use zonewise_common::protobuf::kinds::POD;
use zonewise_common::testing::protobuf::{bytes, encode, envelope, int, watch_event};

use crate::server::{Answer, JSON, answer};

fn refusal(status: u16) -> Answer {
    let body = json!({"kind": "Status", "code": status, "message": "only JSON"}).to_string();
    Answer { status, ..answer(JSON, body.into_bytes()) }
}

/// What a listener was told and what the server was asked, in their order.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Metadata {
    name: Name,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

impl Keyed for Pod {
    fn key(&self) -> Key {
        (Name::default(), Name::clone(&self.metadata.name))
    }
}

impl WatchListener for Notes {
    type Object = Pod;

    fn read(&self, object: Encoded<'_>) -> Result<Pod, DecodeError> {
        object.decode()
    }

    fn apply(&mut self, pod: Pod) {
        let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        self.add(format!("{} on {node}", pod.metadata.name));
    }

    fn unreadable(&mut self, key: &Key, error: &str) {
        self.add(format!("{} cannot be read: {error}", key.1));
    }

    fn delete(&mut self, _: u64, key: &Key) {
        self.add(format!("{} deleted", key.1));
    }

    fn listed(&mut self, version: u64, keys: &BTreeSet<Key>) {
        let names: Vec<&str> = keys.iter().map(|(_, name)| &**name).collect();
        self.add(format!("listed {} at {version}", names.join(" ")));
    }

    fn health(&mut self, health: Result<(), &ApiError>) {
        if let Err(error) = health {
            let text = error.to_string();
            let known =
                ["compressed", "cannot be used"].into_iter().find(|word| text.contains(word));
            self.add(format!("failed: {}", known.unwrap_or("not available")));
        }
    }
}

/// Gives the answers one after the other, a connection each; further requests wait for ever.
async fn serve(listener: TcpListener, answers: Vec<Answer>, notes: Notes) {
    let mut held = Vec::new();
    let mut answers = answers.into_iter();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        notes.add(asked(&mut stream).await);
        match answers.next() {
            Some(answer) => answer.send(&mut stream.into_inner()).await.unwrap(),
            None => held.push(stream),
        }
    }
}

/// A request in a few words, such as `? watch from 5 in protobuf`.
async fn asked(stream: &mut BufReader<TcpStream>) -> String {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.to_lowercase());
    }
    let path = &lines[0];
    let version = path.split("resourceversion=").nth(1).unwrap_or_default();
    let version: String = version.chars().take_while(char::is_ascii_digit).collect();
    let what = match () {
        () if path.contains("watch=true") => format!("watch from {version}"),
        () if path.contains("limit=1 ") => "version".to_owned(),
        () if path.contains("continue=more") => "more".to_owned(),
        () => "list".to_owned(),
    };
    let accepts = lines.iter().any(|line| line.starts_with("accept:") && line.contains(MEDIA_TYPE));
    format!("? {what} in {}", if accepts { "protobuf" } else { "json" })
}

/// What happens with these answers, up to the request after the last of them. Tests are on a paused clock, which passes over the delays
/// of the watch. The looks at what has happened make its steps short, so that it does not run past what is on its way.
async fn story(answers: Vec<Answer>) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (notes, requests) = (Notes::default(), answers.len() + 1);
    let server = tokio::spawn(serve(listener, answers, notes.clone()));
    let client = kube::Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
    let follower = tokio::spawn(watch::follow(client, watch::PODS, notes.clone()));
    let begun = Instant::now();
    let told = loop {
        let told = notes.all();
        if told.iter().filter(|note| note.starts_with('?')).count() == requests {
            break told;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{told:#?}");
        sleep(Duration::from_millis(20)).await;
    };
    follower.abort();
    server.abort();
    told
}

fn object(name: &str, version: u64) -> Value {
    let metadata = json!({"name": name, "resourceVersion": version.to_string()});
    json!({"metadata": metadata, "spec": {"nodeName": "n1"}})
}

fn pod(name: &str, version: u64) -> Vec<u8> {
    encode(POD.fields, &object(name, version))
}

fn protobuf_list(version: u64, items: &[Vec<u8>]) -> Answer {
    let items: Vec<u8> = items.iter().flat_map(|item| bytes(2, item)).collect();
    let list = [bytes(1, bytes(2, version.to_string())), items].concat();
    answer(MEDIA_TYPE, envelope("v1", "PodList", &list))
}

fn protobuf_watch(events: &[Vec<u8>]) -> Answer {
    answer(&format!("{MEDIA_TYPE};stream=watch"), events.concat())
}

fn added(name: &str, version: u64) -> Vec<u8> {
    watch_event("ADDED", &envelope("v1", "Pod", &pod(name, version)))
}

fn json_list(version: u64, names: &[&str]) -> Answer {
    let items: Vec<Value> = names.iter().map(|name| object(name, version)).collect();
    let list = json!({"metadata": {"resourceVersion": version.to_string()}, "items": items});
    answer(JSON, list.to_string().into_bytes())
}

fn json_watch(name: &str, version: u64) -> Answer {
    let event = json!({"type": "ADDED", "object": object(name, version)});
    answer(JSON, format!("{event}\n").into_bytes())
}

const LISTED: [&str; 3] = ["? list in protobuf", "a on n1", "listed a at 5"];
const FALLEN_BACK: [&str; 4] = ["? list in protobuf", "? list in json", "a on n1", "listed a at 5"];

fn assert_story(answers: Vec<Answer>, expected: &[&[&str]]) -> impl Future<Output = ()> + use<> {
    let expected: Vec<String> = expected.concat().into_iter().map(str::to_owned).collect();
    async move { assert_eq!(story(answers).await, expected) }
}

#[tokio::test(start_paused = true)]
async fn what_is_read_is_what_the_answer_says_it_is() {
    let rest = ["? watch from 5 in protobuf", "b on n1", "? watch from 6 in protobuf"];
    let protobuf = vec![protobuf_list(5, &[pod("a", 4)]), protobuf_watch(&[added("b", 6)])];
    let json = vec![json_list(5, &["a"]), json_watch("b", 6)];
    tokio::join!(assert_story(protobuf, &[&LISTED, &rest]), assert_story(json, &[&LISTED, &rest]),);
}

/// Objects of all pages count as listed, at the version that the last page names.
#[tokio::test(start_paused = true)]
async fn the_pages_of_a_list_are_one_list() {
    let metadata = bytes(1, [bytes(2, "5"), bytes(3, "more")].concat());
    let list = [metadata, bytes(2, pod("a", 4))].concat();
    let first = answer(MEDIA_TYPE, envelope("v1", "PodList", &list));
    let json = json!({"metadata": {"resourceVersion": "5", "continue": "more"},
        "items": [object("a", 4)]});
    let json = answer(JSON, json.to_string().into_bytes());
    let told =
        ["? list in protobuf", "a on n1", "? more in protobuf", "b on n1", "listed a b at 5"];
    let rest = ["? watch from 5 in protobuf"];
    let second = || protobuf_list(5, &[pod("b", 5)]);
    tokio::join!(
        assert_story(vec![first, second()], &[&told, &rest]),
        assert_story(vec![json, second()], &[&told, &rest]),
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_protobuf_is_asked_for_json() {
    let rest = ["? watch from 5 in json", "b on n1", "? watch from 6 in json"];
    let list = |status| vec![refusal(status), json_list(5, &["a"]), json_watch("b", 6)];
    let watch = vec![protobuf_list(5, &[pod("a", 4)]), refusal(406), json_watch("b", 6)];
    tokio::join!(
        assert_story(list(406), &[&FALLEN_BACK, &rest]),
        assert_story(list(415), &[&FALLEN_BACK, &rest]),
        assert_story(watch, &[&LISTED, &["? watch from 5 in protobuf"], &rest]),
    );
}

/// A proxy in between may rename the content, or recode it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_what_it_says_is_asked_for_in_json() {
    let json_type = format!("content-type: {JSON}");
    let renamed = Answer { headers: json_type, ..protobuf_list(5, &[pod("a", 4)]) };
    let recoded = Answer { headers: format!("content-type: {MEDIA_TYPE}"), ..json_list(5, &["a"]) };
    let other = answer(MEDIA_TYPE, envelope("v1", "ServiceList", &[]));
    let nameless = protobuf_list(5, &[pod("a", 4), vec![0x0a, 99]]);
    let json_type = format!("content-type: {JSON}");
    let renamed_watch = Answer { headers: json_type, ..protobuf_watch(&[added("b", 6)]) };
    let rest = ["? watch from 5 in json"];
    tokio::join!(
        assert_story(vec![renamed, json_list(5, &["a"])], &[&FALLEN_BACK, &rest]),
        assert_story(vec![recoded, json_list(5, &["a"])], &[&FALLEN_BACK, &rest]),
        assert_story(vec![other, json_list(5, &["a"])], &[&FALLEN_BACK, &rest]),
        // An object without a name must not be taken for one that was deleted.
        assert_story(
            vec![nameless, json_list(5, &["a", "b"])],
            &[
                &["? list in protobuf", "a on n1", "? list in json", "a on n1", "b on n1"],
                &["listed a b at 5"],
                &rest
            ],
        ),
        assert_story(
            vec![protobuf_list(5, &[pod("a", 4)]), renamed_watch],
            &[&LISTED, &["? watch from 5 in protobuf"], &rest],
        ),
    );
}

/// It may come from a proxy in between, and be right the next time.
#[tokio::test(start_paused = true)]
async fn a_page_of_html_or_broken_json_is_asked_for_again_in_protobuf() {
    let html = || answer("text/html", b"<html>\n<body>Back soon</body>\n</html>".to_vec());
    let one_line = || answer("text/html", b"<html>{[Back soon]}</html>".to_vec());
    let json = |text: &str| answer(JSON, text.as_bytes().to_vec());
    let half_a_list = json(r#"{"metadata":{"resourceVersion":"5"},"items":[{"#);
    let nameless_list = json(r#"{"metadata":{"resourceVersion":"5"},"items":[{}]}"#);
    let no_list = json(r#"{"kind":"PodList"}"#);
    let mut stories = JoinSet::new();
    let lists = [html(), one_line(), json(""), half_a_list, nameless_list, no_list];
    for list in lists {
        let failed = ["? list in protobuf", "failed: not available"];
        let rest = ["? watch from 5 in protobuf"];
        let answers = vec![list, protobuf_list(5, &[pod("a", 4)])];
        stories.spawn(assert_story(answers, &[&failed, &LISTED, &rest]));
    }
    let half_an_event = json(r#"{"type":"ADDED","object""#);
    let broken = json("{\"type\":\"ADDED\",\"object\"}\n");
    let nameless_event = json("{\"type\":\"ADDED\",\"object\":{}}\n");
    for watch in [html(), one_line(), half_an_event, broken, nameless_event] {
        let answers = vec![
            protobuf_list(5, &[pod("a", 4)]),
            watch,
            protobuf_list(5, &[]),
            protobuf_watch(&[added("b", 6)]),
        ];
        let failed = ["? watch from 5 in protobuf", "failed: not available"];
        let rest = ["? version in protobuf", "? watch from 5 in protobuf", "b on n1"];
        let end = ["? watch from 6 in protobuf"];
        stories.spawn(assert_story(answers, &[&LISTED, &failed, &rest, &end]));
    }
    stories.join_all().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_inside_a_frame_loses_nothing() {
    let events = [added("b", 6), added("c", 7)];
    let whole = events.concat().len();
    for cut in [whole - 1, events[0].len() + 2] {
        let broken = Answer { cut: Some(cut), ..protobuf_watch(&events) };
        let answers = vec![
            protobuf_list(5, &[pod("a", 4)]),
            broken,
            protobuf_list(7, &[pod("a", 4)]),
            protobuf_watch(&events[1..]),
        ];
        let expected: [&[&str]; 4] = [
            &LISTED,
            &["? watch from 5 in protobuf", "b on n1", "failed: not available"],
            &["? version in protobuf", "? watch from 6 in protobuf", "c on n1"],
            &["? watch from 7 in protobuf"],
        ];
        assert_story(answers, &expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_cut_off_is_asked_for_again_in_the_same_form() {
    let whole = protobuf_list(5, &[pod("a", 4), pod("b", 5)]);
    let cut = Answer { cut: Some(whole.body.len() - 9), ..whole };
    let answers = vec![cut, protobuf_list(5, &[pod("a", 4)])];
    let expected: [&[&str]; 3] = [
        &["? list in protobuf", "a on n1", "failed: not available"],
        &LISTED,
        &["? watch from 5 in protobuf"],
    ];
    assert_story(answers, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_is_larger_than_announced_ends_protobuf_and_not_the_watch() {
    let mut large = added("c", 7);
    large.extend([0xff; 8]);
    let answers = vec![
        protobuf_list(5, &[pod("a", 4)]),
        protobuf_watch(&[added("b", 6), large]),
        json_watch("d", 8),
    ];
    let expected: [&[&str]; 3] = [
        &LISTED,
        &["? watch from 5 in protobuf", "b on n1", "c on n1"],
        &["? watch from 7 in json", "d on n1", "? watch from 8 in json"],
    ];
    assert_story(answers, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_compressed_without_being_asked_is_an_error_that_says_so() {
    let list = protobuf_list(5, &[pod("a", 4)]);
    let headers = format!("{}\r\ncontent-encoding: gzip", list.headers);
    let answers = vec![Answer { headers, ..list }, protobuf_list(5, &[pod("a", 4)])];
    let expected: [&[&str]; 3] =
        [&["? list in protobuf", "failed: compressed"], &LISTED, &["? watch from 5 in protobuf"]];
    assert_story(answers, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_named_and_the_others_are_used() {
    let no_text = [encode(&POD.fields[..1], &object("bad", 5)), bytes(2, int(10, 7))];
    let list = protobuf_list(5, &[no_text.concat(), pod("a", 4)]);
    let expected: [&[&str]; 2] = [
        &[
            "? list in protobuf",
            "bad cannot be read: spec.nodeName: a field that should be a string or a message is something else",
        ],
        &["a on n1", "listed a bad at 5", "? watch from 5 in protobuf"],
    ];
    assert_story(vec![list], &expected).await;
}
