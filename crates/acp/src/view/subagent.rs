//! Subagents. A client with that capability sees them as sessions of their own; for others, the task call that waits
//! for them shows their progress.

use agent_client_protocol_schema::v1::{
    Cost, Error, ErrorStopReason, IdleStateUpdate, IdleStopReason, RequiresActionStateUpdate, RunningStateUpdate,
    SessionCancelCapabilities, SessionUpdate, StateUpdate, SubagentSessionCapabilities, SubagentUpdate, ToolCallStatus,
    ToolCallUpdateFields, ToolKind, UsageUpdate,
};
use api::{
    Message, MessageError, Part, PartId, Session, SessionId, SessionStatus, Timestamp, ToolPart, ToolRef, ToolState,
    task_session,
};
use indexmap::IndexMap;
use serde_json::json;

use super::transcript::Transcript;
use super::{AskTarget, Effect, View, tool_call};
use crate::size;

/// How often the text of a subagent updates its task call, in milliseconds.
const PROGRESS_INTERVAL: Timestamp = 100;
/// How much of its text the task call shows: the end, in bytes.
const MAX_TEXT_TAIL: usize = 1_000;
/// How many of its calls the task call shows: the last.
const MAX_LISTED_CALLS: usize = 12;

/// What is shown of a subagent. Where it belongs, for which call it works and what it asks, the view's tracker knows.
pub struct SubagentView {
    pub transcript: Transcript,
    /// Its calls, oldest first: a state mark and a line.
    calls: IndexMap<PartId, (char, String)>,
    text: String,
    last_progress: Timestamp,
    cost: f64,
    /// Tokens in its context.
    context_tokens: u64,
    /// How its last answer ended.
    stop_reason: IdleStopReason,
}

impl View {
    /// Adds a subagent whose session was created below a session of this view.
    pub(super) fn subagent_created(&mut self, info: &Session, effects: &mut Vec<Effect>) {
        if !self.tree.add(info) {
            return;
        }
        let mut transcript = Transcript::new(info.id.clone(), self.directory.clone(), self.capabilities.subagents);
        if !self.capabilities.subagents {
            transcript.shown_on = self.root.session.clone();
        }
        let child = SubagentView {
            transcript,
            calls: IndexMap::new(),
            text: String::new(),
            last_progress: 0,
            cost: info.cost.unwrap_or_default().0,
            context_tokens: 0,
            stop_reason: IdleStopReason::EndTurn,
        };
        self.subagents.insert(info.id.clone(), child);
        let mut capabilities = SubagentSessionCapabilities::new();
        if can_be_cancelled(info) {
            capabilities = capabilities.cancel(SessionCancelCapabilities::new());
        }
        let update = SubagentUpdate::new(info.id.to_string())
            .title(info.title.clone())
            .description(info.agent.as_ref().map(|agent| format!("Subagent {agent}")))
            .capabilities(capabilities)
            .cwd(std::path::PathBuf::from(&info.directory));
        self.announce(&info.id, update, effects);
    }

