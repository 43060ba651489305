//! The metrics as a table, for the page that lists them.

use std::fmt::Write;

use super::Registry;

impl Registry {
    /// All metrics as rows of a Markdown table: name with labels, kind, help.
    pub fn reference(&self) -> String {
        let mut out = String::from("| metric | kind | what |\n|---|---|---|\n");
        for (name, entry) in self.entries.lock().iter() {
            let labels = match entry.labels.as_slice() {
                [] => String::new(),
                labels => format!("{{{}}}", labels.join(",")),
            };
            let help = entry.help.replace('|', "\\|");
            let _ = writeln!(out, "| `{name}{labels}` | {} | {help} |", entry.kind);
        }
        out
    }
}
