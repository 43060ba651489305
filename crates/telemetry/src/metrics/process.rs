//! Metrics of this process, under the names that all Prometheus client libraries use.

use std::fs;

use super::{Kind, MetricError, Registry, Samples};

/// `USER_HZ`, the unit of process times in /proc: 100 on every architecture we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Registers the metrics of the process, and `zonewise_build_info` with the version.
///
/// Values that cannot be read from `/proc` are left out.
///
/// # Errors
/// If one of the names is in use.
pub fn process(registry: &Registry, version: &str) -> Result<(), MetricError> {
    computed(registry, "process_cpu_seconds_total", "CPU time spent.", Kind::Counter, cpu_seconds)?;
    computed(
        registry,
        "process_resident_memory_bytes",
        "Memory in use.",
        Kind::Gauge,
        resident_bytes,
    )?;
    computed(
        registry,
        "process_start_time_seconds",
        "Start of the process, in seconds since 1970.",
        Kind::Gauge,
        start_time,
    )?;
    computed(registry, "process_open_fds", "Open file descriptors.", Kind::Gauge, open_files)?;
    let build = registry.gauge("zonewise_build_info", "The running version.", ["version"])?;
    build.with([version]).set(1.0);
    Ok(())
}

fn computed(
    registry: &Registry,
    name: &str,
    help: &str,
    kind: Kind,
    read: fn() -> Option<f64>,
) -> Result<(), MetricError> {
    registry.collect(name, help, kind, [], move |samples: &mut Samples<'_, 0>| {
        if let Some(value) = read() {
            samples.push([], value);
        }
    })
}

fn cpu_seconds() -> Option<f64> {
    Some(times(&fs::read_to_string("/proc/self/stat").ok()?)?.cpu / TICKS_PER_SECOND)
}

fn start_time() -> Option<f64> {
    let times = times(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let boot = field(&fs::read_to_string("/proc/stat").ok()?, "btime ")?;
    Some(boot + times.start / TICKS_PER_SECOND)
}

fn resident_bytes() -> Option<f64> {
    Some(field(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")? * 1024.0)
}

fn open_files() -> Option<f64> {
    let files = fs::read_dir("/proc/self/fd").ok()?.count();
    // Reading the directory opens it.
    Some(files.saturating_sub(1) as f64)
}

#[derive(Debug, PartialEq)]
struct Times {
    cpu: f64,
    start: f64,
}

/// CPU time and start time in ticks, from `/proc/self/stat`. The second field, the program's name in
/// parentheses, may contain spaces and parentheses: fields are counted from the last parenthesis.
fn times(stat: &str) -> Option<Times> {
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some(Times { cpu: ticks(14)? + ticks(15)?, start: ticks(22)? })
}

/// The first number after `key` at the start of a line.
fn field(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_the_end_of_the_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 95 0 0 0 250 50 0 0 20 0 1 0 8301 3 171 1";
        assert_eq!(times(stat), Some(Times { cpu: 300.0, start: 8301.0 }));
        assert_eq!(times("7 (zonewise) S 1"), None);
        assert_eq!(times(""), None);
    }

    #[test]
    fn fields_by_key() {
        let status = "Name:\tzonewise\nVmHWM:\t    9 kB\nVmRSS:\t 1234 kB\n";
        assert_eq!(field(status, "VmRSS:"), Some(1234.0));
        assert_eq!(field(status, "VmSwap:"), None);
    }

    #[test]
    fn this_process_is_alive() {
        let registry = Registry::default();
        process(&registry, "1.2.3").unwrap();
        let text = registry.text();
        let value = |name: &str| field(&text, name).unwrap_or_else(|| panic!("{name}\n{text}"));
        assert!(value("process_cpu_seconds_total ") >= 0.0);
        assert!(value("process_resident_memory_bytes ") > 100_000.0);
        assert!(value("process_open_fds ") >= 3.0);
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let started = value("process_start_time_seconds ");
        // The kernel rounds both the boot time and the start.
        assert!(started > 1e9 && started < now + 2.0, "{started} {now}");
        assert!(text.contains("\nzonewise_build_info{version=\"1.2.3\"} 1\n"), "{text}");
    }
}
