//! What is kept of a session's work, so that its next job, or the next process, continues it.

use api::{Json, Tokens, Usage, Usd};
use serde::{Deserialize, Serialize};

/// How far the last job came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Progress {
    /// Its message was about to be sent.
    #[default]
    Sent,
    /// Its task is known.
    Running,
    /// Its task waits for credentials.
    Waits,
    /// Its task has ended.
    Done,
}

/// What is saved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Saved {
    /// The agent's URL. The ids mean nothing to another agent.
    pub url: String,
    pub context: Option<String>,
    pub task: Option<String>,
    pub progress: Progress,
    /// What the task has used, as far as earlier jobs have reported it.
    pub cost: f64,
    pub tokens: Tokens,
}

impl Saved {
    /// Reads what an earlier job saved. `None` if it was about another agent.
    pub fn read(kept: Option<&Json>, url: &str) -> Option<Self> {
        let saved: Self = serde_json::from_value(kept?.clone()).ok()?;
        (saved.url == url).then_some(saved)
    }

    /// What the task has used since the earlier jobs.
    pub fn since(&self, total: &Usage) -> Usage {
        let (now, before) = (&total.tokens, &self.tokens);
        let tokens = Tokens {
            total: None,
            input: now.input.saturating_sub(before.input),
            output: now.output.saturating_sub(before.output),
            reasoning: now.reasoning.saturating_sub(before.reasoning),
            cache: api::TokensCache {
                read: now.cache.read.saturating_sub(before.cache.read),
                write: now.cache.write.saturating_sub(before.cache.write),
            },
        };
        Usage { cost: Usd((total.cost.0 - self.cost).max(0.0)), tokens, ..Usage::default() }
    }
}
