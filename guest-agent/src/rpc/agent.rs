//! `AgentService`: what the agent is, and its end.

use std::sync::Arc;
use std::time::Duration;

use host_proto::PROTOCOL_VERSION;
use host_proto::error::Reason;
use host_proto::v1;
use tonic::{Request, Response, Status};

use super::{Agent, Shutdown};
use crate::config::Limits;
use crate::notify::CallerWait;
use crate::policy::{ExecIsolation, OwnGroupSignals, Policy};

/// Time between TERM and KILL unless the request says otherwise.
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(5);

/// The longest grace period: beyond it a typing error is likelier than a wish.
const MAX_GRACE: Duration = Duration::from_secs(600);

pub(super) struct Service(Arc<Agent>);

impl Service {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self(agent)
    }
}

#[tonic::async_trait]
impl v1::agent_service_server::AgentService for Service {
    async fn get_info(
        &self,
        _request: Request<v1::GetInfoRequest>,
    ) -> Result<Response<v1::GetInfoResponse>, Status> {
        let agent = &self.0;
        let system = rustix::system::uname();
        Ok(Response::new(v1::GetInfoResponse {
            agent_version: env!("CARGO_PKG_VERSION").into(),
            protocol_version: PROTOCOL_VERSION,
            instance_id: agent.instance.clone(),
            start_time: Some(agent.started.into()),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            uid: rustix::process::geteuid().as_raw(),
            kernel_release: system.release().to_string_lossy().into_owned(),
            machine: system.machine().to_string_lossy().into_owned(),
            kernel_features: Some(v1::KernelFeatures {
                wait_killable_recv: agent.caller_wait == CallerWait::Killable,
                peer_pidfd: agent.peer_pidfd,
            }),
            limits: Some(limits(agent.limits)),
            policy: Some(policy(agent.context.policy)),
        }))
    }

    async fn shutdown(
        &self,
        request: Request<v1::ShutdownRequest>,
    ) -> Result<Response<v1::ShutdownResponse>, Status> {
        let grace = grace(request.into_inner().grace_period)?;
        // Full or closed: a shutdown is under way already.
        let _ = self.0.shutdown.try_send(Shutdown { grace });
        Ok(Response::new(v1::ShutdownResponse {}))
    }
}

fn grace(requested: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(requested) = requested else {
        return Ok(DEFAULT_GRACE);
    };
    // The library's own conversion overflows on the smallest number of seconds.
    let seconds = u64::try_from(requested.seconds).ok();
    let nanos = u32::try_from(requested.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let grace = seconds.zip(nanos).map(|(seconds, nanos)| Duration::new(seconds, nanos));
    grace.filter(|grace| *grace <= MAX_GRACE).ok_or_else(|| {
        Reason::InvalidGracePeriod
            .status(format!("the grace period must be 0 to {} seconds", MAX_GRACE.as_secs()))
    })
}

fn limits(limits: Limits) -> v1::Limits {
    let number = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
    v1::Limits {
        max_connections: number(limits.max_connections),
        max_execs: number(limits.max_execs),
        max_message_bytes: number(limits.max_message_bytes),
        audit_ring_events: number(limits.audit_ring_events),
        max_sessions: number(limits.max_sessions),
    }
}

fn policy(policy: Policy) -> v1::Policy {
    let exec_isolation = match policy.exec_isolation {
        ExecIsolation::Isolated => v1::ExecIsolation::Isolated,
        ExecIsolation::Shared => v1::ExecIsolation::Shared,
    };
    let own_group_signals = match policy.own_group_signals {
        OwnGroupSignals::Audited => v1::OwnGroupSignals::Audited,
        OwnGroupSignals::Inline => v1::OwnGroupSignals::Inline,
    };
    v1::Policy {
        exec_isolation: exec_isolation.into(),
        own_group_signals: own_group_signals.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_period_has_bounds() {
        let seconds = |seconds| grace(Some(prost_types::Duration { seconds, nanos: 0 }));
        assert_eq!(grace(None).unwrap(), DEFAULT_GRACE);
        assert_eq!(seconds(0).unwrap(), Duration::ZERO);
        assert_eq!(seconds(600).unwrap(), MAX_GRACE);
        for bad in [-1, 601, i64::MAX, i64::MIN] {
            assert_eq!(Reason::of(&seconds(bad).unwrap_err()), Some(Reason::InvalidGracePeriod));
        }
    }
}
