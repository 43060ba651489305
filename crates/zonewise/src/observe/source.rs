//! Where the objects come from: files, or a cluster.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use zonewise_cluster::connect::connect_to_context;
use zonewise_explain::input::{self, Options};
use zonewise_explain::live::{self, Scope};
use zonewise_explain::snapshot::{Gather, Remarks, Snapshot};
use zonewise_topology::capacity::MissingCpu;

use super::ServiceName;
use crate::output::complain;
use crate::progress::reading;

#[derive(Args)]
pub(crate) struct Source {
    /// Nodes, Pods, Services and EndpointSlices: YAML or JSON files, folders of such files, or `-`
    /// for standard input; repeatable. Without it the cluster of the kubeconfig is read
    #[arg(short = 'f', long = "filename", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    files: Vec<PathBuf>,
    /// How to reach the cluster; without it KUBECONFIG, ~/.kube/config, or the Pod's own account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Only this namespace; also where a Service named without one is looked for
    #[arg(short = 'n', long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Go on without objects that cannot be read, instead of giving up
    #[arg(long)]
    keep_going: bool,
}

/// What was read.
pub(crate) struct Gathered {
    pub(crate) snapshot: Snapshot,
    /// The Service that was asked for, with its namespace.
    pub(crate) service: Option<(String, String)>,
}

/// What is wanted of the source.
pub(crate) struct Wanted<'a> {
    /// One Service alone.
    pub(crate) service: Option<&'a ServiceName>,
    /// Pods.
    pub(crate) pods: bool,
    /// Services and slices as consumers see them.
    pub(crate) json: bool,
    /// What is done about nodes that do not report CPU.
    pub(crate) missing_cpu: MissingCpu,
}

impl Source {
    /// Reads everything, and says what was odd about it.
    pub(crate) fn gather(&self, wanted: &Wanted<'_>) -> Result<Gathered> {
        let mut gather = Gather::default();
        let service = if self.files.is_empty() {
            self.read_cluster(wanted, &mut gather)?
        } else {
            let options = Options { keep_json: wanted.json };
            if let Err(error) = read_files(&files(&self.files)?, &options, &mut gather) {
                // What was wrong before counts too.
                self.tell_faults(&gather.finish(wanted.missing_cpu).1);
                return Err(error);
            }
            self.full(wanted.service, "default")
        };
        let (snapshot, remarks) = gather.finish(wanted.missing_cpu);
        self.tell(&remarks)?;
        tell_missing(&remarks, wanted);
        Ok(Gathered { snapshot, service })
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
        gather: &mut Gather,
    ) -> Result<Option<(String, String)>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (client, default) =
                connect_to_context(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
            let service = self.full(wanted.service, &default);
            let scope = match (&service, &self.namespace) {
                (Some((namespace, name)), _) => Scope::Service { namespace, name },
                (None, Some(namespace)) => Scope::Namespace(namespace),
                (None, None) => Scope::All,
            };
            live::read(&client, &scope, wanted.pods, &mut |item| gather.take(item))
                .await
                .context("the cluster cannot be read")?;
            Ok(service)
        })
    }

    /// Objects that cannot be used end the work: a plan without them could take endpoints away.
    fn tell(&self, remarks: &Remarks) -> Result<()> {
        for one in remarks.duplicates.iter().take(SHOWN) {
            complain(&format!(
                "warning: {} is given twice: {} and {}; the later counts",
                one.subject, one.first, one.again
            ));
        }
        if remarks.duplicates.len() > SHOWN {
            complain(&format!(
                "warning: {} more are given twice",
                remarks.duplicates.len() - SHOWN
            ));
        }
        self.tell_faults(remarks);
        if remarks.used.is_empty() && remarks.faults.is_empty() {
            let ignored: Vec<String> =
                remarks.ignored.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            let found = if ignored.is_empty() { "nothing".into() } else { ignored.join(", ") };
            bail!(
                "no Node, Pod, Service or EndpointSlice was given, but {found}; write them with \
                 `kubectl get nodes,pods,services,endpointslices -A -o yaml`"
            );
        }
        match remarks.faults.len() {
            0 => Ok(()),
            _ if self.keep_going => Ok(()),
            1 => bail!(
                "1 object cannot be used; correct it, or pass --keep-going to go on without it"
            ),
            faults => bail!(
                "{faults} objects cannot be used; correct them, or pass --keep-going to go on without them"
            ),
        }
    }

    fn tell_faults(&self, remarks: &Remarks) {
        let word = if self.keep_going { "warning" } else { "error" };
        for fault in remarks.faults.iter().take(SHOWN) {
            complain(&format!("{word}: {}: {}: {}", fault.place, fault.subject, fault.message));
        }
    }
}

/// What is missing, and what that means.
fn tell_missing(remarks: &Remarks, wanted: &Wanted<'_>) {
    let missing = |kind: &str| !remarks.used.contains_key(kind);
    if missing("Node") {
        let pods = if wanted.pods { ", and every Pod is on a node that is not known" } else { "" };
        complain(&format!(
            "warning: no Node was given, so no zone is known{pods}; add the output of `kubectl get \
             nodes -o yaml`"
        ));
    }
    if wanted.json && missing("EndpointSlice") {
        complain(
            "warning: no EndpointSlice was given, so nothing is known of how traffic goes now; add \
             the output of `kubectl get endpointslices -A -o yaml`",
        );
    }
}

/// Remarks of a kind that are shown; the others are counted.
const SHOWN: usize = 20;

/// Below this nobody waits.
const LARGE: u64 = 8 << 20;

/// The files, with folders opened.
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
            bail!("{} has no .yaml, .yml or .json file", path.display());
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

fn read_files(files: &[PathBuf], options: &Options, gather: &mut Gather) -> Result<()> {
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
        input::read(&name, source, options, &mut |item| gather.take(item), &|read| {
            bar.set_position(before.get() + read);
        })?;
        before.set(before.get() + file.metadata().map_or(0, |data| data.len()));
    }
    bar.finish_and_clear();
    Ok(())
}
