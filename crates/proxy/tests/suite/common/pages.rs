//! The pages of a proxy that has published its tables.

use std::sync::{Arc, mpsc};

use serde_json::Value;
use zonewise_netns::Namespace;
use zonewise_proxy::testing::{Published, table_pages};
use zonewise_telemetry::server::{PageHandler, PageRequest};

use super::LONG;

/// The pages of these tables, asked on a thread of its own; the test fails if one of them waits.
pub(crate) fn ask(published: &Arc<Published>, namespace: &Namespace) -> [String; 2] {
    let (answers, answered) = mpsc::channel();
    let published = Arc::clone(published);
    let namespace = namespace.clone();
    std::thread::spawn(move || {
        let pages = namespace.enter(|| table_pages("n1", &published)).unwrap();
        for path in ["/metrics", "/routes"] {
            let page = pages.handle(PageRequest { method: "GET", path, query: "" });
            answers.send(page.body).unwrap();
        }
    });
    [(); 2].map(|()| answered.recv_timeout(LONG).expect("the page does not wait for the tables"))
}

pub(crate) fn routes(page: &str) -> Value {
    serde_json::from_str::<Value>(page).unwrap()["routes"].clone()
}

/// The first line of a Service on the page `/routes`.
pub(crate) fn of_service(page: &str, service: &str) -> Value {
    let lines = routes(page);
    lines.as_array().unwrap().iter().find(|line| line["service"] == service).unwrap().clone()
}
