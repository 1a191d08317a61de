//! Finds and ends the agent.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use host_proto::client::{Client, ConnectOptions};
use host_proto::endpoint::Endpoint;
use host_proto::v1;

use crate::exit::Failure;

/// How much longer than the grace period an agent may take to end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Pause before looking again whether the agent still listens.
const END_POLL: Duration = Duration::from_millis(20);

/// Connects to the agent at an endpoint.
pub(crate) async fn connect(
    endpoint: Option<&str>,
    token_file: Option<&Path>,
) -> Result<(Client, Endpoint), Failure> {
    let endpoint = endpoint
        .context("no agent named: give its endpoint, or set GUEST_AGENT_ENDPOINT")?
        .parse::<Endpoint>()
        .map_err(anyhow::Error::from)?;
    let token = token_file.map(read_token).transpose()?;
    let client = to(&endpoint, token).await?;
    Ok((client, endpoint))
}

/// Connects to a known endpoint.
pub(crate) async fn to(endpoint: &Endpoint, token: Option<String>) -> Result<Client, Failure> {
    let options = ConnectOptions { token, instance: None };
    let client = Client::connect(endpoint, &options).await.map_err(anyhow::Error::from)?;
    Ok(client)
}

/// Reads the token that an agent's configuration names, or the user did.
pub(crate) fn read_token(path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the token file {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Asks the agent to end.
pub(crate) async fn shutdown(client: &Client, grace: u32) -> Result<u8, Failure> {
    let grace_period = prost_types::Duration { seconds: i64::from(grace), nanos: 0 };
    let request = v1::ShutdownRequest { grace_period: Some(grace_period) };
    client.agent().shutdown(request).await?;
    Ok(0)
}

/// Asks the agent to end and waits until nobody listens at its endpoint, so that
/// its workloads are gone and another agent can take its place.
pub(crate) async fn end(client: &Client, endpoint: &Endpoint, grace: u32) -> Result<u8, Failure> {
    shutdown(client, grace).await?;
    let ended = async {
        while to(endpoint, None).await.is_ok() {
            tokio::time::sleep(END_POLL).await;
        }
    };
    let limit = Duration::from_secs(grace.into()) + END_LIMIT;
    match tokio::time::timeout(limit, ended).await {
        Ok(()) => Ok(0),
        Err(_) => {
            Err(Failure::new(format!("the agent at {endpoint} was asked to end but still runs")))
        }
    }
}
