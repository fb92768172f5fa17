//! Tracks a session and its descendants: events and reads go in, changes and the tree come out. No I/O, no clock.
//!
//! [`TreeTracker`] serves every face. It works on Trefoil, whose tree can be read, and on OpenCode, where the tree is
//! put together from sessions, statuses, messages and asks.

mod activity;
mod nodes;
mod report;
mod transcript;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use indexmap::IndexMap;

pub use report::{
    Ask, FileChanges, Progress, SessionUsage, Subagent, SubagentState, SubagentTree, ToolUse, TreeChange, TurnOutcome,
};

use crate::{
    CurrentTool, EventBody, Json, MessageWithParts, Part, PartId, Session, SessionId, SessionStatus, Timestamp,
    ToolPart, Tree, TreeNode, TreeState, Usage,
};
use activity::Activity;
use transcript::{ReadReason, Transcript};

/// The state of a tree as read from a host.
#[derive(Debug, Clone, Default)]
pub struct TreeSnapshot {
    /// Each parent before its children, the root first.
    pub sessions: Vec<SessionSnapshot>,
    /// The open asks.
    pub asks: Vec<Ask>,
    /// The tree itself, where the host has one: it also knows pauses, budgets and worktrees.
    pub tree: Option<Tree>,
    /// Whether there are more sessions.
    pub truncated: bool,
}

/// The state of a session as read from a host.
#[derive(Debug, Clone)]
pub struct SessionSnapshot {
    /// Its row.
    pub session: Session,
    /// Idle only if it was idle both before and after its messages were read.
    pub status: SessionStatus,
    /// The newest messages, oldest first; fewer than [`TreeTracker::MAX_MESSAGES`] are all of them.
    pub messages: Vec<MessageWithParts>,
}

/// A session of the tree.
struct Node {
    transcript: Transcript,
    activity: Activity,
    /// What the host's own tree said last.
    listed: Option<Box<TreeNode>>,
}

impl Node {
    fn new(transcript: Transcript) -> Self {
        Self { transcript, activity: Activity::default(), listed: None }
    }

    /// Applies something to the node, and reports what that did to its activity.
    fn change(
        &mut self,
        out: &mut Vec<TreeChange>,
        now: Timestamp,
        apply: impl FnOnce(&mut Self, &mut Vec<TreeChange>),
    ) {
        let (before, from) = (self.activity.summary(), out.len());
        apply(self, out);
        for change in &out[from..] {
            if let TreeChange::Completed(_, outcome, _) = change {
                self.activity.finish(outcome, now);
            }
        }
        let after = self.activity.summary();
        let id = || self.transcript.id.clone();
        match (before.state.is_live(), after.state.is_live()) {
            (false, true) => out.push(TreeChange::Started(id())),
            (true, false) => out.push(TreeChange::Stopped(id())),
            _ if before != after => out.push(TreeChange::Changed(id())),
            _ => {}
        }
    }
}

/// A session and its descendants.
///
/// After a gap the same facts arrive twice: first in what is read, then in the older events that led to it. They are
/// reported once, and nothing goes backwards.
pub struct TreeTracker {
    root: SessionId,
    /// Each parent before its children.
    nodes: IndexMap<SessionId, Node>,
    truncated: bool,
}

impl TreeTracker {
    /// The most sessions of a tree that are tracked.
    pub const MAX_SESSIONS: usize = 4096;
    /// How many of a session's newest messages are read.
    pub const MAX_MESSAGES: usize = 100;

    /// Starts with a session of which only the id is known.
    pub fn new(root: SessionId) -> Self {
        let node = Node::new(Transcript::unknown(root.clone()));
        Self { nodes: IndexMap::from([(root.clone(), node)]), root, truncated: false }
    }

    /// Starts with a snapshot, whose content is not reported.
    pub fn from_snapshot(root: SessionId, snapshot: TreeSnapshot, now: Timestamp) -> Self {
        let mut tracker = Self { root, nodes: IndexMap::new(), truncated: false };
        tracker.resync(snapshot, false, now);
        tracker
    }

