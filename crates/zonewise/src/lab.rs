//! `zonewise lab`: arguments, root rights, and where messages go.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use zonewise_common::duration::ConfigDuration;
use zonewise_lab::directory::{self, FoundLab, LabDirectory};
use zonewise_lab::lab::{self, Options, ProgressListener};
use zonewise_lab::scenario::{Scenario, Size};
use zonewise_lab::view::ActResult;
use zonewise_lab::{Api, preflight, report};
use zonewise_telemetry::log;
use zonewise_telemetry::shutdown::Shutdown;

use crate::args::Usage;
use crate::output::complain;

#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: Option<LabCommand>,
    #[command(flatten)]
    flags: LabFlags,
}

const EXAMPLES: &str = "Examples:
  zonewise lab                               the story, on this terminal
  zonewise lab --duration 20s                the same without a terminal: a table, and an exit code
  zonewise lab --scenario tiny-service       another built-in scenario (docs/lab.md lists them)
  zonewise lab --scenario mine.yaml -o json  your own; docs/lab.md has the reference
  zonewise lab --nodes 20 --services 50      the story in a larger cluster
  zonewise lab --zones 5 --nodes 3           the story in another cluster
  zonewise lab exec a -- curl http://web     call a Service from zone a of the running lab
  zonewise lab clean                         remove what killed labs have left behind";

