//! Writes the reports of a runner as messages and parts.

use std::time::Instant;

use api::{
    AssistantMessage, EventBody, Extra, Json, JsonMap, Message, MessageError, MessageId, Part, PartHead, RunnerCall,
    RunnerCallState, SessionId, StepFinishPart, StepStartPart, Tokens, ToolCompleted, ToolError, ToolPart, ToolPending,
    ToolRunning, ToolState, ToolTime, Usage, UserMessage, json_size,
};
use indexmap::IndexMap;
use store::{Reservation, SessionChange, StoreError};

use super::RemoteRecord;
use crate::spending::ledger;
use crate::turn::Turn;
use crate::turn::text_writer::{TextWriter, row_interval};
use crate::turn::tool_call::PROGRESS_INTERVAL;
use crate::turn::vendor_data::PROVIDER_EXECUTED;

/// The maximum amount of text in one job, in bytes.
const TEXT_MAX: usize = 4 << 20;
/// The maximum number of calls in one job.
const CALLS_MAX: usize = 2_000;
/// A call's diff ends after the file that reaches this size, in bytes.
const DIFF_MAX: usize = 256 << 10;
/// The error of a call that was left open.
const LEFT_OPEN: &str =
    "interrupted: the agent ended before it reported the outcome of this call; it may have taken effect.";

/// The messages and parts of one job.
pub(super) struct JobTranscript {
    /// The durable record of the session.
    pub record: RemoteRecord,
    /// The prompts this job hands over.
    new_prompts: Vec<MessageId>,
    /// The job's reservation; a remote subagent has none.
    reservation: Option<Reservation>,
    /// The estimated tokens of the prompt.
    prompt_tokens: u64,
    /// The messages, oldest first. The last one is being written.
    messages: Vec<AssistantMessage>,
    parts: Vec<Part>,
    text: TextWriter,
    calls: IndexMap<String, CallEntry>,
    bytes: usize,
    /// The usage reported so far.
    used: Usage,
}

struct CallEntry {
    part: ToolPart,
    /// The subagent that the call waits for.
    child: Option<SessionId>,
    written_at: Instant,
    /// Whether the row is older than the part.
    is_stale: bool,
}

impl JobTranscript {
    pub fn new(
        message: AssistantMessage,
        record: RemoteRecord,
        new_prompts: Vec<MessageId>,
        reservation: Reservation,
    ) -> Self {
        let prompt_tokens = reservation.prompt;
        Self { new_prompts, reservation: Some(reservation), ..Self::of_child(message, record, prompt_tokens) }
    }

    /// The transcript of a remote subagent whose prompt has about this many tokens.
    pub fn of_child(message: AssistantMessage, record: RemoteRecord, prompt_tokens: u64) -> Self {
        Self {
            record,
            new_prompts: Vec::new(),
            reservation: None,
            prompt_tokens,
            messages: vec![message],
            parts: Vec::new(),
            text: TextWriter::default(),
            calls: IndexMap::new(),
            bytes: 0,
            used: Usage::default(),
        }
    }

    /// The message being written.
    pub fn message(&self) -> Option<&MessageId> {
        self.messages.last().map(|message| &message.id)
    }

    /// Records that the prompt is handed over.
    pub async fn begin(&mut self, turn: &Turn, kept: Json) -> Result<(), StoreError> {
        self.record.kept = Some(kept);
        self.record.handed.append(&mut self.new_prompts);
        let mut batch = turn.batch().durable();
        self.record.put(&mut batch, &turn.session_id);
        if let Some(message) = self.message() {
            let head = PartHead::new(&turn.session_id, message);
            let part = Part::StepStart(StepStartPart { head, snapshot: None, extra: Extra::default() });
            batch.publish_part(&part);
            self.parts.push(part);
        }
        turn.commit(batch).await.map(drop)
    }

    /// Begins the answer to a prompt that joined the job.
    pub async fn begin_message(&mut self, turn: &Turn, user: &UserMessage) -> Result<(), StoreError> {
        self.end_text(turn);
        let mut batch = turn.batch().durable();
        self.record.handed.push(user.id.clone());
        self.record.put(&mut batch, &turn.session_id);
        let message = turn.new_answer(user);
        batch.publish_message(Message::Assistant(message.clone()));
        self.messages.push(message);
        turn.commit(batch).await.map(drop)
    }

