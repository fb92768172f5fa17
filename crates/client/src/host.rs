//! The [`Host`] implementation of the client: each method sends one request or a few.

use std::path::Path;

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
use reqwest::Method;
use serde_json::json;

use crate::Client;
use crate::events::watch;
use crate::request::ApiRequest;
use crate::wire::{self, PartPath, ProvidersResponse, RipgrepMatch, SteerResponse};

/// Sessions per page, unless the query sets a limit.
const DEFAULT_SESSIONS: usize = 100;
/// The most sessions fetched to build a page that the server cannot filter itself.
const MAX_SESSIONS_SCANNED: usize = 10_000;
/// The limit for a page before a message, which the server does not serve without one.
const MAX_MESSAGES: usize = 1_000_000;
/// The most messages searched for prompts without an answer.
const MAX_MESSAGES_SCANNED: usize = 100;
/// The most files that a server returns from a search.
const MAX_FILES: usize = 200;
/// Named in errors about servers without worktrees.
const WORKTREE: &str = "The worktree of a subagent";
/// The agent of a session that has none yet.
const DEFAULT_AGENT: &str = "build";

impl Client {
    fn get(&self, scope: &Scope, path: &[&str]) -> ApiRequest<'_> {
        self.request(Method::GET, path).scope(scope)
    }

    fn post(&self, scope: &Scope, path: &[&str], body: &Json) -> ApiRequest<'_> {
        self.request(Method::POST, path).scope(scope).body(body)
    }

    /// Lists sessions. Filters that the wire lacks are applied to the sessions it returns.
    async fn list_sessions(&self, scope: &Scope, query: ListSessions) -> Result<Vec<Session>, HostError> {
        let ListSessions { directory_only, everywhere, roots, search, start, before, limit, path, unarchived } = query;
        let wanted = limit.unwrap_or(DEFAULT_SESSIONS);
        let request = if everywhere {
            let request = self.request(Method::GET, &["experimental", "session"]).query("archived", !unarchived);
            let limit = if path.is_some() { MAX_SESSIONS_SCANNED } else { wanted };
            request.query_opt("cursor", before).query("limit", limit)
        } else {
            let limit = if before.is_some() || unarchived { MAX_SESSIONS_SCANNED } else { wanted };
            self.get(scope, &["session"]).query_opt("path", path.as_deref()).query("limit", limit)
        };
        let request =
            request.query_opt("directory", directory_only.then_some(&scope.directory)).query_opt("search", search);
        let mut sessions: Vec<Session> =
            request.query_opt("roots", roots.then_some(true)).query_opt("start", start).fetch().await?;
        sessions.retain(|session| {
            before.is_none_or(|before| session.time.updated < before)
                && !(unarchived && session.time.archived.is_some())
                && path
                    .as_ref()
                    .is_none_or(|path| Path::new(session.path.as_deref().unwrap_or_default()).starts_with(path))
        });
        sessions.truncate(wanted);
        Ok(sessions)
    }

    async fn list_messages(
        &self,
        scope: &Scope,
        id: &SessionId,
        query: ListMessages,
    ) -> Result<MessagePage, HostError> {
        if query.limit == Some(0) {
            // To OpenCode, a limit of 0 means all.
            return Ok(MessagePage::default());
        }
        let mut request = self.get(scope, &["session", id.as_str(), "message"]);
        if let Some(before) = &query.before {
            // A cursor also contains the time of its message.
            let message = self.message(scope, id, before).await?;
            request = request
                .query("before", wire::cursor(&message.info))
                .query("limit", query.limit.unwrap_or(MAX_MESSAGES));
        } else {
            request = request.query_opt("limit", query.limit);
        }
        let response = request.response().await?;
        let messages: Vec<MessageWithParts> = response.decode()?;
        let older = messages.first().filter(|_| response.headers.contains_key("x-next-cursor"));
        Ok(MessagePage { older: older.map(|message| message.info.id().clone()), messages })
    }

    /// Makes sure that the prompt has an id, so that it can be sent again after a broken connection.
    async fn ensure_message_id(
        &self,
        scope: &Scope,
        id: &SessionId,
        input: &mut PromptInput,
    ) -> Result<MessageId, HostError> {
        let chosen = match input.message_id.take() {
            Some(chosen) => chosen,
            None => self.message_id(scope, id).await?,
        };
        Ok(input.message_id.insert(chosen).clone())
    }

    /// Fails unless the server is Trefoil. A server that does not know an operation may respond with anything, or proxy
    /// it elsewhere, so the operation is not even sent; instead the server is asked for its health.
    async fn require_trefoil(&self, what: &'static str) -> Result<(), HostError> {
        // An unhealthy server also identifies itself.
        if !self.is_trefoil()
            && let Err(error) = self.health().await
            && !self.is_trefoil()
        {
            return Err(error);
        }
        if self.is_trefoil() { Ok(()) } else { Err(HostError::Unsupported(what)) }
    }

    /// The configured model, or the default of the first provider.
    async fn model(&self, scope: &Scope) -> Result<ModelRef, HostError> {
        let config = self.config(scope).await?;
        if let Some(model) = config["model"].as_str().and_then(ModelRef::parse) {
            return Ok(model);
        }
        let known: ProvidersResponse = self.get(scope, &["config", "providers"]).fetch().await?;
        let first = known.default.into_iter().next();
        first.map(|(provider, model)| ModelRef::new(provider, model)).ok_or_else(|| {
            HostError::Failed(format!("{} has no model; configure a provider there", self.inner.display_name))
        })
    }
}

