//! The engine as a [`Host`]. Each method delegates to the module that does the work.

use std::sync::Arc;

use api::{
    Agent, Budget, BudgetState, CancelResult, Command, CommandInput, CreateSession, Cursor, Features, FileContent,
    FileDiff, FileNode, FindTextMatch, Host, HostError, HostFuture, Json, ListMessages, ListSessions, McpAuthorization,
    McpConfig, McpResource, McpStatus, MessageId, MessagePage, MessageWithParts, ModelRef, Part, PartId, PermissionId,
    PermissionReply, PermissionRequest, Project, PromptInput, Provider, QuestionId, QuestionRequest, RevertInput,
    Scope, Session, SessionId, SessionStatus, ShellInput, Skill, SteerInput, SummarizeInput, Todo, Tree, UpdateSession,
    WatchItem, WatchScope, Worktree, WorktreeDiff,
};
use futures::stream::BoxStream;
use indexmap::IndexMap;
use store::AskFilter;

use crate::Engine;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::project::mcp;

impl Engine {
    fn at(&self, scope: &Scope) -> Arc<Instance> {
        self.inner.instance(scope.directory.as_ref())
    }

    /// Like [`at`](Self::at), but reloads configuration that was edited since.
    async fn current_at(&self, scope: &Scope) -> Arc<Instance> {
        self.inner.current_instance(scope.directory.as_ref()).await
    }

    fn asks_of(&self, scope: &Scope) -> AskFilter {
        AskFilter { project: Some(self.at(scope).project.id.clone()), ..AskFilter::default() }
    }
}

impl Host for Engine {
    fn features(&self) -> Features {
        Features { cursor: true, steer: true, tree: true, budget: true }
    }

    fn create_session<'a>(&'a self, scope: &'a Scope, input: CreateSession) -> HostFuture<'a, Session> {
        Box::pin(self.inner.create(scope, input))
    }

