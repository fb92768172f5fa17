//! `trefoil tree --watch`: draws the tree again on a terminal; otherwise prints a line, or a JSON object, per change.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::{Host, Scope, SessionId, SessionUsage, Timestamp, Tree, TreeChange, TreeNode, TreeState};
use client::SubagentMonitor;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{find_session, lines, row, totals};
use crate::run::cancelled;
use crate::terminal::{self, Style, amounts, escape_json, one_line, plural, tree_rows};

/// How long after a change a server's tree is read, so that one read covers the changes that follow at once.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often the times on the screen advance.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// How often the host is asked without an event: a killed process sends none.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Shows a tree again whenever it changes, until nothing in it works any more.
pub async fn watch(
    host: Arc<dyn Host>,
    scope: &Scope,
    id: &str,
    json: bool,
    style: Style,
    interrupt: CancellationToken,
) -> anyhow::Result<()> {
    let session = find_session(&*host, scope, id).await?;
    let scope = Scope::new(session.directory);
    let monitor = SubagentMonitor::open(host.clone(), scope, session.id).await?.with_polling(POLL_INTERVAL);
    // Where the tree is tracked, nothing has to be read.
    let debounce = host.features().tree.then_some(DEBOUNCE);
    if json || io::stdout().is_terminal() {
        show_trees(monitor, debounce, json, style, interrupt).await
    } else {
        print_changes(monitor, style, interrupt).await
    }
}

/// Shows the whole tree after each change: in place, or as JSON.
async fn show_trees(
    mut monitor: SubagentMonitor,
    debounce: Option<Duration>,
    json: bool,
    style: Style,
    interrupt: CancellationToken,
) -> anyhow::Result<()> {
    let mut figures = Figures::default();
    let (mut shown, mut last) = (0, None);
    loop {
        let tree = monitor.read_tree().await?;
        if !json {
            shown = redraw(&lines(&tree, api::now(), style), shown)?;
        } else if last.as_ref() != Some(&tree.sessions) {
            terminal::print(&escape_json(&serde_json::to_string(&tree)?))?;
            last = Some(tree.sessions.clone());
        }
        if !tree.sessions.iter().any(|node| node.state.is_live()) {
            return Ok(());
        }
        // A read that takes longer than the interval must not start again each time.
        let mut changed = pin!(figures.wait(&mut monitor));
        let exists = loop {
            tokio::select! {
                () = interrupt.cancelled() => return Err(cancelled().into()),
                exists = &mut changed => break exists,
                () = sleep(REDRAW_INTERVAL), if !json => shown = redraw(&lines(&tree, api::now(), style), shown)?,
            }
        };
        if !exists {
            return Ok(());
        }
        if let Some(debounce) = debounce {
            interrupt.run_until_cancelled(sleep(debounce)).await.ok_or_else(cancelled)?;
        }
    }
}

/// What each session has used, to tell progress from growing text.
#[derive(Default)]
struct Figures(HashMap<SessionId, (u64, SessionUsage)>);

impl Figures {
    /// Waits for a change that a tree shows; returns false if the tree was deleted.
    async fn wait(&mut self, monitor: &mut SubagentMonitor) -> bool {
        loop {
            match monitor.changed().await {
                // Not `any`, which would leave out the figures after the first change.
                Some(changes) if changes.iter().filter(|change| self.shows(change)).count() > 0 => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// Whether a tree shows a change.
    fn shows(&mut self, change: &TreeChange) -> bool {
        let TreeChange::Progress(id, progress) = change else { return true };
        let figures = (progress.tool_calls, progress.usage.clone());
        self.0.insert(id.clone(), figures.clone()) != Some(figures)
    }
}

/// Prints a line for each change of a session, and the total at the end.
async fn print_changes(mut monitor: SubagentMonitor, style: Style, interrupt: CancellationToken) -> anyhow::Result<()> {
    let mut log = ChangeLog::default();
    terminal::print(&log.update(&monitor.tracker().tree(), &[], api::now(), style))?;
    while monitor.tracker().has_live() {
        let changes = interrupt.run_until_cancelled(monitor.changed()).await.ok_or_else(cancelled)?;
        let Some(changes) = changes else { return Ok(()) };
        // Growing text is most of the changes, and changes no line.
        if changes.iter().all(|change| matches!(change, TreeChange::Progress(..))) {
            continue;
        }
        terminal::print(&log.update(&monitor.tracker().tree(), &changes, api::now(), style))?;
    }
    if monitor.tracker().is_gone() {
        return Ok(());
    }
    let tree = monitor.read_tree().await?;
    let mut text = log.update(&tree, &[], api::now(), style);
    if let Some(root) = tree.sessions.first() {
        text += &format!("{}\n", style.dim(&totals(&tree, root)));
    }
    Ok(terminal::print(&text)?)
}

/// What was last printed about each session.
#[derive(Default)]
struct ChangeLog(HashMap<SessionId, String>);

impl ChangeLog {
    /// A line for each session that does something else than before, and for each that was deleted.
    fn update(&mut self, tree: &Tree, changes: &[TreeChange], now: Timestamp, style: Style) -> String {
        let mut text = String::new();
        for change in changes {
            if let TreeChange::Removed(id) = change
                && self.0.remove(id).is_some()
            {
                text += &format!("- {id}  deleted\n");
            }
        }
        // A session that was just created has not done anything.
        let at_work = tree.sessions.iter().filter(|node| node.started.is_some() || node.state.is_live());
        for node in at_work {
            let line = change_line(node, now, style);
            if self.0.get(&node.session_id) != Some(&line) {
                text += &format!("{line}{}\n", style.dim(&spent(node, now)));
                self.0.insert(node.session_id.clone(), line);
            }
        }
        text
    }
}

/// What a session does, in a line without its end.
fn change_line(node: &TreeNode, now: Timestamp, style: Style) -> String {
    let row = row(node, now);
    let ask = node.asks.iter().find(|ask| ask.session_id == node.session_id);
    let doing = match (node.state, ask, &node.blocked) {
        (TreeState::Asking, Some(ask), _) => format!("asks {}: {}", ask.id, ask.text),
        (TreeState::Blocked, _, Some(blocked)) => blocked.message.clone(),
        _ => row.doing,
    };
    let agent = format!("{}{}", row.agent, if row.background { " &" } else { "" });
    let words = [agent, row.task, doing].map(|word| one_line(&word, style.width));
    let words: Vec<&str> = words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()).collect();
    format!("{}{} {}", "  ".repeat(row.depth), tree_rows::symbol(node.state, style), words.join("  "))
}

/// The time and the cost of a turn that has ended.
fn spent(node: &TreeNode, now: Timestamp) -> String {
    if node.state.is_live() {
        return String::new();
    }
    let row = row(node, now);
    let words = [row.millis.map(amounts::elapsed).unwrap_or_default(), row.price];
    words.iter().filter(|word| !word.is_empty()).map(|word| format!("  {word}")).collect()
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

#[cfg(test)]
mod tests;