    /// Appends to the answer or the reasoning. Refuses text beyond the job's limit.
    pub async fn write(&mut self, turn: &Turn, text: &str, reasoning: bool) -> Result<Result<(), String>, StoreError> {
        self.bytes += text.len();
        if self.bytes > TEXT_MAX {
            return Ok(Err(format!("The agent wrote more than {} MB of text, and was stopped", TEXT_MAX >> 20)));
        }
        if let Some(message) = self.messages.last() {
            self.text.write(turn, &message.id, text, reasoning, false, &mut self.parts).await?;
        }
        Ok(Ok(()))
    }

    /// Shows a new or changed call. Returns its part, or a refusal if there are too many.
    pub async fn call(&mut self, turn: &Turn, call: &RunnerCall) -> Result<Result<ToolPart, String>, StoreError> {
        let is_new = !self.calls.contains_key(&call.id);
        if is_new && self.calls.len() >= CALLS_MAX {
            return Ok(Err(format!("The agent made more than {CALLS_MAX} calls in one turn, and was stopped")));
        }
        if is_new {
            self.end_text(turn);
            let Some(message) = self.messages.last() else { return Ok(Err("The job has ended".to_owned())) };
            let part = new_call_part(PartHead::new(&turn.session_id, &message.id), call);
            self.calls
                .insert(call.id.clone(), CallEntry { part, child: None, written_at: Instant::now(), is_stale: true });
        }
        let Some(entry) = self.calls.get_mut(&call.id) else { return Ok(Err("The job has ended".to_owned())) };
        let mut batch = turn.batch();
        if is_new {
            batch.usage(&turn.session_id, &Usage { tool_calls: 1, ..Usage::default() });
        }
        // The first terminal state of a call wins.
        if !entry.part.state.is_done() {
            let before = entry.part.state.status();
            let is_first = matches!(&entry.part.state, ToolState::Pending(_)) && entry.is_stale;
            entry.part.tool.clone_from(&call.tool);
            entry.part.state = tool_state(&entry.part.state, call);
            entry.link_child();
            entry.is_stale = true;
            if is_first || before != entry.part.state.status() || entry.is_due() {
                batch.publish_part(&Part::Tool(entry.part.clone()));
                (entry.written_at, entry.is_stale) = (Instant::now(), false);
            }
            if matches!(entry.part.state, ToolState::Completed(_)) {
                for change in &call.changes {
                    let file = change.path.to_string_lossy().into_owned();
                    batch.count_changed_file(&turn.session_id, &file);
                    batch.event(EventBody::FileEdited { file });
                }
            }
        }
        let part = entry.part.clone();
        turn.commit_any(batch).await?;
        Ok(Ok(part))
    }

    /// Links a call to the subagent it waits for.
    pub async fn link(&mut self, turn: &Turn, call: &str, child: &SessionId) -> Result<(), StoreError> {
        let Some(entry) = self.calls.get_mut(call).filter(|entry| entry.child.as_ref() != Some(child)) else {
            return Ok(());
        };
        entry.child = Some(child.clone());
        entry.link_child();
        let mut batch = turn.batch();
        batch.publish_part(&Part::Tool(entry.part.clone()));
        (entry.written_at, entry.is_stale) = (Instant::now(), false);
        turn.commit(batch).await.map(drop)
    }

    /// The running call that started last.
    pub fn running_call(&self) -> Option<&ToolPart> {
        self.calls.values().rev().map(|entry| &entry.part).find(|part| matches!(part.state, ToolState::Running(_)))
    }