    /// Adds a subagent that existed before the client opened the session. It counts as idle unless events say
    /// otherwise.
    pub fn add_subagent(&mut self, info: &Session) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.subagent_created(info, &mut effects);
        effects
    }

    /// Marks a subagent as idle.
    pub fn subagent_idle(&mut self, session: &SessionId) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.subagent_status(session, &SessionStatus::Idle, &mut effects);
        effects
    }

    /// Sends an update about a subagent on its parent's session, if the client supports subagents.
    fn announce(&self, child: &SessionId, update: SubagentUpdate, effects: &mut Vec<Effect>) {
        if let Some(parent) = self.tree.parent(child).filter(|_| self.capabilities.subagents) {
            effects.push(Effect::Update(parent.clone(), Box::new(SessionUpdate::SubagentUpdate(update))));
        }
    }

    fn announce_state(&self, child: &SessionId, state: StateUpdate, effects: &mut Vec<Effect>) {
        self.announce(child, SubagentUpdate::new(child.to_string()).state(state), effects);
    }

    pub(super) fn subagent_updated(&mut self, session: &SessionId, info: &Session, effects: &mut Vec<Effect>) {
        if let Some(child) = self.subagents.get_mut(session) {
            let before = std::mem::replace(&mut child.cost, info.cost.unwrap_or_default().0);
            if child.cost > before && self.capabilities.subagents {
                let cost = Cost::new((child.cost * 1e9).round() / 1e9, "USD");
                let update =
                    UsageUpdate::new(child.context_tokens, self.context_size.max(child.context_tokens)).cost(cost);
                effects.push(Effect::Update(session.clone(), Box::new(SessionUpdate::UsageUpdate(update))));
            }
            self.update_task_call(session, false, effects);
        }
    }

    pub(super) fn subagent_status(&mut self, session: &SessionId, status: &SessionStatus, effects: &mut Vec<Effect>) {
        let Some(child) = self.subagents.get_mut(session) else { return };
        let state = if *status == SessionStatus::Idle {
            child.transcript.on_idle();
            child.text.clear();
            child.calls.clear();
            let reason = std::mem::replace(&mut child.stop_reason, IdleStopReason::EndTurn);
            StateUpdate::Idle(IdleStateUpdate::new().stop_reason(reason))
        } else {
            StateUpdate::Running(RunningStateUpdate::new())
        };
        self.announce_state(session, state, effects);
    }

    pub(super) fn subagent_part(&mut self, session: &SessionId, part: &Part, replay: bool, effects: &mut Vec<Effect>) {
        if let Part::Tool(tool) = part {
            self.tree.link_task_call(session, tool);
        }
        let progress = part.as_tool().and_then(|tool| self.task_progress(tool));
        let Some(child) = self.subagents.get_mut(session) else { return };
        child.transcript.part(part, replay, &self.changes, progress, effects);
        match part {
            // Its prompt is not part of what it says.
            Part::Text(text) if text.synthetic != Some(true) && !child.transcript.is_prompt(&text.head.message_id) => {
                let start = text.text.ceil_char_boundary(text.text.len().saturating_sub(MAX_TEXT_TAIL));
                // The first words go out immediately: more may take a while.
                let first = child.text.is_empty();
                child.text = text.text[start..].to_owned();
                self.update_task_call(session, first, effects);
            }
            Part::Tool(tool) => {
                child.note_call(tool);
                self.update_task_call(session, true, effects);
            }
            Part::StepFinish(step) => {
                child.context_tokens = step.tokens.input + step.tokens.cache.read + step.tokens.cache.write;
                self.update_task_call(session, true, effects);
            }
            _ => {}
        }
    }

    pub(super) fn subagent_delta(
        &mut self,
        session: &SessionId,
        part: &PartId,
        delta: &str,
        effects: &mut Vec<Effect>,
    ) {
        let Some(child) = self.subagents.get_mut(session) else { return };
        child.transcript.delta(part, delta, effects);
        let first = child.text.is_empty();
        child.text.push_str(delta);
        if child.text.len() > 2 * MAX_TEXT_TAIL {
            let start = child.text.ceil_char_boundary(child.text.len() - MAX_TEXT_TAIL);
            child.text.drain(..start);
        }
        self.update_task_call(session, first, effects);
    }

    /// Updates the task call of a subagent; without `now`, no more often than a reader can follow.
    fn update_task_call(&mut self, session: &SessionId, now: bool, effects: &mut Vec<Effect>) {
        let Some(child) = self.subagents.get_mut(session) else { return };
        let time = api::now();
        let due = now || time - child.last_progress >= PROGRESS_INTERVAL;
        let Some(task) = self.tree.task_call(session).filter(|_| due).cloned() else { return };
        let Some(parent) = self.tree.parent(session).cloned() else { return };
        child.last_progress = time;
        let transcript = if parent == self.root.session {
            Some(&self.root)
        } else {
            self.subagents.get(&parent).map(|c| &c.transcript)
        };
        let Some(fields) =
            transcript.and_then(|transcript| transcript.call(&task)).and_then(|call| self.task_progress(call))
        else {
            return;
        };
        if parent == self.root.session {
            self.root.progress(&task, fields, effects);
        } else if let Some(parent) = self.subagents.get_mut(&parent) {
            parent.transcript.progress(&task, fields, effects);
        }
    }

    /// The fields of a running task call.
    pub(super) fn task_progress(&self, tool: &ToolPart) -> Option<ToolCallUpdateFields> {
        let ToolState::Running(running) = &tool.state else { return None };
        if tool.tool != "task" {
            return None;
        }
        let metadata = running.metadata.as_ref()?;
        let child = task_session(tool).and_then(|id| Some(self.subagents.get(&id)?.progress(self.agent_name(&id))));
        let text = child.unwrap_or_default();
        let title = running.title.clone().unwrap_or_else(|| "task".to_owned());
        let fields = ToolCallUpdateFields::new()
            .kind(ToolKind::Think)
            .status(ToolCallStatus::InProgress)
            .title(title)
            .raw_input(size::fit(running.input.clone(), size::MAX_RAW))
            .raw_output(size::fit(json!({ "metadata": metadata }), size::MAX_RAW));
        Some(if text.is_empty() { fields } else { fields.content(vec![tool_call::text_content(&text)]) })
    }

    pub(super) fn subagent_ask_target(
        &mut self,
        session: &SessionId,
        tool: Option<&ToolRef>,
        effects: &mut Vec<Effect>,
    ) -> Option<AskTarget> {
        let asking_agent = (!self.capabilities.subagents).then(|| self.agent_name(session).to_owned());
        let child = self.subagents.get_mut(session)?;
        let call = child.transcript.client_call_id(tool, effects);
        let target = AskTarget { session: child.transcript.shown_on.clone(), call, asking_agent };
        self.announce_state(session, StateUpdate::RequiresAction(RequiresActionStateUpdate::new()), effects);
        Some(target)
    }

    pub(super) fn subagent_ask_resolved(&self, session: &SessionId, effects: &mut Vec<Effect>) {
        if self.subagents.contains_key(session) && self.tree.open_asks(session) == 0 {
            self.announce_state(session, StateUpdate::Running(RunningStateUpdate::new()), effects);
        }
    }

    /// The agent of a subagent.
    fn agent_name(&self, session: &SessionId) -> &str {
        self.tree.agent(session).unwrap_or("subagent")
    }

    pub(super) fn subagent_message(&mut self, session: &SessionId, info: &Message) {
        let Some(child) = self.subagents.get_mut(session) else { return };
        child.transcript.message(info);
        match info.as_assistant().and_then(|answer| answer.error.as_ref()) {
            None => {}
            Some(MessageError::MessageAbortedError(_)) => child.stop_reason = IdleStopReason::Cancelled,
            Some(error) => {
                let error = Error::new(-32603, error.message());
                child.stop_reason = IdleStopReason::Error(ErrorStopReason::new().error(error));
            }
        }
    }
}

