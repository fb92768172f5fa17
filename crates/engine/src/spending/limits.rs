//! Limits on the subagents of a directory, and the timeout of unanswered requests.

use std::time::Duration;

use api::Budget;
use config::{AskThen, Config, Isolation};

/// How deeply subagents may nest.
const DEPTH: u32 = 1;
/// How many subagents of one turn work concurrently; the others wait.
const MAX_CONCURRENT: u32 = 8;
/// The upper bound of that setting: each subagent is a turn with its own model call.
const MAX_CONCURRENT_CEILING: u32 = 256;
/// The maximum number of sessions below one root, so that a model that only delegates comes to an end.
const DESCENDANTS: u32 = 100;

/// How long a turn waits for its budget to be raised.
const BUDGET_WAIT: Duration = Duration::from_secs(3600);
/// How long a request waits for a reply.
const ASK_WAIT: Duration = Duration::from_secs(3600);

/// The limits in effect: from the configuration, otherwise the defaults.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// How deeply subagents may nest.
    pub(crate) depth: u32,
    /// How many subagents of one turn work concurrently.
    pub(crate) max_concurrent: usize,
    /// The maximum number of sessions below one root.
    pub(crate) descendants: usize,
    /// The budget of each task of a root, including everything below it, unless its agent or the call sets one.
    pub(crate) budget: Budget,
    /// How long a turn waits for its budget to be raised before it fails.
    pub(crate) budget_wait: Duration,
    /// Whether a model may run subagents in the background.
    pub(crate) background: bool,
    /// The timeout of unanswered requests, and the decision after it.
    pub(crate) ask: (Duration, AskThen),
}

impl Limits {
    pub(crate) fn new(config: &Config) -> Self {
        let subagents = &config.subagents;
        let seconds = |value: Option<u64>, default| value.map_or(default, Duration::from_secs);
        Self {
            depth: config.subagent_depth.unwrap_or(DEPTH),
            max_concurrent: subagents.max_concurrent.unwrap_or(MAX_CONCURRENT).min(MAX_CONCURRENT_CEILING) as usize,
            descendants: subagents.descendants.unwrap_or(DESCENDANTS) as usize,
            budget: subagents.budget.unwrap_or_default(),
            budget_wait: seconds(subagents.wait, BUDGET_WAIT),
            background: subagents.background.unwrap_or(true),
            ask: (seconds(config.ask.timeout, ASK_WAIT), config.ask.then.unwrap_or(AskThen::Reject)),
        }
    }
}

/// The settings of an agent that clients do not see.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AgentLimits {
    /// The budget of each of its sessions, including everything below.
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
