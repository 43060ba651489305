//! `zonewise apiserver`: the embedded API server as a command.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use zonewise_apiserver::{Config, FaultError, Faults, Server, Token};
use zonewise_common::cidr::Cidr;
use zonewise_telemetry::log;
use zonewise_telemetry::shutdown::Shutdown;

use crate::args::Usage;
use crate::serving::LogFormat;

/// Time for open requests to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

#[derive(Args)]
#[command(after_help = "\
Examples:
  zonewise apiserver
  kubectl --kubeconfig=zonewise-apiserver.kubeconfig get nodes
  zonewise apiserver --address 127.0.0.1:0 --kubeconfig-out /tmp/lab.kubeconfig
  zonewise apiserver --fault latency=10ms..50ms --fault errors=5%
  zonewise apiserver --token-file tokens.csv     lines of TOKEN,USER

Faults:
  latency=10ms..50ms   every request is delayed by a random time in this range
  errors=5%            this share of requests fails: 429, 500, 503, or no response at all
  drop-watches=10s     watches break off after about this time
  stale=2s             reads with resourceVersion=0 are this old, watch events this late
They can be changed while the server runs: PUT /zonewise/faults with {\"errors\":\"5%\"}.

All objects are in memory and are lost when the server ends. Deployments make Pods, but Pods do not run.")]
pub(crate) struct Flags {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    address: SocketAddr,
    /// Serve plain HTTP instead of HTTPS with a self-made certificate
    #[arg(long)]
    plain_http: bool,
    /// File with the accepted tokens, in lines of TOKEN,USER [default: user admin, random token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File to write the kubeconfig of the first user to; only you can read it
    #[arg(long, value_name = "FILE", default_value = "zonewise-apiserver.kubeconfig")]
    kubeconfig_out: PathBuf,
    /// Ranges of cluster IPs: one, or one of each family, separated by a comma
    /// [default: 10.96.0.0/16,fd00:96::/108]
    #[arg(long, value_name = "RANGES", value_delimiter = ',', value_parser = cidr)]
    service_cidr: Vec<Cidr>,
    /// Changes of each kind that are kept for watches, at least 100; clients that continue from an
    /// older one have to list again
    #[arg(long, value_name = "N", default_value_t = Config::default().history,
        value_parser = RangedU64ValueParser::<usize>::new().range(100..))]
    history: usize,
    /// Leave Deployments and ReplicaSets to kube-controller-manager
    #[arg(long)]
    no_workloads: bool,
    /// A fault to switch on, as NAME=VALUE (repeatable); see below
    #[arg(long = "fault", value_name = "NAME=VALUE")]
    faults: Vec<String>,
    /// Format of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
    /// Log level (error, warn, info, debug), or a filter such as zonewise_apiserver=debug
    #[arg(long, default_value = "info", value_name = "FILTER")]
    log_level: String,
}

pub(crate) fn run(flags: Flags) -> anyhow::Result<()> {
    log::start(flags.log_format.into(), &flags.log_level)
        .map_err(|error| Usage(error.to_string()))?;
    let file = flags.kubeconfig_out.clone();
    let config = flags.config()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(config, &file))
}

async fn serve(config: Config, file: &Path) -> anyhow::Result<()> {
    let shutdown = Shutdown::on_signals(GRACE).context("cannot install signal handlers")?;
    let (faults, wanted) = (config.faults.clone(), config.address);
    let server = Server::start(config).await?;
    write_secret(file, &server.kubeconfig())?;
    announce(&server, wanted, &faults);
    writeln!(std::io::stdout(), "kubectl --kubeconfig={} get nodes", file.display())?;
    shutdown.wait().await;
    if shutdown.grace(server.stop()).await.is_none() {
        tracing::warn!("some requests did not end in time and were aborted");
    }
    tracing::info!("API server stopped; its objects are lost");
    Ok(())
}

fn announce(server: &Server, wanted: SocketAddr, faults: &Faults) {
    if !wanted.ip().is_loopback() {
        tracing::warn!(
            address = %server.address(),
            "the server listens on a network address: every client with a token can change everything"
        );
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        url = server.url(),
        %faults,
        "API server is ready"
    );
}

