//! Starts `zonewise dashboard` and opens its page in a browser.
#![allow(dead_code, reason = "every test target uses its part of this")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use zonewise_testbed::Tab;

use crate::observe::run::program;

/// A running dashboard. Dropping it ends it.
pub(super) struct Dashboard {
    child: Child,
    /// Where its page is.
    pub(super) url: String,
}

impl Dashboard {
    /// Starts it on a free port of this machine.
    pub(super) fn start(arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", arguments)
    }

    /// Starts it on an address.
    pub(super) fn start_at(address: &str, arguments: &[&str]) -> Self {
        let mut command = program(&["dashboard", "--address", address]);
        Self::run(command.args(arguments))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let url = loop {
            let line = lines.next().unwrap_or_else(|| panic!("it has ended: {said}")).unwrap();
            if let Some(url) = line.strip_prefix("dashboard: ") {
                break url.to_owned();
            }
            said.push_str(&line);
            said.push('\n');
        };
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url }
    }

    /// Its address.
    pub(super) fn address(&self) -> SocketAddr {
        self.url.split_once("://").unwrap().1.parse().unwrap()
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The shop of the examples, with what is stored of its slices.
pub(super) const SHOP: [&str; 4] = ["-f", "examples/shop", "-f", "examples/shop-slices.yaml"];

/// The page of some objects.
pub(super) fn shown(objects: &[Value], folder: &Path) -> Dashboard {
    let file = folder.join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&file, list.to_string()).unwrap();
    Dashboard::start(&["-f", file.to_str().unwrap()])
}

/// A tab with the page of a dashboard, once it shows this many Services.
pub(super) fn tab(dashboard: &Dashboard, path: &str) -> Tab {
    let mut tab = Tab::start().unwrap();
    tab.open(&format!("{}/{path}", dashboard.url)).unwrap();
    tab.until("document.querySelector('#view').children.length > 0").unwrap();
    tab
}

/// No script has failed, the policy has forbidden nothing, and nothing was fetched from elsewhere.
pub(super) fn assert_quiet(tab: &Tab) {
    assert_eq!(tab.complaints(), Vec::<String>::new());
}
