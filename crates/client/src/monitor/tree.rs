//! The tree as a state machine: events and reads go in, what there is to tell comes out. No I/O, no clock.

use std::collections::{HashMap, HashSet};

use api::{Event, EventBody, MessageWithParts, Session, SessionId, SessionStatus};
use indexmap::IndexMap;

use super::event::{Ask, MonitorEvent, Subagent, SubagentTree, Usage};
use super::node::{Node, Sight};

/// The most sessions of a tree that are followed.
pub(super) const SESSIONS: usize = 4096;

/// What exists, as it was read.
#[derive(Default)]
pub(super) struct Read {
    /// Each parent before its children, the root first.
    pub sessions: Vec<ReadSession>,
    /// What waits for an answer.
    pub asks: Vec<Ask>,
    /// Whether there is more.
    pub truncated: bool,
}

/// A session as it was read.
pub(super) struct ReadSession {
    pub session: Session,
    /// Idle only if it was so before and after its messages were read.
    pub status: SessionStatus,
    /// The newest messages, oldest first.
    pub messages: Vec<MessageWithParts>,
}

/// The sessions below a root, and the root.
pub(super) struct Tree {
    root: SessionId,
    /// Each parent before its children.
    nodes: IndexMap<SessionId, Node>,
    truncated: bool,
}

impl Tree {
    /// What was read is where it begins: nothing of it is told.
    pub fn new(root: SessionId, read: Read) -> Self {
        let mut tree = Self { root, nodes: IndexMap::new(), truncated: false };
        tree.resync(read, false);
        tree
    }

    /// Takes an event in.
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
        self.tellable(out)
    }

    /// Takes in what exists, after events may have been missed. With `second` it is the second look at what was doubtful:
    /// a turn that still looks as if it were cut off was.
    pub fn resync(&mut self, read: Read, second: bool) -> Vec<MonitorEvent> {
        let mut out = Vec::new();
        let Read { sessions, asks, truncated } = read;
        self.truncated |= truncated;
        let there: HashSet<&SessionId> = sessions.iter().map(|read| &read.session.id).collect();
        let gone: Vec<SessionId> = self.nodes.keys().filter(|id| !there.contains(id)).cloned().collect();
        for id in gone.iter().rev() {
            self.remove(id, &mut out);
        }
        let mut asking: HashMap<SessionId, Vec<Ask>> = HashMap::new();
        for ask in asks {
            asking.entry(ask.session_id().clone()).or_default().push(ask);
        }
        for read in &sessions {
            let id = &read.session.id;
            let sight = match self.add(&read.session, &mut out) {
                true => Sight::First,
                false if second => Sight::Second,
                false => Sight::Again,
            };
            if let Some(node) = self.nodes.get_mut(id) {
                node.read(read, sight, &mut out);
                node.read_asks(asking.remove(id).unwrap_or_default(), &mut out);
            }
        }
        self.tellable(out)
    }

    /// Whether the root is gone, and everything with it.
    pub fn is_gone(&self) -> bool {
        !self.nodes.contains_key(&self.root)
    }

    /// Whether only another read can say how a turn ended.
    pub fn is_doubtful(&self) -> bool {
        self.nodes.values().any(Node::is_doubtful)
    }

    /// Whether a session of the tree works in that directory.
    pub fn is_in(&self, directory: &str) -> bool {
        self.nodes.values().any(|node| node.directory == directory)
    }

    /// The tree as it stands.
    pub fn snapshot(&self) -> SubagentTree {
        let mut below: HashMap<&SessionId, Vec<&Node>> = HashMap::new();
        let mut totals: HashMap<&SessionId, Usage> = HashMap::new();
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
            // They lie as they were made, newest first, so the oldest is taken next.
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

    /// The root's own parent is none of the tree.
    fn parent<'a>(&self, node: &'a Node) -> Option<&'a SessionId> {
        node.parent.as_ref().filter(|_| node.id != self.root)
    }

    /// Adds the root or a child of the tree; gives whether it is new.
    fn add(&mut self, session: &Session, out: &mut Vec<MonitorEvent>) -> bool {
        let belongs =
            session.id == self.root || session.parent_id.as_ref().is_some_and(|parent| self.nodes.contains_key(parent));
        if !belongs || self.nodes.contains_key(&session.id) {
            return false;
        }
        if self.nodes.len() >= SESSIONS {
            self.truncated = true;
            return false;
        }
        self.nodes.insert(session.id.clone(), Node::new(session));
        out.push(MonitorEvent::ChildCreated { session: Box::new(session.clone()) });
        true
    }

    /// Removes a session with everything below it, the deepest first.
    fn remove(&mut self, id: &SessionId, out: &mut Vec<MonitorEvent>) {
        let mut doomed: HashSet<SessionId> = HashSet::new();
        for node in self.nodes.values() {
            if node.id == *id || node.parent.as_ref().is_some_and(|parent| doomed.contains(parent)) {
                doomed.insert(node.id.clone());
            }
        }
        let told = self.nodes.keys().rev().filter(|id| doomed.contains(*id));
        out.extend(told.map(|id| MonitorEvent::ChildRemoved { session_id: id.clone() }));
        self.nodes.retain(|id, _| !doomed.contains(id));
    }

    /// The root is no child.
    fn tellable(&self, mut out: Vec<MonitorEvent>) -> Vec<MonitorEvent> {
        out.retain(|event| *event.session_id() != self.root);
        out
    }
}
