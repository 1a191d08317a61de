//! `agentctl info`.

use host_proto::client::Client;
use host_proto::v1;
use serde_json::Value;

use super::json::Info;
use super::{print_json, print_line};
use crate::exit::Failure;

/// Shows the agent's facts.
pub(crate) async fn show(client: &Client, json: bool) -> Result<u8, Failure> {
    let info = client.agent().get_info(v1::GetInfoRequest {}).await?.into_inner();
    let info = Info::from(info);
    if json {
        print_json(&info)?;
        return Ok(0);
    }
    let Value::Object(fields) = serde_json::to_value(&info).map_err(anyhow::Error::from)? else {
        return Err(Failure::new("the agent's facts have no fields"));
    };
    let width = fields.keys().map(String::len).max().unwrap_or_default();
    for (name, value) in fields {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        print_line(&format!("{:width$}  {value}", name.replace('_', " ")))?;
    }
    Ok(0)
}
