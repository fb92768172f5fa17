//! The engine as a [`Host`], [`CatalogHost`](api::CatalogHost) and [`WorkspaceHost`](api::WorkspaceHost). Each method
//! checks what its caller may do, and delegates to the module that does the work.

mod catalog;
mod workspace;

use std::sync::Arc;

use api::{
    AgentRuntime, Budget, BudgetState, Caller, CancelResult, CommandInput, CreateSession, Cursor, Delivery, Features,
    FileDiff, Host, HostError, HostFuture, ListMessages, ListSessions, ListTurns, McpConfig, MessageId, MessagePage,
    MessageWithParts, PartId, PermissionId, PermissionReply, PermissionRequest, PromptInput, QuestionId,
    QuestionRequest, Scope, Session, SessionId, SessionStatus, ShellInput, SteerInput, Submitted, SummarizeInput, Todo,
    Tree, Turn, TurnId, TurnPage, UpdateSession, WatchItem, WatchScope, Worktree, WorktreeDiff,
};
use futures::stream::BoxStream;
use indexmap::IndexMap;
use store::AskFilter;

use crate::Engine;
use crate::access::Right;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::turn::submit::SubmitOptions;

/// Named in the errors of what the engine lacks.
const SHARING: &str = "Sharing";
const UNDO: &str = "Undo";

impl Engine {
    fn at(&self, scope: &Scope) -> Arc<Instance> {
        self.inner.instance(scope.directory.as_ref())
    }

    /// Like [`at`](Self::at), but reloads configuration that was edited since.
    async fn current_at(&self, scope: &Scope) -> Arc<Instance> {
        self.inner.current_instance(scope.directory.as_ref()).await
    }

    fn asks_of(&self, scope: &Scope) -> AskFilter {
        let project = Some(self.at(scope).project.id.clone());
        AskFilter { project, owner: self.listed_owner(), ..AskFilter::default() }
    }

    fn bring_servers(
        &self,
        session: &SessionId,
        servers: IndexMap<String, McpConfig>,
        keep: bool,
    ) -> Result<(), HostError> {
        self.check(session, Right::Configure)?;
        let session = self.inner.session(session)?;
        self.inner.set_session_servers(&session, servers, keep)
    }
}

impl Host for Engine {
    fn features(&self) -> Features {
        Features { cursor: true, steer: true, tree: true, budget: true, turns: true }
    }

    fn with_caller(&self, caller: Caller) -> Arc<dyn AgentRuntime> {
        Arc::new(Engine::with_caller(self, caller))
    }

    fn create_session<'a>(&'a self, scope: &'a Scope, mut input: CreateSession) -> HostFuture<'a, Session> {
        Box::pin(async move {
            self.require(Right::Work)?;
            if let Some(parent) = &input.parent_id {
                self.check(parent, Right::Work)?;
            }
            let Some(workspace) = &scope.workspace else { return self.inner.create(&self.caller, scope, input).await };
            let scope = Scope::new(self.directory_of_workspace(scope, workspace)?);
            input.workspace_id.get_or_insert_with(|| workspace.clone());
            self.inner.create(&self.caller, &scope, input).await
        })
    }

