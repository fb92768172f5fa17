//! The subagents of a run, from events alone: who does what. A pure state machine that touches no terminal.

use std::collections::{HashMap, HashSet};

use api::{
    EventBody, Json, MessageError, Part, PartId, Session, SessionId, SessionStatus, Timestamp, ToolPart, ToolState,
    TreeState, Usage,
};
use indexmap::IndexMap;

use super::asks::summary;
use super::call::label;
use crate::terminal::tree_rows::{self, TreeRow};
use crate::terminal::{Style, amounts, one_line, plural};

/// The most subagents that are followed; a session cannot have more.
const MAX_SUBAGENTS: usize = 1_000;
/// The longest reason for a failure that is shown.
const MAX_REASON: usize = 200;

/// A line about a subagent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubagentNotice {
    /// It started to work.
    Started(String),
    /// It stopped.
    Ended(String),
}

struct Subagent {
    parent: Option<SessionId>,
    agent: String,
    task: String,
    state: TreeState,
    background: bool,
    /// The running calls, with what they are about.
    calls: IndexMap<PartId, String>,
    /// The calls and steps that are counted in `usage`.
    counted: HashSet<PartId>,
    /// Why it waits or failed.
    reason: String,
    usage: Usage,
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
}

/// The session of a run and all its subagents.
pub struct SubagentTracker {
    root: SessionId,
    style: Style,
    subagents: IndexMap<SessionId, Subagent>,
    /// The paused sessions; everything below them is held too.
    paused: HashSet<SessionId>,
}

impl SubagentTracker {
    /// Only the session itself.
    pub fn new(root: SessionId, style: Style) -> Self {
        Self { root, style, subagents: IndexMap::new(), paused: HashSet::new() }
    }

    /// Whether a session is the root or one of its subagents.
    pub fn contains(&self, session: &SessionId) -> bool {
        *session == self.root || self.subagents.contains_key(session)
    }

    /// Adds a subagent. Returns false if it is known, belongs to another session, or is one too many.
    pub fn add(&mut self, info: &Session) -> bool {
        let ours = info.parent_id.as_ref().is_some_and(|parent| self.contains(parent));
        if !ours || self.contains(&info.id) || self.subagents.len() >= MAX_SUBAGENTS {
            return false;
        }
        let (task, named) = parse_title(&info.title);
        let subagent = Subagent {
            parent: info.parent_id.clone(),
            agent: info.agent.clone().or(named).unwrap_or_default(),
            task,
            state: TreeState::Idle,
            background: false,
            calls: IndexMap::new(),
            counted: HashSet::new(),
            reason: String::new(),
            usage: Usage::default(),
            started: None,
            ended: None,
        };
        self.subagents.insert(info.id.clone(), subagent);
        true
    }

    /// Whether there are no subagents.
    pub fn is_empty(&self) -> bool {
        self.subagents.is_empty()
    }

