//! What goes over the wire, and what answers mean.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use zonewise_cluster::lease::{LeaseStore, api_store};

use super::*;

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// An API server that gives the same answer to every request and records the requests.
async fn server(status: u16, answer: Value) -> (impl LeaseStore, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let notes = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(converse(stream, status, answer.to_string(), Arc::clone(&notes)));
        }
    });
    let client = kube::Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
    (api_store(client, &config("me")), asked)
}

async fn converse(stream: TcpStream, status: u16, answer: String, asked: Asked) {
    let mut stream = BufReader::new(stream);
    let mut request = String::new();
    stream.read_line(&mut request).await.unwrap();
    let mut length = 0;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.unwrap();
        let header = header.to_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if header.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    asked.lock().unwrap().push((request.trim().to_owned(), body));
    let head = "content-type: application/json\r\nconnection: close";
    let size = answer.len();
    let reply = format!("HTTP/1.1 {status} x\r\n{head}\r\ncontent-length: {size}\r\n\r\n{answer}");
    stream.get_mut().write_all(reply.as_bytes()).await.unwrap();
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "code": code, "reason": reason, "message": message })
}

fn ours(version: Option<&str>) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": "ns", "name": "lease" },
        "spec": { "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 2,
                  "acquireTime": "1970-01-01T00:00:01.000000Z",
                  "renewTime": "1970-01-01T00:01:00.000000Z" },
    });
    if let Some(version) = version {
        lease["metadata"]["resourceVersion"] = json!(version);
    }
    lease
}

#[tokio::test]
async fn requests_as_the_api_server_wants_them() {
    let (store, asked) = server(200, ours(Some("7"))).await;
    let mine = |version| lease(version, spec("me", 15, (1, 60), 2));
    assert_eq!(store.get("lease").await, Ok(Some(mine("7"))));
    assert_eq!(store.create(&mine("")).await, Ok(mine("7")));
    assert_eq!(store.replace(&mine("6")).await, Ok(mine("7")));
    let path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
    let expected = [
        (format!("GET {path}/lease HTTP/1.1"), Value::Null),
        (format!("POST {path}? HTTP/1.1"), ours(None)),
        (format!("PUT {path}/lease? HTTP/1.1"), ours(Some("6"))),
    ];
    assert_eq!(*asked.lock().unwrap(), expected);
}

#[tokio::test]
async fn what_refusals_mean() {
    let mine = lease("6", spec("me", 15, (1, 60), 2));
    let (store, _) = server(409, status(409, "Conflict", "modified")).await;
    assert_eq!(store.replace(&mine).await, Err(StoreError::Conflict));
    assert_eq!(store.create(&mine).await, Err(StoreError::Conflict));

    let missing = "namespaces \"ns\" not found";
    let (store, _) = server(404, status(404, "NotFound", missing)).await;
    assert_eq!(store.get("lease").await, Ok(None));
    assert_eq!(store.replace(&mine).await, Err(StoreError::Missing));
    let error = store.create(&mine).await.unwrap_err();
    assert_eq!(error, StoreError::NamespaceMissing("ns".to_owned()));
    let said = error.to_string();
    assert!(said.contains("`kubectl create namespace ns`"), "{said}");
    assert!(said.contains("--create-namespace"), "{said}");

    for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden")] {
        let (store, _) = server(code, status(code, reason, "no")).await;
        let error = store.get("lease").await.unwrap_err();
        assert_eq!(error, StoreError::Denied(format!("no ({code} {reason})")));
        assert!(error.to_string().contains("get, create and update on leases"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_the_cause() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let client = kube::Client::try_from(kube::Config::new(address.parse().unwrap())).unwrap();
    let store = api_store(client, &config("me"));
    let error = LeaseStore::get(&store, "lease").await.unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
}
