//! A child process: its signals, its log, its CPU time and memory.
//!
//! A child must not outlive the test, and a test may be killed before any destructor runs. Each child therefore
//! has a guard: a shell that waits on a pipe from this process. The kernel closes the pipe when this process
//! ends, however it ends, and the guard kills the child.
//!
//! ```text
//!  this process ── pipe ──► guard (sh) ── SIGKILL on end of file ──► child
//!        └────────────────── SIGKILL on drop ────────────────────────►┘
//! ```
//!
//! The files of a cluster are removed in the same way (`Remover`).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Lines of the log that an error shows.
const TAIL: usize = 20;
/// A program that has not ended this long after SIGTERM is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A running child process. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    guard: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with `env` added to the environment and both outputs appended to the file `log`.
    pub fn spawn(
        program: &Path,
        args: &[impl AsRef<OsStr>],
        env: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        // A process group of its own: Ctrl-C in the terminal reaches only the test, which ends its children.
        let child = Command::new(program)
            .args(args)
            .envs(env.iter().copied())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let guard = guard(child.id())?;
        Ok(Self { child, guard, name, log: log.to_owned() })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file with its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// CPU time used so far, in user and kernel mode, by all its threads.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let text = self.proc("stat")?;
        let ticks =
            cpu_ticks(&text).with_context(|| format!("cannot read CPU time from {text:?}"))?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Its peak resident memory in bytes.
    pub fn peak_rss_bytes(&self) -> Result<u64> {
        let text = self.proc("status")?;
        let kilobytes =
            peak_kilobytes(&text).with_context(|| format!("no VmHWM of {}", self.name))?;
        Ok(kilobytes * 1024)
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Fails with the end of the log if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.ended()? {
            Some(status) => bail!("{} ended: {status}\n{}", self.name, self.log_tail()),
            None => Ok(()),
        }
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Pauses it (SIGSTOP); its connections stay open.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes a paused process.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it (SIGKILL) and waits for its end.
    pub fn kill(mut self) -> Result<ExitStatus> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }

    /// Ends it with SIGTERM and returns its exit status; kills it after half a minute.
    pub async fn stop(mut self) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let begin = Instant::now();
        while begin.elapsed() < STOP_TIMEOUT {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.kill()
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid =
            i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.pid());
        fs::read_to_string(path).with_context(|| format!("{} has ended", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard first: the child's process id cannot be reused before the child is reaped.
        for child in [&mut self.guard, &mut self.child] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Removes a directory when this process ends without having done so, however it ends.
#[derive(Debug)]
pub(crate) struct Remover(Child);

impl Remover {
    pub(crate) fn of(directory: &Path) -> Result<Self> {
        // A process that is being killed may still write a file there.
        let script = "read -r _; until rm -rf \"$1\"; do sleep 0.1; done";
        Ok(Self(when_this_process_ends(script, directory.as_os_str())?))
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn guard(pid: u32) -> Result<Child> {
    when_this_process_ends("read -r _; kill -KILL \"$1\"", OsStr::new(&pid.to_string()))
}

/// A shell whose first command ends when this process does.
fn when_this_process_ends(script: &str, argument: &OsStr) -> Result<Child> {
    Command::new("sh")
        .args(["-c", script, "guard"])
        .arg(argument)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start sh, which guards a child")
}

/// User and kernel time in clock ticks. The program's name, in parentheses, may contain any character.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

fn peak_kilobytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_a_strange_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 9 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(42));
    }

    #[test]
    fn files_are_removed_when_nobody_could_do_it() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("data"), "left").unwrap();
        let mut remover = Remover::of(directory.path()).unwrap();
        // As the kernel does when this process ends.
        drop(remover.0.stdin.take());
        remover.0.wait().unwrap();
        assert!(!directory.path().exists());
    }

    #[test]
    fn peak_memory_is_the_high_water_mark() {
        assert_eq!(peak_kilobytes("VmPeak:\t 9 kB\nVmHWM:\t   512 kB\n"), Some(512));
    }
}