/// Writes a file that only its owner can read, and that appears only when it is complete.
fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // `tempfile` creates it with mode 0600.
    let mut file = tempfile::Builder::new()
        .prefix(".zonewise-")
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    file.persist(path).with_context(failed)?;
    Ok(())
}

impl Flags {
    fn config(self) -> Result<Config, Usage> {
        let usage = |error: FaultError| Usage(format!("--fault: {error}"));
        let mut config = Config {
            workloads: !self.no_workloads,
            address: self.address,
            tls: !self.plain_http,
            history: self.history,
            faults: self
                .faults
                .iter()
                .try_fold(Faults::default(), |all, one| all.with(one))
                .map_err(usage)?,
            ..Config::default()
        };
        if !self.service_cidr.is_empty() {
            config.service_ranges = families(self.service_cidr)?;
        }
        if let Some(path) = &self.token_file {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
            config.tokens =
                tokens(&text).map_err(|error| Usage(format!("{}:{error}", path.display())))?;
        }
        Ok(config)
    }
}

fn families(ranges: Vec<Cidr>) -> Result<Vec<Cidr>, Usage> {
    let fine = match &ranges[..] {
        [_] => true,
        [one, other] => one.is_ipv4() != other.is_ipv4(),
        _ => false,
    };
    if fine {
        return Ok(ranges);
    }
    Err(Usage(
        "--service-cidr: give one range, or one IPv4 and one IPv6 range (example: \
         10.96.0.0/16,fd00:96::/108)"
            .into(),
    ))
}

fn cidr(text: &str) -> Result<Cidr, String> {
    let range = Cidr::parse(text)
        .ok_or_else(|| format!("`{text}` is not a CIDR range (example: 10.96.0.0/16)"))?;
    let most = if range.is_ipv4() { 30 } else { 126 };
    if range.length() > most {
        return Err(format!(
            "`{text}` is too small for a Service: use a prefix of at most {most} bits"
        ));
    }
    Ok(range)
}

/// Parses lines of `token,user`, the format of kube-apiserver's `--token-auth-file`; further columns
/// are ignored.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let tokens = lines
        .map(|(number, line)| {
            let mut columns = line.split(',').map(|column| column.trim().trim_matches('"'));
            match (columns.next(), columns.next()) {
                (Some(secret), Some(user)) if !secret.is_empty() && !user.is_empty() => {
                    Ok(Token { user: user.into(), secret: secret.into(), audience: None })
                }
                _ => Err(format!("{number}: not a line of TOKEN,USER")),
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    if tokens.is_empty() {
        return Err("1: no tokens; write lines of TOKEN,USER".into());
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_line_by_line() {
        let token = |secret: &str, user: &str| Token {
            user: user.into(),
            secret: secret.into(),
            audience: None,
        };
        let text = "# comment\nabc,admin\n\n def , \"eve\",uid,\"group\"\n";
        assert_eq!(tokens(text), Ok(vec![token("abc", "admin"), token("def", "eve")]));
        assert_eq!(tokens("abc,admin\nabc\n"), Err("2: not a line of TOKEN,USER".into()));
        assert_eq!(tokens(",admin"), Err("1: not a line of TOKEN,USER".into()));
        assert_eq!(tokens("\n"), Err("1: no tokens; write lines of TOKEN,USER".into()));
    }

    #[test]
    fn ranges_are_large_enough() {
        assert_eq!(cidr("10.96.0.0/16").unwrap().to_string(), "10.96.0.0/16");
        for wrong in ["10.96.0.0", "10.96.0.0/33", "10.96.0.0/31", "x/8", "fd00::/127"] {
            assert!(cidr(wrong).is_err(), "{wrong}");
        }
        let ranges =
            |texts: &[&str]| families(texts.iter().map(|text| cidr(text).unwrap()).collect());
        assert!(ranges(&["10.0.0.0/8", "fd00::/108"]).is_ok());
        assert!(ranges(&["10.0.0.0/8", "11.0.0.0/8"]).is_err());
    }

    #[test]
    fn only_the_owner_can_read_a_kubeconfig() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        write_secret(&path, "secret").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "secret");
    }
}
