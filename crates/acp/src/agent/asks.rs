//! Asks the user: permissions, and the questions of the `question` tool.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_client_protocol_schema::v1::{
    CreateElicitationRequest, ElicitationFormMode, ElicitationSchema, ElicitationSessionScope, EnumOption,
    MultiSelectPropertySchema, PermissionOption, PermissionOptionKind, RequestPermissionRequest, StringPropertySchema,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use api::{HostError, Json, PermissionReply, PermissionReplyKind, PermissionRequest, Question, QuestionRequest};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::open_session::OpenSession;
use crate::agent::Agent;
use crate::editor::FileChange;
use crate::rpc::{Error, Timeout};
use crate::view::{AskTarget, Effect, tool_call, unified_diff};
use crate::{lock, size};

/// The longest name of a permission option.
const MAX_OPTION_NAME: usize = 1 << 10;

/// The option that ends a question.
const END_OPTION: &str = "end";

impl Agent {
    /// Applies the effects that are not plain updates.
    pub async fn apply_effects(self: &Arc<Self>, open: &Arc<OpenSession>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Permission(request, target) => {
                    let (agent, session) = (self.clone(), open.clone());
                    self.spawn_ask(open, request.id.to_string(), async move {
                        agent.ask_permission(&session, &request, &target).await;
                    });
                }
                Effect::Question(request, target) => {
                    let (agent, session) = (self.clone(), open.clone());
                    self.spawn_ask(open, request.id.to_string(), async move {
                        agent.ask_question(&session, &request, &target).await;
                    });
                }
                Effect::AskResolved(ask) => {
                    let token = lock(&open.asks).remove(&ask);
                    token.inspect(CancellationToken::cancel);
                }
                Effect::SessionChanged(session) => open.session_changed(&session).await,
                Effect::Refresh => self.refresh_soon(open),
                Effect::SessionDeleted => self.forget(open),
                Effect::Text(..) | Effect::Update(..) | Effect::Progress(..) => {}
            }
        }
    }

    /// Refreshes the catalog in the background, unless a refresh is already waiting to start.
    pub fn refresh_soon(self: &Arc<Self>, open: &Arc<OpenSession>) {
        // A refresh that has not started will see everything up to its start.
        if !open.refresh_pending.swap(true, Ordering::AcqRel) {
            drop(self.refresh(open));
        }
    }

    /// Refreshes the catalog in the background: MCP servers may take a while to start. It runs on if the caller stops
    /// waiting, because the client must hear of changes.
    pub fn refresh(self: &Arc<Self>, open: &Arc<OpenSession>) -> JoinHandle<()> {
        let (agent, open, closed) = (self.clone(), open.clone(), open.closed.clone());
        let refresh = async move {
            agent.restore_mcp_servers(&open).await;
            if let Err(error) = open.refresh(agent.host()).await {
                tracing::warn!(%error, "cannot load the catalog of a session");
            }
        };
        tokio::spawn(async move {
            closed.run_until_cancelled(refresh).await;
        })
    }

    /// Runs an ask on its own task until it is answered, here or elsewhere. An ask that is already open is not asked
    /// again.
    fn spawn_ask(&self, open: &Arc<OpenSession>, id: String, work: impl Future<Output = ()> + Send + 'static) {
        let token = open.closed.child_token();
        {
            let mut asks = lock(&open.asks);
            if asks.contains_key(&id) {
                return;
            }
            asks.insert(id.clone(), token.clone());
        }
        let open = open.clone();
        tokio::spawn(async move {
            token.run_until_cancelled(work).await;
            lock(&open.asks).remove(&id);
        });
    }

    /// Asks everything that is already waiting for an answer, also in the directories of subagents.
    pub async fn ask_pending(self: &Arc<Self>, open: &Arc<OpenSession>) {
        let pending = async {
            let subagents = self.find_subagents(&open.id).await?;
            follow::open_asks(self.host(), &open.scope, &open.id, &subagents).await
        };
        let pending = pending.await.unwrap_or_else(|error| {
            tracing::warn!(%error, session = %open.id, "cannot look for open requests");
            Vec::new()
        });
        for event in pending {
            let known = event.session_id().is_some_and(|id| lock(&self.routes).get(id) == Some(&open.id));
            if known {
                let left = open.show(|view| view.show_event(&event)).await;
                self.apply_effects(open, left).await;
            }
        }
    }

    async fn ask_permission(&self, open: &OpenSession, request: &PermissionRequest, target: &AskTarget) {
        let reply = if open.selection().approve {
            PermissionReplyKind::Once
        } else {
            let fields = self.describe(open, request, target).await;
            match self.request_choice(target, fields, permission_options(request)).await {
                Ok(Some(option)) if option == "once" => PermissionReplyKind::Once,
                Ok(Some(option)) if option == "always" && request.always_text().is_some() => {
                    PermissionReplyKind::Always
                }
                // Rejected, cancelled, or an option that was not offered: when in doubt, reject.
                Ok(_) => PermissionReplyKind::Reject,
                // The client is gone; someone else may answer.
                Err(_) if self.peer().is_closed() => return,
                Err(error) => {
                    tracing::info!(%error, "the client did not answer a permission request");
                    PermissionReplyKind::Reject
                }
            }
        };
        let reply = PermissionReply { reply, message: None };
        log_failed_reply(self.retry(|| self.host().reply_permission(&request.id, reply.clone())).await);
    }

    /// Lets the user choose an option; `None` if they choose none.
    async fn request_choice(
        &self,
        target: &AskTarget,
        fields: ToolCallUpdateFields,
        options: Vec<PermissionOption>,
    ) -> Result<Option<String>, Error> {
        let call = ToolCallUpdate::new(target.call.clone(), fields.status(ToolCallStatus::Pending));
        let request = RequestPermissionRequest::new(target.session.to_string(), call, options);
        // Parsed leniently: an invalid response must count as a no.
        let answer: Value = self.peer().request("session/request_permission", &request, Timeout::Never).await?;
        let outcome = &answer["outcome"];
        let selected = (outcome["outcome"] == "selected").then(|| outcome["optionId"].as_str()).flatten();
        Ok(selected.map(str::to_owned))
    }

    /// Describes the call of a permission request to the client.
    async fn describe(
        &self,
        open: &OpenSession,
        request: &PermissionRequest,
        target: &AskTarget,
    ) -> ToolCallUpdateFields {
        let metadata = &request.metadata;
        let text = |key: &str| metadata.get(key).and_then(Json::as_str).filter(|text| !text.is_empty());
        let file = text("filepath").map(|path| Path::new(&open.scope.directory).join(path));
        let (kind, title) = match request.permission.as_str() {
            "bash" => (ToolKind::Execute, text("command").map(str::to_owned)),
            "edit" => (ToolKind::Edit, text("filepath").map(str::to_owned)),
            "external_directory" => (ToolKind::Other, text("parentDir").map(str::to_owned)),
            other => (tool_call::kind(other), None),
        };
        let title = title.unwrap_or_else(|| format!("{} {}", request.permission, request.patterns.join(", ")));
        let title = match &target.asking_agent {
            Some(agent) => format!("{agent}: {title}"),
            None => title,
        };
        let parent = text("parentDir").map(ToolCallLocation::new);
        let named = metadata.get("files").is_none();
        let locations = file.clone().filter(|_| named).map(ToolCallLocation::new).into_iter().chain(parent);
        let fields = ToolCallUpdateFields::new()
            .kind(kind)
            .title(size::truncate(title.trim_end(), 8 << 10))
            .locations(locations.collect::<Vec<_>>())
            .raw_input(size::fit(json!(metadata), size::MAX_RAW));
        let mut budget = size::MAX_BLOB;
        let mut content = Vec::new();
        for (path, diff) in diffs(metadata, file.as_deref().filter(|_| named)) {
            if let Some(change) = self.whole_file_change(open, path, diff).await {
                content.push(tool_call::diff_content(change, &mut budget));
            }
        }
        if content.is_empty() { fields } else { fields.content(content) }
    }

    /// Expands a diff to the whole file, if the file can be read.
    async fn whole_file_change(&self, open: &OpenSession, path: &Path, diff: &str) -> Option<FileChange> {
        if let Some(before) = open.recent_reads.take(path)
            && let Some(new) = unified_diff::apply(diff, before.as_deref().unwrap_or_default())
        {
            return Some(FileChange { path: path.to_owned(), old: before, new });
        }
        let before = match self.environment(open) {
            Some(environment) => environment.read(path).await.ok().and_then(|content| String::from_utf8(content).ok()),
            None => self.host().file(&open.scope, &path.to_string_lossy()).await.ok().map(|file| file.content),
        };
        let path = path.to_owned();
        if let Some(new) = unified_diff::apply(diff, before.as_deref().unwrap_or_default()) {
            return Some(FileChange { path, old: before, new });
        }
        let (old, new) = unified_diff::changed_parts(diff)?;
        Some(FileChange { path, old: Some(old), new })
    }

    async fn ask_question(&self, open: &OpenSession, request: &QuestionRequest, target: &AskTarget) {
        let answers = if open.capabilities.forms {
            self.ask_with_form(&request.questions, target).await
        } else {
            self.ask_with_menus(&request.questions, target).await
        };
        match answers {
            Ok(answers) => {
                let reply = || self.host().reply_question(&request.id, answers.clone());
                log_failed_reply(self.retry(reply).await);
            }
            Err(_) if self.peer().is_closed() => {}
            Err(error) => {
                tracing::info!(%error, "the client did not answer a question");
                log_failed_reply(self.retry(|| self.host().reply_question(&request.id, None)).await);
            }
        }
    }

    /// Asks all questions in one form, each with a field for a free answer.
    async fn ask_with_form(
        &self,
        questions: &[Question],
        target: &AskTarget,
    ) -> Result<Option<Vec<Vec<String>>>, Error> {
        let mut schema = ElicitationSchema::new();
        for (index, question) in questions.iter().enumerate() {
            let option = |option: &api::QuestionOption| {
                let made = EnumOption::new(option.label.clone(), option.label.clone());
                made.description(Some(option.description.clone()).filter(|text| !text.is_empty()))
            };
            let options: Vec<EnumOption> = question.options.iter().map(option).collect();
            let (title, text) = (question.header.clone(), question.question.clone());
            schema = if question.multiple == Some(true) {
                let field = MultiSelectPropertySchema::titled(options).title(title).description(text);
                schema.property(answer_key(index), field, false)
            } else {
                let field = StringPropertySchema::new().one_of(options).title(title).description(text);
                schema.property(answer_key(index), field, false)
            };
            let other = StringPropertySchema::new().title(format!("{}: another answer", question.header));
            schema = schema.property(other_key(index), other, false);
        }
        let message = questions.iter().map(|question| question.question.as_str()).collect::<Vec<_>>().join("\n");
        let scope = ElicitationSessionScope::new(target.session.to_string())
            .tool_call_id(agent_client_protocol_schema::v1::ToolCallId::new(target.call.clone()));
        let request = CreateElicitationRequest::new(ElicitationFormMode::new(scope, schema), message);
        let answer: Value = self.peer().request("elicitation/create", &request, Timeout::Never).await?;
        if answer["action"] != "accept" {
            return Ok(None);
        }
        let given = |index: usize| {
            let chosen = match &answer["content"][answer_key(index)] {
                Value::String(label) => vec![label.clone()],
                Value::Array(labels) => labels.iter().filter_map(|label| label.as_str().map(str::to_owned)).collect(),
                _ => Vec::new(),
            };
            let other = answer["content"][other_key(index)].as_str().filter(|text| !text.trim().is_empty());
            chosen.into_iter().chain(other.map(str::to_owned)).collect()
        };
        Ok(Some((0..questions.len()).map(given).collect()))
    }

    /// Asks one question after the other as permission requests, which every client can show.
    async fn ask_with_menus(
        &self,
        questions: &[Question],
        target: &AskTarget,
    ) -> Result<Option<Vec<Vec<String>>>, Error> {
        let mut answers = Vec::new();
        for question in questions {
            let mut chosen: Vec<usize> = Vec::new();
            while chosen.len() < question.options.len() {
                let left = question.options.iter().enumerate().filter(|(index, _)| !chosen.contains(index));
                let (mut options, mut details) = (Vec::new(), Vec::new());
                for (index, option) in left {
                    let kind = PermissionOptionKind::AllowOnce;
                    options.push(PermissionOption::new(index.to_string(), option.label.clone(), kind));
                    details.push(format!("{}: {}", option.label, option.description));
                }
                let end = if chosen.is_empty() { "Skip" } else { "Done" };
                options.push(PermissionOption::new(END_OPTION, end, PermissionOptionKind::RejectOnce));
                let fields = ToolCallUpdateFields::new()
                    .kind(ToolKind::Other)
                    .title(size::truncate(&question.question, 8 << 10))
                    .content(vec![tool_call::text_content(&details.join("\n"))]);
                let answer = self.request_choice(target, fields, options).await?.and_then(|option| option.parse().ok());
                match answer.filter(|index| *index < question.options.len() && !chosen.contains(index)) {
                    Some(index) => chosen.push(index),
                    None if chosen.is_empty() => return Ok(None),
                    None => break,
                }
                if question.multiple != Some(true) {
                    break;
                }
            }
            let chosen = chosen.into_iter().filter_map(|index| question.options.get(index));
            answers.push(chosen.map(|option| option.label.clone()).collect());
        }
        Ok(Some(answers))
    }
}

