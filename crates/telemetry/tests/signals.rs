//! Real signals. They reach the whole process, so this test has a binary of its own.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is the failure report")]

use std::process::{Command, id};
use std::time::Duration;

use zonewise_telemetry::shutdown::Shutdown;

fn send(signal: &str) {
    let kill = format!("kill -{signal} {}", id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[tokio::test]
async fn the_first_signal_shuts_down_the_second_forces() {
    let shutdown = Shutdown::on_signals(Duration::from_secs(3600)).unwrap();
    assert!(!shutdown.is_down());
    send("TERM");
    shutdown.wait().await;
    send("INT");
    shutdown.force().await;
}
