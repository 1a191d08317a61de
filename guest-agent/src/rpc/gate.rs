//! What every request must show: a served connection, the token, the instance.

use std::sync::Arc;

use host_proto::INSTANCE_METADATA;
use host_proto::error::Reason;
use subtle::ConstantTimeEq as _;
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::channel::Admission;

/// Checks each request before its service sees it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    /// `Bearer TOKEN`, if a token is configured.
    authorization: Option<String>,
    instance: String,
}

impl Gate {
    /// Checks for this token, if any, and this instance.
    #[must_use]
    pub fn new(token: Option<&str>, instance: String) -> Self {
        let authorization = token.map(|token| format!("Bearer {token}"));
        Self(Arc::new(Rules { authorization, instance }))
    }

    fn check_token(&self, request: &Request<()>) -> Result<(), Status> {
        let Some(expected) = &self.0.authorization else {
            return Ok(());
        };
        let given = request.metadata().get("authorization");
        // In constant time, so that a wrong token does not tell how wrong it is.
        let matches = given.is_some_and(|given| given.as_bytes().ct_eq(expected.as_bytes()).into());
        if matches {
            return Ok(());
        }
        Err(Reason::BadToken
            .status("this agent needs its bearer token: the one sent is missing or wrong"))
    }

    fn check_instance(&self, request: &Request<()>) -> Result<(), Status> {
        match request.metadata().get(INSTANCE_METADATA) {
            Some(named) if named.as_bytes() != self.0.instance.as_bytes() => {
                Err(Reason::InstanceMismatch.status(format!(
                    "this is instance {}, not the one named: the agent was restarted",
                    self.0.instance
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Interceptor for Gate {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        if request.extensions().get::<Admission>() == Some(&Admission::OverLimit) {
            return Err(Reason::TooManyConnections
                .status("too many connections: close one or raise limits.max_connections"));
        }
        self.check_token(&request)?;
        self.check_instance(&request)?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(gate: &Gate, metadata: &[(&'static str, &str)]) -> Option<Reason> {
        let mut request = Request::new(());
        for (key, value) in metadata {
            request.metadata_mut().insert(*key, value.parse().unwrap());
        }
        gate.clone().call(request).err().as_ref().and_then(Reason::of)
    }

    #[test]
    fn without_a_token_anyone_passes() {
        let gate = Gate::new(None, "i".into());
        assert_eq!(check(&gate, &[]), None);
        assert_eq!(check(&gate, &[("authorization", "Bearer x")]), None);
    }

    #[test]
    fn the_token_must_be_exact() {
        let gate = Gate::new(Some("secret"), "i".into());
        assert_eq!(check(&gate, &[("authorization", "Bearer secret")]), None);
        for wrong in ["secret", "Bearer secre", "Bearer secret1", "bearer secret", ""] {
            assert_eq!(
                check(&gate, &[("authorization", wrong)]),
                Some(Reason::BadToken),
                "{wrong}"
            );
        }
        assert_eq!(check(&gate, &[]), Some(Reason::BadToken));
    }

    #[test]
    fn another_instance_is_refused() {
        let gate = Gate::new(None, "new".into());
        assert_eq!(check(&gate, &[(INSTANCE_METADATA, "new")]), None);
        assert_eq!(check(&gate, &[(INSTANCE_METADATA, "old")]), Some(Reason::InstanceMismatch));
    }

    #[test]
    fn a_connection_over_the_limit_is_told_so() {
        let mut request = Request::new(());
        request.extensions_mut().insert(Admission::OverLimit);
        let status = Gate::new(None, "i".into()).call(request).unwrap_err();
        assert_eq!(Reason::of(&status), Some(Reason::TooManyConnections));
    }
}
