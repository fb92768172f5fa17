//! The client as a [`Host`]: each method is one request, or a few.

use std::path::Path;

use api::{
    Agent, Budget, BudgetState, Cancelled, Command, CommandInput, CreateSession, Cursor, Features, FileContent,
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
use crate::request::Call;
use crate::wire::{self, Found, Place, Providers, Steered};

/// Sessions of a page, if the query does not say.
const SESSIONS: usize = 100;
/// The most sessions that are looked through for a page which the server cannot make.
const SESSIONS_SCANNED: usize = 10_000;
/// The most messages of a page; a page before a message cannot be asked for without a limit.
const MESSAGES: usize = 1_000_000;
/// The most messages that are looked through for those without an answer.
const MESSAGES_SCANNED: usize = 100;
/// The most files that a server looks for.
const FILES: usize = 200;
/// What only Trefoil gives a subagent.
const WORKTREE: &str = "The worktree of a subagent";
/// The agent of a session that had none yet.
const AGENT: &str = "build";

impl Client {
    fn get(&self, scope: &Scope, path: &[&str]) -> Call<'_> {
        self.call(Method::GET, path).scope(scope)
    }

    fn post(&self, scope: &Scope, path: &[&str], body: &Json) -> Call<'_> {
        self.call(Method::POST, path).scope(scope).body(body)
    }

    /// What the wire cannot say is looked for among the sessions that it gives.
    async fn list_sessions(&self, scope: &Scope, query: ListSessions) -> Result<Vec<Session>, HostError> {
        let ListSessions { directory_only, everywhere, roots, search, start, before, limit, path, unarchived } = query;
        let wanted = limit.unwrap_or(SESSIONS);
        let call = if everywhere {
            let call = self.call(Method::GET, &["experimental", "session"]).query("archived", !unarchived);
            let limit = if path.is_some() { SESSIONS_SCANNED } else { wanted };
            call.maybe("cursor", before).query("limit", limit)
        } else {
            let limit = if before.is_some() || unarchived { SESSIONS_SCANNED } else { wanted };
            self.get(scope, &["session"]).maybe("path", path.as_deref()).query("limit", limit)
        };
        let call = call.maybe("directory", directory_only.then_some(&scope.directory)).maybe("search", search);
        let mut sessions: Vec<Session> = call.maybe("roots", roots.then_some(true)).maybe("start", start).ask().await?;
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
            // To OpenCode none means all.
            return Ok(MessagePage::default());
        }
        let mut call = self.get(scope, &["session", id.as_str(), "message"]);
        if let Some(before) = &query.before {
            // A cursor holds the time of its message as well.
            let message = self.message(scope, id, before).await?;
            call = call.query("before", wire::cursor(&message.info)).query("limit", query.limit.unwrap_or(MESSAGES));
        } else {
            call = call.maybe("limit", query.limit);
        }
        let answer = call.answer().await?;
        let messages: Vec<MessageWithParts> = answer.decode()?;
        let older = messages.first().filter(|_| answer.headers.contains_key("x-next-cursor"));
        Ok(MessagePage { older: older.map(|message| message.info.id().clone()), messages })
    }

    /// The id of a prompt. With one it can be sent again after the connection broke.
    async fn named(&self, scope: &Scope, id: &SessionId, input: &mut PromptInput) -> Result<MessageId, HostError> {
        let chosen = match input.message_id.take() {
            Some(chosen) => chosen,
            None => self.message_id(scope, id).await?,
        };
        Ok(input.message_id.insert(chosen).clone())
    }

    /// Refuses what only Trefoil does. Whoever does not know an operation may answer it with anything, or pass it on to
    /// somewhere else, so it is not even sent; who the server is, it is asked.
    async fn needs_trefoil(&self, what: &'static str) -> Result<(), HostError> {
        // An unhealthy server tells who it is, too.
        if !self.is_trefoil()
            && let Err(error) = self.health().await
            && !self.is_trefoil()
        {
            return Err(error);
        }
        if self.is_trefoil() { Ok(()) } else { Err(HostError::Unsupported(what)) }
    }

    /// The model of the configuration, else the default of the first provider.
    async fn model(&self, scope: &Scope) -> Result<ModelRef, HostError> {
        let config = self.config(scope).await?;
        if let Some(model) = config["model"].as_str().and_then(ModelRef::parse) {
            return Ok(model);
        }
        let known: Providers = self.get(scope, &["config", "providers"]).ask().await?;
        let first = known.default.into_iter().next();
        first
            .map(|(provider, model)| ModelRef::new(provider, model))
            .ok_or_else(|| HostError::Failed(format!("{} has no model; configure a provider there", self.inner.shown)))
    }
}

impl Host for Client {
    fn features(&self) -> Features {
        let trefoil = self.is_trefoil();
        Features { cursor: trefoil, steer: trefoil, tree: trefoil, budget: trefoil }
    }

