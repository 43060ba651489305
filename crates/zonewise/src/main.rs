//! The binary: reads the command line and hands over.

mod args;
mod controller;
mod output;
mod progress;
mod proxy;
mod serving;
mod simulate;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Arguments, Command, Usage};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Simulate(simulate) => simulate::run(simulate),
        Command::Controller(flags) => controller::run(*flags),
        Command::Proxy(arguments) => proxy::run(*arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "zonewise", &mut script);
            std::io::stdout().write_all(&script).map_err(Into::into)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output may stop reading.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("error: {error:#}"));
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == ErrorKind::BrokenPipe)
    })
}
