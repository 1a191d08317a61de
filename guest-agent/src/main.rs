//! The `guest-agent` program: the guardian, the agent and the launcher.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use guest_agent::agent::{self, Foundation};
use guest_agent::config::Config;
use guest_agent::guardian::{self, Parent};
use tracing_subscriber::EnvFilter;

/// Exit code for a wrong command line or configuration, as clap has it.
const EXIT_USAGE: u8 = 2;

/// Exit code for everything else that goes wrong.
const EXIT_FAILURE: u8 = 1;

/// Guest agent for sandboxed coding agents.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an agent in the foreground.
    ///
    /// Prints "listening on ENDPOINT" when it is ready. SIGTERM ends its
    /// workloads, then the agent.
    Serve(Serve),
    /// The agent proper, started by its guardian.
    #[command(hide = true)]
    Agent {
        /// The guardian's process id.
        #[arg(long)]
        guardian: i32,
        #[command(flatten)]
        serve: Serve,
    },
    /// The parent of one command, started by the agent.
    #[command(hide = true)]
    Launcher,
}

#[derive(Args, Debug)]
struct Serve {
    /// Where to listen, for example `unix:///run/guest-agent/agent.sock`.
    #[arg(long, value_name = "ENDPOINT")]
    listen: Option<String>,
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// End when the process that started the agent ends.
    #[arg(long)]
    die_with_parent: bool,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Launcher => {
            name_process(c"ga-launcher");
            exit_code(guest_agent::exec::launcher::run())
        }
        Command::Serve(serve) => serve_guarded(&serve),
        Command::Agent { guardian, serve } => {
            name_process(c"guest-agent");
            run_agent(guardian, &serve)
        }
    }
}

/// Names the process for ps(1); started by /proc/self/exe it is called "exe".
fn name_process(name: &std::ffi::CStr) {
    // A name is for people only.
    let _ = rustix::thread::set_name(name);
}

fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(EXIT_FAILURE))
}

fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("guest-agent: {error}");
    ExitCode::from(code)
}

fn serve_guarded(serve: &Serve) -> ExitCode {
    // Read here too, so that a mistake in it is told before anything starts.
    let config = match Config::load(serve.config.as_deref(), serve.listen.as_deref()) {
        Ok(config) => config,
        Err(error) => return fail(EXIT_USAGE, &error),
    };
    let parent = if serve.die_with_parent { Parent::DieWith } else { Parent::Outlive };
    let arguments: Vec<_> = std::env::args_os().skip(2).collect();
    match guardian::run(&arguments, &config.listen, parent) {
        Ok(code) => exit_code(code),
        Err(error) => fail(EXIT_FAILURE, &error),
    }
}

fn run_agent(guardian: i32, serve: &Serve) -> ExitCode {
    let config = match Config::load(serve.config.as_deref(), serve.listen.as_deref()) {
        Ok(config) => config,
        Err(error) => return fail(EXIT_USAGE, &error),
    };
    let filter =
        EnvFilter::try_from_env("GUEST_AGENT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    let foundation = match Foundation::lay(guardian) {
        Ok(foundation) => foundation,
        Err(error) => return fail(EXIT_FAILURE, &error),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(EXIT_FAILURE, &error),
    };
    match runtime.block_on(agent::run(config, foundation)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(EXIT_FAILURE, &error),
    }
}

/// Threads of the RPC runtime: one for a busy stream, one for the others.
const WORKERS: usize = 2;