/// A subagent run by another program can be cancelled alone only if that program says so.
fn can_be_cancelled(info: &Session) -> bool {
    let elsewhere = info.metadata.as_ref().and_then(|metadata| metadata.get("elsewhere"));
    elsewhere.is_none_or(|elsewhere| elsewhere["cancel"] == true)
}

impl SubagentView {
    fn note_call(&mut self, tool: &ToolPart) {
        let (mark, title) = match &tool.state {
            ToolState::Completed(done) => ('●', done.title.as_str()),
            ToolState::Error(_) => ('✗', ""),
            ToolState::Running(running) => ('○', running.title.as_deref().unwrap_or_default()),
            ToolState::Pending(_) => ('○', ""),
        };
        let line = format!("{}  {title}", tool.tool);
        self.calls.insert(tool.head.id.clone(), (mark, size::truncate(line.trim_end(), 300)));
    }

    /// A short summary of what it did and says.
    fn progress(&self, agent: &str) -> String {
        let count = self.calls.len();
        let mut head = agent.to_owned();
        if count > 0 {
            head += &format!(" · {count} call{}", if count == 1 { "" } else { "s" });
        }
        if self.cost > 0.0 {
            head += &format!(" · ${:.4}", self.cost);
        }
        let calls = self
            .calls
            .values()
            .skip(count.saturating_sub(MAX_LISTED_CALLS))
            .map(|(mark, line)| format!("{mark} {line}"));
        let text = Some(self.text.trim()).filter(|text| !text.is_empty()).map(|text| format!("\n{text}"));
        [head].into_iter().chain(calls).chain(text).collect::<Vec<_>>().join("\n")
    }
}
