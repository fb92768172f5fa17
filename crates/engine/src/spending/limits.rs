//! What bounds the subagents of a directory, and the requests that nobody answers.

use std::time::Duration;

use api::Budget;
use config::{AskThen, Config, Isolation};

/// How deep subagents may call subagents.
const DEPTH: u32 = 1;
/// How many subagents of one turn work at once; the others wait for their turn.
const MAX_CONCURRENT: u32 = 8;
/// The most that may: each one is a turn with a model call of its own.
const MAX_CONCURRENT_CEILING: u32 = 256;
/// The most sessions below one root: a model that only ever delegates comes to an end.
const DESCENDANTS: u32 = 100;

/// How long a turn waits for its budget to be raised.
const BUDGET_WAIT: Duration = Duration::from_secs(3600);
/// How long a request waits for an answer.
const ASK_WAIT: Duration = Duration::from_secs(3600);

/// The bounds that are in effect: the configuration's, else our own.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// How deep subagents may call subagents.
    pub(crate) depth: u32,
    /// How many subagents of one turn work at once.
    pub(crate) max_concurrent: usize,
    /// The most sessions below one root.
    pub(crate) descendants: usize,
    /// What each task of a root and all below it may use, unless its agent or the call says otherwise.
    pub(crate) budget: Budget,
    /// How long a turn waits for its budget to be raised before it fails.
    pub(crate) budget_wait: Duration,
    /// Whether a model may have subagents work in the background.
    pub(crate) background: bool,
    /// When a request is decided that nobody answers, and how.
    pub(crate) ask: (Duration, AskThen),
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Self {
        let subagents = &config.subagents;
        let seconds = |value: Option<u64>, default| value.map_or(default, Duration::from_secs);
        Self {
            depth: config.subagent_depth.unwrap_or(DEPTH),
            max_concurrent: subagents.at_once.unwrap_or(MAX_CONCURRENT).min(MAX_CONCURRENT_CEILING) as usize,
            descendants: subagents.descendants.unwrap_or(DESCENDANTS) as usize,
            budget: subagents.budget.unwrap_or_default(),
            budget_wait: seconds(subagents.wait, BUDGET_WAIT),
            background: subagents.background.unwrap_or(true),
            ask: (seconds(config.ask.timeout, ASK_WAIT), config.ask.then.unwrap_or(AskThen::Reject)),
        }
    }
}

/// What the configuration says of an agent beyond what clients see of it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AgentLimits {
    /// What each of its sessions and all below it may use.
    pub(crate) budget: Budget,
    /// Where its sessions work.
    pub(crate) isolation: Option<Isolation>,
}

impl AgentLimits {
    pub(crate) fn new(config: &Config, agent: &str) -> Self {
        let Some(agent) = config.agent.get(agent) else { return Self::default() };
        Self { budget: agent.budget.unwrap_or_default(), isolation: agent.isolation }
    }
}
