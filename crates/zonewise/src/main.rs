//! The binary: reads the command line and runs the command.
//!
//! | cargo feature | commands | left out of |
//! |---|---|---|
//! | `lab` | `lab`, `apiserver` | the container image |
//! | `simulator` | `simulate` | the build for a first look (`make run`) |

#[cfg(feature = "lab")]
mod apiserver;
mod args;
mod controller;
#[cfg(feature = "lab")]
mod lab;
mod observe;
mod output;
mod progress;
mod proxy;
mod serving;
#[cfg(feature = "simulator")]
mod simulate;

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Arguments, Command, Usage};

fn main() -> ExitCode {
    let arguments = arguments();
    let result = match arguments.command {
        #[cfg(feature = "simulator")]
        Command::Simulate(simulate) => simulate::run(simulate),
        Command::Controller(flags) => controller::run(*flags),
        Command::Proxy(arguments) => proxy::run(*arguments),
        Command::Plan(arguments) => observe::plan::run(*arguments),
        Command::Route(arguments) => observe::route::run(&arguments),
        Command::Lint(arguments) => observe::lint::run(*arguments),
        Command::Reasons(arguments) => observe::reasons::run(&arguments),
        Command::Explain(arguments) => observe::explain::run(*arguments),
        #[cfg(feature = "lab")]
        Command::Lab(arguments) => lab::run(*arguments),
        #[cfg(feature = "lab")]
        Command::Apiserver(flags) => apiserver::run(*flags),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "zonewise", &mut script);
            std::io::stdout().write_all(&script).map_err(Into::into)
        }
        Command::Man { folder } => {
            clap_mangen::generate_to(Arguments::command(), folder).map_err(Into::into)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The program that reads the output stopped reading, such as `head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&format!("error: {error:#}"));
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// The command line. `kubectl zonewise` runs this program as `kubectl-zonewise`; help then shows the
/// name that users typed.
fn arguments() -> Arguments {
    let called = std::env::args_os().next();
    let called = called.as_deref().map(Path::new).and_then(Path::file_name);
    let command = match called.and_then(|name| name.to_str()) {
        Some("kubectl-zonewise") => Arguments::command().bin_name("kubectl zonewise"),
        _ => Arguments::command(),
    };
    Arguments::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == ErrorKind::BrokenPipe)
    })
}
