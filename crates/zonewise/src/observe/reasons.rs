//! `zonewise reasons`.

use anyhow::Result;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use zonewise_common::similar::closest;
use zonewise_explain::{documents, screens};
use zonewise_topology::reason::{Code, Entry, TABLE};

use super::{Output, document, print};
use crate::completion::codes;

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise reasons                       every code
  zonewise reasons TooFewForBalance      what it means, and what to do
  zonewise reasons -o json               the same for programs

docs/reasons.md is the same as a page.")]
pub(crate) struct Reasons {
    /// The code, as conditions, events, metrics and `zonewise explain` show it [default: all]
    #[arg(value_name = "CODE", value_parser = code, add = ArgValueCompleter::new(codes))]
    code: Option<Code>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

fn code(text: &str) -> Result<Code, String> {
    let names: Vec<String> = TABLE.iter().map(|entry| entry.code.to_string()).collect();
    let found = names.iter().position(|name| name.eq_ignore_ascii_case(text));
    found.map(|index| TABLE[index].code).ok_or_else(|| {
        match closest(text, names.iter().map(String::as_str)) {
            Some(meant) => format!("there is no such reason; did you mean `{meant}`?"),
            None => "there is no such reason; `zonewise reasons` lists them all".into(),
        }
    })
}

pub(crate) fn run(arguments: &Reasons) -> Result<()> {
    let reasons: Vec<&Entry> = match arguments.code {
        Some(code) => vec![code.entry()],
        None => TABLE.iter().collect(),
    };
    if !arguments.output.is_screen() {
        return document(&documents::reasons(&reasons), arguments.output);
    }
    print(&screens::reasons(&reasons))
}
