//! The command line.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Run commands in a guest agent's sandbox.
#[derive(Debug, Parser)]
#[command(
    name = "agentctl",
    version,
    about,
    max_term_width = 100,
    after_help = "\
Examples:
  agentctl run -- bash                      a shell in a sandbox of its own
  agentctl exec unix:///run/agent.sock -- make test
  agentctl audit --follow                   every decision, as it is made

Exit status of run and exec: that of the command; 128+N if signal N ended it;
127 command not found; 126 cannot be executed; 125 any other error."
)]
pub(crate) struct Cli {
    /// File with the agent's bearer token.
    #[arg(long, global = true, value_name = "FILE", env = "GUEST_AGENT_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in a sandbox of its own, and clean up after it.
    ///
    /// Starts an agent on a private socket, runs the command with your
    /// environment, working directory and user, and ends the agent with it.
    Run(Run),
    /// Run a command in the sandbox of a running agent.
    Exec(Exec),
    /// Show sessions, process groups and processes.
    ///
    /// A star marks the foreground group of a terminal.
    Ps {
        #[command(flatten)]
        target: Target,
        /// Also show what is not workload.
        #[arg(long)]
        all: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show decisions and other audit events.
    Audit {
        #[command(flatten)]
        target: Target,
        /// Wait for events to come.
        #[arg(long, short)]
        follow: bool,
        /// Start after the event with this number.
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
        /// Print one JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Show the agent's versions, kernel features, limits and policy.
    Info {
        #[command(flatten)]
        target: Target,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// End the agent and all its workloads.
    Shutdown {
        #[command(flatten)]
        target: Target,
        /// Seconds between TERM and KILL.
        #[arg(long, value_name = "SECONDS", default_value_t = 5)]
        grace: u32,
    },
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// The agent to talk to.
#[derive(Args, Debug)]
pub(crate) struct Target {
    /// Where the agent listens, for example `unix:///run/agent.sock`.
    #[arg(env = "GUEST_AGENT_ENDPOINT")]
    pub(crate) endpoint: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) options: CommandOptions,
    /// Configuration file of the agent (its endpoint is not used).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The guest-agent program [default: beside agentctl, then in PATH].
    #[arg(long, value_name = "PATH", env = "GUEST_AGENT_BIN")]
    pub(crate) agent: Option<PathBuf>,
    /// Show the agent's log.
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Exec {
    /// Where the agent listens, for example `unix:///run/agent.sock`.
    #[arg(env = "GUEST_AGENT_ENDPOINT")]
    pub(crate) endpoint: Option<String>,
    #[command(flatten)]
    pub(crate) command: ExecCommand,
}

/// A command after `--`, and how to run it.
#[derive(Args, Debug)]
pub(crate) struct ExecCommand {
    #[command(flatten)]
    pub(crate) options: CommandOptions,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// How to run a command.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommandOptions {
    #[command(flatten)]
    pub(crate) tty: TtyOptions,
    /// Run as this user (a name or number of the guest).
    #[arg(long, short, value_name = "USER[:GROUP]")]
    pub(crate) user: Option<String>,
    /// Set an environment variable; may be repeated.
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<OsString>,
    /// Working directory in the guest.
    #[arg(long, short = 'C', value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
}

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct TtyOptions {
    /// Give the command a terminal [default: if stdin and stdout are terminals].
    #[arg(long, short, overrides_with = "no_tty")]
    tty: bool,
    /// Give the command pipes.
    #[arg(long, short = 'T', overrides_with = "tty")]
    no_tty: bool,
}

/// What the command's streams are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    /// A terminal in the guest, joined to the local one if there is one.
    Terminal,
    /// Pipes.
    Pipes,
}

impl TtyOptions {
    /// What the options and the local streams ask for.
    pub(crate) fn decide(self) -> Streams {
        let local = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        match (self.tty, self.no_tty) {
            (true, _) => Streams::Terminal,
            (false, false) if local => Streams::Terminal,
            (false, _) => Streams::Pipes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["agentctl"], words].concat())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_takes_a_command_with_or_without_dashes() {
        for words in [&["run", "ls", "-l"][..], &["run", "--", "ls", "-l"]] {
            let Command::Run(run) = parse(words).unwrap().command else { panic!() };
            assert_eq!(run.command, ["ls", "-l"]);
        }
        assert!(parse(&["run"]).is_err());
    }

    #[test]
    fn exec_takes_an_endpoint_before_the_dashes() {
        let words = ["exec", "--env", "A=1", "unix:///a", "--", "ls", "--tty"];
        let Command::Exec(exec) = parse(&words).unwrap().command else { panic!() };
        assert_eq!(exec.endpoint.as_deref(), Some("unix:///a"));
        assert_eq!(exec.command.command, ["ls", "--tty"]);
    }

    #[test]
    fn the_last_of_tty_and_no_tty_wins() {
        for (words, expected) in [
            (["run", "--tty", "--no-tty", "ls"], Streams::Pipes),
            (["run", "--no-tty", "--tty", "ls"], Streams::Terminal),
        ] {
            let Command::Run(run) = parse(&words).unwrap().command else { panic!() };
            assert_eq!(run.options.tty.decide(), expected);
        }
    }
}