    fn session<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { self.inner.session(id) })
    }

    fn sessions<'a>(&'a self, scope: &'a Scope, query: ListSessions) -> HostFuture<'a, Vec<Session>> {
        Box::pin(async { self.inner.list(scope, query) })
    }

    fn update_session<'a>(&'a self, _: &'a Scope, id: &'a SessionId, change: UpdateSession) -> HostFuture<'a, Session> {
        Box::pin(self.inner.update(id, change))
    }

    fn delete_session<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, ()> {
        Box::pin(self.inner.delete(id))
    }

    fn children<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Session>> {
        Box::pin(async {
            self.inner.session(id)?;
            self.inner.store.children(id).map_err(store_error)
        })
    }

    fn fork_session<'a>(
        &'a self,
        _: &'a Scope,
        id: &'a SessionId,
        before: Option<MessageId>,
    ) -> HostFuture<'a, Session> {
        Box::pin(self.inner.fork(id, before))
    }

    fn statuses<'a>(&'a self, _: &'a Scope) -> HostFuture<'a, IndexMap<SessionId, SessionStatus>> {
        Box::pin(async { Ok(self.inner.store.statuses().map_err(store_error)?.into_iter().collect()) })
    }

    fn messages<'a>(&'a self, _: &'a Scope, id: &'a SessionId, query: ListMessages) -> HostFuture<'a, MessagePage> {
        Box::pin(async move {
            self.inner.session(id)?;
            self.inner.messages(id, query).await
        })
    }

    fn message<'a>(
        &'a self,
        _: &'a Scope,
        id: &'a SessionId,
        message: &'a MessageId,
    ) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async {
            self.inner.session(id)?;
            self.inner.message_of(id, message)
        })
    }

    fn delete_message<'a>(&'a self, _: &'a Scope, id: &'a SessionId, message: &'a MessageId) -> HostFuture<'a, ()> {
        Box::pin(self.inner.delete_message(id, message))
    }

    fn update_part<'a>(&'a self, _: &'a Scope, part: Part) -> HostFuture<'a, Part> {
        Box::pin(self.inner.update_part(part))
    }

    fn delete_part<'a>(
        &'a self,
        _: &'a Scope,
        id: &'a SessionId,
        message: &'a MessageId,
        part: &'a PartId,
    ) -> HostFuture<'a, ()> {
        Box::pin(self.inner.delete_part(id, message, part))
    }

    fn prompt<'a>(&'a self, _: &'a Scope, id: &'a SessionId, input: PromptInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async {
            let no_reply = input.no_reply;
            let message = self.inner.submit(id, input).await?;
            if no_reply { self.inner.message_of(id, &message) } else { self.inner.await_answer(id, &message).await }
        })
    }

    fn message_id<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, MessageId> {
        Box::pin(async { Ok(MessageId::after(self.inner.store.newest_stamp(id).map_err(store_error)?)) })
    }

    fn prompt_async<'a>(&'a self, _: &'a Scope, id: &'a SessionId, input: PromptInput) -> HostFuture<'a, MessageId> {
        Box::pin(async { self.inner.submit(id, input).await })
    }

    fn command<'a>(&'a self, _: &'a Scope, id: &'a SessionId, input: CommandInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(self.inner.command(id, input))
    }

    fn shell<'a>(&'a self, _: &'a Scope, id: &'a SessionId, input: ShellInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(self.inner.shell(id, input))
    }

    fn abort<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, bool> {
        Box::pin(async {
            self.inner.session(id)?;
            Ok(!self.inner.stop_tree(id).await?.is_empty())
        })
    }

    fn summarize<'a>(&'a self, _: &'a Scope, _: &'a SessionId, _: SummarizeInput) -> HostFuture<'a, ()> {
        Box::pin(async { Err(HostError::Unsupported("Compaction")) })
    }

    fn revert<'a>(&'a self, _: &'a Scope, _: &'a SessionId, _: RevertInput) -> HostFuture<'a, Session> {
        Box::pin(async { Err(HostError::Unsupported("Undo")) })
    }

    fn unrevert<'a>(&'a self, _: &'a Scope, _: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { Err(HostError::Unsupported("Undo")) })
    }

    fn todo<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Todo>> {
        Box::pin(async {
            self.inner.session(id)?;
            self.inner.store.todos(id).map_err(store_error)
        })
    }

    fn diff<'a>(&'a self, _: &'a Scope, _: &'a SessionId, _: Option<MessageId>) -> HostFuture<'a, Vec<FileDiff>> {
        Box::pin(async { Err(HostError::Unsupported("The diff of a session")) })
    }

    fn waiting<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<MessageId>> {
        Box::pin(async {
            self.inner.session(id)?;
            let inbox = self.inner.store.inbox(id).map_err(store_error)?;
            Ok(inbox.into_iter().map(|row| row.message_id).collect())
        })
    }

    fn recover<'a>(&'a self, session: Option<&'a SessionId>) -> HostFuture<'a, usize> {
        Box::pin(async move { Ok(self.inner.recover(session).await?) })
    }

    fn tree<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Tree> {
        Box::pin(async { self.inner.tree(id) })
    }

    fn budget<'a>(&'a self, _: &'a Scope, id: &'a SessionId, budget: Budget) -> HostFuture<'a, BudgetState> {
        Box::pin(self.inner.set_budget(id, budget))
    }

    fn steer<'a>(&'a self, _: &'a Scope, id: &'a SessionId, input: SteerInput) -> HostFuture<'a, MessageId> {
        Box::pin(self.inner.steer(id, input))
    }

    fn pause<'a>(&'a self, _: &'a Scope, id: &'a SessionId, paused: bool) -> HostFuture<'a, bool> {
        Box::pin(self.inner.pause(id, paused))
    }

    fn cancel<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, CancelResult> {
        Box::pin(self.inner.cancel(id))
    }

    fn background<'a>(&'a self, _: &'a Scope, id: &'a SessionId, background: bool) -> HostFuture<'a, bool> {
        Box::pin(self.inner.set_background(id, background))
    }

    fn worktree_diff<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, WorktreeDiff> {
        Box::pin(self.inner.worktree_diff(id))
    }

    fn worktree_merge<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(self.inner.worktree_merge(id))
    }

    fn worktree_discard<'a>(&'a self, _: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(self.inner.worktree_discard(id))
    }

    fn permissions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<PermissionRequest>> {
        Box::pin(async { self.inner.store.permissions(&self.asks_of(scope)).map_err(store_error) })
    }

    fn reply_permission<'a>(
        &'a self,
        _: &'a Scope,
        id: &'a PermissionId,
        reply: PermissionReply,
    ) -> HostFuture<'a, ()> {
        Box::pin(self.inner.reply_permission(id, reply))
    }

    fn questions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<QuestionRequest>> {
        Box::pin(async { self.inner.store.questions(&self.asks_of(scope)).map_err(store_error) })
    }

    fn reply_question<'a>(
        &'a self,
        _: &'a Scope,
        id: &'a QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> HostFuture<'a, ()> {
        Box::pin(self.inner.reply_question(id, answers))
    }

    fn agents<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Agent>> {
        Box::pin(async { Ok(self.current_at(scope).await.agents_for_clients()) })
    }

    fn commands<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async {
            let instance = self.current_at(scope).await;
            Ok(self.inner.commands(&instance, None).await)
        })
    }

    fn session_commands<'a>(&'a self, scope: &'a Scope, session: &'a SessionId) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async {
            let instance = self.current_at(scope).await;
            Ok(self.inner.commands(&instance, Some(session)).await)
        })
    }

    fn skills<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Skill>> {
        Box::pin(async { Ok(self.current_at(scope).await.loaded.skills.clone()) })
    }

    fn providers<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Provider>> {
        Box::pin(async { Ok(self.inner.providers(&*self.current_at(scope).await).await) })
    }

    fn default_model<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ModelRef> {
        Box::pin(async { self.inner.default_model(&*self.current_at(scope).await).await })
    }

    fn config<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Json> {
        Box::pin(async { Ok(self.current_at(scope).await.loaded.raw.clone()) })
    }

    fn projects<'a>(&'a self) -> HostFuture<'a, Vec<Project>> {
        Box::pin(async { self.inner.store.projects().map_err(store_error) })
    }

    fn project<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Project> {
        Box::pin(async { self.inner.project_of(&self.at(scope)) })
    }

    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>> {
        Box::pin(async { Ok(self.list_files(scope, path).await?.0) })
    }

    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent> {
        Box::pin(async { crate::project::files::content(self.at(scope), path.to_owned()).await })
    }

    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>> {
        Box::pin(async move { self.find_paths(scope, query, tools::Entries::Files, limit).await })
    }

    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>> {
        Box::pin(async move { crate::project::files::grep(self.at(scope), pattern.to_owned(), limit).await })
    }

    fn mcp<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async {
            let instance = self.current_at(scope).await;
            instance.servers.ready().await;
            Ok(instance.server_statuses_for_clients())
        })
    }

    fn mcp_add<'a>(
        &'a self,
        scope: &'a Scope,
        name: &'a str,
        config: McpConfig,
    ) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async move {
            let instance = self.at(scope);
            instance.servers.add(name, config).await.map_err(mcp::host_error)?;
            Ok(instance.server_statuses_for_clients())
        })
    }

    fn mcp_connect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async { self.at(scope).servers.connect(name).await.map(drop).map_err(mcp::host_error) })
    }

    fn mcp_disconnect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async { self.at(scope).servers.disconnect(name).await.map_err(mcp::host_error) })
    }

    fn mcp_resources<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpResource>> {
        Box::pin(async { Ok(mcp::resources(&*self.current_at(scope).await).await) })
    }

    fn mcp_auth_start<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpAuthorization> {
        Box::pin(async {
            let started = self.at(scope).servers.begin_auth(name).await.map_err(mcp::host_error)?;
            Ok(McpAuthorization { authorization_url: started.url, oauth_state: started.state })
        })
    }

    fn mcp_auth_callback<'a>(&'a self, scope: &'a Scope, name: &'a str, code: &'a str) -> HostFuture<'a, McpStatus> {
        Box::pin(async { mcp::signed_in(self.at(scope).servers.finish_auth(name, code).await) })
    }

    fn mcp_authenticate<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpStatus> {
        Box::pin(async { self.inner.sign_in(&self.at(scope), name).await })
    }

    fn mcp_auth_remove<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async { self.at(scope).servers.forget_auth(name).map_err(mcp::host_error) })
    }

    fn session_servers<'a>(
        &'a self,
        _: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async {
            let session = self.inner.session(session)?;
            self.inner.set_session_servers(&session, servers, false)
        })
    }

    fn restore_servers<'a>(
        &'a self,
        _: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async {
            let session = self.inner.session(session)?;
            self.inner.set_session_servers(&session, servers, true)
        })
    }

    fn watch<'a>(&'a self, scope: WatchScope, after: Option<Cursor>) -> HostFuture<'a, BoxStream<'static, WatchItem>> {
        Box::pin(async {
            let directory = match &scope {
                WatchScope::Directory(directory) => Some(directory.into()),
                _ => None,
            };
            let events = self.inner.store.watch(scope, after).map_err(store_error)?;
            Ok(match directory {
                Some(directory) => self.inner.watched_directories.track(directory, events),
                None => events,
            })
        })
    }
}