    /// Starts with a host's own tree; `None` if it is empty.
    pub fn from_tree(tree: &Tree) -> Option<Self> {
        let root = tree.sessions.first()?.session_id.clone();
        let mut tracker = Self { root, nodes: IndexMap::new(), truncated: false };
        for listed in tree.sessions.iter().take(Self::MAX_SESSIONS) {
            let mut transcript = Transcript::unknown(listed.session_id.clone());
            transcript.parent.clone_from(&listed.parent_id);
            transcript.title.clone_from(&listed.title);
            transcript.agent.clone_from(&listed.agent);
            transcript.model.clone_from(&listed.model);
            transcript.created = listed.created;
            tracker.nodes.insert(listed.session_id.clone(), Node::new(transcript));
        }
        tracker.truncated = tree.sessions.len() > Self::MAX_SESSIONS;
        tracker.apply_tree(tree, 0);
        Some(tracker)
    }

    /// Adds the root, or a session whose parent belongs to the tree. Returns whether it is new.
    pub fn add(&mut self, session: &Session) -> bool {
        let belongs =
            session.id == self.root || session.parent_id.as_ref().is_some_and(|parent| self.nodes.contains_key(parent));
        if !belongs || self.nodes.contains_key(&session.id) {
            return false;
        }
        if self.nodes.len() >= Self::MAX_SESSIONS {
            self.truncated = true;
            return false;
        }
        self.nodes.insert(session.id.clone(), Node::new(Transcript::new(session)));
        true
    }

    /// Applies an event, and returns what changed, of the root too. Events must arrive in order.
    pub fn apply(&mut self, event: &EventBody, now: Timestamp) -> Vec<TreeChange> {
        let mut out = Vec::new();
        match event {
            EventBody::SessionCreated { info, .. } if self.add(info) => out.push(TreeChange::Created(info.clone())),
            EventBody::SessionDeleted { session_id, .. } => self.remove(session_id, &mut out),
            EventBody::PartUpdated { session_id, part, .. } => {
                if let Part::Tool(tool) = &**part {
                    self.apply_task_call(session_id, tool, now, &mut out);
                }
                self.apply_to_node(event, now, &mut out);
            }
            EventBody::SessionTree { session_id, state: TreeState::Running, .. } => {
                self.apply_to_node(event, now, &mut out);
                self.resume_below(session_id, now, &mut out);
            }
            event => self.apply_to_node(event, now, &mut out),
        }
        out
    }

    fn apply_to_node(&mut self, event: &EventBody, now: Timestamp, out: &mut Vec<TreeChange>) {
        if let Some(node) = event.session_id().and_then(|id| self.nodes.get_mut(id)) {
            node.change(out, now, |node, out| {
                node.activity.apply(event, now);
                node.transcript.apply(event, out);
            });
        }
    }

    /// Applies a call of the `task` tool on its own, for callers that follow messages themselves.
    pub fn link_task_call(&mut self, caller: &SessionId, tool: &ToolPart) {
        self.apply_task_call(caller, tool, 0, &mut Vec::new());
    }

    /// A call of the `task` tool tells what its subagent is working on.
    fn apply_task_call(&mut self, caller: &SessionId, tool: &ToolPart, now: Timestamp, out: &mut Vec<TreeChange>) {
        let Some(node) = task_session(tool).and_then(|child| self.nodes.get_mut(&child)) else { return };
        let by_parent = node.transcript.parent.as_ref() == Some(caller);
        node.change(out, now, |node, _| node.activity.apply_task_call(tool, by_parent));
    }

