//! Runs a lab from start to end.

use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use zonewise_apiserver::{Server, Token};
use zonewise_common::keys::LAB;
use zonewise_common::proxy_report::DEMAND_AUDIENCE;
use zonewise_telemetry::shutdown::Shutdown;

use crate::api::{ALL_SERVICES, Api, NODES, SERVICES};
use crate::cluster::{Access, Cluster, clear};
use crate::directory::{self, DEMAND_TOKEN, HOSTS, LabDirectory, ZONES};
use crate::page::Page;
use crate::picture::{side_by_side, svg};
use crate::rights::Place;
use crate::runner::Runner;
use crate::scenario::Scenario;
use crate::screen::paint;
use crate::terminal::show;
use crate::view::{ActResult, Summary, View};

/// What a lab shall do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The scenario to run.
    pub scenario: Scenario,
    /// The place where it plays.
    pub place: Place,
    /// Draw on the terminal, and keep running until the user quits.
    pub interactive: bool,
    /// The kubeconfig of an API server to use instead of the embedded one.
    pub api: Option<PathBuf>,
    /// Use that API server even if it holds objects that no lab has made.
    pub force: bool,
    /// Where the page is served, if it is.
    pub page: Option<SocketAddr>,
    /// A directory for a picture of each act.
    pub pictures: Option<PathBuf>,
}

/// Shows the progress of a lab.
pub trait ProgressListener: Send + Sync {
    /// A part of the cluster is being set up.
    fn doing(&self, what: &str);
    /// The cluster is up, and can be reached with this kubectl command.
    fn ready(&self, kubectl: &str);
    /// The page of the lab is at this address.
    fn page(&self, url: &str);
    /// An act has ended.
    fn ended(&self, result: &ActResult);
}

/// Runs a lab to its end, or until `quit`. Everything is cleaned up either way.
///
/// # Errors
/// If it cannot be set up, or a step of the scenario fails.
pub async fn run(
    options: Options,
    directory: &LabDirectory,
    quit: &Shutdown,
    listener: &dyn ProgressListener,
) -> anyhow::Result<Summary> {
    let started = Instant::now();
    listener.doing("API server");
    let (access, embedded) = tokio::select! {
        () = quit.wait() => bail!("stopped before the API server answered"),
        access = access(&options, directory) => access?,
    };
    let played = live(&options, directory, access.clone(), started, quit, listener).await;
    let end = async {
        if access.lives_on {
            listener.doing("removing the lab's objects");
            clear(&Api::new(kube::Client::try_from(access.config)?)).await?;
        }
        if let Some(server) = embedded {
            server.stop().await;
        }
        anyhow::Ok(())
    };
    // A second signal, or the end of the grace period, ends the clean-up.
    quit.grace(end)
        .await
        .context("ended before everything was cleaned up: run zonewise lab clean")??;
    played
}

async fn live(
    options: &Options,
    directory: &LabDirectory,
    access: Access,
    started: Instant,
    quit: &Shutdown,
    listener: &dyn ProgressListener,
) -> anyhow::Result<Summary> {
    let kubeconfig = options.api.clone().unwrap_or_else(|| directory.path().join(KUBECONFIG));
    let kubectl = format!("kubectl --kubeconfig={}", kubeconfig.display());
    let progress = |what: &str| listener.doing(what);
    let cluster = tokio::select! {
        () = quit.wait() => bail!("stopped before the cluster was up"),
        cluster = Cluster::start(&options.scenario, options.place, access, &progress) => cluster?,
    };
    directory.write(ZONES, &serde_json::to_string_pretty(&cluster.callers())?)?;
    directory.write(HOSTS, "127.0.0.1 localhost\n")?;
    listener.ready(&kubectl);
    let hosts = directory.path().join(HOSTS);
    play(options, cluster, kubectl, hosts, started, quit, listener).await
}

const KUBECONFIG: &str = "kubeconfig";
/// The user of the controller's token for proxies, as in a cluster where it is installed.
const CONTROLLER_USER: &str = "system:serviceaccount:zonewise-system:zonewise-controller";

async fn play(
    options: &Options,
    cluster: Cluster,
    kubectl: String,
    hosts: PathBuf,
    started: Instant,
    quit: &Shutdown,
    listener: &dyn ProgressListener,
) -> anyhow::Result<Summary> {
    let cluster = Arc::new(cluster);
    let scenario = options.scenario.clone();
    let runner = Runner::new(Arc::clone(&cluster), scenario, kubectl, hosts, started);
    let views = runner.views();
    let page = match options.page {
        Some(address) => {
            let client = cluster.api.client().clone();
            let page = Page::start(address, client, options.place, runner.views()).await?;
            listener.page(&page.url);
            runner.board().lock().page = Some(page.url.clone());
            Some(page)
        }
        None => None,
    };
    let screen = match options.interactive {
        true => Some(
            show(&runner, quit.clone())
                .context("this terminal cannot be drawn on: pass --duration to run without")?,
        ),
        false => None,
    };
    let pictures = options.pictures.as_deref().map(Pictures::new);
    let ended = |result: &ActResult| {
        listener.ended(result);
        if let Some(pictures) = &pictures {
            pictures.take(&views.borrow().clone());
        }
    };
    let played = runner.play(quit, &ended).await;
    if let Some(pictures) = &pictures {
        pictures.bind();
    }
    if let Some(screen) = screen {
        if played.is_err() {
            quit.trigger();
        }
        quit.wait().await;
        let _ = tokio::task::spawn_blocking(move || screen.join()).await;
    }
    let summary = runner.summary();
    drop(page);
    let end = async {
        runner.stop().await;
        if let Ok(cluster) = Arc::try_unwrap(cluster) {
            cluster.stop().await;
        }
    };
    quit.grace(end).await;
    played.map(|_| summary)
}