    /// Whether the session itself is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.contains(&self.root)
    }

    /// Whether a subagent works.
    pub fn has_live(&self) -> bool {
        self.subagents.values().any(|subagent| subagent.state.is_live())
    }

    /// Applies an event.
    pub fn event(&mut self, event: &EventBody, now: Timestamp) -> Option<SubagentNotice> {
        match event {
            EventBody::SessionCreated { info, .. } => {
                self.add(info);
                return None;
            }
            EventBody::SessionDeleted { session_id, .. } => {
                self.subagents.shift_remove(session_id);
                self.paused.remove(session_id);
                return None;
            }
            EventBody::SessionTree { session_id, state, .. } if self.contains(session_id) => {
                match state {
                    TreeState::Paused => self.paused.insert(session_id.clone()),
                    _ => self.paused.remove(session_id),
                };
            }
            EventBody::PartUpdated { part, .. } => {
                if let Part::Tool(tool) = &**part {
                    self.task_call(tool);
                }
            }
            _ => {}
        }
        let session = event.session_id()?;
        let subagent = self.subagents.get_mut(session)?;
        let before = subagent.state;
        subagent.event(event, now);
        let (session, after) = (session.clone(), subagent.state);
        match (before.is_live(), after.is_live()) {
            (false, true) => Some(SubagentNotice::Started(self.start_line(&session)?)),
            (true, false) => Some(SubagentNotice::Ended(self.end_line(&session)?)),
            _ => None,
        }
    }

    /// A call of the task tool names its subagent's current task, and tells whether the caller waits.
    fn task_call(&mut self, tool: &ToolPart) {
        let Some(child) = child_session(tool) else { return };
        let Some(subagent) = self.subagents.get_mut(&child) else { return };
        if let Some(description) = tool.state.input().get("description").and_then(Json::as_str) {
            subagent.task = description.to_string();
        }
        subagent.background = metadata(tool).is_some_and(|data| data.get("background") == Some(&Json::Bool(true)));
    }

    fn start_line(&self, session: &SessionId) -> Option<String> {
        let subagent = self.subagents.get(session)?;
        let line = format!("{} {}", self.style.cyan("▸"), self.style.bold(&name(subagent)));
        Some(format!("{}{line}  {}\n", self.indent(session), one_line(&subagent.task, self.style.width)))
    }

    fn end_line(&self, session: &SessionId) -> Option<String> {
        let subagent = self.subagents.get(session)?;
        let mut words = vec![plural(usize::try_from(subagent.usage.tool_calls).unwrap_or(usize::MAX), "call")];
        words.extend(subagent.millis(0).map(amounts::elapsed));
        words.push(amounts::price(&subagent.usage));
        words.retain(|word| !word.is_empty());
        let (symbol, detail) = (tree_rows::symbol(subagent.state, self.style), self.style.dim(&words.join(" · ")));
        let task = one_line(&subagent.task, self.style.width);
        let mut line =
            format!("{}{symbol} {}  {task}  {detail}\n", self.indent(session), self.style.bold(&name(subagent)));
        if subagent.state == TreeState::Failed && !subagent.reason.is_empty() {
            let reason = self.style.red(&one_line(&subagent.reason, MAX_REASON));
            line += &format!("{}  {reason}\n", self.indent(session));
        }
        Some(line)
    }

    fn indent(&self, session: &SessionId) -> String {
        "  ".repeat(self.depth(session).saturating_sub(1))
    }

    fn depth(&self, session: &SessionId) -> usize {
        let mut depth = 0;
        let mut at = session;
        // A parent is added before its children, so this ends.
        while let Some(parent) = self.subagents.get(at).and_then(|subagent| subagent.parent.as_ref()) {
            depth += 1;
            at = parent;
        }
        depth
    }

    /// The first rows of the working subagents, each below its parent; and how many more there are.
    pub fn rows(&self, now: Timestamp, max: usize) -> (Vec<TreeRow>, usize) {
        let mut below: HashMap<&SessionId, Vec<&SessionId>> = HashMap::new();
        for (session, subagent) in &self.subagents {
            if let Some(parent) = &subagent.parent {
                below.entry(parent).or_default().push(session);
            }
        }
        let mut rows = Vec::new();
        self.collect(&self.root, 1, self.is_paused(), now, &below, &mut rows);
        let more = rows.len().saturating_sub(max);
        rows.truncate(max);
        (rows, more)
    }

    /// Adds rows for the subagents below a session that work or have working ones below them. Returns whether there are any.
    fn collect(
        &self,
        parent: &SessionId,
        depth: usize,
        held: bool,
        now: Timestamp,
        below: &HashMap<&SessionId, Vec<&SessionId>>,
        rows: &mut Vec<TreeRow>,
    ) -> bool {
        let before = rows.len();
        for session in below.get(parent).into_iter().flatten() {
            let Some(subagent) = self.subagents.get(*session) else { continue };
            let at = rows.len();
            let held = held || self.paused.contains(*session);
            rows.push(subagent.row(depth, held, now));
            if !self.collect(session, depth + 1, held, now, below, rows) && !subagent.state.is_live() {
                rows.truncate(at);
            }
        }
        rows.len() > before
    }

    /// What all subagents did, in a line; `None` without subagents.
    pub fn summary(&self) -> Option<String> {
        let worked: Vec<&Subagent> = self.subagents.values().filter(|subagent| subagent.started.is_some()).collect();
        if worked.is_empty() {
            return None;
        }
        let mut all = Usage::default();
        worked.iter().for_each(|subagent| all += &subagent.usage);
        let failed = worked.iter().filter(|subagent| subagent.state == TreeState::Failed).count();
        let mut words = vec![plural(worked.len(), "subagent")];
        if failed > 0 {
            words.push(format!("{failed} failed"));
        }
        words.push(plural(usize::try_from(all.tool_calls).unwrap_or(usize::MAX), "call"));
        words.push(format!("{} tokens", amounts::short_count(all.all_tokens())));
        if all.cost.0 > 0.0 {
            words.push(amounts::dollars(all.cost.0));
        }
        Some(words.join(" · "))
    }
}

