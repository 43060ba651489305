//! What happened in a run, line by line.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing_subscriber::fmt::MakeWriter;

/// The lines of a run, each with the seconds since its start. Clones are the same history.
#[derive(Clone)]
pub(crate) struct History {
    start: Instant,
    lines: Arc<Mutex<Vec<String>>>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), lines: Arc::default() }
    }

    pub(crate) fn add(&self, who: &str, what: &str) {
        let at = self.start.elapsed().as_secs_f64();
        self.lines.lock().push(format!("{at:9.3} {who:<13} {what}"));
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

/// A line of the log of a process.
pub(crate) struct LogLine {
    history: History,
    text: Vec<u8>,
}

impl io::Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.text);
        // The line of the health server names a port that the operating system has chosen.
        if text.contains("zonewise_telemetry::health") {
            return;
        }
        text.lines().for_each(|line| self.history.add("log", line.trim()));
    }
}

impl<'a> MakeWriter<'a> for History {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine { history: self.clone(), text: Vec::new() }
    }
}
