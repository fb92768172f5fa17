//! The subagents of a run, from events alone: who works on what. A pure state machine without a terminal in it.

use std::collections::{HashMap, HashSet};

use api::{
    EventBody, Json, MessageError, Part, PartId, Session, SessionId, SessionStatus, Timestamp, ToolPart, ToolState,
    TreeState, Usage,
};
use indexmap::IndexMap;

use super::asks::summary;
use super::call::label;
use crate::picture::{self, Row};
use crate::term::{Style, one_line, plural};

/// The most sessions that are followed; more than a session can have.
const MAX_MEMBERS: usize = 1_000;
/// How wide the notes about a subagent are that say why it failed.
const MAX_WHY: usize = 200;

/// Something about a subagent that is worth a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// It began to work.
    Began(String),
    /// It stopped.
    Ended(String),
}

struct Member {
    parent: Option<SessionId>,
    agent: String,
    task: String,
    state: TreeState,
    background: bool,
    /// The calls that run, with what they are about.
    tools: IndexMap<PartId, String>,
    /// Calls and steps that were counted.
    counted: HashSet<PartId>,
    /// Why it waits or failed.
    why: String,
    used: Usage,
    since: Option<Timestamp>,
    ended: Option<Timestamp>,
}

/// The session of a run and all that it spawned.
pub struct Family {
    root: SessionId,
    style: Style,
    members: IndexMap<SessionId, Member>,
    /// Sessions that were paused; whoever is below them is held, too.
    paused: HashSet<SessionId>,
}

impl Family {
    /// Only the session itself.
    pub fn new(root: SessionId, style: Style) -> Self {
        Self { root, style, members: IndexMap::new(), paused: HashSet::new() }
    }

    /// Whether a session belongs to it.
    pub fn contains(&self, session: &SessionId) -> bool {
        *session == self.root || self.members.contains_key(session)
    }

    /// A subagent; false if it is known, none of ours, or one too many.
    pub fn add(&mut self, info: &Session) -> bool {
        let ours = info.parent_id.as_ref().is_some_and(|parent| self.contains(parent));
        if !ours || self.contains(&info.id) || self.members.len() >= MAX_MEMBERS {
            return false;
        }
        let (task, named) = title(&info.title);
        let member = Member {
            parent: info.parent_id.clone(),
            agent: info.agent.clone().or(named).unwrap_or_default(),
            task,
            state: TreeState::Idle,
            background: false,
            tools: IndexMap::new(),
            counted: HashSet::new(),
            why: String::new(),
            used: Usage::default(),
            since: None,
            ended: None,
        };
        self.members.insert(info.id.clone(), member);
        true
    }

