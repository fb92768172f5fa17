//! `trefoil tree|steer|pause|resume|cancel|budget`: watches and controls subagents from another terminal.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use api::{
    Bound, Budget, BudgetState, Host, Scope, Session, SteerInput, Subtree, Timestamp, Tree, TreeNode, TreeState, Usd,
    WatchItem, WatchScope,
};
use futures::stream::{Stream, StreamExt as _};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::session::find_session;
use crate::args::Bounds;
use crate::exit::{Exit, Failure};
use crate::run::cancelled;
use crate::terminal::tree_rows::{self, TreeRow};
use crate::terminal::{self, Style, amounts, escape_json, one_line, plural, print_json};

/// How long after an event the tree is read, so that one read covers the events that follow at once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often the times on the screen advance.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// How often the tree is read without an event: a killed process sends none.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Shows a tree.
pub async fn show(host: &dyn Host, scope: &Scope, id: &str, json: bool, style: Style) -> anyhow::Result<()> {
    let (scope, session) = find(host, scope, id).await?;
    let tree = host.tree(&scope, &session.id).await?;
    if json {
        return print_json(&tree);
    }
    Ok(terminal::print(&lines(&tree, api::now(), style).concat())?)
}

/// Shows a tree again whenever it changes, until nothing in it works any more.
pub async fn watch(
    host: &dyn Host,
    scope: &Scope,
    id: &str,
    json: bool,
    style: Style,
    interrupt: CancellationToken,
) -> anyhow::Result<()> {
    let (scope, session) = find(host, scope, id).await?;
    let in_place = !json && io::stdout().is_terminal();
    // Before the first read, so that no event is missed in between.
    let mut events = host.watch(WatchScope::All, None).await?;
    let mut shown = 0;
    let mut last = None;
    loop {
        let tree = host.tree(&scope, &session.id).await?;
        if in_place {
            shown = redraw(&lines(&tree, api::now(), style), shown)?;
        } else if last.as_ref() != Some(&tree.sessions) {
            let text = match json {
                true => escape_json(&serde_json::to_string(&tree)?),
                false => lines(&tree, api::now(), style).concat() + "\n",
            };
            terminal::print(&text)?;
            last = Some(tree.sessions.clone());
        }
        if !tree.sessions.iter().any(|node| node.state.is_live()) {
            return Ok(());
        }
        let mut subtree = Subtree::new(session.id.clone(), tree.sessions.iter().map(|node| node.session_id.clone()));
        let next_poll = Instant::now() + POLL_INTERVAL;
        loop {
            tokio::select! {
                () = interrupt.cancelled() => return Err(cancelled().into()),
                is_connected = changed(&mut events, &mut subtree) => {
                    if !is_connected {
                        events = host.watch(WatchScope::All, None).await?;
                    }
                    interrupt.run_until_cancelled(sleep(DEBOUNCE)).await.ok_or_else(cancelled)?;
                    break;
                }
                () = sleep_until(next_poll) => break,
                () = sleep(REDRAW_INTERVAL), if in_place => shown = redraw(&lines(&tree, api::now(), style), shown)?,
            }
        }
    }
}

/// Waits until something in a tree may have changed; returns false if the events have ended. Growing text is not a change.
async fn changed(events: &mut (impl Stream<Item = WatchItem> + Unpin), subtree: &mut Subtree) -> bool {
    loop {
        match events.next().await {
            Some(WatchItem::Frame(frame)) if frame.cursor.is_none() || !subtree.admits(&frame) => {}
            Some(WatchItem::Frame(_) | WatchItem::Resync(_)) => return true,
            Some(WatchItem::Lagged) | None => return false,
        }
    }
}

/// Draws lines over the previous ones; returns their number.
fn redraw(lines: &[String], previous: usize) -> io::Result<usize> {
    let lines = fit(lines, terminal::height());
    // A line that wraps would stay behind, so wrapping is off.
    let text = "\x1b[1A\x1b[K".repeat(previous) + "\x1b[?7l" + &lines.concat() + "\x1b[?7h";
    terminal::print(&text)?;
    Ok(lines.len())
}

/// At most that many lines, because lines that have left the screen cannot be drawn over. The total at the end stays.
fn fit(lines: &[String], max: usize) -> Vec<String> {
    match lines {
        [head @ .., total] if lines.len() > max => {
            let shown = max.saturating_sub(2);
            let mut fitting = head[..shown].to_vec();
            fitting.push(format!("… {} more\n", plural(head.len() - shown, "line")));
            fitting.push(total.clone());
            fitting
        }
        _ => lines.to_vec(),
    }
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
    let (scope, session) = find(host, scope, id).await?;
    let input = SteerInput { text: Some(text.to_string()), ..SteerInput::default() };
    let message = host.steer(&scope, &session.id, input).await?;
    terminal::say(&format!("sent as {message}; the agent reads it at its next step\n"));
    Ok(())
}

/// Pauses or resumes a tree.
pub async fn pause(host: &dyn Host, scope: &Scope, id: &str, paused: bool) -> anyhow::Result<()> {
    let (scope, session) = find(host, scope, id).await?;
    let changed = host.pause(&scope, &session.id, paused).await?;
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
    let (scope, session) = find(host, scope, id).await?;
    let stopped = host.cancel(&scope, &session.id).await?.sessions;
    if stopped.is_empty() {
        terminal::say("nothing was running\n");
        return Ok(());
    }
    terminal::say(&format!("cancelled {}\n", plural(stopped.len(), "session")));
    Ok(terminal::print(&stopped.iter().map(|id| format!("{id}\n")).collect::<String>())?)
}

/// Shows or sets a budget.
pub async fn budget(host: &dyn Host, scope: &Scope, id: &str, bounds: &Bounds) -> anyhow::Result<()> {
    let (scope, session) = find(host, scope, id).await?;
    let tree = host.tree(&scope, &session.id).await?;
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
    let set = host.budget(&scope, &session.id, budget).await?;
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

/// The session and its directory. The first answer of a server tells whether it supports trees.
async fn find(host: &dyn Host, scope: &Scope, id: &str) -> anyhow::Result<(Scope, Session)> {
    let session = find_session(host, scope, id).await?;
    if !host.features().tree {
        return Err(Failure::new(Exit::Failed, "this server cannot do that: it is not Trefoil")
            .hint("OpenCode's own clients can look into its sessions")
            .into());
    }
    Ok((Scope::new(session.directory.clone()), session))
}

#[cfg(test)]
mod tests;
