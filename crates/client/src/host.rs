//! The [`Host`] implementation of the client: each method sends one request or a few.

use std::sync::Arc;

use api::{
    AgentRuntime, Budget, BudgetState, Caller, CancelResult, CommandInput, CreateSession, Cursor, Delivery, Features,
    FileDiff, Host, HostError, HostFuture, Json, ListMessages, ListSessions, ListTurns, McpConfig, MessageId,
    MessagePage, MessageWithParts, PartId, PermissionId, PermissionReply, PermissionRequest, PromptInput, QuestionId,
    QuestionRequest, Scope, Session, SessionId, SessionStatus, ShellInput, SteerInput, Submitted, SummarizeInput, Todo,
    Tree, Turn, TurnId, TurnPage, UpdateSession, WatchItem, WatchScope, Worktree, WorktreeDiff,
};
use futures::stream::BoxStream;
use indexmap::IndexMap;
use reqwest::Method;
use serde_json::json;

use crate::Client;
use crate::events::watch;
use crate::request::ApiRequest;
use crate::wire::{self, SteerResponse};

/// The most messages searched for prompts without an answer.
const MAX_MESSAGES_SCANNED: usize = 100;
/// Named in errors about servers without worktrees.
const WORKTREE: &str = "The worktree of a subagent";
/// The agent of a session that has none yet.
const DEFAULT_AGENT: &str = "build";

impl Client {
    pub(crate) fn get(&self, scope: &Scope, path: &[&str]) -> ApiRequest<'_> {
        self.request(Method::GET, path).scope(scope)
    }

    pub(crate) fn post(&self, scope: &Scope, path: &[&str], body: &Json) -> ApiRequest<'_> {
        self.request(Method::POST, path).scope(scope).body(body)
    }

    /// The directory of a session. A server is asked for that of one that the client has not seen yet.
    pub(crate) async fn scope_of(&self, id: &SessionId) -> Result<Scope, HostError> {
        match self.inner.directories.of_session(id) {
            Some(directory) => Ok(Scope::new(directory)),
            None => Ok(Scope::new(self.session(id).await?.directory)),
        }
    }

    /// The directory of an ask as it was listed or announced. Without one, the client's own is used.
    fn scope_of_ask(&self, id: &str) -> Scope {
        Scope::new(self.inner.directories.of_ask(id).unwrap_or_default())
    }

    /// A request about a session: `/session/{id}/…`.
    pub(crate) async fn session_request(
        &self,
        method: Method,
        id: &SessionId,
        path: &[&str],
    ) -> Result<ApiRequest<'_>, HostError> {
        let scope = self.scope_of(id).await?;
        Ok(self.request(method, &[&["session", id.as_str()][..], path].concat()).scope(&scope))
    }

    /// Sends a request whose response is a session, and remembers the session's directory.
    async fn fetch_session(&self, request: ApiRequest<'_>) -> Result<Session, HostError> {
        let session: Session = request.fetch().await?;
        self.inner.directories.remember_session(&session);
        Ok(session)
    }

    /// Remembers where requests were listed. The client's own directory needs no remembering.
    fn remember_asks<'a>(&self, scope: &Scope, ids: impl Iterator<Item = &'a str>) {
        for id in ids {
            self.inner.directories.remember_ask(id, &scope.directory);
        }
    }

    /// Makes sure that the prompt has an id, so that it can be sent again after a broken connection.
    async fn ensure_message_id(&self, id: &SessionId, input: &mut PromptInput) -> Result<MessageId, HostError> {
        let chosen = match input.message_id.take() {
            Some(chosen) => chosen,
            None => self.message_id(id).await?,
        };
        Ok(input.message_id.insert(chosen).clone())
    }

    /// Fails unless the server is Trefoil. A server that does not know an operation may respond with anything, or proxy
    /// it elsewhere, so the operation is not even sent; instead the server is asked for its health.
    async fn require_trefoil(&self, what: &'static str) -> Result<(), HostError> {
        self.detect().await?;
        if self.is_trefoil() { Ok(()) } else { Err(HostError::Unsupported(what)) }
    }
}

impl Host for Client {
    fn features(&self) -> Features {
        let trefoil = self.is_trefoil();
        Features { cursor: trefoil, steer: trefoil, tree: trefoil, budget: trefoil, turns: trefoil }
    }

    fn with_caller(&self, caller: Caller) -> Arc<dyn AgentRuntime> {
        Arc::new(Client::with_caller(self, caller))
    }

