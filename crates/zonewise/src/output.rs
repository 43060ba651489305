//! Messages for people.

use std::io::{self, Write};

/// Writes a message to standard error. A failure to write it is ignored: there is no other channel.
pub(crate) fn complain(message: &str) {
    let lines: Vec<String> = message.lines().map(zonewise_explain::screens::clean).collect();
    let _ = writeln!(io::stderr(), "{}", lines.join("\n"));
}
