//! Who may use which task, session, interrupt and push configuration: the only place that decides it.
//!
//! The owners are in the records, and at an agent runtime that stores them. To everybody else, tasks with their push configurations and interrupts do not exist, and
//! sessions are forbidden. A session without an owner can be read by everybody; who changes it first owns it.

mod claims;
mod denied;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::{AgentRuntime, HostError, Session, SessionId};

use super::{Service, store_error};
use crate::records::{Claim, Interrupt, InterruptKind, Records};
use crate::{Error, ErrorKind, Principal};
use claims::Claims;
pub use claims::SessionGrant;
pub(super) use denied::Denied;

/// How far the owner of a subagent's session is looked for above it.
const MAX_DEPTH: usize = 64;

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
pub struct Access {
    host: Arc<dyn AgentRuntime>,
    records: Records,
    claims: Arc<Claims>,
    claim_ttl: Duration,
}

/// The parents of sessions.
type Parents = HashMap<SessionId, Option<SessionId>>;

/// Where the owner of a session is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Root {
    /// The session itself, or the first one above it that has an owner or no parent.
    session: SessionId,
    owner: Option<String>,
}

impl Access {
    /// Decides by the owners in the records.
    pub(super) fn new(host: Arc<dyn AgentRuntime>, records: Records, claim_ttl: Duration) -> Self {
        Self { host, records, claims: Arc::default(), claim_ttl }
    }

    /// Fails unless a task is the caller's, which covers its push configurations. `owner` is the identity of its row,
    /// `None` where there is no row; both failures look the same.
    pub(super) fn task(&self, who: &Principal, id: &str, owner: Option<&str>) -> Result<(), Error> {
        if owner == Some(who.identity.as_str()) { Ok(()) } else { Err(Error::task_not_found(id)) }
    }

    /// Makes the caller the owner of a session that was created for it.
    pub(crate) async fn own_session(&self, who: &Principal, id: &SessionId) -> Result<(), Error> {
        self.records.own_session(&who.identity, id).await
    }

    /// The right of a caller to use a session. Changing one without an owner claims it.
    pub async fn session(&self, who: &Principal, id: &SessionId, purpose: Use) -> Result<SessionGrant, Error> {
        self.grant(who, id, purpose).await.map_err(|denied| denied.into_error(id))
    }

    /// The same, for who tells errors of the agent runtime apart.
    pub(super) async fn grant(&self, who: &Principal, id: &SessionId, purpose: Use) -> Result<SessionGrant, Denied> {
        let root = self.root(id, &HashMap::new(), &mut HashMap::new()).await?;
        self.check(who, id, &root)?;
        if purpose == Use::Read || root.owner.is_some() {
            return Ok(SessionGrant::of_owner());
        }
        let claim = self.records.claim_session(&who.identity, &root.session, self.claim_ttl).await;
        match claim.map_err(|error| store_error(&error))? {
            Claim::Owned => Ok(SessionGrant::of_owner()),
            Claim::Pending => Ok(self.claims.begin(&self.records, &who.identity, &root.session, self.claim_ttl)),
            Claim::Taken => Err(forbidden(id).into()),
        }
    }

    /// Those of the sessions that the caller may see.
    pub async fn sessions(&self, who: &Principal, sessions: Vec<Session>) -> Result<Vec<Session>, Error> {
        let parents = sessions.iter().map(|session| (session.id.clone(), session.parent_id.clone())).collect();
        let ids = sessions.iter().map(|session| session.id.clone()).collect();
        let visible = self.visible(who, ids, &parents).await?;
        Ok(sessions.into_iter().filter(|session| visible.contains(&session.id)).collect())
    }

    /// Those of the sessions that the caller may see, by their ids.
    pub async fn session_ids(&self, who: &Principal, ids: Vec<SessionId>) -> Result<HashSet<SessionId>, Error> {
        self.visible(who, ids, &HashMap::new()).await
    }

    /// `parents` has the parents of sessions, as far as they are known.
    async fn visible(
        &self,
        who: &Principal,
        ids: Vec<SessionId>,
        parents: &Parents,
    ) -> Result<HashSet<SessionId>, Error> {
        let owners = self.records.session_owners(ids.clone()).await.map_err(|error| store_error(&error))?;
        let mut known = HashMap::new();
        for (id, owner) in ids.iter().zip(owners) {
            if owner.is_some() {
                known.insert(id.clone(), Root { session: id.clone(), owner });
            }
        }
        let mut visible = HashSet::new();
        for id in ids {
            match self.root(&id, parents, &mut known).await {
                Ok(root) if self.check(who, &id, &root).is_ok() => drop(visible.insert(id)),
                Ok(_) => {}
                // It was deleted meanwhile, or its ancestors go on for ever: nobody's.
                Err(denied) if denied.is_about_session() => {}
                Err(denied) => return Err(denied.into_error(&id)),
            }
        }
        Ok(visible)
    }

    /// Whether the caller may run shell commands.
    pub fn session_shell(&self, who: &Principal, method: &str) -> Result<(), Error> {
        capability(who, method, "session_shell", who.capabilities.session_shell)
    }

    /// Whether the caller may change workspaces and worktrees.
    pub fn workspace_mutation(&self, who: &Principal, method: &str) -> Result<(), Error> {
        capability(who, method, "workspace_mutation", who.capabilities.workspace_mutation)
    }

    /// The open interrupts that the caller may answer.
    pub fn interrupts(&self, who: &Principal, kind: InterruptKind) -> Vec<Interrupt> {
        let mut interrupts = self.records.interrupts(&who.identity, kind, api::now());
        interrupts.retain(|interrupt| may_answer(who, interrupt));
        interrupts
    }

