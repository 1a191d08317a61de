//! `agentctl`: runs commands in a guest agent's sandbox and shows what goes on there.

mod bridge;
mod cli;
mod connect;
mod embedded;
mod exit;
mod input;
mod job;
mod output;
mod report;
mod signals;
mod start;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use cli::{Cli, Command};
use exit::Failure;
use start::Origin;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    terminal::restore_on_panic();
    // One thread: the agent of `run` watches the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(run(cli));
            // A thread that still reads standard input must not hold the exit up.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::from(anyhow::Error::from(error))),
    };
    terminal::restore();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    }
}

async fn run(cli: Cli) -> Result<u8, Failure> {
    let token = cli.token_file.as_deref();
    match cli.command {
        Command::Run(run) => embedded::run(run).await,
        Command::Exec(exec) => {
            let (client, _) = connect::connect(exec.endpoint.as_deref(), token).await?;
            let streams = exec.command.options.tty.decide();
            let start =
                start::build(&exec.command.options, &exec.command.command, streams, Origin::Guest)?;
            bridge::run(&client, start, streams).await
        }
        Command::Ps { target, all, json } => {
            let (client, _) = connect::connect(target.endpoint.as_deref(), token).await?;
            report::ps::show(&client, all, json).await
        }
        Command::Audit { target, follow, after, json } => {
            let (client, _) = connect::connect(target.endpoint.as_deref(), token).await?;
            report::audit::show(&client, after, follow, json).await
        }
        Command::Info { target, json } => {
            let (client, _) = connect::connect(target.endpoint.as_deref(), token).await?;
            report::info::show(&client, json).await
        }
        Command::Shutdown { target, grace } => {
            let (client, endpoint) = connect::connect(target.endpoint.as_deref(), token).await?;
            connect::end(&client, &endpoint, grace).await
        }
        Command::Completions { shell } => {
            let mut command = Cli::command();
            clap_complete::generate(shell, &mut command, "agentctl", &mut std::io::stdout());
            Ok(0)
        }
    }
}
