//! A cluster without nodes: one etcd, one kube-apiserver, and ways to break them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::Request;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::access::{self, User};
use crate::gate::Gate;
use crate::keys::Keys;
use crate::process::{Process, Remover};
use crate::requests::Objects;
use crate::{metrics, ports, programs};

/// How often to start, in case another process takes the chosen port first.
const ATTEMPTS: usize = 5;
/// A start takes 1 to 4 seconds, and much longer on a machine that is busy with compiling.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How a cluster is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    apiserver: Vec<String>,
    production_memory: bool,
}

impl Options {
    /// Adds a flag of kube-apiserver, such as `--watch-cache=false`; a later one wins over the testbed's own.
    #[must_use]
    pub fn apiserver(mut self, flag: impl Into<String>) -> Self {
        self.apiserver.push(flag.into());
        self
    }

    /// kube-apiserver collects garbage as in production: for benchmarks, and for more objects than tests create.
    #[must_use]
    pub fn production_memory(mut self) -> Self {
        self.production_memory = true;
        self
    }

    /// The environment of kube-apiserver.
    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        if self.production_memory { &[] } else { &FEW_COLLECTIONS }
    }
}

/// A running cluster. Dropping it ends its processes and removes its data.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: the server before its store, and both before the files.
    apiserver: Mutex<Option<Process>>,
    etcd: Mutex<Option<Process>>,
    options: Options,
    keys: Keys,
    port: u16,
    etcd_port: u16,
    files: AtomicU32,
    directory: TempDir,
    /// Dropped last.
    _remover: Option<Remover>,
}

/// Start and access.
impl Cluster {
    /// Starts a cluster and waits until it serves.
    pub async fn start() -> Result<Self> {
        Self::start_with(Options::default()).await
    }

    /// Starts a cluster with options and waits until it serves.
    pub async fn start_with(options: Options) -> Result<Self> {
        // A first build takes minutes and must not block the runtime.
        tokio::task::spawn_blocking(programs::of_a_cluster).await??;
        let mut attempt = 1;
        loop {
            match Self::boot(options.clone()).await {
                Err(error) if attempt < ATTEMPTS && lost_a_port(&error) => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    /// The port of the API server on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The directory with data, keys and logs; programs under test may write there too.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A client of the admin. It only works in the async runtime that it was created in.
    pub fn admin(&self) -> Result<Client> {
        self.client(User::Admin)
    }

    /// A client of a user. It only works in the async runtime that it was created in.
    pub fn client(&self, user: User) -> Result<Client> {
        access::client(self.port, &self.keys.authority, self.keys.token(user))
    }

    /// A client of a user that connects through a gate.
    pub fn client_through(&self, user: User, gate: &Gate) -> Result<Client> {
        access::client(gate.port(), &self.keys.authority, self.keys.token(user))
    }

    /// The token of a user.
    pub fn token(&self, user: User) -> &str {
        self.keys.token(user)
    }

    /// A token of a service account that is meant for an audience, as the kubelet mounts it. The account must exist.
    pub async fn account_token(&self, user: User, audience: &str) -> Result<String> {
        let account = user.name().rsplit(':').next().unwrap_or_default();
        let path = format!("/api/v1/namespaces/zonewise-system/serviceaccounts/{account}/token");
        let asked = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [audience]},
        });
        let request = Request::post(&path).body(serde_json::to_vec(&asked)?)?;
        let answer: Value = self.admin()?.request(request).await?;
        let token = answer["status"]["token"].as_str().context("the answer has no token")?;
        Ok(token.to_owned())
    }

    /// A kubeconfig file of a user.
    pub fn kubeconfig(&self, user: User) -> Result<PathBuf> {
        self.write_kubeconfig(user, self.port)
    }

    /// A kubeconfig file of a user that connects through a gate.
    pub fn kubeconfig_through(&self, user: User, gate: &Gate) -> Result<PathBuf> {
        self.write_kubeconfig(user, gate.port())
    }

    /// Requests that the API server has answered since it started, by verb, resource and status code. A watch
    /// counts when it ends.
    pub async fn request_counts(&self) -> Result<BTreeMap<(String, String, String), u64>> {
        let text = self.admin()?.request_text(Request::get("/metrics").body(Vec::new())?).await?;
        Ok(metrics::requests(&text))
    }

    /// Starts a kube-controller-manager that runs only the EndpointSlice controller, as the admin; `args` come
    /// after the testbed's own.
    pub fn controller_manager(&self, args: &[&str]) -> Result<Process> {
        self.controller_manager_of("endpointslice-controller", args)
    }

