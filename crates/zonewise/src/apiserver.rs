//! `zonewise apiserver`: the embedded API by itself.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use zonewise_apiserver::Cidr;
use zonewise_apiserver::{Config, Faults, Server, Token};
use zonewise_telemetry::log;
use zonewise_telemetry::shutdown::Shutdown;

use crate::args::Usage;
use crate::serving::LogFormat;

/// What was begun may end this long after a signal.
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
  latency=10ms..50ms   every request waits that long
  errors=5%            so many requests fail: 429, 500, 503, or no answer at all
  drop-watches=10s     watches break off after about that time
  stale=2s             reads with resourceVersion=0 are that old, watches that late
They can be changed while it runs: PUT /zonewise/faults with {\"errors\":\"5%\"}.

Everything is in memory and gone when it ends. Nobody runs the Pods.")]
pub(crate) struct Flags {
    /// Where to listen; port 0 takes one that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    address: SocketAddr,
    /// Plain HTTP instead of HTTPS with a certificate of its own
    #[arg(long)]
    plain_http: bool,
    /// Who may come in: lines of TOKEN,USER [default: admin, with a random token]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Where to write the kubeconfig of the first user; only you can read it
    #[arg(long, value_name = "FILE", default_value = "zonewise-apiserver.kubeconfig")]
    kubeconfig_out: PathBuf,
    /// Where Services get their addresses from; one range, or one of each family with a comma between
    /// [default: 10.96.0.0/16,fd00:96::/108]
    #[arg(long, value_name = "RANGES", value_delimiter = ',', value_parser = cidr)]
    service_cidr: Vec<Cidr>,
    /// How many changes of each kind are remembered, at least 100; who goes on from an older one has to list again
    #[arg(long, value_name = "N", default_value_t = Config::default().history,
        value_parser = RangedU64ValueParser::<usize>::new().range(100..))]
    history: usize,
    /// Something that goes wrong on purpose, as NAME=VALUE (repeatable); see below
    #[arg(long = "fault", value_name = "NAME=VALUE")]
    faults: Vec<String>,
    /// Form of the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORM")]
    log_format: LogFormat,
    /// What is logged: error, warn, info, debug, or a filter such as zonewise_apiserver=debug
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
    let shutdown = Shutdown::on_signals(GRACE).context("signals cannot be received")?;
    let (faults, wanted) = (config.faults.clone(), config.address);
    let server = Server::start(config).await?;
    write_secret(file, &server.kubeconfig())?;
    announce(&server, wanted, &faults);
    writeln!(std::io::stdout(), "kubectl --kubeconfig={} get nodes", file.display())?;
    shutdown.wait().await;
    if shutdown.grace(server.stop()).await.is_none() {
        tracing::warn!("some requests were cut off");
    }
    tracing::info!("API server ended; its objects are gone");
    Ok(())
}

fn announce(server: &Server, wanted: SocketAddr, faults: &Faults) {
    if !wanted.ip().is_loopback() {
        tracing::warn!(address = %server.address(), "others can reach this server; whoever has a token can change everything");
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), url = server.url(), %faults, "API server serves");
}

/// A file that only its owner can read, and that appears only when it is complete.
fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Made with mode 0600.
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
        let usage =
            |error: zonewise_apiserver::FaultError| Usage(format!("--fault {error}"));
        let mut config = Config {
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
        [one, other] => one.0.is_ipv4() != other.0.is_ipv4(),
        _ => false,
    };
    if fine {
        return Ok(ranges);
    }
    Err(Usage("--service-cidr: give one range, or one of each family".into()))
}

fn cidr(text: &str) -> Result<Cidr, String> {
    let wrong = || format!("`{text}` is no range of addresses: write one such as 10.96.0.0/16");
    let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let bits: u8 = bits.parse().map_err(|_| wrong())?;
    let (most, length) = if address.is_ipv4() { (30, 32) } else { (126, 128) };
    if bits > length {
        return Err(wrong());
    }
    if bits > most {
        return Err(format!(
            "`{text}` has room for no Service: use a prefix of at most {most} bits"
        ));
    }
    Ok((address, bits))
}

/// Lines of `token,user`, as kube-apiserver reads them; what follows is not used.
fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let tokens = lines
        .map(|(number, line)| {
            let mut columns = line.split(',').map(|column| column.trim().trim_matches('"'));
            match (columns.next(), columns.next()) {
                (Some(secret), Some(user)) if !secret.is_empty() && !user.is_empty() => {
                    Ok(Token { user: user.into(), secret: secret.into() })
                }
                _ => Err(format!("{number}: write TOKEN,USER")),
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    if tokens.is_empty() { Err("1: nobody is named; write TOKEN,USER".into()) } else { Ok(tokens) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_line_by_line() {
        let token = |secret: &str, user: &str| Token { user: user.into(), secret: secret.into() };
        let text = "# comment\nabc,admin\n\n def , \"eve\",uid,\"group\"\n";
        assert_eq!(tokens(text), Ok(vec![token("abc", "admin"), token("def", "eve")]));
        assert_eq!(tokens("abc,admin\nabc\n"), Err("2: write TOKEN,USER".into()));
        assert_eq!(tokens(",admin"), Err("1: write TOKEN,USER".into()));
        assert_eq!(tokens("\n"), Err("1: nobody is named; write TOKEN,USER".into()));
    }

    #[test]
    fn ranges_have_room() {
        assert_eq!(cidr("10.96.0.0/16"), Ok(([10, 96, 0, 0].into(), 16)));
        for wrong in ["10.96.0.0", "10.96.0.0/33", "10.96.0.0/31", "x/8", "fd00::/127"] {
            assert!(cidr(wrong).is_err(), "{wrong}");
        }
        let ranges =
            |texts: &[&str]| families(texts.iter().map(|text| cidr(text).unwrap()).collect());
        assert!(ranges(&["10.0.0.0/8", "fd00::/108"]).is_ok());
        assert!(ranges(&["10.0.0.0/8", "11.0.0.0/8"]).is_err());
    }

    #[test]
    fn a_kubeconfig_is_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        write_secret(&path, "secret").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "secret");
    }
}
