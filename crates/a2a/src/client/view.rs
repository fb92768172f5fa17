//! A task as its events tell it: what is new with each event, and the text of the answer. Pure.
//!
//! Peers tell the same thing in several ways: pieces, whole artifacts, snapshots of the task, a message at the end. A view
//! reports each text once, whichever way it comes, and never by looking for one text within another.

use std::collections::HashMap;

use api::{Json, JsonMap};

use super::StreamItem;
use crate::event::{Block, Lane, TaskEvent};
use crate::model::{Artifact, ArtifactId, Content, Message, Part, Role, Task, TaskState, TaskStatus};

/// The most bytes of text that a view keeps.
const MAX_TEXT: usize = 16 << 20;
/// The most tool calls whose state is remembered.
const MAX_CALLS: usize = 10_000;
/// The most open requests to the client that are remembered.
const MAX_INTERRUPTS: usize = 64;

/// The text exceeds the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextTooLarge;

impl std::fmt::Display for TextTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} MB of text", MAX_TEXT >> 20)
    }
}

/// What is new.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// More text of the answer.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// The state of a tool call.
    ToolCall(JsonMap),
    /// A file or structured data of an artifact.
    Part(Part),
    /// The status, with what the agent says about it.
    Status(TaskStatus),
    /// What the task has used so far: `metadata.shared.usage`.
    Usage(JsonMap),
    /// A request to the client: `metadata.shared.interrupt`.
    Interrupt(JsonMap),
    /// The request with this id was answered, by this client or another one.
    Resolved(String),
}

/// A task as its events tell it.
#[derive(Debug, Clone, Default)]
pub struct TaskView {
    task: Option<String>,
    context: Option<String>,
    status: Option<TaskStatus>,
    /// The text in its order, pieces of one kind and artifact joined.
    pieces: Vec<Piece>,
    /// The last known state of each tool call.
    calls: HashMap<String, Json>,
    usage: Option<Json>,
    /// The open requests to the client, oldest first.
    interrupts: Vec<JsonMap>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Piece {
    source: Source,
    block: Block,
    text: String,
}

/// Where text comes from.
#[derive(Debug, Clone, PartialEq)]
enum Source {
    Artifact(ArtifactId),
    Message,
}

impl TaskView {
    /// A task of which nothing but its id is known.
    pub fn of_task(id: &str) -> Self {
        Self { task: Some(id.to_owned()), ..Self::default() }
    }

    /// The id of the task, once it is known.
    pub fn task_id(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// The id of the context, once it is known.
    pub fn context_id(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// The state of the task; that of a message instead of a task is completed.
    pub fn state(&self) -> Option<TaskState> {
        self.status.as_ref().map(|status| status.state)
    }

    /// What the agent says about the status.
    pub fn status_text(&self) -> Option<String> {
        self.status.as_ref()?.message.as_ref().map(text_of).filter(|text| !text.is_empty())
    }

    /// The latest open request to the client.
    pub fn interrupt(&self) -> Option<&JsonMap> {
        self.interrupts.last()
    }

    /// What the task has used so far, where the agent says it.
    pub fn usage(&self) -> Option<&Json> {
        self.usage.as_ref()
    }

    /// Whether nothing follows without the client.
    pub fn is_settled(&self) -> bool {
        self.state().is_some_and(|state| state.is_terminal() || state.is_interrupted())
    }

    /// The text of the answer: artifacts, each on a line of its own, then messages.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut last: Option<&Source> = None;
        for piece in self.pieces.iter().filter(|piece| piece.block == Block::Text) {
            if last.is_some_and(|last| *last != piece.source) && !text.ends_with('\n') && !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&piece.text);
            last = Some(&piece.source);
        }
        text
    }

    /// Takes an event in and returns what is new.
    pub fn apply(&mut self, item: &StreamItem) -> Result<Vec<Change>, TextTooLarge> {
        let mut changes = Vec::new();
        match item {
            StreamItem::Task(task) => self.snapshot(task, &mut changes)?,
            StreamItem::Message(message) => self.message(message, &mut changes)?,
            StreamItem::Event { task_id, context_id, event, .. } => {
                self.named(task_id, context_id);
                self.event(event, &mut changes)?;
            }
        }
        Ok(changes)
    }

    fn named(&mut self, task: &str, context: &str) {
        for (place, id) in [(&mut self.task, task), (&mut self.context, context)] {
            if !id.is_empty() {
                *place = Some(id.to_owned());
            }
        }
    }