    /// Lets the sessions below one that was resumed continue.
    fn resume_below(&mut self, session: &SessionId, now: Timestamp, out: &mut Vec<TreeChange>) {
        for id in self.subtree(session) {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.change(out, now, |node, _| node.activity.resume());
            }
        }
    }

    /// Applies a snapshot after events may have been missed. With `is_recheck` it is the second read of an uncertain
    /// session: a turn that still looks interrupted was.
    pub fn resync(&mut self, snapshot: TreeSnapshot, is_recheck: bool, now: Timestamp) -> Vec<TreeChange> {
        let mut out = Vec::new();
        let TreeSnapshot { sessions, asks, tree, truncated } = snapshot;
        self.truncated |= truncated;
        let existing: HashSet<&SessionId> = sessions.iter().map(|snapshot| &snapshot.session.id).collect();
        let gone: Vec<SessionId> = self.nodes.keys().filter(|id| !existing.contains(id)).cloned().collect();
        for id in gone.iter().rev() {
            self.remove(id, &mut out);
        }
        let mut asking: HashMap<SessionId, Vec<Ask>> = HashMap::new();
        for ask in asks {
            asking.entry(ask.session_id().clone()).or_default().push(ask);
        }
        for snapshot in &sessions {
            let id = &snapshot.session.id;
            let reason = match self.add(&snapshot.session) {
                true => {
                    out.push(TreeChange::Created(Box::new(snapshot.session.clone())));
                    ReadReason::New
                }
                false if is_recheck => ReadReason::Recheck,
                false => ReadReason::Resync,
            };
            let asks = asking.remove(id).unwrap_or_default();
            if let Some(node) = self.nodes.get_mut(id) {
                node.change(&mut out, now, |node, out| {
                    node.transcript.apply_snapshot(snapshot, reason, out);
                    let outcome = node.transcript.outcome_of_last_turn();
                    node.activity.apply_read(&snapshot.status, &snapshot.messages, outcome, now);
                    node.activity.apply_asks(asks.iter());
                    node.transcript.apply_asks(asks, out);
                });
            }
        }
        // Now that all children are known.
        for SessionSnapshot { session, messages, .. } in &sessions {
            for tool in messages.iter().flat_map(|message| &message.parts).filter_map(Part::as_tool) {
                self.apply_task_call(&session.id, tool, now, &mut out);
            }
        }
        if let Some(tree) = tree {
            out.extend(self.apply_tree(&tree, now));
        }
        out
    }

    /// Applies a host's own tree to the sessions that are tracked.
    pub fn apply_tree(&mut self, tree: &Tree, now: Timestamp) -> Vec<TreeChange> {
        let mut out = Vec::new();
        for listed in &tree.sessions {
            if let Some(node) = self.nodes.get_mut(&listed.session_id) {
                node.listed = Some(Box::new(listed.clone()));
                node.change(&mut out, now, |node, _| node.activity.apply_node(listed));
            }
        }
        out
    }

    /// Whether a session is the root or below it.
    pub fn contains(&self, session: &SessionId) -> bool {
        self.nodes.contains_key(session)
    }

    /// The number of sessions below the root.
    pub fn descendants(&self) -> usize {
        self.nodes.len().saturating_sub(usize::from(!self.is_gone()))
    }

    /// Whether the root was deleted, and everything with it.
    pub fn is_gone(&self) -> bool {
        !self.nodes.contains_key(&self.root)
    }

    /// Whether a session works: the root, or one below it.
    pub fn has_live(&self) -> bool {
        self.nodes.values().any(|node| node.activity.state.is_live())
    }

    /// Whether a session below the root works.
    pub fn has_live_descendant(&self) -> bool {
        self.nodes.values().any(|node| node.transcript.id != self.root && node.activity.state.is_live())
    }

    /// Whether the root itself is paused.
    pub fn is_paused(&self) -> bool {
        self.nodes.get(&self.root).is_some_and(|node| node.activity.paused)
    }

    /// Whether only another read can show how a turn ended.
    pub fn is_uncertain(&self) -> bool {
        self.nodes.values().any(|node| node.transcript.is_uncertain())
    }

    /// Whether a session of the tree works in this directory.
    pub fn is_in(&self, directory: &str) -> bool {
        self.nodes.values().any(|node| node.transcript.directory == directory)
    }

    /// The directories that the sessions of the tree work in.
    pub fn directories(&self) -> HashSet<&str> {
        self.nodes.values().map(|node| node.transcript.directory.as_str()).collect()
    }

    /// The sessions of the tree, each after its parent.
    pub fn session_ids(&self) -> impl Iterator<Item = &SessionId> {
        self.nodes.keys()
    }

    /// Whether a session works, as far as is known; `None` for an unknown one.
    pub fn is_live(&self, session: &SessionId) -> Option<bool> {
        Some(self.nodes.get(session)?.activity.state.is_live())
    }

    /// The parent of a session within the tree. The root's own parent is outside it.
    pub fn parent(&self, session: &SessionId) -> Option<&SessionId> {
        let node = self.nodes.get(session).filter(|_| *session != self.root)?;
        node.transcript.parent.as_ref()
    }

    /// The agent of a session.
    pub fn agent(&self, session: &SessionId) -> Option<&str> {
        self.nodes.get(session)?.transcript.agent.as_deref()
    }

    /// The task of a session: what its last `task` call named.
    pub fn task(&self, session: &SessionId) -> Option<&str> {
        self.nodes.get(session)?.activity.task.as_deref()
    }

    /// The unfinished `task` call that a session works for.
    pub fn task_call(&self, session: &SessionId) -> Option<&PartId> {
        self.nodes.get(session)?.activity.task_call.as_ref()
    }

    /// The newest open call of a session.
    pub fn open_call(&self, session: &SessionId) -> Option<(&PartId, &CurrentTool)> {
        self.nodes.get(session)?.activity.calls.last()
    }

    /// The number of a session's open asks.
    pub fn open_asks(&self, session: &SessionId) -> usize {
        self.nodes.get(session).map_or(0, |node| node.activity.asks.len())
    }

    /// Why a session asks, waits for its budget, retries, or failed; empty without a reason.
    pub fn reason(&self, session: &SessionId) -> &str {
        let Some(activity) = self.nodes.get(session).map(|node| &node.activity) else { return "" };
        match activity.state {
            TreeState::Asking => activity.asks.values().next_back().map_or("", String::as_str),
            _ => &activity.reason,
        }
    }

    /// What the calls and steps of a session used that ended while it was tracked.
    pub fn used(&self, session: &SessionId) -> Option<&Usage> {
        Some(&self.nodes.get(session)?.activity.used)
    }

    /// Removes a session and its descendants, deepest first.
    fn remove(&mut self, id: &SessionId, out: &mut Vec<TreeChange>) {
        let removed: HashSet<SessionId> = self.subtree(id).into_iter().collect();
        let removed_ids = self.nodes.keys().rev().filter(|id| removed.contains(*id));
        out.extend(removed_ids.map(|id| TreeChange::Removed(id.clone())));
        self.nodes.retain(|id, _| !removed.contains(id));
    }

    /// A session and its descendants, each after its parent; empty if it is not in the tree.
    fn subtree(&self, id: &SessionId) -> Vec<SessionId> {
        let mut found: HashSet<&SessionId> = HashSet::new();
        for (own, node) in &self.nodes {
            if own == id || node.transcript.parent.as_ref().is_some_and(|parent| found.contains(parent)) {
                found.insert(own);
            }
        }
        self.nodes.keys().filter(|id| found.contains(id)).cloned().collect()
    }
}

/// The session of the subagent that a call of the `task` tool started, once it is known.
pub fn task_session(tool: &ToolPart) -> Option<SessionId> {
    let metadata = activity::metadata(tool).filter(|_| tool.tool == "task")?;
    SessionId::parse(metadata.get("sessionId").and_then(Json::as_str)?).ok()
}