    /// Records the usage so far. Cost is counted at once; tokens only at the end, when they are final.
    pub async fn spend(&mut self, turn: &Turn, used: Usage, kept: Json) -> Result<(), StoreError> {
        let increase = used.cost.0 - self.used.cost.0;
        self.used = used;
        self.record.kept = Some(kept);
        let mut batch = turn.batch();
        self.record.put(&mut batch, &turn.session_id);
        if increase > 0.0 {
            batch.usage(&turn.session_id, &Usage { cost: api::Usd(increase), ..Usage::default() });
            let change = SessionChange { cost: Some(api::Usd(increase)), ..SessionChange::default() };
            batch.change_session(&turn.session_id, change);
        } else {
            self.used.cost.0 -= increase;
        }
        turn.commit(batch).await.map(drop)
    }

    /// Stores what is only in memory, for the process that resumes the job.
    pub async fn save(&mut self, turn: &Turn) -> Result<(), StoreError> {
        self.end_text(turn);
        let mut batch = turn.batch();
        for entry in self.calls.values().filter(|entry| entry.is_stale) {
            batch.publish_part(&Part::Tool(entry.part.clone()));
        }
        turn.commit_any(batch).await.map(drop)
    }

    /// Ends the job in one commit.
    pub async fn finish(
        mut self,
        turn: &Turn,
        reason: &str,
        error: Option<MessageError>,
    ) -> Result<Vec<(AssistantMessage, Vec<Part>)>, StoreError> {
        self.end_text(turn);
        let mut batch = turn.batch().durable();
        for entry in self.calls.values_mut() {
            if !entry.part.state.is_done() {
                let (input, start) = (entry.part.state.input().clone(), start_time(&entry.part.state));
                let time = ToolTime { start, end: Some(api::now()), compacted: None };
                entry.part.state =
                    ToolState::Error(ToolError { input, error: LEFT_OPEN.to_owned(), metadata: None, time });
                entry.link_child();
                batch.publish_part(&Part::Tool(entry.part.clone()));
            }
            self.parts.push(Part::Tool(entry.part.clone()));
        }
        let used = self.total_usage();
        let counted = Usage { cost: api::Usd::default(), ..used.clone() };
        match &self.reservation {
            Some(reservation) => batch.spend(&reservation.id, &counted),
            None => batch.usage(&turn.session_id, &counted),
        }
        // The cost was added to the session when it was reported.
        ledger::charge(&mut batch, &turn.session_id, api::Usd::default(), used.tokens.clone());
        let last = self.messages.len().saturating_sub(1);
        let mut done = Vec::new();
        for (at, mut message) in self.messages.drain(..).enumerate() {
            let is_last = at == last;
            message.time.completed = Some(api::now());
            let failed = error.as_ref().filter(|_| is_last);
            if let Some(error) = failed {
                let session_id = Some(turn.session_id.clone());
                batch.event(EventBody::SessionError { session_id, error: Some(error.clone()) });
                message.error = Some(error.clone());
            }
            if is_last {
                (message.cost, message.tokens) = (used.cost, used.tokens.clone());
            }
            if failed.is_none() {
                let reason = if is_last { reason } else { "tool-calls" };
                message.finish = Some(reason.to_owned());
                let part = Part::StepFinish(StepFinishPart {
                    head: PartHead::new(&turn.session_id, &message.id),
                    reason: reason.to_owned(),
                    snapshot: None,
                    cost: message.cost,
                    tokens: message.tokens.clone(),
                    extra: Extra::default(),
                });
                batch.publish_part(&part);
                self.parts.push(part);
            }
            batch.publish_message(Message::Assistant(message.clone()));
            let belongs = |part: &Part| part.head().is_some_and(|head| head.message_id == message.id);
            let mut parts: Vec<Part> = self.parts.iter().filter(|part| belongs(part)).cloned().collect();
            parts.sort_by(|a, b| a.head().map(|head| &head.id).cmp(&b.head().map(|head| &head.id)));
            done.push((message, parts));
        }
        // A crash right after this must not hand them over again.
        for prompt in &self.record.handed {
            batch.dequeue(prompt);
        }
        if self.reservation.is_none() {
            turn.go_idle(&mut batch, done.last().map(|(message, _)| message.id.clone()));
        }
        turn.commit(batch).await?;
        Ok(done)
    }