/// Writes pictures of the acts: one file each, and one with all of them.
struct Pictures<'f> {
    folder: &'f Path,
    pages: Mutex<Vec<(String, Buffer)>>,
}

impl<'f> Pictures<'f> {
    fn new(folder: &'f Path) -> Self {
        Self { folder, pages: Mutex::default() }
    }

    /// Writes a picture of the screen as it is now.
    fn take(&self, view: &View) {
        let Some(act) = &view.act else { return };
        let mut buffer = Buffer::empty(Rect::new(0, 0, PICTURE.0, PICTURE.1));
        paint(&mut buffer, view);
        self.write(&format!("act-{}.svg", act.number), &svg(&buffer));
        self.pages.lock().push((format!("{}. {}", act.number, act.title), buffer));
    }

    /// Writes one picture with all acts.
    fn bind(&self) {
        let pages = self.pages.lock();
        let pages: Vec<(String, &Buffer)> =
            pages.iter().map(|(caption, buffer)| (caption.clone(), buffer)).collect();
        self.write("acts.svg", &side_by_side(&pages));
    }

    /// Writes a file. If that fails, the lab goes on.
    fn write(&self, name: &str, text: &str) {
        let file = directory::create_file(&self.folder.join(name));
        let written = file.and_then(|mut file| Ok(file.write_all(text.as_bytes())?));
        if let Err(error) = written {
            tracing::warn!(%error, name, "a picture cannot be written");
        }
    }
}

/// Columns and lines of a picture.
const PICTURE: (u16, u16) = (120, 36);

/// Starts the embedded API server, or takes the one given with `--api`.
async fn access(
    options: &Options,
    directory: &LabDirectory,
) -> anyhow::Result<(Access, Option<Server>)> {
    let Some(path) = &options.api else {
        let mut tokens = vec![Token::random("admin", None)];
        let demand_token = match options.scenario.measures_demand() {
            true => {
                let token = Token::random(CONTROLLER_USER, Some(DEMAND_AUDIENCE));
                directory.write(DEMAND_TOKEN, &token.secret)?;
                tokens.push(token);
                Some(directory.path().join(DEMAND_TOKEN))
            }
            false => None,
        };
        let settings = zonewise_apiserver::Config { tokens, ..Default::default() };
        let server = Server::start(settings).await?;
        let text = server.kubeconfig();
        directory.write_for_user(KUBECONFIG, &text)?;
        let config = config(Kubeconfig::from_yaml(&text)?).await?;
        let address = server.address();
        return Ok((Access { config, address, lives_on: false, demand_token }, Some(server)));
    };
    anyhow::ensure!(
        !options.scenario.measures_demand(),
        "this scenario measures demand, for which the lab makes a token at its own API server: leave out --api"
    );
    let file = Kubeconfig::read_from(path)
        .with_context(|| format!("cannot use the kubeconfig {}", path.display()))?;
    let config = config(file).await?;
    let address = address(&config).await?;
    let api = Api::new(kube::Client::try_from(config.clone())?);
    if !options.force {
        refuse_foreign(&api).await?;
    }
    // Objects that a killed lab has left.
    clear(&api).await?;
    Ok((Access { config, address, lives_on: true, demand_token: None }, None))
}

async fn config(file: Kubeconfig) -> anyhow::Result<kube::Config> {
    Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
}

async fn address(config: &kube::Config) -> anyhow::Result<SocketAddr> {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let tls = config.cluster_url.scheme_str() != Some("http");
    let port = config.cluster_url.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let name = host.clone();
    let found = tokio::task::spawn_blocking(move || (host, port).to_socket_addrs()).await?;
    let found = found.ok().and_then(|mut all| all.next());
    found.with_context(|| format!("the API server's name {name:?} cannot be resolved"))
}

/// Refuses an API server that is in use: a lab creates Nodes and rewrites the slices of every Service.
async fn refuse_foreign(api: &Api) -> anyhow::Result<()> {
    let foreign = format!("&labelSelector=%21{LAB}");
    let nodes = api.list(NODES, &foreign).await.context("the API server does not answer")?;
    let services = api.list(ALL_SERVICES, &foreign).await?;
    let name = |object: &serde_json::Value| {
        object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    };
    let services: Vec<String> =
        services.iter().map(name).filter(|name| name != "kubernetes").collect();
    let nodes: Vec<String> = nodes.iter().map(name).collect();
    if nodes.is_empty() && services.is_empty() {
        return Ok(());
    }
    bail!(
        "this API server holds {} Nodes and {} Services that are not a lab's{}: use one of your own, or pass --force \
         to let the lab's controller and Nodes in beside them (in {SERVICES})",
        nodes.len(),
        services.len(),
        nodes
            .first()
            .or(services.first())
            .map(|first| format!(" ({first}, …)"))
            .unwrap_or_default()
    )
}