    /// The same with another of its controllers.
    pub fn controller_manager_of(&self, controller: &str, args: &[&str]) -> Result<Process> {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig(User::Admin)?.display());
        let controllers = format!("--controllers={controller}");
        let mut all = vec![
            kubeconfig.as_str(),
            controllers.as_str(),
            "--leader-elect=false",
            "--secure-port=0",
        ];
        all.extend(args);
        let program = programs::program("kube-controller-manager")?;
        Process::spawn(&program, &all, &[], &self.log("kube-controller-manager"))
    }

    /// The path of a reference program, such as `kube-proxy`.
    ///
    /// # Panics
    /// If the program is missing, with the command that builds it.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        programs::program(name).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// CPU time that the API server has used since it was started.
    pub fn apiserver_cpu_seconds(&self) -> Result<f64> {
        self.apiserver().as_ref().context("the API server is not running")?.cpu_seconds()
    }

    /// The path of a new log file in the directory of the cluster.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.directory().join(format!("{name}-{number}.log"))
    }

    fn write_kubeconfig(&self, user: User, port: u16) -> Result<PathBuf> {
        let path = self.directory().join(format!("{user}-{port}.kubeconfig"));
        let authority = self.directory().join("ca.crt").display().to_string();
        let text = access::kubeconfig(port, &authority, user, self.keys.token(user));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Objects, as the admin.
impl Cluster {
    /// Reads and writes objects as the admin, in the async runtime that it was created in.
    pub fn objects(&self) -> Result<Objects> {
        Ok(Objects::new(self.admin()?))
    }

    /// See [`Objects::create`].
    pub async fn create(&self, objects: &[Value]) -> Result<()> {
        self.objects()?.create(objects).await
    }

    /// See [`Objects::update`].
    pub async fn update(&self, objects: &[Value]) -> Result<()> {
        self.objects()?.update(objects).await
    }

    /// See [`Objects::delete`].
    pub async fn delete(&self, objects: &[Value]) -> Result<()> {
        self.objects()?.delete(objects).await
    }

    /// See [`Objects::list`].
    pub async fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Vec<Value>> {
        self.objects()?.list(kind, namespace).await
    }
}

/// Faults.
impl Cluster {
    /// Kills the API server (SIGKILL): its connections are reset, new ones refused.
    pub fn kill_apiserver(&self) -> Result<()> {
        let process = self.apiserver().take().context("the API server is not running")?;
        process.kill()?;
        Ok(())
    }

    /// Starts the API server again, on the same port with the same data, and waits until it serves.
    pub async fn start_apiserver(&self) -> Result<()> {
        if self.apiserver().is_some() {
            bail!("the API server is already running");
        }
        let program = programs::program("kube-apiserver")?;
        let (flags, environment) = (self.flags(), self.options.environment());
        let process = Process::spawn(&program, &flags, environment, &self.log("kube-apiserver"))?;
        *self.apiserver() = Some(process);
        let client = self.admin()?;
        let check = || self.apiserver().as_mut().map_or(Ok(()), Process::check);
        wait_for(&client, "/readyz", check).await?;
        // The server creates this namespace shortly after it is ready, and tests put objects there.
        wait_for(&client, "/api/v1/namespaces/default", check).await
    }

    /// Pauses etcd (SIGSTOP): the API server accepts requests and cannot answer them.
    pub fn pause_etcd(&self) -> Result<()> {
        self.etcd.lock().as_ref().context("etcd is not running")?.pause()
    }

    /// Resumes a paused etcd.
    pub fn resume_etcd(&self) -> Result<()> {
        self.etcd.lock().as_ref().context("etcd is not running")?.resume()
    }

    /// Removes all revisions but the current one from etcd. A running API server still serves the changes in its
    /// watch cache: old resource versions fail with 410 only after a restart, or with `--watch-cache=false`.
    pub async fn compact_etcd(&self) -> Result<()> {
        let client = access::etcd(self.etcd_port)?;
        let answer = post(&client, "/v3/kv/range", &json!({ "key": "AA==" })).await?;
        let revision = answer["header"]["revision"].clone();
        let order = json!({ "revision": revision, "physical": true });
        post(&client, "/v3/kv/compaction", &order).await?;
        Ok(())
    }

    /// Keeps a copy of etcd's data as it is now. etcd and the API server are restarted for that. What follows is
    /// hundreds of revisions newer than the copy, because an API server makes some by itself when it starts: without
    /// them, a restored store would sometimes have caught up with the lost one before anybody looks.
    pub async fn back_up_etcd(&self) -> Result<()> {
        self.kill_apiserver()?;
        self.stop_etcd().await?;
        copy_folder(&self.directory().join("etcd"), &self.directory().join("etcd-backup"))?;
        self.start_etcd().await?;
        let client = access::etcd(self.etcd_port)?;
        for _ in 0..300 {
            post(&client, "/v3/kv/put", &json!({ "key": "bGF0ZXI=" })).await?;
        }
        self.start_apiserver().await
    }

    /// Puts the copy back, as after a disaster: revisions start again at that of the copy.
    pub async fn restore_etcd(&self) -> Result<()> {
        self.kill_apiserver()?;
        self.stop_etcd().await?;
        let data = self.directory().join("etcd");
        fs::remove_dir_all(&data)?;
        copy_folder(&self.directory().join("etcd-backup"), &data)?;
        self.start_etcd().await?;
        self.start_apiserver().await
    }

    async fn stop_etcd(&self) -> Result<()> {
        let process = self.etcd.lock().take().context("etcd is not running")?;
        process.stop().await?;
        Ok(())
    }

    async fn start_etcd(&self) -> Result<()> {
        let process = start_etcd(self.directory(), self.etcd_port).await?;
        *self.etcd.lock() = Some(process);
        Ok(())
    }

    fn apiserver(&self) -> MutexGuard<'_, Option<Process>> {
        self.apiserver.lock()
    }
}

