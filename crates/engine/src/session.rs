//! Sessions and messages as records: create, list, change, stop and delete.

pub(crate) mod fork;
pub(crate) mod tidy;
pub(crate) mod tree;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{
    Caller, CreateSession, EventBody, HostError, ListMessages, ListSessions, MessageId, MessagePage, MessageWithParts,
    ModelRef, Part, PartId, Scope, Session, SessionId, SessionStatus, SessionTime, UpdateSession,
};
use store::{Batch, SessionChange, SessionQuery, Signal, Store};

use crate::access::Right;
use crate::ask::rules::Constraints;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::remote::REMOTE;
use crate::spending::ledger::REPORTED;
use crate::turn::{TurnLocation, title};
use crate::{Engine, Inner};

/// How long an abort waits for a turn of this process to end.
const ABORT_WAIT: Duration = Duration::from_secs(10);
/// How long an abort waits for another process, and how often it checks whether that process is stopped.
const ABORT_WAIT_OTHER_PROCESS: Duration = Duration::from_secs(5);
const STOPPED_POLL: Duration = Duration::from_millis(250);
/// The default page size of session lists.
const DEFAULT_PAGE: usize = 100;

impl Engine {
    /// Deletes a message.
    pub async fn delete_message(&self, id: &SessionId, message: &MessageId) -> Result<(), HostError> {
        self.check(id, Right::Work)?;
        self.inner.delete_message(id, message).await
    }

    /// Replaces a part.
    pub async fn update_part(&self, part: Part) -> Result<Part, HostError> {
        if let Some(head) = part.head() {
            self.check(&head.session_id, Right::Work)?;
        }
        self.inner.update_part(part).await
    }

    /// Deletes a part.
    pub async fn delete_part(&self, id: &SessionId, message: &MessageId, part: &PartId) -> Result<(), HostError> {
        self.check(id, Right::Work)?;
        self.inner.delete_part(id, message, part).await
    }
}

