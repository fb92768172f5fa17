//! Who may use which task, session, interrupt and push configuration: the only place that decides it.

use std::sync::Arc;
use std::time::Duration;

use api::{AgentRuntime, Session, SessionId};

use super::interrupts::Interrupts;
use crate::records::{Interrupt, InterruptKind, Records};
use crate::{Error, Principal};

/// What a session is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Reading it.
    Read,
    /// Changing it, or running something in it.
    Change,
}

/// Decides who may use what. Cheap to clone.
#[derive(Clone)]
pub struct Access {}

/// The right to use a session. One of a session without an owner is a claim, which the first success confirms.
pub struct SessionGrant {}

#[allow(unused_variables, clippy::missing_errors_doc)]
impl Access {
    /// Decides by the owners in the records.
    pub(super) fn new(
        host: Arc<dyn AgentRuntime>,
        records: Records,
        interrupts: Interrupts,
        claim_ttl: Duration,
    ) -> Self {
        Self {}
    }

    /// Fails unless a task is the caller's, which covers its push configurations. `owner` is the identity of its row,
    /// `None` where there is no row; both failures look the same.
    pub(super) fn task(&self, who: &Principal, id: &str, owner: Option<&str>) -> Result<(), Error> {
        unimplemented!()
    }

    /// Makes the caller the owner of a session that was created for it.
    pub(crate) async fn own_session(&self, who: &Principal, id: &SessionId) -> Result<(), Error> {
        unimplemented!()
    }

    /// The right of a caller to use a session.
    pub async fn session(&self, who: &Principal, id: &SessionId, purpose: Use) -> Result<SessionGrant, Error> {
        unimplemented!()
    }

    /// Those of the sessions that the caller may see.
    pub async fn sessions(&self, who: &Principal, sessions: Vec<Session>) -> Result<Vec<Session>, Error> {
        unimplemented!()
    }

    /// Whether the caller may run shell commands.
    pub fn session_shell(&self, who: &Principal, method: &str) -> Result<(), Error> {
        unimplemented!()
    }

    /// Whether the caller may change workspaces and worktrees.
    pub fn workspace_mutation(&self, who: &Principal, method: &str) -> Result<(), Error> {
        unimplemented!()
    }

    /// The open interrupts of the caller's tasks.
    pub fn interrupts(&self, who: &Principal, kind: InterruptKind) -> Result<Vec<Interrupt>, Error> {
        unimplemented!()
    }
}

#[allow(clippy::missing_errors_doc)]
impl SessionGrant {
    /// What it was for succeeded: a claim becomes ownership.
    pub async fn confirm(self) -> Result<(), Error> {
        unimplemented!()
    }

    /// What it was for failed: a claim is given up.
    pub async fn release(self) -> Result<(), Error> {
        unimplemented!()
    }
}
