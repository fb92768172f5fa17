//! The tree as lists, depth first.

use std::collections::{HashMap, HashSet};

use super::report::{SessionUsage, Subagent, SubagentTree};
use super::{Node, TreeTracker};
use crate::{SessionId, Tokens, TokensCache, Tree, TreeAsk, TreeNode, TreeState, Usage, Usd};

impl TreeTracker {
    /// The current tree, as a host with trees lists it. Budgets, worktrees and the usage of deleted sessions are known
    /// only if such a host's tree was applied.
    pub fn tree(&self) -> Tree {
        let mut totals = self.totals(Node::own_usage, |sum: &mut Usage, more: &Usage| *sum += more);
        let mut asks = self.asks();
        let mut held: HashSet<&SessionId> = HashSet::new();
        let mut sessions = Vec::with_capacity(self.nodes.len());
        for (depth, node) in self.depth_first() {
            let Node { transcript, activity, listed } = node;
            let (id, parent) = (&transcript.id, self.parent(&transcript.id));
            if activity.paused || parent.is_some_and(|parent| held.contains(parent)) {
                held.insert(id);
            }
            let state = if held.contains(id) { activity.state_if_held() } else { activity.state };
            let has_error = matches!(state, TreeState::Failed | TreeState::Cancelled);
            let total = totals.remove(id).unwrap_or_default();
            sessions.push(TreeNode {
                session_id: id.clone(),
                parent_id: parent.cloned(),
                depth: u32::try_from(depth).unwrap_or(u32::MAX),
                agent: transcript.agent.clone(),
                title: transcript.title.clone(),
                model: transcript.model.clone(),
                state,
                background: activity.background,
                tool: activity.tool().cloned(),
                asks: asks.remove(id).unwrap_or_default(),
                blocked: activity.blocked.clone(),
                error: activity.error.clone().filter(|_| has_error),
                own: node.own_usage(),
                titling: listed.as_ref().and_then(|listed| listed.titling.clone()),
                total: listed.as_ref().map_or_else(|| total.clone(), |listed| larger(&total, &listed.total)),
                budget: listed.as_ref().and_then(|listed| listed.budget.clone()),
                created: transcript.created,
                started: activity.started,
                ended: activity.ended,
                worktree: listed.as_ref().and_then(|listed| listed.worktree.clone()),
            });
        }
        Tree { sessions, cursor: None }
    }

    /// The current tree with the progress of each session.
    pub fn snapshot(&self) -> SubagentTree {
        let add = |sum: &mut SessionUsage, more: &SessionUsage| *sum = sum.plus(more);
        let mut totals = self.totals(|node| node.transcript.usage(), add);
        let sessions = self.depth_first().into_iter().map(|(depth, node)| {
            let transcript = &node.transcript;
            Subagent {
                id: transcript.id.clone(),
                parent_id: self.parent(&transcript.id).cloned(),
                depth,
                title: transcript.title.clone(),
                agent: transcript.agent.clone(),
                directory: transcript.directory.clone(),
                created: transcript.created,
                progress: transcript.progress(),
                asks: transcript.asks.clone(),
                total: totals.remove(&transcript.id).unwrap_or_default(),
            }
        });
        SubagentTree { sessions: sessions.collect(), truncated: self.truncated }
    }

    /// The agents from the root down to a session; a title where the agent is unknown.
    pub fn path(&self, session: &SessionId) -> Vec<String> {
        let mut path: Vec<String> = self.upwards(session).map(Node::name).collect();
        path.reverse();
        path
    }