    /// Whether there is nobody but the session itself.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether the session itself is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.contains(&self.root)
    }

    /// Whether some of them work.
    pub fn live(&self) -> bool {
        self.members.values().any(|member| member.state.is_live())
    }

    /// Takes an event in.
    pub fn event(&mut self, event: &EventBody, now: Timestamp) -> Option<Note> {
        match event {
            EventBody::SessionCreated { info, .. } => {
                self.add(info);
                return None;
            }
            EventBody::SessionDeleted { session_id, .. } => {
                self.members.shift_remove(session_id);
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
                    self.task(tool);
                }
            }
            _ => {}
        }
        let session = event.session_id()?;
        let member = self.members.get_mut(session)?;
        let was = member.state;
        member.event(event, now);
        let (session, is) = (session.clone(), member.state);
        match (was.is_live(), is.is_live()) {
            (false, true) => Some(Note::Began(self.began(&session)?)),
            (true, false) => Some(Note::Ended(self.ended(&session)?)),
            _ => None,
        }
    }

    /// A call of the task tool says what its subagent is for now, and whether its parent waits.
    fn task(&mut self, tool: &ToolPart) {
        let Some(child) = child(tool) else { return };
        let Some(member) = self.members.get_mut(&child) else { return };
        if let Some(description) = tool.state.input().get("description").and_then(Json::as_str) {
            member.task = description.to_string();
        }
        member.background = metadata(tool).is_some_and(|data| data.get("background") == Some(&Json::Bool(true)));
    }

    fn began(&self, session: &SessionId) -> Option<String> {
        let member = self.members.get(session)?;
        let line = format!("{} {}", self.style.cyan("▸"), self.style.bold(&name(member)));
        Some(format!("{}{line}  {}\n", self.indent(session), one_line(&member.task, self.style.width)))
    }

    fn ended(&self, session: &SessionId) -> Option<String> {
        let member = self.members.get(session)?;
        let mut words = vec![plural(usize::try_from(member.used.tool_calls).unwrap_or(usize::MAX), "call")];
        words.extend(member.millis(0).map(picture::elapsed));
        words.push(picture::price(&member.used));
        words.retain(|word| !word.is_empty());
        let (sign, detail) = (picture::sign(member.state, self.style), self.style.dim(&words.join(" · ")));
        let task = one_line(&member.task, self.style.width);
        let mut line = format!("{}{sign} {}  {task}  {detail}\n", self.indent(session), self.style.bold(&name(member)));
        if member.state == TreeState::Failed && !member.why.is_empty() {
            let why = self.style.red(&one_line(&member.why, MAX_WHY));
            line += &format!("{}  {why}\n", self.indent(session));
        }
        Some(line)
    }

    fn indent(&self, session: &SessionId) -> String {
        "  ".repeat(self.depth(session).saturating_sub(1))
    }

    fn depth(&self, session: &SessionId) -> usize {
        let mut depth = 0;
        let mut at = session;
        // A member's parent was a member before it, so this ends.
        while let Some(parent) = self.members.get(at).and_then(|member| member.parent.as_ref()) {
            depth += 1;
            at = parent;
        }
        depth
    }

    /// The subagents that work, each below its parent, at most so many; and how many more there are.
    pub fn rows(&self, now: Timestamp, most: usize) -> (Vec<Row>, usize) {
        let mut below: HashMap<&SessionId, Vec<&SessionId>> = HashMap::new();
        for (session, member) in &self.members {
            if let Some(parent) = &member.parent {
                below.entry(parent).or_default().push(session);
            }
        }
        let mut rows = Vec::new();
        self.collect(&self.root, 1, self.is_paused(), now, &below, &mut rows);
        let more = rows.len().saturating_sub(most);
        rows.truncate(most);
        (rows, more)
    }

    /// Those below a session that work, or have somebody below them who does; false if there are none.
    fn collect(
        &self,
        parent: &SessionId,
        depth: usize,
        held: bool,
        now: Timestamp,
        below: &HashMap<&SessionId, Vec<&SessionId>>,
        rows: &mut Vec<Row>,
    ) -> bool {
        let before = rows.len();
        for session in below.get(parent).into_iter().flatten() {
            let Some(member) = self.members.get(*session) else { continue };
            let at = rows.len();
            let held = held || self.paused.contains(*session);
            rows.push(member.row(depth, held, now));
            if !self.collect(session, depth + 1, held, now, below, rows) && !member.state.is_live() {
                rows.truncate(at);
            }
        }
        rows.len() > before
    }

    /// What all of them did, in a line, if there were any.
    pub fn summary(&self) -> Option<String> {
        let worked: Vec<&Member> = self.members.values().filter(|member| member.since.is_some()).collect();
        if worked.is_empty() {
            return None;
        }
        let mut all = Usage::default();
        worked.iter().for_each(|member| all += &member.used);
        let failed = worked.iter().filter(|member| member.state == TreeState::Failed).count();
        let mut words = vec![plural(worked.len(), "subagent")];
        if failed > 0 {
            words.push(format!("{failed} failed"));
        }
        words.push(plural(usize::try_from(all.tool_calls).unwrap_or(usize::MAX), "call"));
        words.push(format!("{} tokens", picture::short(all.all_tokens())));
        if all.cost.0 > 0.0 {
            words.push(picture::dollars(all.cost.0));
        }
        Some(words.join(" · "))
    }
}