impl Cluster {
    async fn boot(options: Options) -> Result<Self> {
        let mut directory = tempfile::Builder::new().prefix("zonewise-testbed-").tempdir()?;
        let is_kept = std::env::var_os("ZONEWISE_TESTBED_KEEP").is_some();
        directory.disable_cleanup(is_kept);
        let _remover = (!is_kept).then(|| Remover::of(directory.path())).transpose()?;
        let keys = Keys::write(directory.path())?;
        let (port, etcd_port) = (ports::free()?, ports::free()?);
        let etcd = start_etcd(directory.path(), etcd_port).await?;
        let etcd = Mutex::new(Some(etcd));
        let apiserver = Mutex::new(None);
        let files = AtomicU32::new(0);
        let cluster =
            Self { apiserver, etcd, options, keys, port, etcd_port, files, directory, _remover };
        cluster.start_apiserver().await?;
        Ok(cluster)
    }

    fn flags(&self) -> Vec<String> {
        let file = |name: &str| self.directory().join(name).display().to_string();
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--token-auth-file={}", file("tokens.csv")),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            format!("--cert-dir={}", file("certificates")),
        ];
        flags.extend(FLAGS.map(str::to_owned));
        flags.extend(self.options.apiserver.iter().cloned());
        flags
    }
}

/// Go collects garbage only when the memory reaches the limit: a third of the CPU time of a start is saved, and a test
/// does not run for long. A server with more objects than fit into the limit does nothing but collect.
const FEW_COLLECTIONS: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "1GiB")];

const FLAGS: [&str; 9] = [
    "--service-account-issuer=https://kubernetes.default.svc",
    "--bind-address=127.0.0.1",
    "--authorization-mode=RBAC",
    "--service-cluster-ip-range=10.96.0.0/16,fd00:96::/108",
    // Needs controllers that do not run here.
    "--disable-admission-plugins=ServiceAccount",
    // A loopback address is not allowed in these endpoints, and no test reads them.
    "--endpoint-reconciler-type=none",
    "--advertise-address=192.0.2.1",
    "--allow-privileged=true",
    "--profiling=false",
];

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), &copy)?;
        }
    }
    Ok(())
}

async fn start_etcd(directory: &Path, port: u16) -> Result<Process> {
    let (client, peer) =
        (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", ports::free()?));
    let flags = [
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--unsafe-no-fsync".to_owned(),
        // A single member has no peers to wait for. At 10 and 50 it would be ready a tenth of a second earlier, and its clock
        // would take 1.3 % of a core all the time instead of 0.4 %.
        "--heartbeat-interval=50".to_owned(),
        "--election-timeout=250".to_owned(),
        // Benchmarks write more than the default of 2 GiB.
        "--quota-backend-bytes=8589934592".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    let program = programs::program("etcd")?;
    let mut process = Process::spawn(&program, &flags, &[], &directory.join("etcd.log"))?;
    wait_for(&access::etcd(port)?, "/health", || process.check()).await?;
    Ok(process)
}

/// Waits until a GET of `path` succeeds. `check` fails if the server has ended.
async fn wait_for(
    client: &Client,
    path: &str,
    mut check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let begin = Instant::now();
    loop {
        let request = client.request_text(Request::get(path).body(Vec::new())?);
        let last = match tokio::time::timeout(Duration::from_secs(5), request).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer within 5 seconds".to_owned(),
        };
        check()?;
        if begin.elapsed() > START_TIMEOUT {
            bail!("{path} fails {} seconds after the start: {last}", START_TIMEOUT.as_secs());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn post(client: &Client, path: &str, body: &Value) -> Result<Value> {
    let request = Request::post(path).body(serde_json::to_vec(body)?)?;
    client.request(request).await.with_context(|| format!("POST {path} to etcd"))
}

fn lost_a_port(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}