impl Subagent {
    fn event(&mut self, event: &EventBody, now: Timestamp) {
        match event {
            EventBody::SessionStatus { status: SessionStatus::Busy, .. } => {
                if !self.state.is_live() {
                    (self.started, self.ended) = (Some(now), None);
                    (self.state, self.reason) = (TreeState::Running, String::new());
                } else if self.state == TreeState::Retrying {
                    self.state = TreeState::Running;
                }
            }
            // Attempts count from 1. Attempt 0 is a wait for a budget, which has its own event.
            EventBody::SessionStatus { status: SessionStatus::Retry { attempt: 1.., message, .. }, .. } => {
                (self.state, self.reason) = (TreeState::Retrying, message.clone());
            }
            EventBody::SessionTree { state: state @ (TreeState::Blocked | TreeState::Running), blocked, .. }
                if matches!(self.state, TreeState::Blocked | TreeState::Running) =>
            {
                self.state = *state;
                self.reason = blocked.as_ref().map(|blocked| blocked.message.clone()).unwrap_or_default();
            }
            EventBody::SessionError { error: Some(error), .. } => {
                let stopped = matches!(error, MessageError::MessageAbortedError(_));
                self.reason = error.message().to_string();
                self.end(if stopped { TreeState::Cancelled } else { TreeState::Failed }, now);
            }
            EventBody::SessionIdle { .. } if self.state.is_live() => self.end(TreeState::Idle, now),
            EventBody::PermissionAsked(request) => self.start_asking(summary(request)),
            EventBody::QuestionAsked(request) => {
                self.start_asking(request.questions.first().map(|first| first.question.clone()).unwrap_or_default());
            }
            EventBody::PermissionReplied { .. }
            | EventBody::QuestionReplied { .. }
            | EventBody::QuestionRejected { .. }
                if self.state == TreeState::Asking =>
            {
                self.state = TreeState::Running;
            }
            EventBody::PartUpdated { part, .. } => self.part(part),
            _ => {}
        }
    }

    fn end(&mut self, state: TreeState, now: Timestamp) {
        self.state = state;
        self.ended = Some(now);
        self.calls.clear();
    }

    fn start_asking(&mut self, text: String) {
        if self.state.is_live() {
            (self.state, self.reason) = (TreeState::Asking, text);
        }
    }

    fn part(&mut self, part: &Part) {
        match part {
            Part::Tool(tool) => {
                let id = tool.head.id.clone();
                match &tool.state {
                    ToolState::Pending(_) | ToolState::Running(_) => {
                        let text = format!("{}  {}", tool.tool, label(tool));
                        self.calls.insert(id, text);
                    }
                    ToolState::Completed(_) | ToolState::Error(_) => {
                        self.calls.shift_remove(&id);
                        self.usage.tool_calls += u64::from(self.counted.insert(id));
                    }
                }
            }
            Part::StepFinish(step) if self.counted.insert(step.head.id.clone()) => {
                let usage = Usage { cost: step.cost, tokens: step.tokens.clone(), steps: 1, ..Usage::default() };
                self.usage += &usage;
            }
            _ => {}
        }
    }

    fn row(&self, depth: usize, held: bool, now: Timestamp) -> TreeRow {
        // A running step ends first, so a call may still be running.
        let held = held && matches!(self.state, TreeState::Running | TreeState::Blocked) && self.calls.is_empty();
        let state = if held { TreeState::Paused } else { self.state };
        TreeRow {
            depth,
            state,
            background: self.background,
            agent: self.agent.clone(),
            task: self.task.clone(),
            doing: self.doing(state),
            millis: self.millis(now),
            price: amounts::price(&self.usage),
        }
    }

    fn doing(&self, state: TreeState) -> String {
        match state {
            TreeState::Running => self.calls.values().next_back().cloned().unwrap_or_else(|| "thinking".into()),
            TreeState::Retrying => format!("retrying: {}", self.reason),
            TreeState::Asking => format!("asks: {}", self.reason),
            TreeState::Paused => "paused".into(),
            TreeState::Blocked => self.reason.clone(),
            TreeState::Idle => "done".into(),
            TreeState::Failed => self.reason.clone(),
            TreeState::Cancelled => "cancelled".into(),
            TreeState::Interrupted => "interrupted".into(),
        }
    }

    fn millis(&self, now: Timestamp) -> Option<Timestamp> {
        Some(self.ended.unwrap_or(now) - self.started?)
    }
}

fn name(subagent: &Subagent) -> String {
    format!("{}{}", one_line(&subagent.agent, 40), if subagent.background { " &" } else { "" })
}

/// The task and the agent in a title like `Look around (@explore subagent)`.
fn parse_title(text: &str) -> (String, Option<String>) {
    match text.strip_suffix(" subagent)").and_then(|rest| rest.rsplit_once(" (@")) {
        Some((task, agent)) => (task.to_string(), Some(agent.to_string())),
        None => (text.to_string(), None),
    }
}

/// The session of a `task` call's subagent, once it is known.
pub fn child_session(tool: &ToolPart) -> Option<SessionId> {
    let id = metadata(tool).filter(|_| tool.tool == "task")?.get("sessionId")?.as_str()?;
    SessionId::parse(id).ok()
}

fn metadata(tool: &ToolPart) -> Option<&api::JsonMap> {
    match &tool.state {
        ToolState::Running(running) => running.metadata.as_ref(),
        ToolState::Completed(done) => Some(&done.metadata),
        ToolState::Error(error) => error.metadata.as_ref(),
        ToolState::Pending(_) => None,
    }
}

#[cfg(test)]
mod tests;