    fn event(&mut self, event: &TaskEvent, changes: &mut Vec<Change>) -> Result<(), TextTooLarge> {
        match event {
            TaskEvent::Status { status, metadata, .. } => {
                self.facts(metadata, changes);
                self.status(status, changes)
            }
            TaskEvent::Artifact { id, parts, append, metadata, .. } => {
                self.facts(metadata, changes);
                if *append { self.append(id, parts, changes) } else { self.replace(id, parts, changes) }
            }
            TaskEvent::Message(message) => self.message(message, changes),
        }
    }

    /// A message instead of a task.
    fn message(&mut self, message: &Message, changes: &mut Vec<Change>) -> Result<(), TextTooLarge> {
        self.named(message.task_id.as_deref().unwrap_or_default(), message.context_id.as_deref().unwrap_or_default());
        self.words(message, changes)?;
        self.status = Some(TaskStatus { state: TaskState::Completed, message: None, timestamp: 0 });
        Ok(())
    }

    fn snapshot(&mut self, task: &Task, changes: &mut Vec<Change>) -> Result<(), TextTooLarge> {
        self.named(&task.id, &task.context_id);
        self.facts(&task.metadata, changes);
        self.artifacts(&task.artifacts, changes)?;
        self.status(&task.status, changes)?;
        if self.pieces.is_empty() && task.status.state == TaskState::Completed {
            // Some agents answer in the history alone.
            let answer = task.history.iter().rev().find(|message| message.role == Role::Agent);
            if let Some(answer) = answer {
                self.words(answer, changes)?;
            }
        }
        Ok(())
    }

    /// Takes in a message that is an answer. Its texts are whole, unlike those of an artifact, which may be pieces.
    fn words(&mut self, message: &Message, changes: &mut Vec<Change>) -> Result<(), TextTooLarge> {
        self.push(&Source::Message, Block::Text, &text_of(message), changes)?;
        let others = message.parts.iter().filter(|part| !matches!(part.content, Content::Text(_)));
        for part in others {
            self.parts(&Source::Message, Block::Text, std::slice::from_ref(part), changes)?;
        }
        Ok(())
    }

    /// Takes in the artifacts of a snapshot. They may have other ids than in the stream, where a whole answer may also be
    /// divided differently: in 0.3 all lanes share one artifact. What streamed is not repeated, what is beyond it is new.
    fn artifacts(&mut self, artifacts: &[Artifact], changes: &mut Vec<Change>) -> Result<(), TextTooLarge> {
        let mut unclaimed = Unclaimed::new(&self.pieces, artifacts);
        let shared = self.task.as_ref().map(|task| ArtifactId::Named(format!("{task}:stream")));
        for artifact in artifacts {
            let is_shared = shared.as_ref() == Some(&artifact.id);
            if !is_shared && (unclaimed.is_empty() || !self.artifact_text(&artifact.id).is_empty()) {
                self.replace(&artifact.id, &artifact.parts, changes)?;
                continue;
            }
            let block = block_of(&artifact.id);
            let source = |block| match (is_shared, block) {
                // The stream goes on with the lanes.
                (true, Block::Reasoning) => Source::Artifact(ArtifactId::Lane(Lane::Reasoning)),
                (true, _) => Source::Artifact(ArtifactId::Lane(Lane::Text)),
                (false, _) => Source::Artifact(artifact.id.clone()),
            };
            for part in &artifact.parts {
                match &part.content {
                    Content::Text(text) => {
                        let told = match artifact.id {
                            ArtifactId::Lane(_) => Some(part_block(block, part)),
                            ArtifactId::Named(_) => marked_block(part),
                        };
                        let claim = unclaimed.claim(told, text);
                        let source = claim.source.unwrap_or_else(|| source(claim.block));
                        self.push(&source, claim.block, claim.rest, changes)?;
                    }
                    _ => self.parts(&source(block), block, std::slice::from_ref(part), changes)?,
                }
            }
        }
        Ok(())
    }

    fn artifact_text(&self, id: &ArtifactId) -> String {
        let is_of = |piece: &&Piece| matches!(&piece.source, Source::Artifact(source) if source == id);
        self.pieces.iter().filter(is_of).map(|piece| piece.text.as_str()).collect()
    }

    fn append(&mut self, id: &ArtifactId, parts: &[Part], changes: &mut Vec<Change>) -> Result<(), TextTooLarge> {
        self.parts(&Source::Artifact(id.clone()), block_of(id), parts, changes)
    }

