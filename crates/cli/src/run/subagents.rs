//! Shows the subagents of a run: a line when one starts or ends, a row while it works. Pure text: it touches no terminal.

use std::collections::{HashMap, HashSet};

use api::{
    EventBody, Part, PartId, Session, SessionId, Timestamp, ToolPart, TreeChange, TreeNode, TreeState, TreeTracker,
    Usage,
};

use super::call::label;
use crate::terminal::tree_rows::{self, TreeRow};
use crate::terminal::{Style, amounts, one_line, plural};

/// The longest reason for a failure that is shown.
const MAX_REASON: usize = 200;
/// The most open calls of a subagent whose labels are kept.
const MAX_LABELS: usize = 256;

/// A line about a subagent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubagentNotice {
    /// It started to work.
    Started(String),
    /// It stopped.
    Ended(String),
}

/// The session of a run and all its subagents.
pub struct SubagentTracker {
    root: SessionId,
    style: Style,
    tracker: TreeTracker,
    /// What the open calls of each subagent are about.
    labels: HashMap<SessionId, HashMap<PartId, String>>,
}

impl SubagentTracker {
    /// Only the session itself.
    pub fn new(root: SessionId, style: Style) -> Self {
        Self { tracker: TreeTracker::new(root.clone()), root, style, labels: HashMap::new() }
    }

    /// Whether a session is the root or one of its subagents.
    pub fn contains(&self, session: &SessionId) -> bool {
        *session == self.root || self.tracker.contains(session)
    }

    /// Adds a subagent. Returns false if it is known, belongs to another session, or is one too many.
    pub fn add(&mut self, info: &Session) -> bool {
        self.tracker.add(info)
    }

    /// Whether there are no subagents.
    pub fn is_empty(&self) -> bool {
        self.tracker.descendants() == 0
    }

    /// Whether the session itself is paused.
    pub fn is_paused(&self) -> bool {
        self.tracker.is_paused()
    }

    /// Whether a subagent works.
    pub fn has_live(&self) -> bool {
        self.tracker.has_live_descendant()
    }

    /// Applies an event.
    pub fn event(&mut self, event: &EventBody, now: Timestamp) -> Option<SubagentNotice> {
        // Growing text is most of the events, and is not shown here.
        if matches!(event, EventBody::PartDelta { .. }) {
            return None;
        }
        let changes = self.tracker.apply(event, now);
        if let EventBody::PartUpdated { session_id, part, .. } = event
            && let Part::Tool(tool) = &**part
        {
            self.label_call(session_id, tool);
        }
        let mut notice = None;
        for change in changes {
            match change {
                TreeChange::Started(session) if session != self.root => {
                    notice = self.start_line(&session).map(SubagentNotice::Started);
                }
                TreeChange::Stopped(session) if session != self.root => {
                    notice = self.end_line(&session).map(SubagentNotice::Ended);
                    self.labels.remove(&session);
                }
                TreeChange::Removed(session) => drop(self.labels.remove(&session)),
                _ => {}
            }
        }
        notice
    }

    fn label_call(&mut self, session: &SessionId, tool: &ToolPart) {
        if *session == self.root || !self.tracker.contains(session) {
            return;
        }
        let labels = self.labels.entry(session.clone()).or_default();
        if tool.state.is_done() {
            labels.remove(&tool.head.id);
        } else if labels.len() < MAX_LABELS {
            labels.insert(tool.head.id.clone(), format!("{}  {}", tool.tool, label(tool)));
        }
    }

    fn node(&self, session: &SessionId) -> Option<TreeNode> {
        self.tracker.tree().sessions.into_iter().find(|node| node.session_id == *session)
    }

    fn start_line(&self, session: &SessionId) -> Option<String> {
        let node = self.node(session)?;
        let line = format!("{} {}", self.style.cyan("▸"), self.style.bold(&name(&node)));
        Some(format!("{}{line}  {}\n", indent(&node), one_line(&self.task(&node), self.style.width)))
    }

