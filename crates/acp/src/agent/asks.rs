//! Questions to the human: permissions, and those of the `question` tool.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use agent_client_protocol_schema::v1::{
    CreateElicitationRequest, ElicitationFormMode, ElicitationSchema, ElicitationSessionScope, EnumOption,
    MultiSelectPropertySchema, PermissionOption, PermissionOptionKind, RequestPermissionRequest, StringPropertySchema,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use api::{
    EventBody, HostError, Json, PermissionReply, PermissionReplyKind, PermissionRequest, Question, QuestionRequest,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::open_session::Open;
use crate::agent::Agent;
use crate::editor::Change;
use crate::rpc::{Error, Waits};
use crate::view::{Act, Asked, tool_call, unified_diff};
use crate::{lock, size};

/// The longest name of an option.
const MAX_OPTION: usize = 1 << 10;

/// The choice that ends a question.
const END: &str = "end";

impl Agent {
    /// Does what an event led to, beyond telling it.
    pub async fn act(self: &Arc<Self>, open: &Arc<Open>, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Permission(request, asked) => {
                    let (agent, session) = (self.clone(), open.clone());
                    self.ask(open, request.id.to_string(), async move {
                        agent.permission(&session, &request, &asked).await;
                    });
                }
                Act::Question(request, asked) => {
                    let (agent, session) = (self.clone(), open.clone());
                    self.ask(open, request.id.to_string(), async move {
                        agent.question(&session, &request, &asked).await;
                    });
                }
                Act::Settled(ask) => {
                    let asked = lock(&open.asks).remove(&ask);
                    asked.inspect(CancellationToken::cancel);
                }
                Act::Changed(session) => open.changed(&session).await,
                Act::Refresh => self.refresh_soon(open),
                Act::Deleted => self.forget(open),
                Act::Text(..) | Act::Update(..) | Act::Progress(..) => {}
            }
        }
    }

    /// Looks at what can be chosen and run, unless somebody is about to.
    pub fn refresh_soon(self: &Arc<Self>, open: &Arc<Open>) {
        // One that waits for its turn will see everything that happened until then.
        if !open.refresh_waits.swap(true, Ordering::AcqRel) {
            drop(self.refresh(open));
        }
    }

    /// Looks at what can be chosen and run, beside everything else: MCP servers that start may take a while to say. It goes
    /// on when nobody waits for it any more, because what it finds must be told.
    pub fn refresh(self: &Arc<Self>, open: &Arc<Open>) -> JoinHandle<()> {
        let (agent, open, closed) = (self.clone(), open.clone(), open.closed.clone());
        let look = async move {
            agent.restore_servers(&open).await;
            if let Err(error) = open.refresh(agent.host()).await {
                tracing::warn!(%error, "what can be chosen cannot be read");
            }
        };
        tokio::spawn(async move {
            closed.run_until_cancelled(look).await;
        })
    }

    /// Asks beside everything else, until it is answered, here or elsewhere. What is being asked is not asked twice.
    fn ask(&self, open: &Arc<Open>, id: String, work: impl Future<Output = ()> + Send + 'static) {
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

    /// Asks what waits for an answer already.
    pub async fn open_asks(self: &Arc<Self>, open: &Arc<Open>) {
        let permissions = self.host().permissions(&open.scope).await.unwrap_or_default();
        let questions = self.host().questions(&open.scope).await.unwrap_or_default();
        let permissions = permissions.into_iter().map(|request| EventBody::PermissionAsked(Box::new(request)));
        let questions = questions.into_iter().map(|request| EventBody::QuestionAsked(Box::new(request)));
        for event in permissions.chain(questions) {
            let known = event.session_id().is_some_and(|id| lock(&self.routes).get(id) == Some(&open.id));
            if known {
                let left = open.show(|view| view.event(&event)).await;
                self.act(open, left).await;
            }
        }
    }

    async fn permission(&self, open: &Open, request: &PermissionRequest, asked: &Asked) {
        let reply = if open.chosen().approve {
            PermissionReplyKind::Once
        } else {
            let fields = self.describe(open, request, asked).await;
            match self.choose(asked, fields, options(request)).await {
                Ok(Some(option)) if option == "once" => PermissionReplyKind::Once,
                Ok(Some(option)) if option == "always" && request.always_text().is_some() => {
                    PermissionReplyKind::Always
                }
                // No, nothing, or something that was not offered: in doubt it is not allowed.
                Ok(_) => PermissionReplyKind::Reject,
                // Nobody is there to answer: somebody else may.
                Err(_) if self.peer().is_closed() => return,
                Err(error) => {
                    tracing::info!(%error, "the client did not answer a permission request");
                    PermissionReplyKind::Reject
                }
            }
        };
        let reply = PermissionReply { reply, message: None };
        taken(self.reach(|| self.host().reply_permission(&open.scope, &request.id, reply.clone())).await);
    }

    /// Has the client choose; nothing if it does not want to.
    async fn choose(
        &self,
        asked: &Asked,
        fields: ToolCallUpdateFields,
        options: Vec<PermissionOption>,
    ) -> Result<Option<String>, Error> {
        let call = ToolCallUpdate::new(asked.call.clone(), fields.status(ToolCallStatus::Pending));
        let request = RequestPermissionRequest::new(asked.session.to_string(), call, options);
        // Read by hand: an answer that is not understood must count as no.
        let answer: Value = self.peer().ask("session/request_permission", &request, Waits::Forever).await?;
        let outcome = &answer["outcome"];
        let selected = (outcome["outcome"] == "selected").then(|| outcome["optionId"].as_str()).flatten();
        Ok(selected.map(str::to_owned))
    }

    /// What is asked, as the client shows it.
    async fn describe(&self, open: &Open, request: &PermissionRequest, asked: &Asked) -> ToolCallUpdateFields {
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
        let title = match &asked.by {
            Some(agent) => format!("{agent}: {title}"),
            None => title,
        };
        let parent = text("parentDir").map(ToolCallLocation::new);
        let named = metadata.get("files").is_none();
        let locations = file.clone().filter(|_| named).map(ToolCallLocation::new).into_iter().chain(parent);
        let fields = ToolCallUpdateFields::new()
            .kind(kind)
            .title(size::cut(title.trim_end(), 8 << 10))
            .locations(locations.collect::<Vec<_>>())
            .raw_input(size::fit(json!(metadata), size::RAW));
        let mut room = size::BLOB;
        let mut content = Vec::new();
        for (path, diff) in diffs(metadata, file.as_deref().filter(|_| named)) {
            if let Some(change) = self.whole(open, path, diff).await {
                content.push(tool_call::diff(change, &mut room));
            }
        }
        if content.is_empty() { fields } else { fields.content(content) }
    }

    /// A change with the whole file around it, as far as that can be read.
    async fn whole(&self, open: &Open, path: &Path, diff: &str) -> Option<Change> {
        if let Some(before) = open.reads.take(path)
            && let Some(new) = unified_diff::apply(diff, before.as_deref().unwrap_or_default())
        {
            return Some(Change { path: path.to_owned(), old: before, new });
        }
        let before = match self.environment(open) {
            Some(environment) => environment.read(path).await.ok().and_then(|content| String::from_utf8(content).ok()),
            None => self.host().file(&open.scope, &path.to_string_lossy()).await.ok().map(|file| file.content),
        };
        let path = path.to_owned();
        if let Some(new) = unified_diff::apply(diff, before.as_deref().unwrap_or_default()) {
            return Some(Change { path, old: before, new });
        }
        let (old, new) = unified_diff::sides(diff)?;
        Some(Change { path, old: Some(old), new })
    }

    async fn question(&self, open: &Open, request: &QuestionRequest, asked: &Asked) {
        let answers = if open.abilities.forms {
            self.form(&request.questions, asked).await
        } else {
            self.menus(&request.questions, asked).await
        };
        match answers {
            Ok(answers) => {
                let reply = || self.host().reply_question(&open.scope, &request.id, answers.clone());
                taken(self.reach(reply).await);
            }
            Err(_) if self.peer().is_closed() => {}
            Err(error) => {
                tracing::info!(%error, "the client did not answer a question");
                taken(self.reach(|| self.host().reply_question(&open.scope, &request.id, None)).await);
            }
        }
    }

    /// All questions in one form; with each a field for another answer.
    async fn form(&self, questions: &[Question], asked: &Asked) -> Result<Option<Vec<Vec<String>>>, Error> {
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
        let scope = ElicitationSessionScope::new(asked.session.to_string())
            .tool_call_id(agent_client_protocol_schema::v1::ToolCallId::new(asked.call.clone()));
        let request = CreateElicitationRequest::new(ElicitationFormMode::new(scope, schema), message);
        let answer: Value = self.peer().ask("elicitation/create", &request, Waits::Forever).await?;
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

    /// One question after the other, as something to be permitted: every client can show that.
    async fn menus(&self, questions: &[Question], asked: &Asked) -> Result<Option<Vec<Vec<String>>>, Error> {
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
                options.push(PermissionOption::new(END, end, PermissionOptionKind::RejectOnce));
                let fields = ToolCallUpdateFields::new()
                    .kind(ToolKind::Other)
                    .title(size::cut(&question.question, 8 << 10))
                    .content(vec![tool_call::text(&details.join("\n"))]);
                let answer = self.choose(asked, fields, options).await?.and_then(|option| option.parse().ok());
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

/// What can be answered. What `always` would allow, and where, is said; it is left out if it would allow no more than `once`.
fn options(request: &PermissionRequest) -> Vec<PermissionOption> {
    let always = request.always_text().map(|what| {
        let name = format!("Always allow {}", size::cut(&what, MAX_OPTION));
        PermissionOption::new("always", name, PermissionOptionKind::AllowAlways)
    });
    let once = PermissionOption::new("once", "Allow once", PermissionOptionKind::AllowOnce);
    let reject = PermissionOption::new("reject", "Reject", PermissionOptionKind::RejectOnce);
    std::iter::once(once).chain(always).chain([reject]).collect()
}

/// In the order of their names, which is how a form shows them, another answer comes right behind its question.
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

/// That somebody else was faster is no failure.
fn taken(result: Result<(), HostError>) {
    match result {
        Ok(()) | Err(HostError::Conflict(_) | HostError::NotFound { .. }) => {}
        Err(error) => tracing::warn!(%error, "an answer was not taken"),
    }
}