    fn create_session<'a>(&'a self, scope: &'a Scope, input: CreateSession) -> HostFuture<'a, Session> {
        Box::pin(async move { self.post(scope, &["session"], &wire::body(&input)?).ask().await })
    }

    fn session<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { self.get(scope, &["session", id.as_str()]).ask().await })
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
            let change = wire::change(&change, self.is_trefoil())?;
            if change.as_object().is_some_and(|change| change.is_empty()) {
                return self.session(scope, id).await;
            }
            self.call(Method::PATCH, &["session", id.as_str()]).scope(scope).body(&change).ask().await
        })
    }

    fn delete_session<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, ()> {
        Box::pin(async { self.call(Method::DELETE, &["session", id.as_str()]).scope(scope).tell().await })
    }

    fn children<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Session>> {
        Box::pin(async { self.get(scope, &["session", id.as_str(), "children"]).ask().await })
    }

    fn fork_session<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        before: Option<MessageId>,
    ) -> HostFuture<'a, Session> {
        Box::pin(async move {
            let body = wire::body(&json!({"messageID": before}))?;
            self.post(scope, &["session", id.as_str(), "fork"], &body).ask().await
        })
    }

    fn statuses<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<SessionId, SessionStatus>> {
        Box::pin(async { self.get(scope, &["session", "status"]).ask().await })
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
        Box::pin(async { self.get(scope, &["session", id.as_str(), "message", message.as_str()]).ask().await })
    }

    fn delete_message<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, message: &'a MessageId) -> HostFuture<'a, ()> {
        Box::pin(async {
            let path = ["session", id.as_str(), "message", message.as_str()];
            self.call(Method::DELETE, &path).scope(scope).tell().await
        })
    }

    fn update_part<'a>(&'a self, scope: &'a Scope, part: Part) -> HostFuture<'a, Part> {
        Box::pin(async move {
            let body = wire::body(&part)?;
            let homeless = |error| HostError::Invalid(format!("The part does not say where it belongs: {error}"));
            let place = serde_json::from_value::<Place>(body.clone()).map_err(homeless)?;
            let path = ["session", &place.session_id, "message", &place.message_id, "part", &place.id];
            self.call(Method::PATCH, &path).scope(scope).body(&body).ask().await
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
            self.call(Method::DELETE, &path).scope(scope).tell().await
        })
    }

    fn prompt<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        mut input: PromptInput,
    ) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async move {
            self.named(scope, id, &mut input).await?;
            self.post(scope, &["session", id.as_str(), "message"], &wire::prompt(input)?).run_again().await
        })
    }

    fn prompt_async<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        mut input: PromptInput,
    ) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            let message = self.named(scope, id, &mut input).await?;
            self.post(scope, &["session", id.as_str(), "prompt_async"], &wire::prompt(input)?).tell_again().await?;
            Ok(message)
        })
    }

    fn command<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        input: CommandInput,
    ) -> HostFuture<'a, MessageWithParts> {
        Box::pin(
            async move { self.post(scope, &["session", id.as_str(), "command"], &wire::command(&input)?).run().await },
        )
    }

    fn shell<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: ShellInput) -> HostFuture<'a, MessageWithParts> {
        Box::pin(async move {
            let ShellInput { command, target } = input;
            // The wire has no default for it.
            let agent = match target.agent {
                Some(agent) => agent,
                None => self.session(scope, id).await?.agent.unwrap_or_else(|| AGENT.to_owned()),
            };
            let model = target.model.as_ref().map(wire::model);
            let body = json!({"command": command, "agent": agent, "model": model, "messageID": target.message_id});
            self.post(scope, &["session", id.as_str(), "shell"], &wire::body(&body)?).run().await
        })
    }

    fn abort<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, bool> {
        Box::pin(async { self.call(Method::POST, &["session", id.as_str(), "abort"]).scope(scope).ask().await })
    }

    fn summarize<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: SummarizeInput) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let mut body = wire::model(&input.model);
            body["auto"] = input.auto.into();
            let _: bool = self.post(scope, &["session", id.as_str(), "summarize"], &body).run().await?;
            Ok(())
        })
    }

    fn revert<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: RevertInput) -> HostFuture<'a, Session> {
        Box::pin(async move {
            let body = wire::body(&json!({"messageID": input.message_id, "partID": input.part_id}))?;
            self.post(scope, &["session", id.as_str(), "revert"], &body).ask().await
        })
    }

    fn unrevert<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Session> {
        Box::pin(async { self.call(Method::POST, &["session", id.as_str(), "unrevert"]).scope(scope).ask().await })
    }

    fn todo<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<Todo>> {
        Box::pin(async { self.get(scope, &["session", id.as_str(), "todo"]).ask().await })
    }

    fn diff<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a SessionId,
        message: Option<MessageId>,
    ) -> HostFuture<'a, Vec<FileDiff>> {
        Box::pin(
            async move { self.get(scope, &["session", id.as_str(), "diff"]).maybe("messageID", message).ask().await },
        )
    }

    /// Out of the newest messages, because the wire does not tell: a prompt that was only stored counts while a turn runs.
    fn waiting<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Vec<MessageId>> {
        Box::pin(async {
            let running = self.statuses(scope).await?.contains_key(id);
            // OpenCode would take a prompt that is sent again as a new one.
            if !self.is_trefoil() {
                return Err(HostError::Unsupported("Waiting for a prompt that was sent before"));
            }
            let query = ListMessages { limit: Some(MESSAGES_SCANNED), before: None };
            let page = self.list_messages(scope, id, query).await?;
            let messages = page.messages.iter().map(|message| &message.info);
            Ok(if running { wire::unanswered(messages) } else { Vec::new() })
        })
    }

    /// A server does that by itself.
    fn recover<'a>(&'a self, _: Option<&'a SessionId>) -> HostFuture<'a, usize> {
        Box::pin(async { Ok(0) })
    }

    fn tree<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Tree> {
        Box::pin(async {
            self.needs_trefoil("The tree of subagents").await?;
            self.get(scope, &["session", id.as_str(), "tree"]).ask().await
        })
    }

    fn steer<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, input: SteerInput) -> HostFuture<'a, MessageId> {
        Box::pin(async move {
            self.needs_trefoil("Steering").await?;
            let call = self.post(scope, &["session", id.as_str(), "steer"], &wire::body(&input)?);
            Ok(call.ask::<Steered>().await?.message_id)
        })
    }

    fn pause<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, paused: bool) -> HostFuture<'a, bool> {
        Box::pin(async move {
            self.needs_trefoil("Pausing").await?;
            let verb = if paused { "pause" } else { "resume" };
            self.call(Method::POST, &["session", id.as_str(), verb]).scope(scope).ask().await
        })
    }

    fn cancel<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Cancelled> {
        Box::pin(async {
            self.needs_trefoil("Cancelling a subtree").await?;
            // Returns when the last of them has stopped, however long that takes.
            self.call(Method::POST, &["session", id.as_str(), "cancel"]).scope(scope).run().await
        })
    }

    fn budget<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, budget: Budget) -> HostFuture<'a, BudgetState> {
        Box::pin(async move {
            self.needs_trefoil("Budgets").await?;
            self.post(scope, &["session", id.as_str(), "budget"], &wire::body(&budget)?).ask().await
        })
    }

    fn background<'a>(&'a self, scope: &'a Scope, id: &'a SessionId, background: bool) -> HostFuture<'a, bool> {
        Box::pin(async move {
            if !background {
                self.needs_trefoil("Waiting for background tasks").await?;
            }
            let verb = if background { "background" } else { "foreground" };
            self.call(Method::POST, &["experimental", "session", id.as_str(), verb]).scope(scope).ask().await
        })
    }

    fn worktree_diff<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, WorktreeDiff> {
        Box::pin(async {
            self.needs_trefoil(WORKTREE).await?;
            self.get(scope, &["session", id.as_str(), "worktree"]).ask().await
        })
    }

    fn worktree_merge<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(async {
            self.needs_trefoil(WORKTREE).await?;
            self.call(Method::POST, &["session", id.as_str(), "worktree"]).scope(scope).run().await
        })
    }

    fn worktree_discard<'a>(&'a self, scope: &'a Scope, id: &'a SessionId) -> HostFuture<'a, Worktree> {
        Box::pin(async {
            self.needs_trefoil(WORKTREE).await?;
            self.call(Method::DELETE, &["session", id.as_str(), "worktree"]).scope(scope).run().await
        })
    }

    fn permissions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<PermissionRequest>> {
        Box::pin(async { self.get(scope, &["permission"]).ask().await })
    }

    fn reply_permission<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a PermissionId,
        reply: PermissionReply,
    ) -> HostFuture<'a, ()> {
        Box::pin(
            async move { self.post(scope, &["permission", id.as_str(), "reply"], &wire::body(&reply)?).tell().await },
        )
    }

    fn questions<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<QuestionRequest>> {
        Box::pin(async { self.get(scope, &["question"]).ask().await })
    }

    fn reply_question<'a>(
        &'a self,
        scope: &'a Scope,
        id: &'a QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let call = match answers {
                Some(answers) => self.post(scope, &["question", id.as_str(), "reply"], &json!({"answers": answers})),
                None => self.call(Method::POST, &["question", id.as_str(), "reject"]).scope(scope),
            };
            call.tell().await
        })
    }

    fn agents<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Agent>> {
        Box::pin(async { self.get(scope, &["agent"]).ask().await })
    }

    fn commands<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async { self.get(scope, &["command"]).ask().await })
    }

    fn session_commands<'a>(&'a self, scope: &'a Scope, session: &'a SessionId) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async move {
            if self.is_trefoil() {
                return self.get(scope, &["session", session.as_str(), "command"]).ask().await;
            }
            self.commands(scope).await
        })
    }

    fn skills<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Skill>> {
        Box::pin(async { self.get(scope, &["skill"]).ask().await })
    }

    fn providers<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Provider>> {
        Box::pin(async {
            let known: Providers = self.get(scope, &["config", "providers"]).ask().await?;
            Ok(known.providers)
        })
    }

    fn default_model<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ModelRef> {
        Box::pin(self.model(scope))
    }

    fn config<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Json> {
        Box::pin(async { self.get(scope, &["config"]).ask().await })
    }

    fn projects<'a>(&'a self) -> HostFuture<'a, Vec<Project>> {
        Box::pin(async { self.get(&Scope::default(), &["project"]).ask().await })
    }

    fn project<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Project> {
        Box::pin(async { self.get(scope, &["project", "current"]).ask().await })
    }

    fn files<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, Vec<FileNode>> {
        Box::pin(async move { self.get(scope, &["file"]).query("path", path).ask().await })
    }

    fn file<'a>(&'a self, scope: &'a Scope, path: &'a str) -> HostFuture<'a, FileContent> {
        Box::pin(async move { self.get(scope, &["file", "content"]).query("path", path).ask().await })
    }

    fn find_files<'a>(&'a self, scope: &'a Scope, query: &'a str, limit: usize) -> HostFuture<'a, Vec<String>> {
        Box::pin(async move {
            let call = self.get(scope, &["find", "file"]).query("query", query).query("type", "file");
            let mut files: Vec<String> = call.query("limit", limit.clamp(1, FILES)).ask().await?;
            files.truncate(limit);
            Ok(files)
        })
    }

    fn find_text<'a>(&'a self, scope: &'a Scope, pattern: &'a str, limit: usize) -> HostFuture<'a, Vec<FindTextMatch>> {
        Box::pin(async move {
            let found: Vec<Found> = self.get(scope, &["find"]).query("pattern", pattern).ask().await?;
            Ok(found.into_iter().take(limit).map(FindTextMatch::from).collect())
        })
    }

    fn mcp<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async { self.get(scope, &["mcp"]).ask().await })
    }

    fn mcp_add<'a>(
        &'a self,
        scope: &'a Scope,
        name: &'a str,
        config: McpConfig,
    ) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async move {
            let body = wire::body(&json!({ "name": name, "config": config }))?;
            self.post(scope, &["mcp"], &body).ask().await
        })
    }

    fn mcp_connect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.call(Method::POST, &["mcp", name, "connect"]).scope(scope).tell().await })
    }

    fn mcp_disconnect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.call(Method::POST, &["mcp", name, "disconnect"]).scope(scope).tell().await })
    }

    fn mcp_resources<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpResource>> {
        Box::pin(async { self.get(scope, &["experimental", "resource"]).ask().await })
    }

    fn mcp_auth_start<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpAuthorization> {
        Box::pin(async move { self.call(Method::POST, &["mcp", name, "auth"]).scope(scope).ask().await })
    }

    fn mcp_auth_callback<'a>(&'a self, scope: &'a Scope, name: &'a str, code: &'a str) -> HostFuture<'a, McpStatus> {
        Box::pin(
            async move { self.post(scope, &["mcp", name, "auth", "callback"], &json!({ "code": code })).ask().await },
        )
    }

    fn mcp_authenticate<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpStatus> {
        Box::pin(
            async move { self.call(Method::POST, &["mcp", name, "auth", "authenticate"]).scope(scope).run().await },
        )
    }

    fn mcp_auth_remove<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.call(Method::DELETE, &["mcp", name, "auth"]).scope(scope).tell().await })
    }

    fn session_servers<'a>(
        &'a self,
        scope: &'a Scope,
        session: &'a SessionId,
        servers: IndexMap<String, McpConfig>,
    ) -> HostFuture<'a, ()> {
        Box::pin(async move {
            if self.is_trefoil() {
                return self.post(scope, &["session", session.as_str(), "mcp"], &wire::body(&servers)?).tell().await;
            }
            // Those of a directory would be used by all its sessions, and stay.
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
            let call = self.post(scope, &["session", session.as_str(), "mcp"], &wire::body(&servers)?);
            call.query("restore", true).tell().await
        })
    }

    fn watch<'a>(&'a self, scope: WatchScope, after: Option<Cursor>) -> HostFuture<'a, BoxStream<'static, WatchItem>> {
        Box::pin(watch::watch(self.clone(), scope, after))
    }
}