    fn create_session<'a>(&'a self, scope: &'a Scope, mut input: CreateSession) -> HostFuture<'a, Session> {
        // A server that does not use workspaces itself ignores the one in the scope, but keeps this.
        input.workspace_id = input.workspace_id.or_else(|| scope.workspace.clone());
        Box::pin(async move { self.fetch_session(self.post(scope, &["session"], &wire::body(&input)?)).await })
    }

    fn session<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async {
            let known = Scope::new(self.inner.directories.of_session(id).unwrap_or_default());
            self.fetch_session(self.get(&known, &["session", id.as_str()])).await
        })
    }

    /// The wire names no owners.
    fn session_owner<'a>(&'a self, _: &'a SessionId) -> HostFuture<'a, Option<String>> {
        Box::pin(async { Ok(None) })
    }

    fn sessions<'a>(&'a self, scope: &'a Scope, query: ListSessions) -> HostFuture<'a, Vec<Session>> {
        Box::pin(self.list_sessions(scope, query))
    }

    fn update_session<'a>(&'a self, id: &'a SessionId, change: UpdateSession) -> HostFuture<'a, Session> {
        Box::pin(async move {
            let change = wire::session_update(&change, self.is_trefoil())?;
            if change.as_object().is_some_and(|change| change.is_empty()) {
                return self.session(id).await;
            }
            self.fetch_session(self.session_request(Method::PATCH, id, &[]).await?.body(&change)).await
        })
    }

    fn delete_session<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, ()> {
        Box::pin(async { self.session_request(Method::DELETE, id, &[]).await?.execute().await })
    }

    fn children<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<Session>> {
        Box::pin(async {
            let request = self.session_request(Method::GET, id, &["children"]).await?;
            let children: Vec<Session> = request.fetch().await?;
            self.inner.directories.remember_sessions(&children);
            Ok(children)
        })
    }

    fn fork_session<'a>(&'a self, id: &'a SessionId, before: Option<MessageId>) -> HostFuture<'a, Session> {
        Box::pin(async move {
            let body = wire::body(&json!({"messageID": before}))?;
            self.fetch_session(self.session_request(Method::POST, id, &["fork"]).await?.body(&body)).await
        })
    }

    fn share<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { self.fetch_session(self.session_request(Method::POST, id, &["share"]).await?).await })
    }

    fn unshare<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { self.fetch_session(self.session_request(Method::DELETE, id, &["share"]).await?).await })
    }

    fn revert<'a>(&'a self, id: &'a SessionId, message: MessageId, part: Option<PartId>) -> HostFuture<'a, Session> {
        Box::pin(async move {
            let body = wire::body(&json!({"messageID": message, "partID": part}))?;
            self.fetch_session(self.session_request(Method::POST, id, &["revert"]).await?.body(&body)).await
        })
    }

    fn unrevert<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { self.fetch_session(self.session_request(Method::POST, id, &["unrevert"]).await?).await })
    }

    fn session_diff<'a>(&'a self, id: &'a SessionId, message: Option<&'a MessageId>) -> HostFuture<'a, Vec<FileDiff>> {
        Box::pin(async move {
            let request = self.session_request(Method::GET, id, &["diff"]).await?;
            request.query_opt("messageID", message).fetch().await
        })
    }

    fn statuses<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<SessionId, SessionStatus>> {
        Box::pin(async { self.get(scope, &["session", "status"]).fetch().await })
    }

    fn session_servers<'a>(
        &'a self,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            if self.is_trefoil() {
                let request = self.session_request(Method::POST, session, &["mcp"]).await?;
                return request.body(&wire::body(&servers)?).execute().await;
            }
            // A directory's servers would be used by all its sessions, and would stay.
            if servers.is_empty() {
                return Ok(());
            }
            Err(HostError::Unsupported("An MCP server for one session alone"))
        })
    }

    fn restore_servers<'a>(
        &'a self,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            if !self.is_trefoil() {
                return Ok(());
            }
            let request = self.session_request(Method::POST, session, &["mcp"]).await?;
            request.body(&wire::body(&servers)?).query("restore", true).execute().await
        })
    }

    fn messages<'a>(&'a self, id: &'a SessionId, query: ListMessages) -> HostFuture<'a, MessagePage> {
        Box::pin(self.list_messages(id, query))
    }

    fn message<'a>(&'a self, id: &'a SessionId, message: &'a MessageId) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async { self.session_request(Method::GET, id, &["message", message.as_str()]).await?.fetch().await })
    }

    fn prompt<'a>(&'a self, id: &'a SessionId, mut input: PromptInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async move {
            self.ensure_message_id(id, &mut input).await?;
            let request = self.session_request(Method::POST, id, &["message"]).await?;
            let request = request.trace(input.traceparent.as_deref());
            request.body(&wire::prompt(input)?).run_turn_with_retry().await
        })
    }

    fn prompt_async<'a>(&'a self, id: &'a SessionId, mut input: PromptInput) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            let message = self.ensure_message_id(id, &mut input).await?;
            let request = self.session_request(Method::POST, id, &["prompt_async"]).await?;
            let request = request.trace(input.traceparent.as_deref());
            request.body(&wire::prompt(input)?).execute_with_retry().await?;
            Ok(message)
        })
    }

    fn submit<'a>(&'a self, id: &'a SessionId, input: PromptInput, delivery: Delivery) -> HostFuture<'a, Submitted> {
        Box::pin(async move {
            self.require_trefoil("Submitting a prompt as a turn").await?;
            let request = self.session_request(Method::POST, id, &["turn"]).await?;
            let request = request.trace(input.traceparent.as_deref());
            let mut body = wire::prompt(input)?;
            body["delivery"] = json!(delivery);
            request.body(&body).fetch().await
        })
    }

    fn turn<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn> {
        Box::pin(async {
            self.require_trefoil("Looking at a turn").await?;
            self.session_request(Method::GET, &id.session, &["turn", &id.to_string()]).await?.fetch().await
        })
    }

    fn turns<'a>(&'a self, session: &'a SessionId, query: ListTurns) -> HostFuture<'a, TurnPage> {
        Box::pin(async move {
            self.require_trefoil("Listing turns").await?;
            let request = self.session_request(Method::GET, session, &["turn"]).await?;
            let ListTurns { ended, current, before, limit } = query;
            let request = request.query_opt("ended", ended).query_opt("current", current.then_some(true));
            request.query_opt("before", before).query_opt("limit", limit).fetch().await
        })
    }

    fn wait<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn> {
        Box::pin(async {
            self.require_trefoil("Waiting for a turn").await?;
            self.session_request(Method::POST, &id.session, &["turn", &id.to_string(), "wait"]).await?.run_turn().await
        })
    }

    fn cancel_turn<'a>(&'a self, id: &'a TurnId) -> HostFuture<'a, Turn> {
        Box::pin(async {
            self.require_trefoil("Cancelling a turn").await?;
            self.session_request(Method::POST, &id.session, &["turn", &id.to_string(), "cancel"])
                .await?
                .run_turn()
                .await
        })
    }

    fn command<'a>(&'a self, id: &'a SessionId, input: CommandInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async move {
            let request = self.session_request(Method::POST, id, &["command"]).await?;
            request.body(&wire::command(&input)?).run_turn().await
        })
    }

    fn shell<'a>(&'a self, id: &'a SessionId, input: ShellInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async move {
            let ShellInput { command, target } = input;
            // The wire has no default agent.
            let agent = match target.agent {
                Some(agent) => agent,
                None => self.session(id).await?.agent.unwrap_or_else(|| DEFAULT_AGENT.to_owned()),
            };
            let model = target.model.as_ref().map(wire::model);
            let body = json!({"command": command, "agent": agent, "model": model, "messageID": target.message_id});
            let request = self.session_request(Method::POST, id, &["shell"]).await?;
            request.body(&wire::body(&body)?).run_turn().await
        })
    }

    fn abort<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, bool> {
        Box::pin(async { self.session_request(Method::POST, id, &["abort"]).await?.fetch().await })
    }

    fn summarize<'a>(&'a self, id: &'a SessionId, input: SummarizeInput) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let mut body = wire::model(&input.model);
            body["auto"] = input.auto.into();
            let request = self.session_request(Method::POST, id, &["summarize"]).await?;
            let _: bool = request.body(&body).run_turn().await?;
            Ok(())
        })
    }

    fn todo<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<Todo>> {
        Box::pin(async { self.session_request(Method::GET, id, &["todo"]).await?.fetch().await })
    }

    /// Derived from the newest messages, because the wire does not list them: a prompt that was only stored counts
    /// while a turn runs.
    fn waiting<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Vec<MessageId>> {
        Box::pin(async {
            let running = self.statuses(&self.scope_of(id).await?).await?.contains_key(id);
            // OpenCode would treat a prompt that is sent again as a new one.
            if !self.is_trefoil() {
                return Err(HostError::Unsupported("Waiting for a prompt that was sent before"));
            }
            let query = ListMessages { limit: Some(MAX_MESSAGES_SCANNED), before: None };
            let page = self.list_messages(id, query).await?;
            let messages = page.messages.iter().map(|message| &message.info);
            Ok(if running { wire::unanswered(messages) } else { Vec::new() })
        })
    }

    /// A server recovers by itself.
    fn recover<'a>(&'a self, _: Option<&'a SessionId>) -> HostFuture<'a, usize> {
        Box::pin(async { Ok(0) })
    }

    fn tree<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Tree> {
        Box::pin(async {
            self.require_trefoil("The tree of subagents").await?;
            self.session_request(Method::GET, id, &["tree"]).await?.fetch().await
        })
    }

    fn steer<'a>(&'a self, id: &'a SessionId, input: SteerInput) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            self.require_trefoil("Steering").await?;
            let request = self.session_request(Method::POST, id, &["steer"]).await?.body(&wire::body(&input)?);
            Ok(request.fetch::<SteerResponse>().await?.message_id)
        })
    }

    fn pause<'a>(&'a self, id: &'a SessionId, paused: bool) -> HostFuture<'a, bool> {
        Box::pin(async move {
            self.require_trefoil("Pausing").await?;
            let verb = if paused { "pause" } else { "resume" };
            self.session_request(Method::POST, id, &[verb]).await?.fetch().await
        })
    }

    fn cancel<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, CancelResult> {
        Box::pin(async {
            self.require_trefoil("Cancelling a subtree").await?;
            // Returns when the last of them has stopped, however long that takes.
            self.session_request(Method::POST, id, &["cancel"]).await?.run_turn().await
        })
    }

    fn budget<'a>(&'a self, id: &'a SessionId, budget: Budget) -> HostFuture<'a, BudgetState> {
        Box::pin(async move {
            self.require_trefoil("Budgets").await?;
            self.session_request(Method::POST, id, &["budget"]).await?.body(&wire::body(&budget)?).fetch().await
        })
    }

    fn background<'a>(&'a self, id: &'a SessionId, background: bool) -> HostFuture<'a, bool> {
        Box::pin(async move {
            if !background {
                self.require_trefoil("Waiting for background tasks").await?;
            }
            let verb = if background { "background" } else { "foreground" };
            let scope = self.scope_of(id).await?;
            self.request(Method::POST, &["experimental", "session", id.as_str(), verb]).scope(&scope).fetch().await
        })
    }

    fn worktree_diff<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, WorktreeDiff> {
        Box::pin(async {
            self.require_trefoil(WORKTREE).await?;
            self.session_request(Method::GET, id, &["worktree"]).await?.fetch().await
        })
    }

    fn worktree_merge<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(async {
            self.require_trefoil(WORKTREE).await?;
            self.session_request(Method::POST, id, &["worktree"]).await?.run_turn().await
        })
    }

    fn worktree_discard<'a>(&'a self, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(async {
            self.require_trefoil(WORKTREE).await?;
            self.session_request(Method::DELETE, id, &["worktree"]).await?.run_turn().await
        })
    }

    fn permissions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<PermissionRequest>> {
        Box::pin(async {
            let listed: Vec<PermissionRequest> = self.get(scope, &["permission"]).fetch().await?;
            self.remember_asks(scope, listed.iter().map(|request| request.id.as_str()));
            Ok(listed)
        })
    }

    fn reply_permission<'a>(&'a self, id: &'a PermissionId, reply: PermissionReply) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let scope = self.scope_of_ask(id.as_str());
            self.post(&scope, &["permission", id.as_str(), "reply"], &wire::body(&reply)?).execute().await
        })
    }

    fn questions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<QuestionRequest>> {
        Box::pin(async {
            let listed: Vec<QuestionRequest> = self.get(scope, &["question"]).fetch().await?;
            self.remember_asks(scope, listed.iter().map(|request| request.id.as_str()));
            Ok(listed)
        })
    }

    fn reply_question<'a>(&'a self, id: &'a QuestionId, answers: Option<Vec<Vec<String>>>) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let scope = self.scope_of_ask(id.as_str());
            let request = match answers {
                Some(answers) => self.post(&scope, &["question", id.as_str(), "reply"], &json!({"answers": answers})),
                None => self.request(Method::POST, &["question", id.as_str(), "reject"]).scope(&scope),
            };
            request.execute().await
        })
    }

    fn watch<'a>(&'a self, scope: WatchScope, after: Option<Cursor>) -> HostFuture<'a, BoxStream<'static, WatchItem>> {
        Box::pin(watch::watch(self.clone(), scope, after))
    }
}
