//! `zonewise lab`: arguments, the rights that it needs, and where messages go.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use zonewise_common::duration::ConfigDuration;
use zonewise_lab::directory::{self, FoundLab, LabDirectory};
use zonewise_lab::lab::{self, Options, ProgressListener};
use zonewise_lab::rights::{self, Facts, KernelChoice, Obstacle, Place, Way};
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
  zonewise lab --kernel memory               without root and namespaces: the same, simulated
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
    /// lab, and no other network. A lab that was started without root needs no root here either. Services have the names that they have in a cluster: web, web.default,
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
    /// The kernel that the nodes have: this machine's, or one in memory
    #[arg(long, value_enum, value_name = "KERNEL", default_value_t = KernelFlag::Auto)]
    kernel: KernelFlag,
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
enum KernelFlag {
    /// This machine's, as root or in a user namespace; where neither is allowed, one in memory, and a line says why
    Auto,
    /// This machine's and no other, to test the machine; asks for sudo where that is needed
    Real,
    /// One in memory, anywhere: controller, proxies and rules are the same, packets are walked through the rules and
    /// not sent. There is no --delay, no measured demand and no `exec`
    Memory,
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
    let mut options = options(flags)?;
    let parents = directory::parents();
    options.place = find_place(flags, &options)?;
    refuse_shared(&parents, options.api.as_deref())?;
    let directory = LabDirectory::create(&parents, options.api.clone(), options.place)?;
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
fn refuse_shared(parents: &[PathBuf], api: Option<&Path>) -> anyhow::Result<()> {
    let Some(api) = api else { return Ok(()) };
    let labs = directory::find(parents)?;
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
        place: Place::default(),
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

/// Finds the place where the lab plays, and gets the rights that it needs there. The process must have only one thread.
fn find_place(flags: &LabFlags, options: &Options) -> anyhow::Result<Place> {
    let choice = match (flags.kernel, options.scenario.needs_real_kernel()) {
        (KernelFlag::Memory, Some(needs)) => {
            return Err(
                Usage(format!("--kernel memory: {needs}: play it with --kernel real")).into()
            );
        }
        (KernelFlag::Memory, None) => KernelChoice::Memory,
        (KernelFlag::Auto, None) => KernelChoice::Auto,
        (KernelFlag::Real, _) | (KernelFlag::Auto, Some(_)) => KernelChoice::Real,
    };
    let facts = Facts::read();
    let mut way = rights::way(choice, &facts, None);
    let tried = way == Way::UserNamespace;
    if tried && let Err(refused) = zonewise_lab::enter_user_namespace() {
        way = rights::way(choice, &facts, Some(&refused));
    }
    let place = match way {
        Way::AsIs => Place::Machine,
        Way::UserNamespace => Place::UserNamespace,
        Way::Memory(None) => return Ok(Place::Memory),
        Way::Memory(Some(obstacle)) => return in_memory_because(&obstacle, &facts),
        Way::NotWithoutRoot(obstacle) => {
            return Err(be_root(&facts, &obstacle, &options.scenario, tried));
        }
    };
    let missing = preflight::missing(!options.scenario.cluster.delay.0.is_zero());
    match missing.first().map(|first| Obstacle::of_missing(first, &facts)) {
        Some(obstacle) if choice == KernelChoice::Auto => {
            return in_memory_because(&obstacle, &facts);
        }
        Some(Obstacle::Missing(_)) => {
            let lines = missing
                .iter()
                .map(|one| format!("\n  {}: {}\n    {}", one.what, one.why, one.remedy));
            bail!("this machine lacks what a lab needs:{}", lines.collect::<String>());
        }
        Some(obstacle) => return Err(be_root(&facts, &obstacle, &options.scenario, tried)),
        None => {}
    }
    if place == Place::UserNamespace {
        complain(&format!("lab: {}", rights::IN_USER_NAMESPACE));
    }
    Ok(place)
}

/// Says why the lab plays in memory.
fn in_memory_because(obstacle: &Obstacle, facts: &Facts) -> anyhow::Result<Place> {
    let (.., sudo) = as_root()?;
    complain(&format!("lab: {}", rights::in_memory_because(obstacle, facts, &sudo)));
    Ok(Place::Memory)
}

/// Runs the command again as root with sudo, if the user agrees; returns why not.
fn be_root(facts: &Facts, obstacle: &Obstacle, scenario: &Scenario, tried: bool) -> anyhow::Error {
    let instead = match scenario.needs_real_kernel() {
        None => "`--kernel memory` plays it without root.".to_owned(),
        Some(needs) => format!("A kernel in memory cannot play it: {needs}."),
    };
    let why = format!(
        "a lab on this machine's kernel needs root here: {obstacle}.\n{}\n{instead}",
        preflight::TOUCHES
    );
    with_sudo(&why, facts, tried)
}

/// Runs the command again as root with sudo, if the user agrees; returns why not. A process that has `tried` a user namespace may
/// be in one, where nobody becomes root of the machine.
fn with_sudo(why: &str, facts: &Facts, tried: bool) -> anyhow::Error {
    if facts.root {
        return anyhow!("{why}\nRun it with all rights of root; in a container: --privileged");
    }
    let (program, arguments, line) = match as_root() {
        Ok(command) => command,
        Err(error) => return error,
    };
    if tried || !std::io::stdin().is_terminal() || !has_sudo() {
        return anyhow!("{why}\nRun it as root:\n  {line}");
    }
    complain(&format!("{why}\n\nRun this now?  {line}  [y/N] "));
    let mut answer = String::new();
    let answered = std::io::stdin().read_line(&mut answer);
    if answered.is_err() || !matches!(answer.trim(), "y" | "Y" | "yes") {
        return anyhow!("not run: root is needed");
    }
    // Only returns if it could not be started.
    let error = Command::new("sudo").arg(program).args(arguments).exec();
    anyhow::Error::new(error).context("cannot run sudo")
}

/// This command as root runs it: the program, its arguments, and both as a line for a shell.
fn as_root() -> anyhow::Result<(PathBuf, Vec<OsString>, String)> {
    let program = std::env::current_exe()?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words = arguments.iter();
    let words: Vec<String> =
        words.map(|word| zonewise_explain::shell_quote(&word.to_string_lossy())).collect();
    let line = format!("sudo {} {}", program.display(), words.join(" "));
    Ok((program, arguments, line))
}

fn has_sudo() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("sudo").is_file())
}

