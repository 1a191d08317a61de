//! Every decision and lifecycle fact, numbered, for whoever subscribes.

mod event;
mod ring;

pub use event::{
    AgentPhase, Event, EventKind, ExecPhase, HelperPhase, MediatedCall, RefusalReason, RefusedPeer,
};
pub use ring::{Audit, Items, Seq, SubscribeError, Subscription};