    /// Fails unless the caller may answer an interrupt of a task that still waits for it, whether or not it has expired.
    pub(super) fn answer(&self, who: &Principal, interrupt: &Interrupt) -> Result<(), Error> {
        match may_answer(who, interrupt) {
            true => Ok(()),
            false => Err(interrupt_not_found(&interrupt.request_id)),
        }
    }

    /// An open interrupt that the caller may answer. To somebody else it does not exist, whatever its state and kind.
    pub(super) fn interrupt(&self, who: &Principal, id: &str, kind: InterruptKind) -> Result<Interrupt, Error> {
        let of = |kind, message| Error::new(kind, message).with("request_id", id);
        let now = api::now();
        let interrupt = self.records.interrupt(id, now).filter(|it| may_answer(who, it));
        let interrupt = interrupt.ok_or_else(|| interrupt_not_found(id))?;
        if interrupt.expires_at <= now {
            return Err(of(ErrorKind::InterruptExpired, "Interrupt request expired"));
        }
        if interrupt.kind != kind {
            let error = of(ErrorKind::InterruptTypeMismatch, "Interrupt request is of the other type");
            return Err(error
                .with("expected_interrupt_type", kind_name(kind))
                .with("actual_interrupt_type", kind_name(interrupt.kind)));
        }
        Ok(interrupt)
    }

    /// Fails if a session belongs to somebody else, or is claimed by somebody else.
    fn check(&self, who: &Principal, id: &SessionId, root: &Root) -> Result<(), Error> {
        let holder = root.owner.clone().or_else(|| self.claims.holder(&root.session));
        match holder {
            Some(holder) if holder != who.identity => Err(forbidden(id)),
            _ => Ok(()),
        }
    }

    /// Looks for the owner of a session: its own, else that of the nearest session above it. `known` remembers what was
    /// found.
    async fn root(
        &self,
        id: &SessionId,
        parents: &Parents,
        known: &mut HashMap<SessionId, Root>,
    ) -> Result<Root, Denied> {
        let mut passed = Vec::new();
        let mut at = id.clone();
        let root = loop {
            if let Some(root) = known.get(&at) {
                break root.clone();
            }
            if let Some(owner) = self.owner(&at, id).await? {
                break Root { session: at, owner: Some(owner) };
            }
            let above = match parents.get(&at) {
                Some(parent) => parent.clone(),
                None => self.parent(&at, id).await?,
            };
            let Some(above) = above else { break Root { session: at, owner: None } };
            passed.push(std::mem::replace(&mut at, above));
            if passed.len() > MAX_DEPTH {
                return Err(forbidden(id).into());
            }
        };
        passed.into_iter().for_each(|session| drop(known.insert(session, root.clone())));
        Ok(root)
    }

    /// The owner of a session by itself. The records may have been begun anew since it was created, so the agent runtime
    /// is asked as well, if it knows owners.
    async fn owner(&self, session: &SessionId, asked: &SessionId) -> Result<Option<String>, Denied> {
        if let Some(owner) = self.records.session_owner(session).map_err(|error| store_error(&error))? {
            return Ok(Some(owner));
        }
        found(self.host.session_owner(session).await, session == asked)
    }

    /// The parent of a session. `asked` is the session that the caller named.
    async fn parent(&self, session: &SessionId, asked: &SessionId) -> Result<Option<SessionId>, Denied> {
        found(self.host.session(session).await.map(|session| session.parent_id), session == asked)
    }
}

fn forbidden(id: &SessionId) -> Error {
    Error::new(ErrorKind::SessionForbidden, "Session forbidden").with("session_id", id.as_str())
}

/// What was read of a session. If one above the session that was asked about is gone, the one below it is a root now.
fn found<T>(read: Result<Option<T>, HostError>, is_asked: bool) -> Result<Option<T>, Denied> {
    match read {
        Err(HostError::NotFound { .. }) if !is_asked => Ok(None),
        read => read.map_err(Denied::Runtime),
    }
}

/// The error about an interrupt that does not exist for the caller.
pub(super) fn interrupt_not_found(id: &str) -> Error {
    Error::new(ErrorKind::InterruptNotFound, "Interrupt request not found").with("request_id", id)
}

fn may_answer(who: &Principal, interrupt: &Interrupt) -> bool {
    let same_credential = interrupt.credential.is_none() || interrupt.credential == who.credential;
    interrupt.identity == who.identity && same_credential
}

fn capability(who: &Principal, method: &str, capability: &str, granted: bool) -> Result<(), Error> {
    if granted {
        return Ok(());
    }
    Err(Error::new(ErrorKind::AuthorizationForbidden, "Authorization forbidden")
        .with("method", method)
        .with("capability", capability)
        .with("credential_id", who.credential.clone()))
}

impl Service {
    /// The session that works on a task of the caller.
    pub(crate) fn session_of_task(&self, who: &Principal, id: &str) -> Result<SessionId, Error> {
        let row = self.inner.records.row(id).map_err(|error| store_error(&error))?;
        self.inner.access.task(who, id, row.as_ref().map(|row| row.identity.as_str()))?;
        let row = row.ok_or_else(|| Error::task_not_found(id))?;
        row.session_id.ok_or_else(|| {
            let message = format!("Task {id} has no session, since it was refused before it had one");
            Error::new(ErrorKind::UnsupportedOperation, message)
        })
    }
}

/// The name of a kind of interrupt.
pub(super) fn kind_name(kind: InterruptKind) -> &'static str {
    match kind {
        InterruptKind::Permission => "permission",
        InterruptKind::Question => "question",
    }
}