impl Inner {
    pub(crate) fn session(&self, id: &SessionId) -> Result<Session, HostError> {
        self.store.session(id).map_err(store_error)?.ok_or_else(|| HostError::not_found("session", id.as_str()))
    }

    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        scope: &Scope,
        input: CreateSession,
    ) -> Result<Session, HostError> {
        let instance = self.current_instance(scope.directory.as_ref()).await;
        if let Some(agent) = &input.agent {
            instance.agent(agent)?;
        }
        let session = self.new_session(&instance, input);
        let mut constraints = Constraints::new(self.settings.careful);
        if let Some(parent) = &session.parent_id
            && !constraints.add(&self.constraints_below(&self.store, parent).map_err(store_error)?)
        {
            return Err(HostError::Conflict(format!("{parent} is nested too deeply to have a session below it")));
        }
        let mut batch = Batch::new(&instance.place).durable();
        self.add_project(&instance, &mut batch)?;
        batch.session(&session);
        if let Some(owner) = &caller.identity {
            batch.session_owner(&session.id, owner);
        }
        constraints.put(&mut batch, &session.id);
        batch.event(EventBody::SessionCreated { session_id: session.id.clone(), info: Box::new(session.clone()) });
        tracing::debug!(session = %session.id, client = caller.client_name(), "creating a session");
        self.store.commit(batch).await.map_err(store_error)?;
        Ok(session)
    }

    pub(crate) fn new_session(&self, instance: &Instance, input: CreateSession) -> Session {
        let created = api::now();
        Session {
            id: SessionId::new(),
            slug: api::slug(),
            project_id: instance.project.id.clone(),
            workspace_id: input.workspace_id,
            directory: instance.directory.to_string_lossy().into_owned(),
            path: Some(instance.path()),
            title: input.title.unwrap_or_else(|| title::initial(input.parent_id.is_some(), created)),
            parent_id: input.parent_id,
            summary: None,
            cost: Some(api::Usd::default()),
            tokens: Some(api::SessionTokens::default()),
            share: None,
            agent: input.agent,
            model: input.model,
            version: self.settings.version.clone(),
            metadata: input.metadata,
            time: SessionTime { created, updated: created, compacting: None, archived: None },
            permission: input.permission,
            revert: None,
            extra: api::Extra::default(),
        }
    }

    /// Adds the project of a new session to the batch, if it is new too.
    pub(crate) fn add_project(&self, instance: &Instance, batch: &mut Batch) -> Result<(), HostError> {
        if self.store.project(&instance.project.id).map_err(store_error)?.is_none() {
            batch.project(&instance.project);
        }
        Ok(())
    }

    pub(crate) async fn list(
        &self,
        caller: &Caller,
        scope: &Scope,
        query: ListSessions,
    ) -> Result<Vec<Session>, HostError> {
        let query = self.session_query(caller, scope, query);
        let is_short = query.is_short();
        let read = move |store: &Store| store.sessions(&query);
        let sessions = if is_short { read(&self.store) } else { self.store.long_read(read).await };
        sessions.map_err(store_error)
    }

    /// Like [`list`](Self::list), as a JSON array of the stored rows, which are not parsed.
    pub(crate) async fn list_json(
        &self,
        caller: &Caller,
        scope: &Scope,
        query: ListSessions,
    ) -> Result<String, HostError> {
        let query = self.session_query(caller, scope, query);
        let is_short = query.is_short();
        let read = move |store: &Store| store.sessions_json(&query).map(|rows| format!("[{}]", rows.join(",")));
        let sessions = if is_short { read(&self.store) } else { self.store.long_read(read).await };
        sessions.map_err(store_error)
    }

    fn session_query(&self, caller: &Caller, scope: &Scope, query: ListSessions) -> SessionQuery {
        let instance = (!query.everywhere).then(|| self.instance(scope.directory.as_ref()));
        SessionQuery {
            owner: caller.identity.clone(),
            project: instance.as_ref().filter(|_| !query.directory_only).map(|i| i.project.id.clone()),
            directory: query.directory_only.then(|| scope.directory.clone()),
            roots: query.roots,
            search: query.search,
            start: query.start,
            before: query.before,
            path: query.path,
            unarchived: query.unarchived,
            creation_order: None,
            workspace: None,
            limit: query.limit.unwrap_or(DEFAULT_PAGE),
        }
    }

    pub(crate) async fn update(self: &Arc<Self>, id: &SessionId, change: UpdateSession) -> Result<Session, HostError> {
        let session = self.session(id)?;
        if change == UpdateSession::default() {
            return Ok(session);
        }
        let instance = self.current_instance(session.directory.as_ref()).await;
        if let Some(agent) = &change.agent {
            instance.agent(agent)?;
        }
        if let Some(model) = &change.model {
            self.check_model(&instance, &ModelRef::new(&model.provider_id, &model.id)).await?;
        }
        let mut batch = Batch::new(&self.place(&session)).durable();
        let change = SessionChange {
            title: change.title,
            agent: change.agent,
            model: change.model,
            metadata: change.metadata,
            // The only manual change that counts as activity: other rules apply from now on.
            is_activity: change.permission.is_some(),
            added_rules: change.permission,
            archived: change.archived,
            ..SessionChange::default()
        };
        batch.change_session(id, change);
        self.store.commit(batch).await.map_err(store_error)?;
        self.session(id)
    }

    /// Stops and deletes a session and everything below it, deepest first.
    pub(crate) async fn delete(self: &Arc<Self>, id: &SessionId) -> Result<(), HostError> {
        let session = self.session(id)?;
        self.stop_tree(&session.id).await?;
        for session in self.store.subtree(id).map_err(store_error)?.iter().rev() {
            let mut batch = Batch::new(&self.place(session)).durable();
            self.drop_worktree(session, &mut batch).await;
            batch.delete_session(&session.id);
            batch.record(REPORTED, session.id.as_str(), None, None);
            batch.record(title::TITLING, session.id.as_str(), None, None);
            batch.record(REMOTE, session.id.as_str(), None, None);
            let info = Box::new(session.tombstone());
            batch.event(EventBody::SessionDeleted { session_id: session.id.clone(), info });
            self.store.commit(batch).await.map_err(store_error)?;
            self.projects.session_servers().remove(&session.id);
            self.turns.forget_conversation(&session.id);
        }
        if let Err(error) = self.sweep().await {
            // The sessions are deleted; the next start or `gc` removes the remains.
            tracing::warn!(session = %id, %error, "cannot remove everything of a deleted session");
        }
        Ok(())
    }

    /// Stops the turn of a session, wherever it runs, and waits for its end. Returns false if none was running.
    pub(crate) async fn stop(self: &Arc<Self>, id: &SessionId) -> Result<bool, HostError> {
        if let Some(run) = self.turns.abort(id) {
            match tokio::time::timeout(ABORT_WAIT, run.wait_for_end()).await {
                // Not a turn: a prompt of ours just joined a turn of another process, which must be stopped instead.
                Ok(Ok(TurnLocation::Elsewhere)) => {}
                Ok(_) => return Ok(true),
                Err(_) => {
                    if let Some(SessionStatus::Retry { message, .. }) = self.store.transient_status(id) {
                        let text = format!("The turn of {id} stops as soon as its end can be stored: {message}");
                        return Err(HostError::Unavailable(text));
                    }
                    let seconds = ABORT_WAIT.as_secs();
                    return Err(HostError::Late(format!("The turn of {id} did not stop within {seconds} s")));
                }
            }
        }
        let Some(holder) = self.store.lease_holder(id).map_err(store_error)?.filter(|h| h.alive && !h.own) else {
            return Ok(false);
        };
        // The signal stays until the process reads it, whether we wait or not.
        if !self.store.signal(id, Signal::Abort { epoch: holder.epoch }).await.map_err(store_error)? {
            return Ok(false);
        }
        let (began, mut free) = (Instant::now(), std::pin::pin!(self.wait_until_free(id)));
        while began.elapsed() < ABORT_WAIT_OTHER_PROCESS {
            if let Ok(free) = tokio::time::timeout(STOPPED_POLL, &mut free).await {
                return free.map(|()| true);
            }
            if let Some(pid) = holder.pid().filter(|pid| exec::is_stopped(*pid)) {
                return Err(HostError::Unavailable(format!(
                    "The process {pid} runs {id} and is stopped itself, by a signal or a debugger. The abort is noted, and \
                     takes effect when the process goes on: kill -CONT {pid}"
                )));
            }
        }
        Err(HostError::Unavailable(format!(
            "The process {} runs {id} and did not stop it within {} s. The abort is noted, and takes effect when the process \
             reads it",
            holder.owner,
            ABORT_WAIT_OTHER_PROCESS.as_secs()
        )))
    }

    /// Waits until no living process runs the session.
    pub(crate) async fn wait_until_free(&self, id: &SessionId) -> Result<(), HostError> {
        use futures::StreamExt;
        let mut events = self.store.watch(api::WatchScope::Session(id.clone()), None).map_err(store_error)?;
        loop {
            if !self.store.lease_holder(id).map_err(store_error)?.is_some_and(|h| h.alive) {
                return Ok(());
            }
            // A dying owner sends no event, so poll its lock as well.
            let _ = tokio::time::timeout(Duration::from_millis(500), events.next()).await;
        }
    }

    /// The messages of a session, oldest first.
    pub(crate) async fn messages(&self, id: &SessionId, query: ListMessages) -> Result<MessagePage, HostError> {
        self.store.list_messages(id, query.limit, query.before.as_ref()).await.map_err(store_error)
    }

    pub(crate) async fn delete_message(&self, id: &SessionId, message: &MessageId) -> Result<(), HostError> {
        let session = self.session(id)?;
        self.ensure_idle(id)?;
        self.message_of(id, message)?;
        let mut batch = Batch::new(&self.place(&session)).durable();
        batch.require_session(id);
        batch.delete_message(message);
        batch.event(EventBody::MessageRemoved { session_id: id.clone(), message_id: message.clone() });
        self.store.commit(batch).await.map_err(store_error)?;
        Ok(())
    }

    pub(crate) async fn update_part(&self, part: Part) -> Result<Part, HostError> {
        let head = part.head().cloned().ok_or_else(|| HostError::Invalid("A part needs a known type".to_owned()))?;
        let session = self.session(&head.session_id)?;
        let message = self.message_of(&head.session_id, &head.message_id)?;
        if !message.parts.iter().any(|p| p.head().is_some_and(|h| h.id == head.id)) {
            return Err(HostError::not_found("part", head.id.as_str()));
        }
        let mut batch = Batch::new(&self.place(&session)).durable();
        batch.require_session(&session.id);
        batch.publish_part(&part);
        self.store.commit(batch).await.map_err(store_error)?;
        Ok(part)
    }

    pub(crate) async fn delete_part(
        &self,
        id: &SessionId,
        message: &MessageId,
        part: &PartId,
    ) -> Result<(), HostError> {
        let session = self.session(id)?;
        let found = self.message_of(id, message)?;
        if !found.parts.iter().any(|p| p.head().is_some_and(|h| h.id == *part)) {
            return Err(HostError::not_found("part", part.as_str()));
        }
        let mut batch = Batch::new(&self.place(&session)).durable();
        batch.require_session(id);
        batch.delete_part(part);
        let (session_id, message_id, part_id) = (id.clone(), message.clone(), part.clone());
        batch.event(EventBody::PartRemoved { session_id, message_id, part_id });
        self.store.commit(batch).await.map_err(store_error)?;
        Ok(())
    }

    pub(crate) fn message_of(&self, id: &SessionId, message: &MessageId) -> Result<MessageWithParts, HostError> {
        let found = self.store.message(message).map_err(store_error)?;
        found.filter(|m| m.info.session_id() == id).ok_or_else(|| HostError::not_found("message", message.as_str()))
    }

    /// Fails if a turn is running, here or in another process.
    pub(crate) fn ensure_idle(&self, id: &SessionId) -> Result<(), HostError> {
        let elsewhere = || self.store.lease_holder(id).map(|h| h.is_some_and(|h| h.alive && !h.own));
        if self.turns.is_running(id) || elsewhere().map_err(store_error)? {
            return Err(HostError::Busy(id.clone()));
        }
        Ok(())
    }
}