    fn session<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.session(id)
        })
    }

    fn session_owner<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Option<String>> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.store.session_owner(id).map_err(store_error)
        })
    }

    fn sessions<'a>(&'a self, scope: &'a Scope, query: ListSessions) -> HostFuture<'a, Vec<Session>> {
        Box::pin(async { self.inner.list(&self.caller, scope, query).await })
    }

    fn update_session<'a>(&'a self, id: &'a SessionId, change: UpdateSession) -> HostFuture<'a, Session> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.update(id, change).await
        })
    }

    fn delete_session<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, ()> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.delete(id).await
        })
    }

    fn children<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<Session>> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.session(id)?;
            let id = id.clone();
            self.inner.store.long_read(move |store| store.children(&id)).await.map_err(store_error)
        })
    }

    fn fork_session<'a>(&'a self, id: &'a SessionId, before: Option<MessageId>) -> HostFuture<'a, Session> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.fork(&self.caller, id, before).await
        })
    }

    fn share<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.session(id)?;
            Err(HostError::Unsupported(SHARING))
        })
    }

    /// Another server may have published a session that was imported from it.
    fn unshare<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            let session = self.inner.session(id)?;
            if session.share.is_none() { Ok(session) } else { Err(HostError::Unsupported(SHARING)) }
        })
    }

    fn revert<'a>(&'a self, id: &'a SessionId, _: MessageId, _: Option<PartId>) -> HostFuture<'a, Session> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.session(id)?;
            Err(HostError::Unsupported(UNDO))
        })
    }

    fn unrevert<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.session(id)?;
            Err(HostError::Unsupported(UNDO))
        })
    }

    /// Always empty: there are no snapshots to compare.
    fn session_diff<'a>(&'a self, id: &'a SessionId, _: Option<&'a MessageId>) -> HostFuture<'a, Vec<FileDiff>> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.session(id)?;
            Ok(Vec::new())
        })
    }

    fn statuses<'a>(&'a self, _: &'a Scope) -> HostFuture<'a, IndexMap<SessionId, SessionStatus>> {
        Box::pin(async {
            let store = &self.inner.store;
            let statuses = self.listed_owner().map_or_else(|| store.statuses(), |owner| store.statuses_of(&owner));
            Ok(statuses.map_err(store_error)?.into_iter().collect())
        })
    }

    fn session_servers<'a>(
        &'a self,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async { self.bring_servers(session, servers, false) })
    }

    fn restore_servers<'a>(
        &'a self,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async { self.bring_servers(session, servers, true) })
    }

    fn messages<'a>(&'a self, id: &'a SessionId, query: ListMessages) -> HostFuture<'a, MessagePage> {
        Box::pin(async move {
            self.check(id, Right::Read)?;
            self.inner.session(id)?;
            self.inner.messages(id, query).await
        })
    }

    fn message<'a>(&'a self, id: &'a SessionId, message: &'a MessageId) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.session(id)?;
            self.inner.message_of(id, message)
        })
    }

    fn message_id<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, MessageId> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            Ok(MessageId::after(self.inner.store.newest_stamp(id).map_err(store_error)?))
        })
    }

    fn prompt<'a>(&'a self, id: &'a SessionId, input: PromptInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            let no_reply = input.no_reply;
            let accepted = self.inner.submit(&self.caller, id, input).await?;
            match no_reply {
                true => self.inner.message_of(id, &accepted.message),
                false => self.inner.await_answer_of(id, &accepted.message, accepted.turn).await,
            }
        })
    }

    fn submit<'a>(&'a self, id: &'a SessionId, input: PromptInput, delivery: Delivery) -> HostFuture<'a, Submitted> {
        Box::pin(async move {
            self.check(id, Right::Work)?;
            let is_chosen = input.message_id.is_some() || delivery == Delivery::Join;
            let options = SubmitOptions { delivery, caller: Some(&self.caller), ..SubmitOptions::default() };
            let accepted = self.inner.submit_with(id, input, options, |_| {}).await?;
            Ok(Submitted {
                message_id: Some(accepted.message).filter(|_| is_chosen),
                turn_id: accepted.turn.map(|number| TurnId::new(id, number)),
                cursor: accepted.cursor.map(|cursor| cursor.to_string()),
            })
        })
    }

    fn turn<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn> {
        Box::pin(async {
            self.check(&id.session, Right::Read)?;
            self.inner.turn(id).await
        })
    }

    fn turns<'a>(&'a self, session: &'a SessionId, query: ListTurns) -> HostFuture<'a, TurnPage> {
        Box::pin(async move {
            self.check(session, Right::Read)?;
            self.inner.turns(session, &query).await
        })
    }

    fn wait<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn> {
        Box::pin(async {
            self.check(&id.session, Right::Read)?;
            self.inner.wait_for_turn(id).await?;
            self.inner.turn(id).await
        })
    }

    fn cancel_turn<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn> {
        Box::pin(async {
            self.check(&id.session, Right::Work)?;
            self.inner.cancel_turn(id).await
        })
    }

    fn prompt_async<'a>(&'a self, id: &'a SessionId, input: PromptInput) -> HostFuture<'a, MessageId> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            Ok(self.inner.submit(&self.caller, id, input).await?.message)
        })
    }

    fn command<'a>(&'a self, id: &'a SessionId, input: CommandInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.command(&self.caller, id, input).await
        })
    }

    fn shell<'a>(&'a self, id: &'a SessionId, input: ShellInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.shell(&self.caller, id, input).await
        })
    }

    fn abort<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, bool> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.session(id)?;
            Ok(!self.inner.stop_tree(id).await?.is_empty())
        })
    }

    fn summarize<'a>(&'a self, id: &'a SessionId, _: SummarizeInput) -> HostFuture<'a, ()> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            Err(HostError::Unsupported("Compaction"))
        })
    }

    fn todo<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<Todo>> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.session(id)?;
            self.inner.store.todos(id).map_err(store_error)
        })
    }

    fn waiting<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<MessageId>> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.session(id)?;
            let inbox = self.inner.store.inbox(id).map_err(store_error)?;
            Ok(inbox.into_iter().map(|row| row.message_id).collect())
        })
    }

    fn recover<'a>(&'a self, session: Option<&'a SessionId>) -> HostFuture<'a, usize> {
        Box::pin(async move {
            match session {
                Some(session) => self.check(session, Right::Work)?,
                None if self.caller.identity.is_some() => {
                    return Err(HostError::Forbidden("Only the owner may recover the sessions of others".to_owned()));
                }
                None => self.require(Right::Work)?,
            }
            Ok(self.inner.recover(session).await?)
        })
    }

    fn tree<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Tree> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.tree(id).await
        })
    }

    fn steer<'a>(&'a self, id: &'a SessionId, input: SteerInput) -> HostFuture<'a, MessageId> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.steer(&self.caller, id, input).await
        })
    }

    fn pause<'a>(&'a self, id: &'a SessionId, paused: bool) -> HostFuture<'a, bool> {
        Box::pin(async move {
            self.check(id, Right::Work)?;
            self.inner.pause(id, paused).await
        })
    }

    fn cancel<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, CancelResult> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.cancel(id).await
        })
    }

    fn budget<'a>(&'a self, id: &'a SessionId, budget: Budget) -> HostFuture<'a, BudgetState> {
        Box::pin(async move {
            self.check(id, Right::Work)?;
            self.inner.set_budget(id, budget).await
        })
    }

    fn background<'a>(&'a self, id: &'a SessionId, background: bool) -> HostFuture<'a, bool> {
        Box::pin(async move {
            self.check(id, Right::Work)?;
            self.inner.set_background(id, background).await
        })
    }

    fn worktree_diff<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, WorktreeDiff> {
        Box::pin(async {
            self.check(id, Right::Read)?;
            self.inner.worktree_diff(id).await
        })
    }

    fn worktree_merge<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.worktree_merge(id).await
        })
    }

    fn worktree_discard<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(async {
            self.check(id, Right::Work)?;
            self.inner.worktree_discard(id).await
        })
    }

    fn permissions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<PermissionRequest>> {
        Box::pin(async { self.inner.store.permissions(&self.asks_of(scope)).map_err(store_error) })
    }

    fn reply_permission<'a>(&'a self, id: &'a PermissionId, reply: PermissionReply) -> HostFuture<'a, ()> {
        Box::pin(async {
            self.require(Right::Answer)?;
            self.inner.reply_permission(&self.caller, id, reply).await
        })
    }

    fn questions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<QuestionRequest>> {
        Box::pin(async { self.inner.store.questions(&self.asks_of(scope)).map_err(store_error) })
    }

    fn reply_question<'a>(&'a self, id: &'a QuestionId, answers: Option<Vec<Vec<String>>>) -> HostFuture<'a, ()> {
        Box::pin(async {
            self.require(Right::Answer)?;
            self.inner.reply_question(&self.caller, id, answers).await
        })
    }

    fn watch<'a>(&'a self, scope: WatchScope, after: Option<Cursor>) -> HostFuture<'a, BoxStream<'static, WatchItem>> {
        Box::pin(async {
            let store = &self.inner.store;
            let events = match &scope {
                WatchScope::Subtree(root) => {
                    self.check(root, Right::Read)?;
                    self.inner.watch_subtree(root, after).await?
                }
                WatchScope::Session(session) | WatchScope::Turn(TurnId { session, .. }) => {
                    self.check(session, Right::Read)?;
                    store.watch(scope, after).map_err(store_error)?
                }
                WatchScope::Directory(directory) => {
                    let directory = directory.into();
                    let events = store.watch(scope, after).map_err(store_error)?;
                    self.inner.projects.track(directory, events)
                }
                WatchScope::All => store.watch(scope, after).map_err(store_error)?,
            };
            Ok(self.only_accessible_events(events))
        })
    }
}
