//! A real Prometheus, which scrapes what a test serves, every second.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::ports;
use crate::process::Process;
use crate::programs::installed;

/// What is scraped: the name of a job, where, and labels of the targets.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Its name.
    pub name: &'a str,
    /// The addresses that have a page `/metrics`.
    pub targets: Vec<SocketAddr>,
    /// Labels that the targets get.
    pub labels: Value,
}

/// A running Prometheus. Dropping it ends it.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    address: SocketAddr,
    tls: bool,
}

/// What a Prometheus is to do besides scraping.
#[derive(Clone, Debug, Default)]
pub struct PrometheusOptions {
    /// Files with recording and alerting rules.
    pub rules: Vec<PathBuf>,
    /// A certificate and its key, in PEM files, with which it serves.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Prometheus {
    /// Starts one in the network namespace of the calling thread, with its files in a new folder of `directory`.
    pub fn start(directory: &Path, jobs: &[Job<'_>], options: &PrometheusOptions) -> Result<Self> {
        let program = installed("prometheus")?;
        let port = ports::free()?;
        let folder = directory.join(format!("prometheus-{port}"));
        fs::create_dir_all(&folder)?;
        let job = |job: &Job<'_>| {
            let targets: Vec<String> = job.targets.iter().map(ToString::to_string).collect();
            json!({
                "job_name": job.name,
                "static_configs": [{"targets": targets, "labels": job.labels}],
            })
        };
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": options.rules,
            "scrape_configs": jobs.iter().map(job).collect::<Vec<_>>(),
        });
        // JSON is YAML.
        let write = |name: &str, value: &Value| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, value.to_string())?;
            Ok(path)
        };
        let config = write("prometheus.yml", &config)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut flags = vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
            "--log.level=warn".to_owned(),
        ];
        if let Some((certificate, key)) = &options.certificate {
            let web = json!({"tls_server_config": {"cert_file": certificate, "key_file": key}});
            flags.push(format!("--web.config.file={}", write("web.yml", &web)?.display()));
        }
        let process = Process::spawn(&program, &flags, &[], &folder.join("log"))
            .context("Prometheus cannot be started")?;
        Ok(Self { process, address, tls: options.certificate.is_some() })
    }

    /// Its address for clients.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
