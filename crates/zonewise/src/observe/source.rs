//! Where objects are read from: files, or a cluster.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tokio::time::timeout;
use zonewise_cluster::connect::{Connection, connect_to_context};
use zonewise_common::name::Name;
use zonewise_common::similar::closest;
use zonewise_explain::input::{self, Item, LocatedObject, Object, Options};
use zonewise_explain::live::{self, Scope};
use zonewise_explain::{Remarks, Snapshot, SnapshotBuilder};
use zonewise_slices::service::Service;
use zonewise_topology::capacity::MissingCpu;

use super::ServiceName;
use crate::args::Usage;
use crate::completion::namespaces;
use crate::output::complain;
use crate::progress::reading;

#[derive(Args, Default)]
pub(crate) struct Source {
    /// File or folder with Nodes, Pods, Services and EndpointSlices in YAML or JSON, or `-` for
    /// standard input; repeatable [default: read the cluster of the kubeconfig]
    #[arg(short = 'f', long = "filename", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) files: Vec<PathBuf>,
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the Pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Only this namespace; also the namespace of a Service given without one
    #[arg(short = 'n', long, value_name = "NAME", add = ArgValueCompleter::new(namespaces))]
    pub(crate) namespace: Option<String>,
    /// All namespaces; this is the default without -n
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
    /// Continue without objects that cannot be read, instead of stopping
    #[arg(long)]
    pub(crate) keep_going: bool,
}

/// What was read.
pub(crate) struct Gathered {
    pub(crate) snapshot: Snapshot,
    /// Namespace and name of the selected Service.
    pub(crate) service: Option<(String, String)>,
    namespace: Option<String>,
    live: bool,
}

impl Gathered {
    /// The selected Services: one, those of a namespace, or all.
    pub(crate) fn services(&self) -> Result<Vec<Arc<Service>>> {
        if let Some((namespace, name)) = &self.service {
            let key = (Name::from(namespace.as_str()), Name::from(name.as_str()));
            let found = self.snapshot.service(&key).ok_or_else(|| self.missing(namespace, name))?;
            return Ok(vec![found]);
        }
        let namespace = self.namespace.as_deref();
        let wanted =
            |service: &&Arc<Service>| namespace.is_none_or(|name| *service.namespace == *name);
        let found: Vec<Arc<Service>> =
            self.snapshot.services().filter(wanted).map(Arc::clone).collect();
        anyhow::ensure!(!found.is_empty(), self.without_services());
        Ok(found)
    }

    /// The message if no Service was found.
    fn without_services(&self) -> String {
        let namespaces: BTreeSet<&str> =
            self.snapshot.services().map(|service| &*service.namespace).collect();
        match &self.namespace {
            Some(given) => match closest(given, namespaces) {
                Some(meant) => {
                    format!("there is no Service in namespace `{given}`; did you mean `{meant}`?")
                }
                None => format!(
                    "there is no Service in namespace `{given}`; pass another one with -n, or -A for all"
                ),
            },
            None if self.live => "the cluster has no Service".into(),
            None => {
                "there is no Service; add the output of `kubectl get services -A -o yaml`".into()
            }
        }
    }

    /// The error for a Service that does not exist.
    fn missing(&self, namespace: &str, name: &str) -> anyhow::Error {
        let all = || self.snapshot.services();
        let here = all().filter(|service| *service.namespace == *namespace);
        let elsewhere: Vec<String> =
            all().filter(|service| *service.name == *name).map(|service| service.key()).collect();
        let similar = closest(name, here.map(|service| &*service.name));
        let hint = match (elsewhere.as_slice(), similar) {
            ([], None) => "; `zonewise explain -A` lists all".into(),
            ([], Some(meant)) => format!("; did you mean {namespace}/{meant}?"),
            (found, _) => {
                let (first, more) = (&found[0], found.len() - 1);
                let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
                format!("; did you mean {first}{more}?")
            }
        };
        anyhow::anyhow!("there is no Service {namespace}/{name}{hint}")
    }
}

/// Which objects a command needs.
pub(crate) struct Wanted<'a> {
    /// Only this Service.
    pub(crate) service: Option<&'a ServiceName>,
    /// Whether Pods are needed.
    pub(crate) pods: bool,
    /// Whether the JSON of Services and slices is needed, which proxies read.
    pub(crate) json: bool,
    /// How nodes count that report no allocatable CPU.
    pub(crate) missing_cpu: MissingCpu,
}

