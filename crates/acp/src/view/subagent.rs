//! Subagents. A client that can shows them as sessions of their own; for another one their work is told on the call that
//! waits for them.

use agent_client_protocol_schema::v1::{
    Cost, Error, ErrorStopReason, IdleStateUpdate, IdleStopReason, RequiresActionStateUpdate, RunningStateUpdate,
    SessionCancelCapabilities, SessionUpdate, StateUpdate, SubagentSessionCapabilities, SubagentUpdate, ToolCallStatus,
    ToolCallUpdateFields, ToolKind, UsageUpdate,
};
use api::{
    Json, Message, MessageError, Part, PartId, Session, SessionId, SessionStatus, Timestamp, ToolPart, ToolRef,
    ToolState,
};
use indexmap::IndexMap;
use serde_json::json;

use super::transcript::Stream;
use super::{Act, Asked, View, tool_call};
use crate::size;

/// The most subagents of one session that are followed; the engine allows fewer.
const MAX_CHILDREN: usize = 1_000;
/// How often the growing text of a subagent is told on the call that waits for it, in milliseconds.
const PACE: Timestamp = 100;
/// How much of its text: the end.
const TAIL: usize = 1_000;
/// How many of its calls: the last.
const CALLS: usize = 12;

/// A subagent.
pub struct Child {
    pub stream: Stream,
    parent: SessionId,
    agent: String,
    /// The call that waits for it.
    task: Option<PartId>,
    /// Its calls, oldest first: what each is called, and how far it is.
    calls: IndexMap<PartId, (char, String)>,
    text: String,
    told: Timestamp,
    cost: f64,
    /// How full its context is.
    used: u64,
    /// How its answer ended.
    end: IdleStopReason,
    asks: usize,
}

impl View {
    /// A session was made below one that is shown.
    pub(super) fn born(&mut self, info: &Session, acts: &mut Vec<Act>) {
        let Some(parent) = info.parent_id.as_ref() else { return };
        let known = *parent == self.root.session || self.children.contains_key(parent);
        if !known || self.children.contains_key(&info.id) || self.children.len() >= MAX_CHILDREN {
            return;
        }
        let mut stream = Stream::new(info.id.clone(), self.directory.clone(), self.abilities.subagents);
        if !self.abilities.subagents {
            stream.seen_on = self.root.session.clone();
        }
        let child = Child {
            stream,
            parent: parent.clone(),
            agent: info.agent.clone().unwrap_or_else(|| "subagent".to_owned()),
            task: None,
            calls: IndexMap::new(),
            text: String::new(),
            told: 0,
            cost: info.cost.unwrap_or_default().0,
            used: 0,
            end: IdleStopReason::EndTurn,
            asks: 0,
        };
        self.children.insert(info.id.clone(), child);
        let mut abilities = SubagentSessionCapabilities::new();
        if can_be_cancelled(info) {
            abilities = abilities.cancel(SessionCancelCapabilities::new());
        }
        let update = SubagentUpdate::new(info.id.to_string())
            .title(info.title.clone())
            .description(info.agent.as_ref().map(|agent| format!("Subagent {agent}")))
            .capabilities(abilities)
            .cwd(std::path::PathBuf::from(&info.directory));
        self.announce(&info.id, update, acts);
    }

    /// A subagent that was there before the client came: it rests, unless its events say otherwise.
    pub fn known(&mut self, info: &Session) -> Vec<Act> {
        let mut acts = Vec::new();
        self.born(info, &mut acts);
        acts
    }

    /// It does nothing at the moment.
    pub fn rests(&mut self, session: &SessionId) -> Vec<Act> {
        let mut acts = Vec::new();
        self.child_status(session, &SessionStatus::Idle, &mut acts);
        acts
    }

    /// Tells the client about a subagent, on the session of its parent; if it can take that.
    fn announce(&self, child: &SessionId, update: SubagentUpdate, acts: &mut Vec<Act>) {
        if let Some(child) = self.children.get(child).filter(|_| self.abilities.subagents) {
            acts.push(Act::Update(child.parent.clone(), Box::new(SessionUpdate::SubagentUpdate(update))));
        }
    }

    fn tell_state(&self, child: &SessionId, state: StateUpdate, acts: &mut Vec<Act>) {
        self.announce(child, SubagentUpdate::new(child.to_string()).state(state), acts);
    }

