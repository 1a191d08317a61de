//! `agentctl run`: a command in a sandbox of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use host_proto::client::Client;
use host_proto::endpoint::Endpoint;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;

use crate::bridge;
use crate::cli::Run;
use crate::connect;
use crate::exit::Failure;
use crate::signals::EndingSignals;
use crate::start::{self, Origin};

/// The first line of the agent's output.
const READY: &str = "listening on ";

/// How long an agent may take to end once it was asked to.
const END_LIMIT: Duration = Duration::from_secs(10);

/// What is kept of the log of an agent that fails to start, in bytes.
const LOG_LIMIT: u64 = 64 * 1024;

/// Runs a command; returns the exit code for agentctl.
pub(crate) async fn run(run: Run) -> Result<u8, Failure> {
    let mut signals = EndingSignals::watch()?;
    let streams = run.options.tty.decide();
    let start = start::build(&run.options, &run.command, streams, Origin::Local)?;
    let mut agent = tokio::select! {
        agent = Agent::start(&run) => agent?,
        signal = signals.next() => return Err(Failure::signal(signal)),
    };
    let result = match agent.connect(run.config.as_deref()).await {
        Ok(client) => {
            let result = bridge::run(&client, start, streams).await;
            // Its end is waited for below; if it cannot be asked, or does not answer,
            // it is killed.
            let _ = tokio::time::timeout(END_LIMIT, connect::shutdown(&client, 0)).await;
            result
        }
        Err(failure) => Err(failure),
    };
    agent.end().await;
    result
}

/// An agent of our own, its directory removed when it is dropped.
struct Agent {
    process: Child,
    endpoint: Endpoint,
    _directory: TempDir,
}

impl Agent {
    async fn start(run: &Run) -> Result<Self, Failure> {
        let program = program(run.agent.as_deref());
        let directory = tempfile::Builder::new().prefix("agentctl-").tempdir();
        let directory = directory.context("cannot make a private directory for the agent")?;
        let endpoint = Endpoint::unix(&directory.path().join("agent.sock"))
            .context("the directory for temporary files is too long a path: set TMPDIR")?;
        let show_log = run.verbose || std::env::var_os("GUEST_AGENT_LOG").is_some();
        let mut command = Command::new(&program);
        command.arg("serve").arg("--die-with-parent").args(["--listen", &endpoint.to_string()]);
        if let Some(config) = &run.config {
            command.arg("--config").arg(config);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command.stderr(if show_log { Stdio::inherit() } else { Stdio::piped() });
        let mut process = command.spawn().with_context(|| {
            format!(
                "cannot start the agent '{}' (use --agent or GUEST_AGENT_BIN)",
                program.display()
            )
        })?;
        let log = process.stderr.take().map(|stderr| tokio::spawn(keep_log(stderr)));
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout)
                .read_line(&mut line)
                .await
                .context("cannot read the agent's output")?;
        }
        if !line.starts_with(READY) {
            return Err(explain(process, log).await);
        }
        Ok(Self { process, endpoint, _directory: directory })
    }

    async fn connect(&self, config: Option<&Path>) -> Result<Client, Failure> {
        let token = config.map(token_of).transpose()?.flatten();
        connect::to(&self.endpoint, token).await
    }

    async fn end(&mut self) {
        if tokio::time::timeout(END_LIMIT, self.process.wait()).await.is_err() {
            // The guardian's death ends the agent and all workloads.
            let _ = self.process.kill().await;
        }
    }
}

/// The agent's program: named, or beside agentctl, or in PATH.
fn program(named: Option<&Path>) -> PathBuf {
    const NAME: &str = "guest-agent";
    if let Some(named) = named {
        return named.to_owned();
    }
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(NAME));
    beside.filter(|path| path.exists()).unwrap_or_else(|| NAME.into())
}

/// The token of the agent's configuration, so that `run` can use it too.
fn token_of(config: &Path) -> anyhow::Result<Option<String>> {
    let read = || format!("cannot read {}", config.display());
    let text = std::fs::read_to_string(config).with_context(read)?;
    let config: toml::Table = text.parse().with_context(read)?;
    let path = config.get("channel").and_then(|channel| channel.get("token_file"));
    path.and_then(toml::Value::as_str).map(|path| connect::read_token(Path::new(path))).transpose()
}

async fn keep_log(mut stderr: ChildStderr) -> Vec<u8> {
    let mut kept = Vec::new();
    let _ = (&mut stderr).take(LOG_LIMIT).read_to_end(&mut kept).await;
    // Read on, so that the agent never waits for us.
    let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    kept
}

/// Why an agent did not become ready: its own last line says it.
async fn explain(mut process: Child, log: Option<JoinHandle<Vec<u8>>>) -> Failure {
    let status = process.wait().await;
    let log = match log {
        Some(log) => log.await.unwrap_or_default(),
        None => Vec::new(),
    };
    let log = String::from_utf8_lossy(&log);
    let last = log.lines().rev().find(|line| !line.trim().is_empty());
    match (last, status) {
        (Some(line), _) => {
            let line = line.strip_prefix("guest-agent: ").unwrap_or(line);
            Failure::new(format!("the agent did not start: {line}"))
        }
        (None, Ok(status)) => Failure::new(format!("the agent did not start: {status}")),
        (None, Err(error)) => Failure::new(format!("the agent did not start: {error}")),
    }
}
