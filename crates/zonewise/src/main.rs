//! The binary: reads the command line and runs the command.
//!
//! | cargo feature | commands | left out of |
//! |---|---|---|
//! | `lab` | `lab`, `apiserver` | the container image |
//! | `simulator` | `simulate` | the build for a first look (`make run`) |

#[cfg(feature = "lab")]
mod apiserver;
mod args;
mod completion;
mod controller;
mod dashboard;
mod guard;
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
use std::time::Instant;

use clap::{CommandFactory, FromArgMatches};

use args::{Arguments, Command, Usage};

fn main() -> ExitCode {
    let began = Instant::now();
    if called_as().as_deref() == Some(completion::KUBECTL) {
        return match completion::answer_kubectl() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    completion::answer_shells();
    let arguments = arguments();
    let result = match arguments.command {
        #[cfg(feature = "simulator")]
        Command::Simulate(simulate) => simulate::run(simulate),
        Command::Controller(flags) => controller::run(*flags),
        Command::Guard(arguments) => guard::run(arguments),
        Command::Proxy(arguments) => proxy::run(*arguments, began),
        Command::Plan(arguments) => observe::plan::run(*arguments),
        Command::Route(arguments) => observe::route::run(&arguments),
        Command::Top(arguments) => observe::top::run(&arguments),
        Command::Lint(arguments) => observe::lint::run(*arguments),
        Command::Check(arguments) => observe::check::run(&arguments),
        Command::Evacuate(arguments) => observe::evacuate::run(*arguments),
        Command::Restore(arguments) => observe::evacuate::restore(&arguments),
        Command::Reasons(arguments) => observe::reasons::run(&arguments),
        Command::Dashboard(arguments) => dashboard::run(*arguments),
        Command::Explain(arguments) => observe::explain::run(*arguments),
        #[cfg(feature = "lab")]
        Command::Lab(arguments) => lab::run(*arguments),
        #[cfg(feature = "lab")]
        Command::Apiserver(flags) => apiserver::run(*flags),
        Command::Completions { shell } => {
            let script = completion::script(shell);
            script.and_then(|script| std::io::stdout().write_all(&script)).map_err(Into::into)
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

/// The name by which this program was called.
fn called_as() -> Option<String> {
    let called = std::env::args_os().next()?;
    Some(Path::new(&called).file_name()?.to_string_lossy().into_owned())
}

/// The command line. `kubectl zonewise` runs this program as `kubectl-zonewise`; help then shows the
/// name that users typed.
fn arguments() -> Arguments {
    let command = match called_as().as_deref() {
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