    /// A session and those above it, up to the root.
    fn upwards(&self, session: &SessionId) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.nodes.get(session), move |node| self.nodes.get(self.parent(&node.transcript.id)?))
    }

    /// The sessions with their depths, each after its parent, siblings in the order of their creation.
    fn depth_first(&self) -> Vec<(usize, &Node)> {
        let mut below: HashMap<&SessionId, Vec<&Node>> = HashMap::new();
        for (id, node) in self.nodes.iter().rev() {
            if let Some(parent) = self.parent(id) {
                below.entry(parent).or_default().push(node);
            }
        }
        let mut stack: Vec<(usize, &Node)> = self.nodes.get(&self.root).map(|root| (0, root)).into_iter().collect();
        let mut found = Vec::with_capacity(self.nodes.len());
        while let Some((depth, node)) = stack.pop() {
            // Children are stored newest first, so the oldest is popped first.
            let children = below.remove(&node.transcript.id).unwrap_or_default();
            stack.extend(children.into_iter().map(|child| (depth + 1, child)));
            found.push((depth, node));
        }
        found
    }

    /// The sum over each session and all below it.
    fn totals<T: Default>(&self, own: impl Fn(&Node) -> T, add: impl Fn(&mut T, &T)) -> HashMap<&SessionId, T> {
        let mut totals: HashMap<&SessionId, T> = HashMap::new();
        for (id, node) in self.nodes.iter().rev() {
            let mut total = totals.remove(id).unwrap_or_default();
            add(&mut total, &own(node));
            if let Some(parent) = self.parent(id) {
                add(totals.entry(parent).or_default(), &total);
            }
            totals.insert(id, total);
        }
        totals
    }

    /// The open asks of each session and all below it, with the agents from it down to the one that asks.
    fn asks(&self) -> HashMap<&SessionId, Vec<TreeAsk>> {
        let mut all: HashMap<&SessionId, Vec<TreeAsk>> = HashMap::new();
        for (_, asker) in self.depth_first() {
            let session_id = &asker.transcript.id;
            for (id, text) in &asker.activity.asks {
                let mut path = Vec::new();
                for node in self.upwards(session_id) {
                    path.insert(0, node.name());
                    let ask = TreeAsk {
                        id: id.clone(),
                        session_id: session_id.clone(),
                        path: path.clone(),
                        text: text.clone(),
                    };
                    all.entry(&node.transcript.id).or_default().push(ask);
                }
            }
        }
        all
    }
}

impl Node {
    /// Its agent, or its title.
    fn name(&self) -> String {
        self.transcript.agent.clone().unwrap_or_else(|| self.transcript.title.clone())
    }

    /// What it used without its descendants.
    fn own_usage(&self) -> Usage {
        let seen = self.transcript.usage();
        let tokens = Tokens {
            total: None,
            input: seen.tokens.input,
            output: seen.tokens.output,
            reasoning: seen.tokens.reasoning,
            cache: seen.tokens.cache,
        };
        let own = Usage {
            cost: seen.cost,
            tokens,
            steps: self.transcript.steps(),
            tool_calls: self.transcript.tool_calls(),
            files: self.transcript.changes().files,
            ..Usage::default()
        };
        self.listed.as_ref().map_or_else(|| own.clone(), |listed| larger(&own, &listed.own))
    }
}

/// The larger figure of each kind: usage only grows, and each source may lag behind the other.
fn larger(a: &Usage, b: &Usage) -> Usage {
    let (x, y) = (&a.tokens, &b.tokens);
    Usage {
        cost: Usd(a.cost.0.max(b.cost.0)),
        tokens: Tokens {
            total: None,
            input: x.input.max(y.input),
            output: x.output.max(y.output),
            reasoning: x.reasoning.max(y.reasoning),
            cache: TokensCache { read: x.cache.read.max(y.cache.read), write: x.cache.write.max(y.cache.write) },
        },
        steps: a.steps.max(b.steps),
        tool_calls: a.tool_calls.max(b.tool_calls),
        files: a.files.max(b.files),
        estimated_cost: Usd(a.estimated_cost.0.max(b.estimated_cost.0)),
        estimated_tokens: a.estimated_tokens.max(b.estimated_tokens),
        estimated_steps: a.estimated_steps.max(b.estimated_steps),
    }
}
