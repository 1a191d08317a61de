//! The operator's choices that decisions depend on.

use serde::{Deserialize, Serialize};

/// The rules in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether execs may signal each other.
    pub exec_isolation: ExecIsolation,
    /// Who answers `kill(0, signal)`.
    pub own_group_signals: OwnGroupSignals,
}

/// Whether execs may signal each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecIsolation {
    /// Each exec may signal its own processes only.
    #[default]
    Isolated,
    /// All execs are one sandbox.
    Shared,
}

/// Who answers a signal to the caller's own group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnGroupSignals {
    /// The agent, with an audit event.
    #[default]
    Audited,
    /// The kernel, unreported; safe since a group never spans sessions.
    Inline,
}