impl Member {
    fn event(&mut self, event: &EventBody, now: Timestamp) {
        match event {
            EventBody::SessionStatus { status: SessionStatus::Busy, .. } => {
                if !self.state.is_live() {
                    (self.since, self.ended) = (Some(now), None);
                    (self.state, self.why) = (TreeState::Running, String::new());
                } else if self.state == TreeState::Retrying {
                    self.state = TreeState::Running;
                }
            }
            // Attempts are counted from 1; what waits for a budget says so itself.
            EventBody::SessionStatus { status: SessionStatus::Retry { attempt: 1.., message, .. }, .. } => {
                (self.state, self.why) = (TreeState::Retrying, message.clone());
            }
            EventBody::SessionTree { state: state @ (TreeState::Blocked | TreeState::Running), blocked, .. }
                if matches!(self.state, TreeState::Blocked | TreeState::Running) =>
            {
                self.state = *state;
                self.why = blocked.as_ref().map(|blocked| blocked.message.clone()).unwrap_or_default();
            }
            EventBody::SessionError { error: Some(error), .. } => {
                let stopped = matches!(error, MessageError::MessageAbortedError(_));
                self.why = error.message().to_string();
                self.end(if stopped { TreeState::Cancelled } else { TreeState::Failed }, now);
            }
            EventBody::SessionIdle { .. } if self.state.is_live() => self.end(TreeState::Idle, now),
            EventBody::PermissionAsked(request) => self.ask(summary(request)),
            EventBody::QuestionAsked(request) => {
                self.ask(request.questions.first().map(|first| first.question.clone()).unwrap_or_default());
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
        self.tools.clear();
    }

    fn ask(&mut self, text: String) {
        if self.state.is_live() {
            (self.state, self.why) = (TreeState::Asking, text);
        }
    }

    fn part(&mut self, part: &Part) {
        match part {
            Part::Tool(tool) => {
                let id = tool.head.id.clone();
                match &tool.state {
                    ToolState::Pending(_) | ToolState::Running(_) => {
                        let text = format!("{}  {}", tool.tool, label(tool));
                        self.tools.insert(id, text);
                    }
                    ToolState::Completed(_) | ToolState::Error(_) => {
                        self.tools.shift_remove(&id);
                        self.used.tool_calls += u64::from(self.counted.insert(id));
                    }
                }
            }
            Part::StepFinish(step) if self.counted.insert(step.head.id.clone()) => {
                let used = Usage { cost: step.cost, tokens: step.tokens.clone(), steps: 1, ..Usage::default() };
                self.used += &used;
            }
            _ => {}
        }
    }

    fn row(&self, depth: usize, held: bool, now: Timestamp) -> Row {
        // What runs ends its step first, so that a tool may still be at work.
        let held = held && matches!(self.state, TreeState::Running | TreeState::Blocked) && self.tools.is_empty();
        let state = if held { TreeState::Paused } else { self.state };
        Row {
            depth,
            state,
            background: self.background,
            agent: self.agent.clone(),
            task: self.task.clone(),
            doing: self.doing(state),
            millis: self.millis(now),
            price: picture::price(&self.used),
        }
    }

    fn doing(&self, state: TreeState) -> String {
        match state {
            TreeState::Running => self.tools.values().next_back().cloned().unwrap_or_else(|| "thinking".into()),
            TreeState::Retrying => format!("tries again: {}", self.why),
            TreeState::Asking => format!("asks: {}", self.why),
            TreeState::Paused => "paused".into(),
            TreeState::Blocked => self.why.clone(),
            TreeState::Idle => "done".into(),
            TreeState::Failed => self.why.clone(),
            TreeState::Cancelled => "cancelled".into(),
            TreeState::Interrupted => "was cut off".into(),
        }
    }

    fn millis(&self, now: Timestamp) -> Option<Timestamp> {
        Some(self.ended.unwrap_or(now) - self.since?)
    }
}

fn name(member: &Member) -> String {
    format!("{}{}", one_line(&member.agent, 40), if member.background { " &" } else { "" })
}

/// The task and the agent out of a title like `Look around (@explore subagent)`.
fn title(text: &str) -> (String, Option<String>) {
    match text.strip_suffix(" subagent)").and_then(|rest| rest.rsplit_once(" (@")) {
        Some((task, agent)) => (task.to_string(), Some(agent.to_string())),
        None => (text.to_string(), None),
    }
}

/// The subagent of a call of the task tool, once it is known.
pub fn child(tool: &ToolPart) -> Option<SessionId> {
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
#[path = "family/tests.rs"]
mod tests;