    /// Takes in the whole content of an artifact. What it begins with may be known.
    fn replace(&mut self, id: &ArtifactId, parts: &[Part], changes: &mut Vec<Change>) -> Result<(), TextTooLarge> {
        let known = self.artifact_text(id);
        let told: String = texts(parts).collect();
        if known.starts_with(&told) && !told.is_empty() {
            return Ok(());
        }
        let source = Source::Artifact(id.clone());
        let mut skip = if told.starts_with(&known) { known.len() } else { 0 };
        if skip == 0 && !known.is_empty() {
            // The agent has changed its mind; only the new content counts from now on.
            self.pieces.retain(|piece| piece.source != source);
            self.bytes = self.pieces.iter().map(|piece| piece.text.len()).sum();
        }
        let block = block_of(id);
        for part in parts {
            let Content::Text(text) = &part.content else {
                self.parts(&source, block, std::slice::from_ref(part), changes)?;
                continue;
            };
            let rest = text.get(skip.min(text.len())..).unwrap_or_default();
            skip = skip.saturating_sub(text.len());
            self.push(&source, part_block(block, part), rest, changes)?;
        }
        Ok(())
    }

    fn status(&mut self, status: &TaskStatus, changes: &mut Vec<Change>) -> Result<(), TextTooLarge> {
        let is_known =
            self.status.as_ref().is_some_and(|known| known.state == status.state && known.message == status.message);
        if is_known {
            return Ok(());
        }
        if status.state.is_terminal() {
            let open = std::mem::take(&mut self.interrupts);
            changes.extend(open.iter().map(|interrupt| Change::Resolved(request_id(interrupt).to_owned())));
        }
        self.status = Some(status.clone());
        // The last words of an agent are part of its answer, unless they repeat an artifact.
        if status.state == TaskState::Completed
            && let Some(text) = status.message.as_ref().map(text_of).filter(|text| !text.is_empty())
        {
            let repeated =
                self.pieces.iter().any(|piece| piece.text.trim() == text.trim()) || self.text().trim() == text.trim();
            if !repeated {
                self.push(&Source::Message, Block::Text, &text, changes)?;
            }
        }
        changes.push(Change::Status(status.clone()));
        Ok(())
    }

