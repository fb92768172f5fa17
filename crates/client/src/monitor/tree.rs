//! The tree as a state machine: events and snapshots go in, monitor events come out. No I/O, no clock.

use std::collections::{HashMap, HashSet};

use api::{Event, EventBody, MessageWithParts, Session, SessionId, SessionStatus};
use indexmap::IndexMap;

use super::event::{Ask, MonitorEvent, SessionUsage, Subagent, SubagentTree};
use super::node::{Node, ReadReason};

/// The most sessions of a tree that are followed.
pub(super) const MAX_SESSIONS: usize = 4096;

/// The state of a tree as read from the host.
#[derive(Default)]
pub(super) struct TreeSnapshot {
    /// Each parent before its children, the root first.
    pub sessions: Vec<SessionSnapshot>,
    /// The open asks.
    pub asks: Vec<Ask>,
    /// Whether there are more sessions.
    pub truncated: bool,
}

/// The state of a session as read from the host.
pub(super) struct SessionSnapshot {
    pub session: Session,
    /// Idle only if it was idle both before and after its messages were read.
    pub status: SessionStatus,
    /// The newest messages, oldest first.
    pub messages: Vec<MessageWithParts>,
}

/// The root and its descendants.
pub(super) struct Tree {
    root: SessionId,
    /// Each parent before its children.
    nodes: IndexMap<SessionId, Node>,
    truncated: bool,
}

impl Tree {
    /// Starts with a snapshot, whose content is not reported.
    pub fn new(root: SessionId, snapshot: TreeSnapshot) -> Self {
        let mut tree = Self { root, nodes: IndexMap::new(), truncated: false };
        tree.resync(snapshot, false);
        tree
    }

    /// Applies an event.
    pub fn apply(&mut self, event: &Event) -> Vec<MonitorEvent> {
        let mut out = Vec::new();
        match &event.body {
            EventBody::SessionCreated { info, .. } => drop(self.add(info, &mut out)),
            EventBody::SessionDeleted { session_id, .. } => self.remove(session_id, &mut out),
            body => {
                if let Some(node) = body.session_id().and_then(|id| self.nodes.get_mut(id)) {
                    node.apply(body, &mut out);
                }
            }
        }
        self.without_root(out)
    }

    /// Applies a snapshot after events may have been missed. With `is_recheck` it is the second read of an uncertain
    /// session: a turn that still looks interrupted was.
    pub fn resync(&mut self, snapshot: TreeSnapshot, is_recheck: bool) -> Vec<MonitorEvent> {
        let mut out = Vec::new();
        let TreeSnapshot { sessions, asks, truncated } = snapshot;
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
            let reason = match self.add(&snapshot.session, &mut out) {
                true => ReadReason::New,
                false if is_recheck => ReadReason::Recheck,
                false => ReadReason::Resync,
            };
            if let Some(node) = self.nodes.get_mut(id) {
                node.apply_snapshot(snapshot, reason, &mut out);
                node.apply_asks(asking.remove(id).unwrap_or_default(), &mut out);
            }
        }
        self.without_root(out)
    }

    /// Whether the root was deleted, and everything with it.
    pub fn is_gone(&self) -> bool {
        !self.nodes.contains_key(&self.root)
    }

    /// Whether only another read can show how a turn ended.
    pub fn is_uncertain(&self) -> bool {
        self.nodes.values().any(Node::is_uncertain)
    }

    /// Whether a session of the tree works in this directory.
    pub fn is_in(&self, directory: &str) -> bool {
        self.nodes.values().any(|node| node.directory == directory)
    }

    /// The current tree.
    pub fn snapshot(&self) -> SubagentTree {
        let mut below: HashMap<&SessionId, Vec<&Node>> = HashMap::new();
        let mut totals: HashMap<&SessionId, SessionUsage> = HashMap::new();
        for node in self.nodes.values().rev() {
            let total = totals.remove(&node.id).unwrap_or_default().plus(&node.usage());
            if let Some(parent) = self.parent(node) {
                let sum = totals.entry(parent).or_default();
                *sum = sum.plus(&total);
                below.entry(parent).or_default().push(node);
            }
            totals.insert(&node.id, total);
        }
        let mut sessions = Vec::with_capacity(self.nodes.len());
        let mut stack: Vec<(usize, &Node)> = self.nodes.get(&self.root).map(|root| (0, root)).into_iter().collect();
        while let Some((depth, node)) = stack.pop() {
            let children = below.remove(&node.id).unwrap_or_default();
            // Children are stored newest first, so the oldest is popped first.
            stack.extend(children.into_iter().map(|child| (depth + 1, child)));
            sessions.push(Subagent {
                id: node.id.clone(),
                parent_id: self.parent(node).cloned(),
                depth,
                title: node.title.clone(),
                agent: node.agent.clone(),
                directory: node.directory.clone(),
                created: node.created,
                progress: node.progress(),
                asks: node.asks.clone(),
                total: totals.remove(&node.id).unwrap_or_default(),
            });
        }
        SubagentTree { sessions, truncated: self.truncated }
    }

    /// The parent of a node within the tree. The root's own parent is outside it.
    fn parent<'a>(&self, node: &'a Node) -> Option<&'a SessionId> {
        node.parent.as_ref().filter(|_| node.id != self.root)
    }

    /// Adds the root or a child of the tree. Returns whether it is new.
    fn add(&mut self, session: &Session, out: &mut Vec<MonitorEvent>) -> bool {
        let belongs =
            session.id == self.root || session.parent_id.as_ref().is_some_and(|parent| self.nodes.contains_key(parent));
        if !belongs || self.nodes.contains_key(&session.id) {
            return false;
        }
        if self.nodes.len() >= MAX_SESSIONS {
            self.truncated = true;
            return false;
        }
        self.nodes.insert(session.id.clone(), Node::new(session));
        out.push(MonitorEvent::ChildCreated { session: Box::new(session.clone()) });
        true
    }

    /// Removes a session and its descendants, deepest first.
    fn remove(&mut self, id: &SessionId, out: &mut Vec<MonitorEvent>) {
        let mut removed: HashSet<SessionId> = HashSet::new();
        for node in self.nodes.values() {
            if node.id == *id || node.parent.as_ref().is_some_and(|parent| removed.contains(parent)) {
                removed.insert(node.id.clone());
            }
        }
        let removed_ids = self.nodes.keys().rev().filter(|id| removed.contains(*id));
        out.extend(removed_ids.map(|id| MonitorEvent::ChildRemoved { session_id: id.clone() }));
        self.nodes.retain(|id, _| !removed.contains(id));
    }

    /// Drops the events of the root, which is not a child.
    fn without_root(&self, mut out: Vec<MonitorEvent>) -> Vec<MonitorEvent> {
        out.retain(|event| *event.session_id() != self.root);
        out
    }
}