    pub(super) fn renamed(&mut self, session: &SessionId, info: &Session, acts: &mut Vec<Act>) {
        if let Some(child) = self.children.get_mut(session) {
            let before = std::mem::replace(&mut child.cost, info.cost.unwrap_or_default().0);
            if child.cost > before && self.abilities.subagents {
                let cost = Cost::new((child.cost * 1e9).round() / 1e9, "USD");
                let update = UsageUpdate::new(child.used, self.context.max(child.used)).cost(cost);
                acts.push(Act::Update(session.clone(), Box::new(SessionUpdate::UsageUpdate(update))));
            }
            self.task_told(session, false, acts);
        }
    }

    pub(super) fn child_status(&mut self, session: &SessionId, status: &SessionStatus, acts: &mut Vec<Act>) {
        let Some(child) = self.children.get_mut(session) else { return };
        let state = if *status == SessionStatus::Idle {
            child.stream.rest();
            child.text.clear();
            child.calls.clear();
            let reason = std::mem::replace(&mut child.end, IdleStopReason::EndTurn);
            StateUpdate::Idle(IdleStateUpdate::new().stop_reason(reason))
        } else {
            StateUpdate::Running(RunningStateUpdate::new())
        };
        self.tell_state(session, state, acts);
    }

    /// A call that waits for a subagent: from now on they belong together.
    pub(super) fn bind(&mut self, session: &SessionId, tool: &ToolPart) {
        if tool.tool != "task" {
            return;
        }
        let metadata = match &tool.state {
            ToolState::Running(running) => running.metadata.as_ref(),
            ToolState::Completed(done) => Some(&done.metadata),
            ToolState::Pending(_) | ToolState::Error(_) => None,
        };
        let child = metadata.and_then(|data| data.get("sessionId")).and_then(Json::as_str);
        let child = child.and_then(|id| SessionId::parse(id).ok());
        if let Some(child) = child.and_then(|id| self.children.get_mut(&id)).filter(|child| child.parent == *session) {
            child.task = (!tool.state.is_done()).then(|| tool.head.id.clone());
        }
    }

    pub(super) fn child_part(&mut self, session: &SessionId, part: &Part, replay: bool, acts: &mut Vec<Act>) {
        if let Part::Tool(tool) = part {
            self.bind(session, tool);
        }
        let progress = part.as_tool().and_then(|tool| self.task_progress(tool));
        let Some(child) = self.children.get_mut(session) else { return };
        child.stream.part(part, replay, &self.changes, progress, acts);
        match part {
            // What it was told to do is not what it says.
            Part::Text(text) if text.synthetic != Some(true) && !child.stream.is_prompt(&text.head.message_id) => {
                let start = text.text.ceil_char_boundary(text.text.len().saturating_sub(TAIL));
                // Its first words are told at once: it may be long until more follows.
                let first = child.text.is_empty();
                child.text = text.text[start..].to_owned();
                self.task_told(session, first, acts);
            }
            Part::Tool(tool) => {
                child.called(tool);
                self.task_told(session, true, acts);
            }
            Part::StepFinish(step) => {
                child.used = step.tokens.input + step.tokens.cache.read + step.tokens.cache.write;
                self.task_told(session, true, acts);
            }
            _ => {}
        }
    }

    pub(super) fn child_delta(&mut self, session: &SessionId, part: &PartId, delta: &str, acts: &mut Vec<Act>) {
        let Some(child) = self.children.get_mut(session) else { return };
        child.stream.delta(part, delta, acts);
        let first = child.text.is_empty();
        child.text.push_str(delta);
        if child.text.len() > 2 * TAIL {
            let start = child.text.ceil_char_boundary(child.text.len() - TAIL);
            child.text.drain(..start);
        }
        self.task_told(session, first, acts);
    }

    /// The call that waits for a subagent tells how far that is; text alone not more often than somebody can read.
    fn task_told(&mut self, session: &SessionId, now: bool, acts: &mut Vec<Act>) {
        let Some(child) = self.children.get_mut(session) else { return };
        let time = api::now();
        let Some(task) = child.task.clone().filter(|_| now || time - child.told >= PACE) else { return };
        child.told = time;
        let parent = child.parent.clone();
        let stream =
            if parent == self.root.session { Some(&self.root) } else { self.children.get(&parent).map(|c| &c.stream) };
        let Some(fields) = stream.and_then(|stream| stream.call(&task)).and_then(|call| self.task_progress(call))
        else {
            return;
        };
        if parent == self.root.session {
            self.root.progress(&task, fields, acts);
        } else if let Some(parent) = self.children.get_mut(&parent) {
            parent.stream.progress(&task, fields, acts);
        }
    }

