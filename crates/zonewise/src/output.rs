//! Messages for people.

use std::collections::BTreeSet;
use std::io::{self, Write};

use parking_lot::Mutex;

/// The messages that were written. A command that reads its input again and again (`--watch`) says each once.
static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Writes a message to standard error, once. A failure to write it is ignored: there is no other channel.
pub(crate) fn complain(message: &str) {
    if !SAID.lock().insert(message.to_owned()) {
        return;
    }
    let lines: Vec<String> = message.lines().map(zonewise_explain::screens::clean).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}