impl Host for Client {
    fn features(&self) -> Features {
        let trefoil = self.is_trefoil();
        Features { cursor: trefoil, steer: trefoil, tree: trefoil, budget: trefoil }
    }

    fn create_session<'a>(&'a self, scope: &'a Scope, input: CreateSession) -> HostFuture<'a, Session> {
        Box::pin(async move { self.post(scope, &["session"], &wire::body(&input)?).fetch().await })
    }

    fn session<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { self.get(scope, &["session", id.as_str()]).fetch().await })
    }

    fn sessions<'a>(&'a self, scope: &'a Scope, query: ListSessions) -> HostFuture<'a, Vec<Session>> {
        Box::pin(self.list_sessions(scope, query))
    }

    fn update_session<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        change: UpdateSession,
    ) -> HostFuture<'a, Session> {
        Box::pin(async move {
            let change = wire::session_update(&change, self.is_trefoil())?;
            if change.as_object().is_some_and(|change| change.is_empty()) {
                return self.session(scope, id).await;
            }
            self.request(Method::PATCH, &["session", id.as_str()]).scope(scope).body(&change).fetch().await
        })
    }

    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, ()> {
        Box::pin(async { self.request(Method::DELETE, &["session", id.as_str()]).scope(scope).execute().await })
    }

    fn children<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Session>> {
        Box::pin(async { self.get(scope, &["session", id.as_str(), "children"]).fetch().await })
    }

    fn fork_session<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        before: Option<MessageId>,
    ) -> HostFuture<'a, Session> {
        Box::pin(async move {
            let body = wire::body(&json!({"messageID": before}))?;
            self.post(scope, &["session", id.as_str(), "fork"], &body).fetch().await
        })
    }

    fn statuses<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<SessionId, SessionStatus>> {
        Box::pin(async { self.get(scope, &["session", "status"]).fetch().await })
    }

    fn messages<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, query: ListMessages) -> HostFuture<'a, MessagePage> {
        Box::pin(self.list_messages(scope, id, query))
    }

    fn message<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        message: &'a MessageId,
    ) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async { self.get(scope, &["session", id.as_str(), "message", message.as_str()]).fetch().await })
    }

    fn delete_message<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, message: &'a MessageId) -> HostFuture<'a, ()> {
        Box::pin(async {
            let path = ["session", id.as_str(), "message", message.as_str()];
            self.request(Method::DELETE, &path).scope(scope).execute().await
        })
    }

    fn update_part<'a>(&'a self, scope: &'a Scope, part: Part) -> HostFuture<'a, Part> {
        Box::pin(async move {
            let body = wire::body(&part)?;
            let no_path =
                |error| HostError::Invalid(format!("The part does not name its session and message: {error}"));
            let part_path = serde_json::from_value::<PartPath>(body.clone()).map_err(no_path)?;
            let path = ["session", &part_path.session_id, "message", &part_path.message_id, "part", &part_path.id];
            self.request(Method::PATCH, &path).scope(scope).body(&body).fetch().await
        })
    }

    fn delete_part<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        message: &'a MessageId,
        part: &'a PartId,
    ) -> HostFuture<'a, ()> {
        Box::pin(async {
            let path = ["session", id.as_str(), "message", message.as_str(), "part", part.as_str()];
            self.request(Method::DELETE, &path).scope(scope).execute().await
        })
    }

    fn prompt<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        mut input: PromptInput,
    ) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async move {
            self.ensure_message_id(scope, id, &mut input).await?;
            self.post(scope, &["session", id.as_str(), "message"], &wire::prompt(input)?).run_turn_with_retry().await
        })
    }

    fn prompt_async<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        mut input: PromptInput,
    ) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            let message = self.ensure_message_id(scope, id, &mut input).await?;
            self.post(scope, &["session", id.as_str(), "prompt_async"], &wire::prompt(input)?)
                .execute_with_retry()
                .await?;
            Ok(message)
        })
    }

    fn command<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        input: CommandInput,
    ) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async move {
            self.post(scope, &["session", id.as_str(), "command"], &wire::command(&input)?).run_turn().await
        })
    }

    fn shell<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: ShellInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async move {
            let ShellInput { command, target } = input;
            // The wire has no default agent.
            let agent = match target.agent {
                Some(agent) => agent,
                None => self.session(scope, id).await?.agent.unwrap_or_else(|| DEFAULT_AGENT.to_owned()),
            };
            let model = target.model.as_ref().map(wire::model);
            let body = json!({"command": command, "agent": agent, "model": model, "messageID": target.message_id});
            self.post(scope, &["session", id.as_str(), "shell"], &wire::body(&body)?).run_turn().await
        })
    }

    fn abort<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, bool> {
        Box::pin(async { self.request(Method::POST, &["session", id.as_str(), "abort"]).scope(scope).fetch().await })
    }

    fn summarize<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: SummarizeInput) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let mut body = wire::model(&input.model);
            body["auto"] = input.auto.into();
            let _: bool = self.post(scope, &["session", id.as_str(), "summarize"], &body).run_turn().await?;
            Ok(())
        })
    }

    fn revert<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: RevertInput) -> HostFuture<'a, Session> {
        Box::pin(async move {
            let body = wire::body(&json!({"messageID": input.message_id, "partID": input.part_id}))?;
            self.post(scope, &["session", id.as_str(), "revert"], &body).fetch().await
        })
    }

    fn unrevert<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { self.request(Method::POST, &["session", id.as_str(), "unrevert"]).scope(scope).fetch().await })
    }

    fn todo<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Todo>> {
        Box::pin(async { self.get(scope, &["session", id.as_str(), "todo"]).fetch().await })
    }

    fn diff<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        message: Option<MessageId>,
    ) -> HostFuture<'a, Vec<FileDiff>> {
        Box::pin(async move {
            self.get(scope, &["session", id.as_str(), "diff"]).query_opt("messageID", message).fetch().await
        })
    }

    /// Derived from the newest messages, because the wire does not list them: a prompt that was only stored counts
    /// while a turn runs.
    fn waiting<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<MessageId>> {
        Box::pin(async {
            let running = self.statuses(scope).await?.contains_key(id);
            // OpenCode would treat a prompt that is sent again as a new one.
            if !self.is_trefoil() {
                return Err(HostError::Unsupported("Waiting for a prompt that was sent before"));
            }
            let query = ListMessages { limit: Some(MAX_MESSAGES_SCANNED), before: None };
            let page = self.list_messages(scope, id, query).await?;
            let messages = page.messages.iter().map(|message| &message.info);
            Ok(if running { wire::unanswered(messages) } else { Vec::new() })
        })
    }

    /// A server recovers by itself.
    fn recover<'a>(&'a self, _: Option<&'a SessionId>) -> HostFuture<'a, usize> {
        Box::pin(async { Ok(0) })
    }

    fn tree<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Tree> {
        Box::pin(async {
            self.require_trefoil("The tree of subagents").await?;
            self.get(scope, &["session", id.as_str(), "tree"]).fetch().await
        })
    }

    fn steer<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: SteerInput) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            self.require_trefoil("Steering").await?;
            let request = self.post(scope, &["session", id.as_str(), "steer"], &wire::body(&input)?);
            Ok(request.fetch::<SteerResponse>().await?.message_id)
        })
    }

    fn pause<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, paused: bool) -> HostFuture<'a, bool> {
        Box::pin(async move {
            self.require_trefoil("Pausing").await?;
            let verb = if paused { "pause" } else { "resume" };
            self.request(Method::POST, &["session", id.as_str(), verb]).scope(scope).fetch().await
        })
    }

    fn cancel<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, CancelResult> {
        Box::pin(async {
            self.require_trefoil("Cancelling a subtree").await?;
            // Returns when the last of them has stopped, however long that takes.
            self.request(Method::POST, &["session", id.as_str(), "cancel"]).scope(scope).run_turn().await
        })
    }

    fn budget<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, budget: Budget) -> HostFuture<'a, BudgetState> {
        Box::pin(async move {
            self.require_trefoil("Budgets").await?;
            self.post(scope, &["session", id.as_str(), "budget"], &wire::body(&budget)?).fetch().await
        })
    }

    fn background<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, background: bool) -> HostFuture<'a, bool> {
        Box::pin(async move {
            if !background {
                self.require_trefoil("Waiting for background tasks").await?;
            }
            let verb = if background { "background" } else { "foreground" };
            self.request(Method::POST, &["experimental", "session", id.as_str(), verb]).scope(scope).fetch().await
        })
    }

    fn worktree_diff<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, WorktreeDiff> {
        Box::pin(async {
            self.require_trefoil(WORKTREE).await?;
            self.get(scope, &["session", id.as_str(), "worktree"]).fetch().await
        })
    }

    fn worktree_merge<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(async {
            self.require_trefoil(WORKTREE).await?;
            self.request(Method::POST, &["session", id.as_str(), "worktree"]).scope(scope).run_turn().await
        })
    }

    fn worktree_discard<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(async {
            self.require_trefoil(WORKTREE).await?;
            self.request(Method::DELETE, &["session", id.as_str(), "worktree"]).scope(scope).run_turn().await
        })
    }

    fn permissions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<PermissionRequest>> {
        Box::pin(async { self.get(scope, &["permission"]).fetch().await })
    }

    fn reply_permission<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a PermissionId,
        reply: PermissionReply,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            self.post(scope, &["permission", id.as_str(), "reply"], &wire::body(&reply)?).execute().await
        })
    }

    fn questions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<QuestionRequest>> {
        Box::pin(async { self.get(scope, &["question"]).fetch().await })
    }

    fn reply_question<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let request = match answers {
                Some(answers) => self.post(scope, &["question", id.as_str(), "reply"], &json!({"answers": answers})),
                None => self.request(Method::POST, &["question", id.as_str(), "reject"]).scope(scope),
            };
            request.execute().await
        })
    }

    fn agents<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Agent>> {
        Box::pin(async { self.get(scope, &["agent"]).fetch().await })
    }

    fn commands<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async { self.get(scope, &["command"]).fetch().await })
    }

    fn session_commands<'a>(&'a self, scope: &'a Scope, session: &'a SessionId) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async move {
            if self.is_trefoil() {
                return self.get(scope, &["session", session.as_str(), "command"]).fetch().await;
            }
            self.commands(scope).await
        })
    }

    fn skills<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Skill>> {
        Box::pin(async { self.get(scope, &["skill"]).fetch().await })
    }

    fn providers<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Provider>> {
        Box::pin(async {
            let known: ProvidersResponse = self.get(scope, &["config", "providers"]).fetch().await?;
            Ok(known.providers)
        })
    }

    fn default_model<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ModelRef> {
        Box::pin(self.model(scope))
    }

    fn config<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Json> {
        Box::pin(async { self.get(scope, &["config"]).fetch().await })
    }

    fn projects<'a>(&'a self) -> HostFuture<'a, Vec<Project>> {
        Box::pin(async { self.get(&Scope::default(), &["project"]).fetch().await })
    }

    fn project<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Project> {
        Box::pin(async { self.get(scope, &["project", "current"]).fetch().await })
    }

    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>> {
        Box::pin(async move { self.get(scope, &["file"]).query("path", path).fetch().await })
    }

    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent> {
        Box::pin(async move { self.get(scope, &["file", "content"]).query("path", path).fetch().await })
    }

    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>> {
        Box::pin(async move {
            let request = self.get(scope, &["find", "file"]).query("query", query).query("type", "file");
            let mut files: Vec<String> = request.query("limit", limit.clamp(1, MAX_FILES)).fetch().await?;
            files.truncate(limit);
            Ok(files)
        })
    }

    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>> {
        Box::pin(async move {
            let found: Vec<RipgrepMatch> = self.get(scope, &["find"]).query("pattern", pattern).fetch().await?;
            Ok(found.into_iter().take(limit).map(FindTextMatch::from).collect())
        })
    }

    fn mcp<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async { self.get(scope, &["mcp"]).fetch().await })
    }

    fn mcp_add<'a>(
        &'a self,
        scope: &'a Scope,
        name: &'a str,
        config: McpConfig,
    ) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async move {
            let body = wire::body(&json!({ "name": name, "config": config }))?;
            self.post(scope, &["mcp"], &body).fetch().await
        })
    }

    fn mcp_connect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.request(Method::POST, &["mcp", name, "connect"]).scope(scope).execute().await })
    }

    fn mcp_disconnect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.request(Method::POST, &["mcp", name, "disconnect"]).scope(scope).execute().await })
    }

    fn mcp_resources<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpResource>> {
        Box::pin(async { self.get(scope, &["experimental", "resource"]).fetch().await })
    }

    fn mcp_auth_start<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpAuthorization> {
        Box::pin(async move { self.request(Method::POST, &["mcp", name, "auth"]).scope(scope).fetch().await })
    }

    fn mcp_auth_callback<'a>(&'a self, scope: &'a Scope, name: &'a str, code: &'a str) -> HostFuture<'a, McpStatus> {
        Box::pin(
            async move { self.post(scope, &["mcp", name, "auth", "callback"], &json!({ "code": code })).fetch().await },
        )
    }

    fn mcp_authenticate<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpStatus> {
        Box::pin(async move {
            self.request(Method::POST, &["mcp", name, "auth", "authenticate"]).scope(scope).run_turn().await
        })
    }

    fn mcp_auth_remove<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.request(Method::DELETE, &["mcp", name, "auth"]).scope(scope).execute().await })
    }

    fn session_servers<'a>(
        &'a self,
        scope: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            if self.is_trefoil() {
                return self.post(scope, &["session", session.as_str(), "mcp"], &wire::body(&servers)?).execute().await;
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
        scope: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            if !self.is_trefoil() {
                return Ok(());
            }
            let request = self.post(scope, &["session", session.as_str(), "mcp"], &wire::body(&servers)?);
            request.query("restore", true).execute().await
        })
    }

    fn watch<'a>(&'a self, scope: WatchScope, after: Option<Cursor>) -> HostFuture<'a, BoxStream<'static, WatchItem>> {
        Box::pin(watch::watch(self.clone(), scope, after))
    }
}