#[derive(Subcommand)]
enum LabCommand {
    /// Run a command as a client in a zone of the running lab
    ///
    /// The command runs on this machine, in the network of a client of that zone: it reaches Services and Pods of the
    /// lab, and no other network. Services have the names that they have in a cluster: web, web.default,
    /// web.default.svc.cluster.local.
    Exec {
        /// The zone
        zone: String,
        /// The process of the lab, if several run
        #[arg(long, value_name = "PID")]
        lab: Option<u32>,
        /// The command and its arguments
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Remove what killed labs have left behind
    ///
    /// Namespaces, rules and servers go with the process, however it ends. What may be left is a
    /// small directory and, with --api, objects on an API server that lives on.
    Clean {
        /// Also remove the objects of labs from this API server
        #[arg(long, value_name = "KUBECONFIG")]
        api: Option<PathBuf>,
    },
}

#[derive(Args)]
struct LabFlags {
    /// The scenario: a built-in one, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "story")]
    scenario: String,
    /// Play without a terminal, in about this time, and end
    #[arg(long, value_name = "TIME")]
    duration: Option<ConfigDuration>,
    /// What is printed at the end
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Form::Table)]
    output: Form,
    /// Zones [default: the scenario's]
    #[arg(long, value_name = "N")]
    zones: Option<usize>,
    /// Nodes of each zone [default: the scenario's]
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Services [default: the scenario's]
    #[arg(long, value_name = "N")]
    services: Option<usize>,
    /// Additional time of a round trip between two zones
    #[arg(long, value_name = "TIME")]
    delay: Option<ConfigDuration>,
    /// Use this API server instead of the embedded one; refused if it holds Nodes or Services of others
    #[arg(long, value_name = "KUBECONFIG")]
    api: Option<PathBuf>,
    /// Use the API server of --api even if it holds Nodes or Services that are not a lab's
    #[arg(long, requires = "api")]
    force: bool,
    /// Address of the page that shows in a browser what the terminal shows, and more [default: 127.0.0.1:8464; without a
    /// terminal, no page]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "no_page")]
    page: Option<SocketAddr>,
    /// Serve no page
    #[arg(long)]
    no_page: bool,
    /// Write a picture (SVG) of each act's screen into this folder
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Where controller and proxies log [default: in the lab's directory, gone with it]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// What is logged: error, warn, info, debug, or a filter such as zonewise_proxy=debug
    #[arg(long, default_value = "info", value_name = "FILTER")]
    log_level: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people
    Table,
    /// For programs
    Json,
}

pub(crate) fn run(lab: Lab) -> anyhow::Result<()> {
    match lab.command {
        Some(LabCommand::Clean { api }) => clean(api.as_deref()),
        Some(LabCommand::Exec { zone, lab, command }) => exec(&zone, lab, &command),
        None => play(&lab.flags),
    }
}

fn play(flags: &LabFlags) -> anyhow::Result<()> {
    let options = options(flags)?;
    be_root()?;
    let missing = preflight::missing(!options.scenario.cluster.delay.0.is_zero());
    if !missing.is_empty() {
        let lines =
            missing.iter().map(|one| format!("\n  {}: {}\n    {}", one.what, one.why, one.remedy));
        bail!("this machine lacks what a lab needs:{}", lines.collect::<String>());
    }
    refuse_shared(options.api.as_deref())?;
    let directory =
        LabDirectory::create(Path::new(directory::LABS_DIRECTORY), options.api.clone())?;
    let file = match &flags.log_file {
        Some(path) => directory::create_file(path)?,
        None => directory.open("lab.log")?,
    };
    log::start_in(file, &format!("{},kube_client=off", flags.log_level))
        .map_err(|error| Usage(error.to_string()))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let interactive = options.interactive;
    let summary = runtime.block_on(async {
        let quit = Shutdown::on_signals(GRACE).context("signals cannot be received")?;
        let mut hangup = signal(SignalKind::hangup()).context("signals cannot be received")?;
        let closed = quit.clone();
        tokio::spawn(async move {
            hangup.recv().await;
            closed.trigger();
        });
        lab::run(options, &directory, &quit, &Speaker { interactive }).await
    });
    drop(directory);
    let summary = summary?;
    let text = match flags.output {
        Form::Table => report::table(&summary),
        Form::Json => serde_json::to_string_pretty(&report::json(&summary))? + "\n",
    };
    std::io::stdout().write_all(text.as_bytes())?;
    // An interactive user may quit at any time: that is not a failure.
    if !interactive && !summary.held() {
        bail!("not every act went as it should");
    }
    Ok(())
}

/// Two labs on one API server would take each other's objects for their own.
fn refuse_shared(api: Option<&Path>) -> anyhow::Result<()> {
    let Some(api) = api else { return Ok(()) };
    let labs = directory::find(Path::new(directory::LABS_DIRECTORY))?;
    match labs.iter().find(|lab| lab.runs && api_of(lab) == Some(api)) {
        Some(lab) => {
            bail!("the lab of {} uses this API server: end it first, or use another", process(lab))
        }
        None => Ok(()),
    }
}

/// How long a lab may take to end after a signal.
const GRACE: std::time::Duration = std::time::Duration::from_secs(10);

fn options(flags: &LabFlags) -> anyhow::Result<Options> {
    let size = Size {
        zones: flags.zones,
        nodes: flags.nodes,
        services: flags.services,
        delay: flags.delay,
    };
    let scenario = Scenario::find(&flags.scenario).map_err(|error| Usage(error.to_string()))?;
    let mut scenario = scenario.sized(size).map_err(Usage)?;
    if let Some(duration) = flags.duration {
        scenario = scenario.lasting(duration.0);
    }
    if let Some(folder) = &flags.pictures {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let interactive = terminal && flags.duration.is_none() && flags.output == Form::Table;
    Ok(Options {
        scenario,
        interactive,
        page: page_address(flags, interactive)?,
        api: flags.api.clone().map(std::path::absolute).transpose()?,
        force: flags.force,
        pictures: flags.pictures.clone(),
    })
}

/// Where the page is served: for people at a terminal, unless they want none, or where they say.
fn page_address(flags: &LabFlags, interactive: bool) -> Result<Option<SocketAddr>, Usage> {
    let usual = || (interactive && !flags.no_page).then_some(crate::dashboard::ADDRESS);
    match flags.page.or_else(usual) {
        Some(address) if !address.ip().is_loopback() => Err(Usage(format!(
            "{address} can be reached from other machines, and the page of a lab is for this one: use 127.0.0.1"
        ))),
        address => Ok(address),
    }
}

/// Says what goes on, on standard error; the terminal's screen says it better.
struct Speaker {
    interactive: bool,
}

impl ProgressListener for Speaker {
    fn doing(&self, what: &str) {
        complain(&format!("lab: {what}"));
    }

    fn ready(&self, kubectl: &str) {
        if !self.interactive {
            complain(&format!(
                "lab: the cluster is up; look at it with\n  {kubectl} get nodes,services,endpointslices"
            ));
        }
    }

    fn page(&self, url: &str) {
        complain(&format!("lab: the page is at {url}"));
    }

    fn ended(&self, result: &ActResult) {
        if !self.interactive {
            complain(&report::act_line(result));
        }
    }
}

/// Runs the command again as root with sudo, if the user agrees.
fn be_root() -> anyhow::Result<()> {
    if preflight::is_root() {
        return Ok(());
    }
    let command: Vec<OsString> = std::env::args_os().collect();
    let program = std::env::current_exe()?;
    let words = command.iter().skip(1);
    let words: Vec<String> =
        words.map(|word| zonewise_explain::shell_quote(&word.to_string_lossy())).collect();
    let line = format!("sudo {} {}", program.display(), words.join(" "));
    let why =
        format!("a lab needs root: only root may make network namespaces.\n{}", preflight::TOUCHES);
    if !std::io::stdin().is_terminal() || !has_sudo() {
        bail!("{why}\nRun it as root:\n  {line}");
    }
    complain(&format!("{why}\n\nRun this now?  {line}  [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("not run: a lab needs root");
    }
    // Only returns if it could not be started.
    let error = Command::new("sudo").arg(program).args(command.iter().skip(1)).exec();
    Err(error).context("cannot run sudo")
}

fn has_sudo() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("sudo").is_file())
}

fn exec(zone: &str, process: Option<u32>, command: &[OsString]) -> anyhow::Result<()> {
    be_root()?;
    let labs = directory::find(Path::new(directory::LABS_DIRECTORY))?;
    let caller = directory::caller(&labs, process, zone)?;
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    // Only returns if it could not be started.
    let error =
        zonewise_lab::exec(&caller.namespace, &caller.hosts, Command::new(program).args(arguments));
    Err(error).with_context(|| format!("cannot run {} in zone {zone}", program.display()))
}

fn clean(api: Option<&Path>) -> anyhow::Result<()> {
    be_root()?;
    let found = directory::find(Path::new(directory::LABS_DIRECTORY))?;
    let in_use: Vec<&Path> = found.iter().filter(|lab| lab.runs).filter_map(api_of).collect();
    let mut problems = Vec::new();
    for lab in &found {
        match lab.runs {
            true => say(&format!(
                "{} is a lab that runs: left alone (end it with q or Ctrl-C)",
                process(lab)
            ))?,
            // The objects first: the directory is all that knows of them.
            false => problems.extend(put_away(lab, &in_use).err()),
        }
    }
    if let Some(path) = api {
        problems.extend(clear_unless_used(path, &in_use).err());
    }
    if found.is_empty() && api.is_none() {
        say("nothing to clean: no lab has left anything")?;
    }
    let problems: Vec<String> = problems.iter().map(|problem| format!("{problem:#}")).collect();
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("; "));
    Ok(())
}

