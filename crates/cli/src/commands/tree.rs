//! `trefoil tree|steer|pause|resume|cancel|budget`: watches and controls subagents from another terminal.

mod watch;

use std::sync::Arc;

use api::{Bound, Budget, BudgetState, Host, Scope, Session, SteerInput, Timestamp, Tree, TreeNode, TreeState, Usd};
use client::SubagentMonitor;

use super::session::find_session;
use crate::args::Bounds;
use crate::exit::{Exit, Failure};
use crate::terminal::tree_rows::{self, TreeRow};
use crate::terminal::{self, Style, amounts, one_line, plural, print_json};

pub use watch::watch;

/// Shows a tree. A server without trees is asked for its sessions.
pub async fn show(host: Arc<dyn Host>, scope: &Scope, id: &str, json: bool, style: Style) -> anyhow::Result<()> {
    let session = find_session(&*host, scope, id).await?;
    let tree = match host.features().tree {
        true => host.tree(&session.id).await?,
        false => {
            let scope = Scope::new(session.directory);
            SubagentMonitor::open(host.clone(), scope, session.id).await?.tracker().tree()
        }
    };
    if json {
        return print_json(&tree);
    }
    Ok(terminal::print(&lines(&tree, api::now(), style).concat())?)
}

/// The tree as lines: a row for each session, with what it waits for below it, and the total.
fn lines(tree: &Tree, now: Timestamp, style: Style) -> Vec<String> {
    let rows: Vec<TreeRow> = tree.sessions.iter().map(|node| row(node, now)).collect();
    let mut lines = Vec::new();
    for (node, line) in tree.sessions.iter().zip(tree_rows::draw(&rows, style)) {
        lines.push(format!("{line}\n"));
        let mut remark = |text: String| {
            let indent = " ".repeat(3 * node.depth as usize + 2);
            let text = one_line(&text, style.width.saturating_sub(indent.len()));
            lines.push(format!("{indent}{}\n", style.yellow(&text)));
        };
        if let Some(blocked) = &node.blocked {
            remark(blocked.message.clone());
        }
        for ask in node.asks.iter().filter(|ask| ask.session_id == node.session_id) {
            remark(format!("asks {}: {}", ask.id, ask.text));
        }
        if let Some(budget) = &node.budget {
            remark(format!("budget: {}", budget_text(budget)));
        }
        if let Some(worktree) = &node.worktree {
            remark(format!("worktree: {worktree}"));
        }
    }
    if let Some(root) = tree.sessions.first() {
        lines.push(format!("{}\n", style.dim(&totals(tree, root))));
    }
    lines
}

fn row(node: &TreeNode, now: Timestamp) -> TreeRow {
    let agent = node.agent.clone().unwrap_or_else(|| "session".into());
    let suffix = format!(" (@{agent} subagent)");
    let doing = match node.state {
        TreeState::Running => match &node.tool {
            Some(tool) => format!("{}  {}", tool.tool, tool.title.as_deref().unwrap_or_default()),
            None => "thinking".into(),
        },
        TreeState::Retrying => "waits to retry".into(),
        TreeState::Asking => "asks".into(),
        TreeState::Paused => "paused".into(),
        TreeState::Blocked => "waits for its budget".into(),
        TreeState::Idle => "done".into(),
        TreeState::Failed => node.error.as_ref().map_or_else(String::new, |error| error.message().to_string()),
        TreeState::Cancelled => "cancelled".into(),
        TreeState::Interrupted => "interrupted".into(),
    };
    TreeRow {
        depth: node.depth as usize,
        state: node.state,
        background: node.background,
        agent,
        task: node.title.strip_suffix(&suffix).unwrap_or(&node.title).to_string(),
        doing,
        millis: node.started.zip(node.ended.or(node.state.is_live().then_some(now))).map(|(began, end)| end - began),
        price: amounts::price(&node.total),
    }
}

/// What all sessions used, in a line.
fn totals(tree: &Tree, root: &TreeNode) -> String {
    let live = tree.sessions.iter().filter(|node| node.state.is_live()).count();
    let total = &root.total;
    let count = |number: u64, noun| plural(usize::try_from(number).unwrap_or(usize::MAX), noun);
    let mut words = vec![
        plural(tree.sessions.len(), "session"),
        format!("{live} at work"),
        count(total.tool_calls, "call"),
        count(total.files, "file"),
        format!("{} tokens", amounts::short_count(total.all_tokens())),
        amounts::dollars(total.cost.0),
    ];
    if let Some(titling) = root.titling.as_ref().filter(|titling| titling.used != api::Usage::default()) {
        words.push(format!("{} for the title", amounts::price(&titling.used)));
    }
    if total.estimated_steps > 0 {
        words.push(format!("{} estimated", count(total.estimated_steps, "step")));
    }
    words.join(" · ")
}