impl Source {
    /// Reads the objects, and prints what was wrong with them.
    pub(crate) fn gather(&self, wanted: &Wanted<'_>) -> Result<Gathered> {
        if self.all_namespaces && wanted.service.is_some() {
            let message = "one Service has one namespace: leave --all-namespaces out";
            return Err(Usage(message.into()).into());
        }
        let mut builder = SnapshotBuilder::default();
        let service = if !self.is_files() {
            self.read_cluster(wanted, &mut builder)?
        } else {
            let options = Options { keep_json: wanted.json };
            let mut add = |item| builder.add(item);
            if let Err(error) = read_files(&files(&self.files)?, &options, &mut add) {
                // Faults found before the error are printed too.
                self.report_faults(&builder.finish(wanted.missing_cpu).1);
                return Err(error);
            }
            self.full(wanted.service, "default")
        };
        let (snapshot, remarks) = builder.finish(wanted.missing_cpu);
        self.report(&remarks)?;
        warn_of_missing_kinds(&remarks, wanted, !self.is_files());
        let namespace = self.namespace.clone();
        Ok(Gathered { snapshot, service, namespace, live: !self.is_files() })
    }

    /// Whether objects are read from files.
    pub(crate) fn is_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Whether objects are read from standard input, which can be read only once.
    pub(crate) fn reads_standard_input(&self) -> bool {
        self.files.iter().any(|file| file == Path::new("-"))
    }

    /// Reads the objects of the files one by one.
    pub(crate) fn each_item(&self, take: &mut dyn FnMut(Item)) -> Result<()> {
        read_files(&files(&self.files)?, &Options::default(), take)
    }

    /// The namespaces and names of all Services, for shells; none if they cannot be read soon.
    pub(crate) fn service_names(&self) -> Vec<(String, String)> {
        let mut names = Vec::new();
        let mut take = |item| names.extend(service_name(item));
        if self.is_files() {
            // What was read before an error is of use, too.
            let _ =
                files(&self.files).map(|files| read_files(&files, &Options::default(), &mut take));
            let wanted = |name: &(String, String)| {
                self.namespace.as_ref().is_none_or(|namespace| *namespace == name.0)
            };
            names.retain(wanted);
        } else if let Ok(runtime) =
            tokio::runtime::Builder::new_current_thread().enable_all().build()
        {
            let listing =
                async { timeout(COMPLETION_TIMEOUT, self.list_services(&mut take)).await };
            let _ = runtime.block_on(listing);
        }
        names
    }

    async fn list_services(&self, take: &mut (dyn FnMut(Item) + Send)) -> Result<()> {
        let (kubeconfig, context) = (self.kubeconfig.as_deref(), self.context.as_deref());
        let client = connect_to_context(kubeconfig, context).await?.client;
        Ok(live::services(&client, self.namespace.as_deref(), take).await?)
    }

    fn full(&self, service: Option<&ServiceName>, default: &str) -> Option<(String, String)> {
        let namespace = self.namespace.as_deref().unwrap_or(default);
        service.map(|service| {
            let namespace = service.namespace.as_deref().unwrap_or(namespace);
            (namespace.to_owned(), service.name.clone())
        })
    }

