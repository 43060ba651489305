//! A lab from its start to its end.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use zonewise_apiserver::Server;
use zonewise_common::keys::LAB;
use zonewise_telemetry::shutdown::Shutdown;

use crate::api::{Api, NODES, SERVICES};
use crate::cluster::{Access, Cluster, clear};
use crate::home::Home;
use crate::picture::{side_by_side, svg};
use crate::runner::{Runner, lock};
use crate::scenario::Scenario;
use crate::screen::paint;
use crate::terminal::show;
use crate::view::{ActResult, Summary, View};

/// What a lab is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is played.
    pub scenario: Scenario,
    /// Shown on the terminal, and kept until somebody leaves.
    pub interactive: bool,
    /// The kubeconfig of an API server to use instead of the embedded one.
    pub api: Option<PathBuf>,
    /// Use it although it holds objects of others.
    pub force: bool,
    /// A folder for a picture of each act.
    pub pictures: Option<PathBuf>,
}

/// Who hears what is going on.
pub trait Audience: Send + Sync {
    /// Something is being set up.
    fn doing(&self, what: &str);
    /// The cluster can be reached.
    fn ready(&self, kubectl: &str);
    /// An act is over.
    fn ended(&self, result: &ActResult);
}

/// Runs a lab to its end, or until it is told to quit. Everything is cleaned up either way.
///
/// # Errors
/// If it cannot be set up, or the cluster does not do what it is told.
pub async fn run(
    options: Options,
    home: &Home,
    quit: &Shutdown,
    audience: &dyn Audience,
) -> anyhow::Result<Summary> {
    let started = Instant::now();
    audience.doing("API server");
    let (access, embedded) = tokio::select! {
        () = quit.wait() => bail!("stopped before the API server answered"),
        access = access(&options, home) => access?,
    };
    let played = live(&options, home, access.clone(), started, (quit, audience)).await;
    let end = async {
        if access.lives_on {
            audience.doing("removing the lab's objects");
            clear(&Api::new(kube::Client::try_from(access.config)?)).await?;
        }
        if let Some(server) = embedded {
            server.stop().await;
        }
        anyhow::Ok(())
    };
    // A second signal, or too long a wait, ends it all the same.
    quit.grace(end)
        .await
        .context("ended before everything was put away: run zonewise lab clean")??;
    played
}

async fn live(
    options: &Options,
    home: &Home,
    access: Access,
    started: Instant,
    (quit, audience): (&Shutdown, &dyn Audience),
) -> anyhow::Result<Summary> {
    let kubeconfig = options.api.clone().unwrap_or_else(|| home.path().join(KUBECONFIG));
    let kubectl = format!("kubectl --kubeconfig={}", kubeconfig.display());
    let tell = |what: &str| audience.doing(what);
    let cluster = tokio::select! {
        () = quit.wait() => bail!("stopped before the cluster was up"),
        cluster = Cluster::start(&options.scenario, access, &tell) => cluster?,
    };
    audience.ready(&kubectl);
    play(options, cluster, kubectl, started, (quit, audience)).await
}

const KUBECONFIG: &str = "kubeconfig";

async fn play(
    options: &Options,
    cluster: Cluster,
    kubectl: String,
    started: Instant,
    (quit, audience): (&Shutdown, &dyn Audience),
) -> anyhow::Result<Summary> {
    let cluster = Arc::new(cluster);
    let runner = Runner::new(Arc::clone(&cluster), options.scenario.clone(), kubectl, started);
    let views = runner.views();
    let screen = match options.interactive {
        true => Some(
            show(&runner, quit.clone())
                .context("this terminal cannot be drawn on: pass --duration to run without")?,
        ),
        false => None,
    };
    let album = options.pictures.as_deref().map(Album::new);
    let ended = |result: &ActResult| {
        audience.ended(result);
        if let Some(album) = &album {
            album.take(&views.borrow().clone());
        }
    };
    let played = runner.play(quit, &ended).await;
    if let Some(album) = &album {
        album.bind();
    }
    if let Some(screen) = screen {
        if played.is_err() {
            quit.trigger();
        }
        quit.wait().await;
        let _ = tokio::task::spawn_blocking(move || screen.join()).await;
    }
    let summary = runner.summary();
    let end = async {
        runner.stop().await;
        if let Ok(cluster) = Arc::try_unwrap(cluster) {
            cluster.stop().await;
        }
    };
    quit.grace(end).await;
    played.map(|_| summary)
}

/// Pictures of a run's acts: one file each, and one with all of them.
struct Album<'f> {
    folder: &'f Path,
    pages: Mutex<Vec<(String, Buffer)>>,
}

impl<'f> Album<'f> {
    fn new(folder: &'f Path) -> Self {
        Self { folder, pages: Mutex::default() }
    }

    /// What the screen looks like now.
    fn take(&self, view: &View) {
        let Some(act) = &view.act else { return };
        let mut buffer = Buffer::empty(Rect::new(0, 0, PICTURE.0, PICTURE.1));
        paint(&mut buffer, view);
        self.write(&format!("act-{}.svg", act.number), &svg(&buffer));
        lock(&self.pages).push((format!("{}. {}", act.number, act.title), buffer));
    }

    /// All of them in one.
    fn bind(&self) {
        let pages = lock(&self.pages);
        let pages: Vec<(String, &Buffer)> =
            pages.iter().map(|(caption, buffer)| (caption.clone(), buffer)).collect();
        self.write("acts.svg", &side_by_side(&pages));
    }

    /// A picture that cannot be written stops nothing.
    fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        if let Err(error) = std::fs::write(&path, text) {
            tracing::warn!(%error, path = %path.display(), "a picture cannot be written");
        }
    }
}

/// Columns and lines of a picture.
const PICTURE: (u16, u16) = (120, 36);

/// The API server, and how it is reached.
async fn access(options: &Options, home: &Home) -> anyhow::Result<(Access, Option<Server>)> {
    let Some(path) = &options.api else {
        let server = Server::start(zonewise_apiserver::Config::default()).await?;
        let text = server.kubeconfig();
        home.write_for_user(KUBECONFIG, &text)?;
        let config = config(Kubeconfig::from_yaml(&text)?).await?;
        let address = server.address();
        return Ok((Access { config, address, lives_on: false }, Some(server)));
    };
    let file = Kubeconfig::read_from(path)
        .with_context(|| format!("cannot use the kubeconfig {}", path.display()))?;
    let config = config(file).await?;
    let address = address(&config).await?;
    let api = Api::new(kube::Client::try_from(config.clone())?);
    if !options.force {
        refuse_foreign(&api).await?;
    }
    // What a lab has left that was killed.
    clear(&api).await?;
    Ok((Access { config, address, lives_on: true }, None))
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
    found.with_context(|| format!("the API server's name {name:?} leads to no address"))
}

/// A lab writes Nodes, Services and slices: not beside those of others.
async fn refuse_foreign(api: &Api) -> anyhow::Result<()> {
    let foreign = format!("&labelSelector=%21{LAB}");
    let nodes = api.list(NODES, &foreign).await.context("the API server does not answer")?;
    let services = api.list("/api/v1/services", &foreign).await?;
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