/// The options of a permission request. `always` says what it would allow and where, and is left out if it allows no
/// more than `once`.
fn permission_options(request: &PermissionRequest) -> Vec<PermissionOption> {
    let always = request.always_text().map(|what| {
        let name = format!("Always allow {}", size::truncate(&what, MAX_OPTION_NAME));
        PermissionOption::new("always", name, PermissionOptionKind::AllowAlways)
    });
    let once = PermissionOption::new("once", "Allow once", PermissionOptionKind::AllowOnce);
    let reject = PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce);
    std::iter::once(once).chain(always).chain([reject]).collect()
}

/// Forms sort fields by name, so the free answer follows its question.
fn answer_key(index: usize) -> String {
    format!("question_{index:02}")
}

fn other_key(index: usize) -> String {
    format!("question_{index:02}_other")
}

/// The files that a request would change, with their diffs.
fn diffs<'a>(metadata: &'a api::JsonMap, file: Option<&'a Path>) -> Vec<(&'a Path, &'a str)> {
    if let Some(files) = metadata.get("files").and_then(Json::as_array) {
        let entry = |file: &'a Json| Some((Path::new(file["filePath"].as_str()?), file["patch"].as_str()?));
        return files.iter().filter_map(entry).collect();
    }
    let diff = metadata.get("diff").and_then(Json::as_str).filter(|diff| !diff.is_empty());
    file.zip(diff).into_iter().collect()
}

/// Logs a failed reply. It is no failure if someone else answered first.
fn log_failed_reply(result: Result<(), HostError>) {
    match result {
        Ok(()) | Err(HostError::Conflict(_) | HostError::NotFound { .. }) => {}
        Err(error) => tracing::warn!(%error, "failed to deliver an answer"),
    }
}