    /// How a call that waits for a subagent looks.
    pub(super) fn task_progress(&self, tool: &ToolPart) -> Option<ToolCallUpdateFields> {
        let ToolState::Running(running) = &tool.state else { return None };
        if tool.tool != "task" {
            return None;
        }
        let metadata = running.metadata.as_ref()?;
        let child = metadata.get("sessionId").and_then(Json::as_str).and_then(|id| SessionId::parse(id).ok());
        let child = child.and_then(|id| self.children.get(&id));
        let text = child.map(Child::progress).unwrap_or_default();
        let title = running.title.clone().unwrap_or_else(|| "task".to_owned());
        let fields = ToolCallUpdateFields::new()
            .kind(ToolKind::Think)
            .status(ToolCallStatus::InProgress)
            .title(title)
            .raw_input(size::fit(running.input.clone(), size::RAW))
            .raw_output(size::fit(json!({ "metadata": metadata }), size::RAW));
        Some(if text.is_empty() { fields } else { fields.content(vec![tool_call::text(&text)]) })
    }

    pub(super) fn child_asked(
        &mut self,
        session: &SessionId,
        tool: Option<&ToolRef>,
        acts: &mut Vec<Act>,
    ) -> Option<Asked> {
        let child = self.children.get_mut(session)?;
        child.asks += 1;
        let call = child.stream.call_of(tool, acts);
        let by = (!self.abilities.subagents).then(|| child.agent.clone());
        let asked = Asked { session: child.stream.seen_on.clone(), call, by };
        self.tell_state(session, StateUpdate::RequiresAction(RequiresActionStateUpdate::new()), acts);
        Some(asked)
    }

    pub(super) fn child_answered(&mut self, session: &SessionId, acts: &mut Vec<Act>) {
        let Some(child) = self.children.get_mut(session) else { return };
        child.asks = child.asks.saturating_sub(1);
        if child.asks == 0 {
            self.tell_state(session, StateUpdate::Running(RunningStateUpdate::new()), acts);
        }
    }

    pub(super) fn child_message(&mut self, session: &SessionId, info: &Message) {
        let Some(child) = self.children.get_mut(session) else { return };
        child.stream.message(info);
        match info.as_assistant().and_then(|answer| answer.error.as_ref()) {
            None => {}
            Some(MessageError::MessageAbortedError(_)) => child.end = IdleStopReason::Cancelled,
            Some(error) => {
                let error = Error::new(-32603, error.message());
                child.end = IdleStopReason::Error(ErrorStopReason::new().error(error));
            }
        }
    }
}

/// A subagent of another program can be cancelled alone only if that says so.
fn can_be_cancelled(info: &Session) -> bool {
    let elsewhere = info.metadata.as_ref().and_then(|metadata| metadata.get("elsewhere"));
    elsewhere.is_none_or(|elsewhere| elsewhere["cancel"] == true)
}

impl Child {
    fn called(&mut self, tool: &ToolPart) {
        let (mark, title) = match &tool.state {
            ToolState::Completed(done) => ('●', done.title.as_str()),
            ToolState::Error(_) => ('✗', ""),
            ToolState::Running(running) => ('○', running.title.as_deref().unwrap_or_default()),
            ToolState::Pending(_) => ('○', ""),
        };
        let line = format!("{}  {title}", tool.tool);
        self.calls.insert(tool.head.id.clone(), (mark, size::cut(line.trim_end(), 300)));
    }

    /// What it has done and says, in a few lines.
    fn progress(&self) -> String {
        let count = self.calls.len();
        let mut head = self.agent.clone();
        if count > 0 {
            head += &format!(" · {count} call{}", if count == 1 { "" } else { "s" });
        }
        if self.cost > 0.0 {
            head += &format!(" · ${:.4}", self.cost);
        }
        let calls = self.calls.values().skip(count.saturating_sub(CALLS)).map(|(mark, line)| format!("{mark} {line}"));
        let text = Some(self.text.trim()).filter(|text| !text.is_empty()).map(|text| format!("\n{text}"));
        [head].into_iter().chain(calls).chain(text).collect::<Vec<_>>().join("\n")
    }
}