    fn parts(
        &mut self,
        source: &Source,
        block: Block,
        parts: &[Part],
        changes: &mut Vec<Change>,
    ) -> Result<(), TextTooLarge> {
        for part in parts {
            match &part.content {
                Content::Text(text) => self.push(source, part_block(block, part), text, changes)?,
                Content::Data(Json::Object(data)) if is_tool_call(block, data) => self.tool_call(data, changes),
                _ => changes.push(Change::Part(part.clone())),
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        source: &Source,
        block: Block,
        text: &str,
        changes: &mut Vec<Change>,
    ) -> Result<(), TextTooLarge> {
        if text.is_empty() {
            return Ok(());
        }
        self.bytes += text.len();
        if self.bytes > MAX_TEXT {
            return Err(TextTooLarge);
        }
        let mut told = text.to_owned();
        let before = self.pieces.iter().rev().find(|piece| piece.block == block);
        if before.is_some_and(|before| before.source != *source && !before.text.ends_with('\n')) {
            told.insert(0, '\n');
        }
        match self.pieces.last_mut() {
            Some(last) if last.source == *source && last.block == block => last.text.push_str(text),
            _ => self.pieces.push(Piece { source: source.clone(), block, text: text.to_owned() }),
        }
        changes.push(if block == Block::Reasoning { Change::Reasoning(told) } else { Change::Text(told) });
        Ok(())
    }

    fn tool_call(&mut self, data: &JsonMap, changes: &mut Vec<Change>) {
        let Some(id) = data.get("call_id").and_then(Json::as_str) else { return };
        let state = Json::Object(data.clone());
        if self.calls.get(id) == Some(&state) || (self.calls.len() >= MAX_CALLS && !self.calls.contains_key(id)) {
            return;
        }
        self.calls.insert(id.to_owned(), state);
        changes.push(Change::ToolCall(data.clone()));
    }

    /// What metadata says of usage and requests.
    fn facts(&mut self, metadata: &JsonMap, changes: &mut Vec<Change>) {
        let Some(shared) = metadata.get("shared").and_then(Json::as_object) else { return };
        if let Some(Json::Object(usage)) = shared.get("usage")
            && self.usage.as_ref().and_then(Json::as_object) != Some(usage)
        {
            self.usage = Some(Json::Object(usage.clone()));
            changes.push(Change::Usage(usage.clone()));
        }
        if let Some(Json::Object(interrupt)) = shared.get("interrupt") {
            self.interrupt_changed(interrupt, changes);
        }
    }

    fn interrupt_changed(&mut self, interrupt: &JsonMap, changes: &mut Vec<Change>) {
        let id = request_id(interrupt);
        let known = self.interrupts.iter().position(|open| request_id(open) == id);
        match (interrupt.get("phase").and_then(Json::as_str), known) {
            (Some("resolved"), Some(known)) => {
                self.interrupts.remove(known);
                changes.push(Change::Resolved(id.to_owned()));
            }
            (Some("resolved"), None) => {}
            (_, None) if self.interrupts.len() < MAX_INTERRUPTS => {
                self.interrupts.push(interrupt.clone());
                changes.push(Change::Interrupt(interrupt.clone()));
            }
            _ => {}
        }
    }
}

/// Text of artifacts that a snapshot does not name, as long as no part of the snapshot has claimed it.
struct Unclaimed([UnclaimedBlock; 2]);

struct UnclaimedBlock {
    block: Block,
    text: String,
    /// The artifact that the text ends in.
    source: Option<Source>,
}

/// A part of a snapshot, without what is known of it.
struct Claim<'a> {
    block: Block,
    /// The artifact that the part continues.
    source: Option<Source>,
    rest: &'a str,
}

impl Unclaimed {
    fn new(pieces: &[Piece], artifacts: &[Artifact]) -> Self {
        let is_named = |id: &ArtifactId| artifacts.iter().any(|artifact| artifact.id == *id);
        Self([Block::Text, Block::Reasoning].map(|block| {
            let orphans = pieces.iter().filter(|piece| match &piece.source {
                Source::Artifact(id) => piece.block == block && !is_named(id),
                Source::Message => false,
            });
            UnclaimedBlock {
                block,
                source: orphans.clone().next_back().map(|piece| piece.source.clone()),
                text: orphans.map(|piece| piece.text.as_str()).collect(),
            }
        }))
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|block| block.text.is_empty())
    }

    /// Claims what a part repeats. A part that does not tell its block may be of either.
    fn claim<'a>(&mut self, block: Option<Block>, part: &'a str) -> Claim<'a> {
        let fits =
            |known: &&mut UnclaimedBlock| !known.text.is_empty() && block.is_none_or(|block| known.block == block);
        for known in self.0.iter_mut().filter(fits) {
            let rest = if let Some(rest) = part.strip_prefix(known.text.as_str()) {
                known.text.clear();
                rest
            } else if !part.is_empty() && known.text.starts_with(part) {
                known.text.drain(..part.len());
                ""
            } else {
                continue;
            };
            return Claim { block: known.block, source: known.source.clone(), rest };
        }
        Claim { block: block.unwrap_or(Block::Text), source: None, rest: part }
    }
}

/// The id of a request to the client.
pub(crate) fn request_id(interrupt: &JsonMap) -> &str {
    interrupt.get("request_id").and_then(Json::as_str).unwrap_or_default()
}

fn block_of(id: &ArtifactId) -> Block {
    match id {
        ArtifactId::Lane(lane) => Lane::block(lane),
        ArtifactId::Named(_) => Block::Text,
    }
}

/// The kind of a text part: reasoning where its lane or the part itself says so.
fn part_block(block: Block, part: &Part) -> Block {
    if block == Block::Reasoning { block } else { marked_block(part).unwrap_or(Block::Text) }
}

/// The kind that a text part itself tells.
fn marked_block(part: &Part) -> Option<Block> {
    let stream = part.metadata.get("shared").and_then(|shared| shared.get("stream"))?;
    match stream.get("block_type")?.as_str()? {
        "reasoning" => Some(Block::Reasoning),
        "text" => Some(Block::Text),
        _ => None,
    }
}

fn is_tool_call(block: Block, data: &JsonMap) -> bool {
    block == Block::ToolCall || (data.contains_key("call_id") && data.contains_key("tool"))
}

fn texts(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| if let Content::Text(text) = &part.content { Some(text.as_str()) } else { None })
}

/// The text of a message, one line per part.
pub(super) fn text_of(message: &Message) -> String {
    texts(&message.parts).collect::<Vec<_>>().join("\n")
}