fn exec(zone: &str, process: Option<u32>, command: &[OsString]) -> anyhow::Result<()> {
    let labs = directory::find(&directory::parents())?;
    let facts = Facts::read();
    if !facts.root && directory::is_of_another_user(&labs, process) {
        let why = "the lab that runs is another user's: only root reaches it";
        return Err(with_sudo(why, &facts, false));
    }
    let caller = directory::caller(&labs, process, zone)?;
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    // Only returns if it could not be started.
    let error = zonewise_lab::exec(
        caller.user.as_deref(),
        &caller.namespace,
        &caller.hosts,
        Command::new(program).args(arguments),
    );
    Err(error).with_context(|| format!("cannot run {} in zone {zone}", program.display()))
}

fn clean(api: Option<&Path>) -> anyhow::Result<()> {
    let found = directory::find(&directory::parents())?;
    let in_use: Vec<&Path> = found.iter().filter(|lab| lab.runs).filter_map(api_of).collect();
    let mut problems = Vec::new();
    let mut of_others = false;
    for lab in &found {
        match (lab.runs, lab.own) {
            (true, _) => say(&format!(
                "{} is a lab that runs: left alone (end it with q or Ctrl-C)",
                process(lab)
            ))?,
            // The objects first: the directory is all that knows of them.
            (false, true) => problems.extend(put_away(lab, &in_use).err()),
            (false, false) => of_others = true,
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
    if of_others {
        let why =
            "a lab of another user, such as root, has left a directory, which only root may remove";
        return Err(with_sudo(why, &Facts::read(), false));
    }
    Ok(())
}

fn say(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{text}")
}

fn process(lab: &FoundLab) -> String {
    // The directory is named after it.
    format!("process {}", lab.path.file_name().unwrap_or_default().display())
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