    fn end_line(&self, session: &SessionId) -> Option<String> {
        let (node, used) = (self.node(session)?, self.used(session));
        let mut words = vec![plural(usize::try_from(used.tool_calls).unwrap_or(usize::MAX), "call")];
        words.extend(millis(&node, 0).map(amounts::elapsed));
        words.push(amounts::price(&used));
        words.retain(|word| !word.is_empty());
        let (symbol, detail) = (tree_rows::symbol(node.state, self.style), self.style.dim(&words.join(" · ")));
        let task = one_line(&self.task(&node), self.style.width);
        let mut line = format!("{}{symbol} {}  {task}  {detail}\n", indent(&node), self.style.bold(&name(&node)));
        let reason = self.tracker.reason(session);
        if node.state == TreeState::Failed && !reason.is_empty() {
            let reason = self.style.red(&one_line(reason, MAX_REASON));
            line += &format!("{}  {reason}\n", indent(&node));
        }
        Some(line)
    }

    /// The first rows of the working subagents, each below its parent; and how many more there are.
    pub fn rows(&self, now: Timestamp, max: usize) -> (Vec<TreeRow>, usize) {
        let nodes = self.tracker.tree().sessions;
        // Those that work, and those above them.
        let mut shown: HashSet<&SessionId> = HashSet::new();
        for node in nodes.iter().rev() {
            if node.state.is_live() || shown.contains(&node.session_id) {
                shown.insert(&node.session_id);
                shown.extend(&node.parent_id);
            }
        }
        let below = nodes.iter().filter(|node| node.session_id != self.root && shown.contains(&node.session_id));
        let mut rows: Vec<TreeRow> = below.map(|node| self.row(node, now)).collect();
        let more = rows.len().saturating_sub(max);
        rows.truncate(max);
        (rows, more)
    }

    /// What all subagents did, in a line; `None` without subagents.
    pub fn summary(&self) -> Option<String> {
        let mut nodes = self.tracker.tree().sessions;
        nodes.retain(|node| node.session_id != self.root && node.started.is_some());
        if nodes.is_empty() {
            return None;
        }
        let mut all = Usage::default();
        nodes.iter().for_each(|node| all += &self.used(&node.session_id));
        let failed = nodes.iter().filter(|node| node.state == TreeState::Failed).count();
        let mut words = vec![plural(nodes.len(), "subagent")];
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

    fn row(&self, node: &TreeNode, now: Timestamp) -> TreeRow {
        TreeRow {
            depth: node.depth as usize,
            state: node.state,
            background: node.background,
            agent: agent(node),
            task: self.task(node),
            doing: self.doing(node),
            millis: millis(node, now),
            price: amounts::price(&self.used(&node.session_id)),
        }
    }

    fn doing(&self, node: &TreeNode) -> String {
        let reason = self.tracker.reason(&node.session_id);
        match node.state {
            TreeState::Running => self.call(&node.session_id).unwrap_or_else(|| "thinking".into()),
            TreeState::Retrying => format!("retrying: {reason}"),
            TreeState::Asking => format!("asks: {reason}"),
            TreeState::Paused => "paused".into(),
            TreeState::Idle => "done".into(),
            TreeState::Blocked | TreeState::Failed => reason.into(),
            TreeState::Cancelled => "cancelled".into(),
            TreeState::Interrupted => "interrupted".into(),
        }
    }

    /// What the newest open call of a subagent is about.
    fn call(&self, session: &SessionId) -> Option<String> {
        let (part, call) = self.tracker.open_call(session)?;
        let label = self.labels.get(session).and_then(|labels| labels.get(part));
        Some(label.unwrap_or(&call.tool).clone())
    }

    fn used(&self, session: &SessionId) -> Usage {
        self.tracker.used(session).cloned().unwrap_or_default()
    }

    fn task(&self, node: &TreeNode) -> String {
        self.tracker.task(&node.session_id).map_or_else(|| parse_title(&node.title).0, str::to_owned)
    }
}

fn name(node: &TreeNode) -> String {
    format!("{}{}", one_line(&agent(node), 40), if node.background { " &" } else { "" })
}

fn agent(node: &TreeNode) -> String {
    node.agent.clone().or_else(|| parse_title(&node.title).1).unwrap_or_default()
}

fn indent(node: &TreeNode) -> String {
    "  ".repeat((node.depth as usize).saturating_sub(1))
}

fn millis(node: &TreeNode, now: Timestamp) -> Option<Timestamp> {
    Some(node.ended.unwrap_or(now) - node.started?)
}

/// The task and the agent in a title like `Look around (@explore subagent)`.
fn parse_title(text: &str) -> (String, Option<String>) {
    match text.strip_suffix(" subagent)").and_then(|rest| rest.rsplit_once(" (@")) {
        Some((task, agent)) => (task.to_string(), Some(agent.to_string())),
        None => (text.to_string(), None),
    }
}

#[cfg(test)]
mod tests;