    /// The job's usage: as reported, otherwise estimated.
    fn total_usage(&self) -> Usage {
        let mut used = Usage { steps: 1, ..self.used.clone() };
        if used.all_tokens() == 0 {
            let output = ledger::tokens(self.bytes);
            used.tokens = Tokens { input: self.prompt_tokens, output, ..Tokens::default() };
            used.estimated_tokens = self.prompt_tokens + output;
            used.estimated_steps = 1;
        }
        used
    }

    /// Ends the open text. Its row goes out with the next batch.
    fn end_text(&mut self, turn: &Turn) {
        self.text.close(turn, false, &mut self.parts);
    }
}

impl CallEntry {
    /// Whether the call's progress should be written now.
    fn is_due(&self) -> bool {
        let waited = self.written_at.elapsed();
        waited >= PROGRESS_INTERVAL && waited >= row_interval(PROGRESS_INTERVAL, json_size(&self.part))
    }

    /// Tells clients which session the call waits for.
    fn link_child(&mut self) {
        let Some(child) = &self.child else { return };
        let metadata = match &mut self.part.state {
            ToolState::Pending(_) => return,
            ToolState::Running(running) => running.metadata.get_or_insert_default(),
            ToolState::Completed(done) => &mut done.metadata,
            ToolState::Error(error) => error.metadata.get_or_insert_default(),
        };
        metadata.insert("parentSessionId".to_owned(), self.part.head.session_id.as_str().into());
        metadata.insert("sessionId".to_owned(), child.as_str().into());
    }
}

fn new_call_part(head: PartHead, call: &RunnerCall) -> ToolPart {
    let metadata = Some(JsonMap::from_iter([(PROVIDER_EXECUTED.to_owned(), true.into())]));
    let state = ToolState::Pending(ToolPending { input: Json::Object(JsonMap::new()), raw: String::new() });
    ToolPart { head, call_id: call.id.clone(), tool: call.tool.clone(), state, metadata, extra: Extra::default() }
}

fn start_time(state: &ToolState) -> i64 {
    match state {
        ToolState::Running(running) => running.time.start,
        _ => api::now(),
    }
}

/// A runner call's state in terms of our own calls.
fn tool_state(before: &ToolState, call: &RunnerCall) -> ToolState {
    let input = Json::Object(call.input.clone());
    let mut time = ToolTime { start: start_time(before), end: None, compacted: None };
    let mut metadata = call.metadata.clone();
    if let Some(diff) = diff(call) {
        metadata.insert("diff".to_owned(), diff.into());
    }
    match call.state {
        RunnerCallState::Pending => ToolState::Pending(ToolPending { input, raw: String::new() }),
        RunnerCallState::Running => {
            if !call.output.is_empty() {
                metadata.insert("output".to_owned(), call.output.clone().into());
            }
            let title = Some(call.title.clone()).filter(|title| !title.is_empty());
            ToolState::Running(ToolRunning { input, title, metadata: Some(metadata), time })
        }
        RunnerCallState::Completed => {
            time.end = Some(api::now());
            if call.tool == "bash" {
                metadata.insert("output".to_owned(), call.output.clone().into());
            }
            let (output, title) = (call.output.clone(), call.title.clone());
            ToolState::Completed(ToolCompleted { input, output, title, metadata, time, attachments: None })
        }
        RunnerCallState::Failed => {
            time.end = Some(api::now());
            let error = if call.output.is_empty() { "The call failed".to_owned() } else { call.output.clone() };
            ToolState::Error(ToolError { input, error, metadata: Some(metadata), time })
        }
    }
}

/// The changes of a call, as a diff for people.
pub(super) fn diff(call: &RunnerCall) -> Option<String> {
    let one = |change: &api::RunnerChange| {
        tools::unified_diff(&change.path.to_string_lossy(), change.old.as_deref().unwrap_or_default(), &change.new)
    };
    let mut text = one(call.changes.first()?);
    for change in &call.changes[1..] {
        if text.len() > DIFF_MAX {
            text.push_str("\\ Further changes are left out\n");
            break;
        }
        text.push('\n');
        text.push_str(&one(change));
    }
    Some(text)
}
