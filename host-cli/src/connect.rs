//! Finds and ends the agent.

use std::path::Path;

use anyhow::Context as _;
use host_proto::client::{Client, ConnectOptions};
use host_proto::endpoint::Endpoint;
use host_proto::v1;

use crate::exit::Failure;

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
