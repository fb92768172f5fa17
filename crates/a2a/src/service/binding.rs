//! Which session works on a message: the one that it names, that of its context, or a new one.

use std::sync::Arc;

use api::{AgentRuntime, Caller, CreateSession, HostError, Json, MessageId, Scope, Session, SessionId};
use serde_json::json;

use super::access::{SessionGrant, Use};
use super::input::Refusal;
use super::{Agent, Inner, Service, store_error, translate};
use crate::records::{OpenWork, TaskRow};
use crate::{Capabilities, Principal};

/// The name of this face, as the agent runtime shows it.
const CLIENT: &str = "a2a";

/// The session of a task.
pub(super) struct Bound {
    pub(super) session: SessionId,
    pub(super) scope: Scope,
    /// The right to use it, if the message named it.
    pub(super) grant: Option<SessionGrant>,
    /// Its title, once it has one.
    pub(super) title: Option<String>,
    /// Whether it was created for the task, so that it can go with it.
    pub(super) is_new: bool,
}

impl Bound {
    fn of(session: Session, scope: Scope, grant: Option<SessionGrant>, is_new: bool) -> Self {
        let scope = Scope { directory: session.directory, workspace: session.workspace_id.or(scope.workspace) };
        Self { session: session.id, scope, grant, title: translate::title_of(&session.title), is_new }
    }

    /// It as `metadata.shared.session`.
    pub(super) fn metadata(&self) -> Json {
        match &self.title {
            Some(title) => json!({"id": self.session, "title": title}),
            None => json!({"id": self.session}),
        }
    }
}

impl Inner {
    /// The place of a context, if it is not where contexts work by default.
    pub(super) fn place_of(&self, scope: &Scope) -> Option<String> {
        let default = self.places.default_scope();
        let workspace = scope.workspace.as_deref().unwrap_or_default();
        (*scope != default).then(|| format!("{}\n{workspace}", scope.directory))
    }

    /// Finds or creates the session for a message.
    pub(super) async fn bind(
        &self,
        who: &Principal,
        wanted: Option<SessionId>,
        context: Option<&str>,
        scope: Scope,
        traceparent: Option<&str>,
    ) -> Result<Bound, Refusal> {
        if self.agent == Agent::Script {
            return Ok(Bound { session: SessionId::new(), scope, grant: None, title: None, is_new: false });
        }
        if let Some(id) = wanted {
            return self.bind_wanted(who, id, scope).await;
        }
        if let Some(context) = context {
            let place = self.place_of(&scope);
            let known = self.records.context_session(&who.identity, context, place.as_deref());
            if let Some(id) = known.map_err(|error| store_error(&error))?
                && let Some(session) = self.existing(&id).await?
            {
                return Ok(Bound::of(session, scope, None, false));
            }
        }
        let host = self.host.with_caller(caller_of(who, traceparent));
        let created = host.create_session(&scope, CreateSession::default()).await;
        let session = created.map_err(|error| Refusal::of_host_error(&error))?;
        self.access.own_session(who, &session.id).await?;
        Ok(Bound::of(session, scope, None, true))
    }

    async fn bind_wanted(&self, who: &Principal, id: SessionId, scope: Scope) -> Result<Bound, Refusal> {
        let grant = self.access.grant(who, &id, Use::Change).await;
        let grant = grant.map_err(|denied| Refusal::of_session(&id, denied))?;
        match self.host.session(&id).await {
            Ok(session) => Ok(Bound::of(session, scope, Some(grant), false)),
            Err(error) => {
                if let Err(error) = grant.release().await {
                    tracing::warn!(%error, session = %id, "cannot release the claim of a session");
                }
                Err(Refusal::of_host_error(&error))
            }
        }
    }

    /// Finds or creates the session for a task that lacks one, since the agent runtime failed before.
    pub(super) async fn bind_late(&self, row: &TaskRow, work: &OpenWork) -> Result<Bound, Refusal> {
        let (identity, credential) = (row.identity.clone(), row.credential.clone());
        let who = Principal { identity, credential, capabilities: Capabilities::default() };
        let (wanted, context, traceparent) = (work.wanted_session.clone(), &row.context_id, &work.prompt.traceparent);
        let _context = self.locks.context(&who, Some(context)).await;
        let scope = row.scope();
        let bound = self.bind(&who, wanted, Some(context), scope.clone(), traceparent.as_deref()).await?;
        let place = self.place_of(&scope);
        let bind = self.records.bind_context(&who.identity, context, place.as_deref(), &bound.session);
        bind.await.map_err(|error| store_error(&error))?;
        Ok(bound)
    }

    /// A session, unless it was deleted.
    async fn existing(&self, id: &SessionId) -> Result<Option<Session>, Refusal> {
        match self.host.session(id).await {
            Ok(session) => Ok(Some(session)),
            Err(HostError::NotFound { .. }) => Ok(None),
            Err(error) => Err(Refusal::of_host_error(&error)),
        }
    }

    /// An id for the prompt of a task. It sorts after what is in the session now.
    pub(super) async fn prompt_id(&self, session: &SessionId, is_new: bool) -> MessageId {
        if is_new || self.agent == Agent::Script {
            return MessageId::new();
        }
        // An id that is made now sorts after all that is older, unless the clocks differ.
        self.host.message_id(session).await.unwrap_or_else(|_| MessageId::new())
    }

    /// Deletes a session that was created for a message that is not used after all.
    pub(super) async fn discard_session(&self, id: &SessionId) {
        if let Err(error) = self.host.delete_session(id).await {
            tracing::warn!(%error, session = %id, "cannot delete a session that is not needed");
        }
        if let Err(error) = self.records.forget_session(id).await {
            tracing::warn!(%error, session = %id, "cannot forget a session that is not needed");
        }
    }
}

impl Service {
    /// The agent runtime as the owner of a session sees it, so that what is made of the session is the owner's there, too.
    /// If it does not know the caller as the owner, it is used as for sessions of nobody.
    pub(crate) async fn host_of_owner(
        &self,
        who: &Principal,
        session: &SessionId,
    ) -> Result<Arc<dyn AgentRuntime>, HostError> {
        let host = &self.inner.host;
        Ok(match host.session_owner(session).await? {
            Some(owner) if owner == who.identity => host.with_caller(caller_of(who, None)),
            _ => host.clone(),
        })
    }
}

/// A principal as the agent runtime knows it.
fn caller_of(who: &Principal, traceparent: Option<&str>) -> Caller {
    let traceparent = traceparent.map(str::to_owned);
    Caller { identity: Some(who.identity.clone()), client: Some(CLIENT.to_owned()), traceparent, ..Caller::default() }
}
