//! A server in the foreground, as a child: started, waited for until it takes connections, ended with its workers.
//!
//! It is no supervisor: a server that ends by itself is reported by whoever asks it next. Servers share the task's
//! process group, so that Ctrl-C reaches them; where `setpriv` is installed they also end when the task is killed.

use std::collections::HashMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::install;

/// The longest wait for a first connection. The slowest server, Varnish, compiles its configuration: about a second.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The longest wait for a server to end after SIGTERM; then it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two looks at another process, which tells nobody when it is ready or gone.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// A port may be taken between its choice and its use.
const PORT_ATTEMPTS: usize = 3;
/// Lines of a server's own log that a failure quotes.
const QUOTED_LINES: usize = 8;

/// A running server process; dropping it ends it and its workers.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// A free loopback port, as far as anybody can know.
pub(crate) fn free_port() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?)
}

impl Process {
    /// Starts what `command` makes for an address, with `dir` as working folder and `dir/<name>.log` for its output,
    /// and waits until the address takes connections.
    ///
    /// # Errors
    /// If it cannot be started, ends at once, or takes no connection within 30 s; the text names the server, its log
    /// and the log's last lines.
    pub(crate) fn start(
        name: &'static str,
        dir: &Path,
        command: impl Fn(SocketAddr) -> Result<Command>,
    ) -> Result<(Self, SocketAddr)> {
        let mut attempt = 1;
        loop {
            let address = free_port()?;
            let mut process = Self::spawn(name, dir, &command(address)?)?;
            match process.wait_until_ready(address) {
                Ok(()) => return Ok((process, address)),
                Err(error) if attempt == PORT_ATTEMPTS => return Err(error),
                Err(_) => attempt += 1,
            }
        }
    }

    /// Starts a process that listens nowhere, such as a log writer.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn spawn(name: &'static str, dir: &Path, command: &Command) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("could not write {}", log.display()))?;
        let child = ended_with_the_task(command)
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("could not start {name}: {command:?}"))?;
        Ok(Self { name, child, log })
    }

    /// What the server wrote to its output.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Ends the server and its workers and waits until none is left, so that its logs are complete.
    ///
    /// # Errors
    /// If a process of the server outlives SIGKILL.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn wait_until_ready(&mut self, address: SocketAddr) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect_timeout(&address, START_LIMIT).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{} ended with {status} before it took a connection; {}",
                    self.name,
                    self.last_words()
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "{} took no connection at {address} within {} s; {}",
                    self.name,
                    START_LIMIT.as_secs(),
                    self.last_words()
                );
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Where the log is, and its last lines.
    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let quoted = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
        format!(
            "its log is {}\n    {}",
            self.log.display(),
            quoted.join("\n    ")
        )
    }

    /// SIGTERM to the first process, which ends its workers; SIGKILL to whatever is left after 10 s.
    fn end(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_child(&self.child);
        let family = Family::of(pid.as_raw_nonzero().get())?;
        // Already gone is as good as ended: the wait below tells.
        let _ = kill_process(pid, Signal::TERM);
        let deadline = Instant::now() + STOP_LIMIT;
        let mut own_end = false;
        loop {
            own_end = own_end || self.child.try_wait()?.is_some();
            let left = family.alive();
            if own_end && left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                self.child.wait()?;
                for worker in left.into_iter().filter_map(Pid::from_raw) {
                    let _ = kill_process(worker, Signal::KILL);
                }
                bail!(
                    "{} did not end within {} s of SIGTERM and was killed; {}",
                    self.name,
                    STOP_LIMIT.as_secs(),
                    self.last_words()
                );
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A failure here was either reported by `stop`, or something else already failed.
        let _ = self.end();
    }
}

/// The command, asking the kernel for SIGTERM when the task itself is gone.
fn ended_with_the_task(command: &Command) -> Command {
    let Some(setpriv) = install::on_path("setpriv") else {
        return copy_of(command, command.get_program().as_ref(), &[]);
    };
    let program = command.get_program().to_os_string();
    copy_of(
        command,
        &setpriv,
        &["--pdeathsig".into(), "TERM".into(), "--".into(), program],
    )
}

fn copy_of(command: &Command, program: &Path, leading: &[std::ffi::OsString]) -> Command {
    let mut copy = Command::new(program);
    copy.args(leading).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => copy.env(name, value),
            None => copy.env_remove(name),
        };
    }
    copy
}

/// The descendants of a process at one moment, each with the time it started: process ids are used again.
struct Family {
    started: HashMap<i32, u64>,
}

impl Family {
    fn of(ancestor: i32) -> Result<Self> {
        let mut parents = HashMap::new();
        for entry in std::fs::read_dir("/proc").context("no /proc to find workers in")? {
            let name = entry?.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok())
                && let Some((parent, started)) = parent_and_start(pid)
            {
                parents.insert(pid, (parent, started));
            }
        }
        let mut started = HashMap::new();
        for (&pid, &(_, start)) in &parents {
            let mut seen = pid;
            // A chain longer than the table would be a circle.
            for _ in 0..parents.len() {
                let Some(&(parent, _)) = parents.get(&seen) else {
                    break;
                };
                if parent == ancestor {
                    started.insert(pid, start);
                    break;
                }
                seen = parent;
            }
        }
        Ok(Self { started })
    }

    fn alive(&self) -> Vec<i32> {
        let same = |(pid, start): (&i32, &u64)| {
            parent_and_start(*pid).is_some_and(|(_, now)| now == *start)
        };
        self.started
            .iter()
            .filter(|&one| same(one))
            .map(|(&pid, _)| pid)
            .collect()
    }
}

/// Fields 4 and 22 of `/proc/PID/stat` (proc(5)); a zombie counts as gone. The name in field 2 may hold anything, so
/// counting begins behind its last parenthesis.
fn parent_and_start(pid: i32) -> Option<(i32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    (state != "Z").then_some((parent, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose worker outlives its parent unless it is looked after.
    const PARENT_AND_WORKER: &str = "sleep 600 & trap 'kill $!; exit 0' TERM; echo ready; wait";

    #[test]
    fn stop_leaves_neither_the_server_nor_its_worker() -> Result<()> {
        let dir = std::env::temp_dir().join(format!("xtask-process-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let mut command = Command::new("sh");
        command.args(["-c", PARENT_AND_WORKER]);
        let process = Process::spawn("parent", &dir, &command)?;
        let pid = Pid::from_child(&process.child).as_raw_nonzero().get();
        while !std::fs::read_to_string(process.log())?.contains("ready") {
            std::thread::yield_now();
        }
        let family = Family::of(pid)?;
        assert_eq!(family.alive().len(), 1, "the worker runs before the stop");
        process.stop()?;
        assert_eq!(family.alive(), Vec::<i32>::new());
        assert_eq!(parent_and_start(pid), None);
        std::fs::remove_dir_all(&dir)?;
        Ok(())
    }

    #[test]
    fn a_server_that_ends_at_once_is_named_with_its_log() -> Result<()> {
        let dir = std::env::temp_dir().join(format!("xtask-ended-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let ended = Process::start("short-lived", &dir, |_| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo no such directive >&2; exit 3"]);
            Ok(command)
        });
        let text = ended
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(
            text.starts_with("short-lived ended with exit status: 3"),
            "{text}"
        );
        assert!(text.contains("short-lived.log"), "{text}");
        assert!(text.ends_with("no such directive"), "{text}");
        std::fs::remove_dir_all(&dir)?;
        Ok(())
    }
}