/// Sends a message to a running turn.
pub async fn steer(host: &dyn Host, scope: &Scope, id: &str, text: &str) -> anyhow::Result<()> {
    let session = find(host, scope, id).await?;
    let input = SteerInput { text: Some(text.to_string()), ..SteerInput::default() };
    let message = host.steer(&session.id, input).await?;
    terminal::say(&format!("sent as {message}; the agent reads it at its next step\n"));
    Ok(())
}

/// Pauses or resumes a tree.
pub async fn pause(host: &dyn Host, scope: &Scope, id: &str, paused: bool) -> anyhow::Result<()> {
    let session = find(host, scope, id).await?;
    let changed = host.pause(&session.id, paused).await?;
    terminal::say(match (paused, changed) {
        (true, true) => "paused; running steps finish first\n",
        (true, false) => "it is already paused\n",
        (false, true) => "resumed\n",
        (false, false) => "it was not paused\n",
    });
    Ok(())
}

/// Stops a tree.
pub async fn cancel(host: &dyn Host, scope: &Scope, id: &str) -> anyhow::Result<()> {
    let session = find(host, scope, id).await?;
    let stopped = host.cancel(&session.id).await?.sessions;
    if stopped.is_empty() {
        terminal::say("nothing was running\n");
        return Ok(());
    }
    terminal::say(&format!("cancelled {}\n", plural(stopped.len(), "session")));
    Ok(terminal::print(&stopped.iter().map(|id| format!("{id}\n")).collect::<String>())?)
}

/// Shows or sets a budget.
pub async fn budget(host: &dyn Host, scope: &Scope, id: &str, bounds: &Bounds) -> anyhow::Result<()> {
    let session = find(host, scope, id).await?;
    let tree = host.tree(&session.id).await?;
    let known = tree.sessions.into_iter().next().and_then(|node| node.budget);
    let Bounds { cost, tokens, steps, seconds, lift } = *bounds;
    let given = Budget { cost: cost.map(Usd), tokens, steps, seconds };
    if !lift && given == Budget::default() {
        let none = "it has no budget; --cost, --tokens, --steps and --seconds set one".to_string();
        return Ok(terminal::print(&format!("{}\n", known.as_ref().map_or(none, budget_text)))?);
    }
    let old = known.map(|known| known.limit).filter(|_| !lift).unwrap_or_default();
    let budget = Budget {
        cost: given.cost.or(old.cost),
        tokens: tokens.or(old.tokens),
        steps: steps.or(old.steps),
        seconds: seconds.or(old.seconds),
    };
    let set = host.budget(&session.id, budget).await?;
    Ok(terminal::print(&if lift {
        "it has no budget any more\n".to_string()
    } else {
        format!("{}\n", budget_text(&set))
    })?)
}

/// `$0.1200 of $1.0000 · 3 of 50 steps`.
fn budget_text(budget: &BudgetState) -> String {
    let BudgetState { limit, spent, reserved } = budget;
    let bound = |bound: Bound| {
        let number = |of: &Budget| match bound {
            Bound::Cost => of.cost.map(|cost| cost.0),
            Bound::Tokens => of.tokens.map(|tokens| tokens as f64),
            Bound::Steps => of.steps.map(|steps| steps as f64),
            Bound::Seconds => of.seconds.map(|seconds| seconds as f64),
        };
        let write = |amount: f64| match bound {
            Bound::Cost => amounts::dollars(amount),
            _ => amounts::thousands(amount as u64),
        };
        let noun = match bound {
            Bound::Cost => "",
            Bound::Tokens => " tokens",
            Bound::Steps => " steps",
            Bound::Seconds => " s",
        };
        let limit = number(limit)?;
        let mut text = format!("{} of {}{noun}", write(number(spent).unwrap_or_default()), write(limit));
        if let Some(held) = number(reserved).filter(|held| *held > 0.0) {
            text += &format!(" ({} reserved)", write(held));
        }
        Some(text)
    };
    let bounds = [Bound::Cost, Bound::Tokens, Bound::Steps, Bound::Seconds];
    bounds.into_iter().filter_map(bound).collect::<Vec<_>>().join(" · ")
}

/// The session. The first answer of a server tells whether it supports trees.
async fn find(host: &dyn Host, scope: &Scope, id: &str) -> anyhow::Result<Session> {
    let session = find_session(host, scope, id).await?;
    if !host.features().tree {
        return Err(Failure::new(Exit::Failed, "this server cannot do that: it is not Trefoil")
            .hint("OpenCode's own clients can look into its sessions")
            .into());
    }
    Ok(session)
}

#[cfg(test)]
mod tests;
