//! `zonewise guard`: what there is to do about guard mode apart from running it.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use zonewise_cluster::connect::connect_to_context;
use zonewise_controller::guard::Removed;

#[derive(Subcommand)]
pub(crate) enum Guard {
    /// Remove everything that guard mode has written
    ///
    /// The admission policy and its bindings, or the webhook, ZoneAllocations, conditions, and spec.trafficDistribution where guard mode has
    /// set it. The built-in controller writes its own hints again. Connections go on meanwhile. Stop the controller
    /// first: it would write all of it again.
    #[command(after_help = "\
Examples:
  kubectl -n zonewise-system scale deployment zonewise-controller --replicas 0
  zonewise guard remove
  kubectl delete -f deploy/guard/

docs/guard.md explains guard mode.")]
    Remove(Remove),
}

#[derive(Args)]
pub(crate) struct Remove {
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the Pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Form,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    Text,
    Json,
}

pub(crate) fn run(Guard::Remove(arguments): Guard) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let removed = runtime.block_on(async {
        let (kubeconfig, context) = (arguments.kubeconfig.as_deref(), arguments.context.as_deref());
        let cluster = connect_to_context(kubeconfig, context).await?;
        anyhow::Ok(zonewise_controller::guard::remove(&cluster.client).await?)
    })?;
    let Removed { services, floors } = removed;
    let text = match arguments.output {
        Form::Json => format!("{}\n", json!({ "services": services, "floors": floors })),
        Form::Text => format!(
            "guard mode's admission policy or webhook is removed; {services} Services have the built-in controller's hints \
             again, and spec.trafficDistribution is as it was before guard mode on {floors}\n"
        ),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