fn say(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{text}")
}

fn process(lab: &FoundLab) -> String {
    let pid = lab.owner.as_ref().map(|owner| owner.pid.to_string());
    format!("process {}", pid.unwrap_or_else(|| "unknown".into()))
}

fn api_of(lab: &FoundLab) -> Option<&Path> {
    lab.owner.as_ref()?.api.as_deref()
}

fn put_away(lab: &FoundLab, in_use: &[&Path]) -> anyhow::Result<()> {
    if let Some(path) = api_of(lab) {
        clear_unless_used(path, in_use)?;
    }
    directory::remove(lab)?;
    Ok(say(&format!("removed the directory of the lab of {}", process(lab)))?)
}

fn clear_unless_used(kubeconfig: &Path, in_use: &[&Path]) -> anyhow::Result<()> {
    let shown = kubeconfig.display();
    if in_use.contains(&kubeconfig) {
        return Ok(say(&format!(
            "a lab that runs uses the API server of {shown}: its objects stay"
        ))?);
    }
    let removed =
        clear(kubeconfig).with_context(|| format!("cannot clean the API server of {shown}"))?;
    Ok(say(&format!("removed {removed} objects of labs from the API server of {shown}"))?)
}

fn clear(kubeconfig: &Path) -> anyhow::Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = zonewise_cluster::connect::connect(Some(kubeconfig)).await?;
        zonewise_lab::clear(&Api::new(client)).await
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: LabFlags,
    }

    #[test]
    fn people_at_a_terminal_get_a_page_unless_they_want_none() {
        let usual = Some(crate::dashboard::ADDRESS);
        let other: SocketAddr = ([127, 0, 0, 1], 1234).into();
        let rows: [(&[&str], bool, Option<SocketAddr>); 5] = [
            (&[], true, usual),
            (&[], false, None),
            (&["--no-page"], true, None),
            (&["--page", "127.0.0.1:1234"], true, Some(other)),
            (&["--page", "127.0.0.1:1234"], false, Some(other)),
        ];
        for (arguments, interactive, expected) in rows {
            let line = Line::parse_from([&["lab"], arguments].concat());
            let address = page_address(&line.flags, interactive).map_err(|error| error.0);
            assert_eq!(address, Ok(expected), "{arguments:?}, at a terminal: {interactive}");
        }
        let both = Line::try_parse_from(["lab", "--no-page", "--page", "127.0.0.1:1"]);
        assert!(both.is_err());
        let exposed = Line::parse_from(["lab", "--page", "0.0.0.0:1"]);
        assert!(page_address(&exposed.flags, true).is_err());
    }
}