    fn read_cluster(
        &self,
        wanted: &Wanted<'_>,
        builder: &mut SnapshotBuilder,
    ) -> Result<Option<(String, String)>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let Connection { client, namespace: default, server } =
                connect_to_context(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
            let service = self.full(wanted.service, &default);
            let scope = match (&service, &self.namespace) {
                (Some((namespace, name)), _) => Scope::Service { namespace, name },
                (None, Some(namespace)) => Scope::Namespace(namespace),
                (None, None) => Scope::All,
            };
            live::read(&client, &scope, wanted.pods, &mut |item| builder.add(item))
                .await
                .with_context(|| format!("cannot read the cluster at {server}"))?;
            builder.set_facts(live::facts(&client).await);
            Ok(service)
        })
    }

    /// Prints what was wrong. Objects that cannot be used are an error, unless --keep-going is given:
    /// a plan without them could remove endpoints.
    fn report(&self, remarks: &Remarks) -> Result<()> {
        for one in remarks.duplicates.iter().take(SHOWN) {
            complain(&format!(
                "warning: {} is given twice: {} and {}; the last one is used",
                one.subject, one.first, one.again
            ));
        }
        if remarks.duplicates.len() > SHOWN {
            complain(&format!(
                "warning: {} more objects are given twice",
                remarks.duplicates.len() - SHOWN
            ));
        }
        self.report_faults(remarks);
        if remarks.used.is_empty() && remarks.faults.is_empty() {
            let ignored: Vec<String> =
                remarks.ignored.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            if !self.is_files() {
                bail!(
                    "the cluster has no Node, Pod, Service or EndpointSlice: check that the kubeconfig names the right one"
                );
            }
            let found = if ignored.is_empty() {
                "the input is empty".into()
            } else {
                format!(
                    "the input has no Node, Pod, Service or EndpointSlice, but {}",
                    ignored.join(", ")
                )
            };
            bail!(
                "{found}; create it with `kubectl get nodes,pods,services,endpointslices -A -o yaml`"
            );
        }
        match remarks.faults.len() {
            0 => Ok(()),
            _ if self.keep_going => Ok(()),
            1 => bail!(
                "1 object cannot be used; correct it, or pass --keep-going to continue without it"
            ),
            faults => bail!(
                "{faults} objects cannot be used; correct them, or pass --keep-going to continue without them"
            ),
        }
    }

    fn report_faults(&self, remarks: &Remarks) {
        let word = if self.keep_going { "warning" } else { "error" };
        for fault in remarks.faults.iter().take(SHOWN) {
            complain(&format!("{word}: {}: {}: {}", fault.location, fault.subject, fault.message));
        }
    }
}

/// How long people wait for a completion.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(3);

fn service_name(item: Item) -> Option<(String, String)> {
    match item {
        Item::Found(LocatedObject { object: Object::Service { small, .. }, .. }) => {
            Some((small.namespace.to_string(), small.name.to_string()))
        }
        Item::Found(_) | Item::Fault(_) | Item::Ignored { .. } | Item::Clue { .. } => None,
    }
}

/// Warns of kinds of objects that are missing, and says what cannot be known without them.
fn warn_of_missing_kinds(remarks: &Remarks, wanted: &Wanted<'_>, live: bool) {
    let missing = |kind: &str| !remarks.used.contains_key(kind);
    let remedy = |resource: &str| {
        if live {
            return String::new();
        }
        format!("; add the output of `kubectl get {resource} -o yaml`")
    };
    // `lint` looks at Services alone.
    if (wanted.pods || wanted.json) && missing("Node") {
        let pods = if wanted.pods { ", and every Pod is on an unknown node" } else { "" };
        complain(&format!(
            "warning: there is no Node, so no zone is known{pods}{}",
            remedy("nodes")
        ));
    }
    if wanted.json && missing("EndpointSlice") {
        complain(&format!(
            "warning: there is no EndpointSlice, so it is not known where traffic goes now{}",
            remedy("endpointslices -A")
        ));
    }
}

/// The number of remarks of one kind that are shown; the others are counted.
const SHOWN: usize = 20;

/// Files of this size take long enough for a progress bar.
const LARGE: u64 = 8 << 20;

/// The files, including those in folders.
fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries =
            std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut inside: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| is_manifest(path))
            .collect();
        if inside.is_empty() {
            bail!(
                "the directory {} has no .yaml, .yml or .json file: name another one, or a file",
                path.display()
            );
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("yaml" | "yml" | "json"))
}

fn read_files(files: &[PathBuf], options: &Options, take: &mut dyn FnMut(Item)) -> Result<()> {
    let total: u64 = files.iter().filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    let bar = reading(total, total >= LARGE);
    let before = Cell::new(0);
    for file in files {
        let name = if file == Path::new("-") {
            "standard input".into()
        } else {
            file.display().to_string()
        };
        let source: Box<dyn Read + Send> = if file == Path::new("-") {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(file).with_context(|| format!("cannot read {name}"))?)
        };
        input::read(&name, source, options, take, &|read| {
            bar.set_position(before.get() + read);
        })?;
        before.set(before.get() + file.metadata().map_or(0, |data| data.len()));
    }
    bar.finish_and_clear();
    Ok(())
}
