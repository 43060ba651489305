//! Runs the groups on both servers and compares whole answers.

use std::collections::BTreeSet;

use http::Response;
use serde_json::{Map, Value, json};

use crate::differences::{Entry, Listed};
use crate::groups;
use crate::normal::Normal;
use crate::protobuf::{self, Read};
use crate::requests::{Group, Words, delete, in_protobuf};
use crate::servers::{Pair, Side};

/// Headers that clients rely on.
const HEADERS: [&str; 4] = ["content-type", "warning", "retry-after", "location"];

/// The forms in which all requests are made. Namespaces begin with their first letters.
const FORMS: [&str; 2] = ["text", PROTOBUF];
const PROTOBUF: &str = "protobuf";

/// A difference that is not listed, or a listed one that does not occur.
type Complaint = String;

#[test]
fn both_servers_answer_every_request_alike() {
    let pair = Pair::get();
    let groups = groups::all();
    let (mut complaints, mut used) = (Vec::new(), BTreeSet::new());
    for (group, form) in groups.iter().flat_map(|group| FORMS.map(|form| (group, form))) {
        let (real, embedded) = pair.run(async {
            tokio::join!(run(&pair.real, group, form), run(&pair.embedded, group, form))
        });
        let found = compare(group.name, &real, &embedded, &mut used);
        complaints.extend(found.into_iter().map(|complaint| format!("{form}: {complaint}")));
    }
    complaints.extend(Listed::unused(|group| !group.starts_with("k-"), &used));
    let requests: usize = groups.iter().map(|group| group.steps.len()).sum();
    assert!(
        complaints.is_empty(),
        "{} differences in {requests} requests (answers in {}):\n{}",
        complaints.len(),
        env!("CARGO_TARGET_TMPDIR"),
        complaints.join("\n")
    );
}

/// All answers of a group in one form, by the names of the requests.
async fn run(side: &Side, group: &Group, form: &str) -> Value {
    let namespace = format!("{}-{}", &form[..1], group.name);
    let mut words = Words::from([("ns", namespace.clone())]);
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let made = crate::requests::post("namespace", "namespaces", body).request(&words);
    assert_eq!(side.send(made).await.status(), 201, "the namespace of {}", group.name);
    let mut normal = Normal::default();
    let mut answers = Map::new();
    for step in &group.steps {
        normal.add_request(&step.text(&words));
        let request = step.request(&words);
        let request = if form == PROTOBUF { in_protobuf(request) } else { request };
        let answer = side.send(request).await;
        let mut answer = document(&answer);
        for (word, pointer) in &step.kept {
            let value = answer["body"].pointer(pointer).and_then(Value::as_str);
            words.insert(word, value.unwrap_or_default().to_owned());
        }
        if step.is_dry() {
            // Addresses that a dry run gets may or may not be given to the next request.
            normal.clone().body(&mut answer["body"]);
        } else {
            normal.body(&mut answer["body"]);
        }
        assert!(answers.insert(step.name.clone(), answer).is_none(), "{} twice", step.name);
    }
    // Their addresses and ports are asked for in the next form again.
    side.send(delete("free", "services").request(&words)).await;
    let answers = Value::Object(answers);
    let file = format!("{}/{namespace}-{}.json", env!("CARGO_TARGET_TMPDIR"), side.name);
    std::fs::write(file, serde_json::to_vec_pretty(&answers).unwrap()).unwrap();
    answers
}

fn document(answer: &Response<Vec<u8>>) -> Value {
    let header = |name: &&str| {
        let value = answer.headers().get(*name)?.to_str().ok()?;
        Some(((*name).to_owned(), value.into()))
    };
    let headers: Map<String, Value> = HEADERS.iter().filter_map(header).collect();
    let status = answer.status().as_u16();
    // The answer to HEAD has no body.
    if media_type(answer).starts_with(protobuf::MEDIA_TYPE) && !answer.body().is_empty() {
        let Read { object, same } = match media_type(answer).ends_with(";stream=watch") {
            true => protobuf::read_frames(answer.body()),
            false => protobuf::read(answer.body()),
        };
        return json!({"status": status, "headers": headers, "body": object, "same bytes": same});
    }
    let text = String::from_utf8_lossy(answer.body());
    let body = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.into_owned()));
    json!({"status": status, "headers": headers, "body": body})
}

fn media_type(answer: &Response<Vec<u8>>) -> &str {
    answer.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The differences that are not listed; marks the entries of the list that were used.
fn compare(
    group: &str,
    real: &Value,
    embedded: &Value,
    used: &mut BTreeSet<Entry>,
) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (request, answer) in real.as_object().unwrap() {
        let answer = if group.starts_with("discovery") {
            &common(answer, &embedded[request])
        } else {
            answer
        };
        let mut found = Vec::new();
        walk(String::new(), answer, &embedded[request], &mut found);
        for (field, real, embedded) in found {
            match Listed::find(group, request, &field) {
                Some(entry) => {
                    used.insert(entry);
                }
                None => complaints.push(format!(
                    "{group} / {request} {field}\n    real     {}\n    embedded {}",
                    short(real),
                    short(embedded)
                )),
            }
        }
    }
    complaints
}

/// Discovery documents of the real server, reduced to what the embedded server serves too.
fn common(real: &Value, embedded: &Value) -> Value {
    const NAMES: [&str; 4] = ["/name", "/metadata/name", "/resource", "/subresource"];
    let name = |value: &Value| {
        if value.is_string() {
            return Some(value.clone());
        }
        NAMES.iter().find_map(|at| value.pointer(at)).cloned()
    };
    match (real, embedded) {
        (Value::Array(left), Value::Array(right)) => {
            let same = |one: &&Value| right.iter().find(|other| name(other) == name(one));
            let kept = left.iter().filter_map(|one| Some(common(one, same(&one)?)));
            Value::Array(kept.collect())
        }
        (Value::Object(left), Value::Object(right)) => {
            let kept = left.iter().map(|(key, value)| {
                (
                    key.clone(),
                    right.get(key).map_or_else(|| value.clone(), |other| common(value, other)),
                )
            });
            Value::Object(kept.collect())
        }
        _ => real.clone(),
    }
}

type Found<'a> = Vec<(String, Option<&'a Value>, Option<&'a Value>)>;

/// Every field that differs, as a pointer.
fn walk<'a>(at: String, real: &'a Value, embedded: &'a Value, found: &mut Found<'a>) {
    match (real, embedded) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => walk(at, left, right, found),
                    (left, right) => found.push((at, left, right)),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                walk(format!("{at}/{index}"), left, right, found);
            }
        }
        _ if real != embedded => found.push((at, Some(real), Some(embedded))),
        _ => {}
    }
}

fn short(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    if text.chars().count() <= 400 {
        text
    } else {
        text.chars().take(400).collect::<String>() + "…"
    }
}
