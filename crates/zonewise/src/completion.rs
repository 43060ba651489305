//! Completion of commands, flags and names in shells, and in kubectl.
//!
//! ```text
//!  bash, zsh, fish, …   script of `zonewise completions` ─► ZONEWISE_COMPLETE=bash zonewise -- zonewise explain sh
//!  kubectl              kubectl_complete-zonewise explain sh ─► lines, then `:` and a number
//! ```
//!
//! The scripts ask this program each time, because names of Services are only known to the cluster.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use zonewise_topology::reason::TABLE;

use crate::args::Arguments;
use crate::observe::source::Source;

/// The variable with the name of the shell that asks.
const VARIABLE: &str = "ZONEWISE_COMPLETE";

/// The name by which kubectl calls this program to complete `kubectl zonewise`.
pub(crate) const KUBECTL: &str = "kubectl_complete-zonewise";

/// Answers a shell that asks how to complete a command line, and ends the process. Returns at once if none asks.
pub(crate) fn answer_shells() {
    CompleteEnv::with_factory(Arguments::command).var(VARIABLE).complete();
}

/// The script that makes a shell ask.
pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    if let Some(completer) = Shells::builtins().completer(&shell.to_string()) {
        completer.write_registration(VARIABLE, "zonewise", "zonewise", "zonewise", &mut script)?;
    }
    Ok(script)
}

/// What kubectl shall not do with the candidates: complete file names, and add a space.
/// (<https://pkg.go.dev/github.com/spf13/cobra#ShellCompDirective>)
const NO_FILES: u8 = 4;
const NO_SPACE: u8 = 2;

/// Answers kubectl: the last argument is the word to complete.
pub(crate) fn answer_kubectl() -> io::Result<()> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    if words.len() == 1 {
        words.push(OsString::new());
    }
    let last = words.len() - 1;
    // As in other commands of kubectl, flags are offered to those who have begun one.
    let flags = words[last].to_string_lossy().starts_with('-');
    let folder = std::env::current_dir().ok();
    let mut candidates = complete(&mut Arguments::command(), words, last, folder.as_deref())?;
    candidates.retain(|candidate| {
        let is_flag = candidate.get_value().to_string_lossy().starts_with('-');
        !candidate.is_hide_set() && (flags || !is_flag)
    });
    let mut out = io::stdout().lock();
    for candidate in &candidates {
        let value = candidate.get_value().to_string_lossy();
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        match help.lines().next() {
            Some(help) => writeln!(out, "{value}\t{help}")?,
            None => writeln!(out, "{value}")?,
        }
    }
    let open = |candidate: &CompletionCandidate| {
        candidate.get_value().to_string_lossy().ends_with(['/', '='])
    };
    let directive = NO_FILES + if candidates.iter().any(open) { NO_SPACE } else { 0 };
    writeln!(out, ":{directive}")
}

/// The Services of the files or the cluster that the command line names. None if they cannot be read: a completion is
/// no place for errors.
pub(crate) fn services(current: &OsStr) -> Vec<CompletionCandidate> {
    let source = source(std::env::args_os());
    let name = |key: &(String, String)| match &source.namespace {
        Some(_) => key.1.clone(),
        None => format!("{}/{}", key.0, key.1),
    };
    matching(current, source.service_names().iter().map(name))
}

/// The namespaces that have Services.
pub(crate) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut source = source(std::env::args_os());
    source.namespace = None;
    let mut names: Vec<String> =
        source.service_names().into_iter().map(|(namespace, _)| namespace).collect();
    names.sort();
    names.dedup();
    matching(current, names.into_iter())
}

/// All reason codes.
pub(crate) fn codes(current: &OsStr) -> Vec<CompletionCandidate> {
    matching(current, TABLE.iter().map(|entry| entry.code.to_string()))
}

fn matching(current: &OsStr, names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    names.filter(|name| name.starts_with(&*current)).map(CompletionCandidate::new).collect()
}

/// Where a command line says that objects are read from. It may be incomplete, so it is not parsed as a whole.
fn source(words: impl IntoIterator<Item = OsString>) -> Source {
    let mut source = Source::default();
    let mut words = words.into_iter().map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        let known = ["-n", "--namespace", "-f", "--filename", "--kubeconfig", "--context"];
        if !known.contains(&flag.as_str()) {
            continue;
        }
        let Some(value) = value.or_else(|| words.next()).filter(|value| !value.is_empty()) else {
            continue;
        };
        match flag.as_str() {
            "-n" | "--namespace" => source.namespace = Some(value),
            "--kubeconfig" => source.kubeconfig = Some(PathBuf::from(value)),
            "--context" => source.context = Some(value),
            // Standard input belongs to the shell.
            _ if Path::new(&value) == Path::new("-") => {}
            _ => source.files.push(PathBuf::from(value)),
        }
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_read_from_any_part_of_a_command_line() {
        let read = |line: &str| source(line.split(' ').map(OsString::from));
        let all = read(
            "zonewise explain -f a.yaml --filename=b -f - -n shop --context=c --kubeconfig k sh",
        );
        assert_eq!(all.files, [PathBuf::from("a.yaml"), PathBuf::from("b")]);
        assert_eq!(all.namespace.as_deref(), Some("shop"));
        assert_eq!(all.context.as_deref(), Some("c"));
        assert_eq!(all.kubeconfig.as_deref(), Some(Path::new("k")));
        assert_eq!(read("zonewise explain -n").namespace, None);
    }
}
