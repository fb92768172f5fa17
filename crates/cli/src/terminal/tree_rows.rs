//! The rows of a tree of subagents: who does what, with which tool, since when, at what cost. Pure text: it touches no terminal.

use api::{Timestamp, TreeState};

use super::amounts::elapsed;
use super::{Style, one_line};

/// The widest agent and task, in columns.
const MAX_NAME: usize = 60;
/// The width of the time.
const TIME: usize = 9;
/// The width of the price.
const PRICE: usize = 11;
/// A narrower terminal gets no columns.
const MIN_WIDTH: usize = 60;

/// A session of a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    /// How far below the root; a row at depth 0 has no branch.
    pub depth: usize,
    /// Its state.
    pub state: TreeState,
    /// Whether it works in the background.
    pub background: bool,
    /// Its agent.
    pub agent: String,
    /// Its task.
    pub task: String,
    /// What it is doing now, in a few words.
    pub doing: String,
    /// How long it has worked, in milliseconds.
    pub millis: Option<Timestamp>,
    /// Its cost so far.
    pub price: String,
}

/// Draws rows as lines of at most the style's width, without line ends. Rows come in order, each below its parent.
pub fn draw(rows: &[TreeRow], style: Style) -> Vec<String> {
    // Deep branches leave room for the task.
    let max_branch = style.width / 3;
    let branches: Vec<String> = branches(rows).into_iter().map(|branch| shorten_branch(branch, max_branch)).collect();
    let names = |(row, branch): (&TreeRow, &String)| branch.chars().count() + 2 + agent_and_task(row).chars().count();
    let widest = rows.iter().zip(&branches).map(names).max().unwrap_or(0);
    let room = style.width.saturating_sub(TIME + PRICE + 2);
    let left = widest.min(MAX_NAME).min(room * 3 / 5);
    let line = |(row, branch): (&TreeRow, &String)| match style.width {
        0..MIN_WIDTH => narrow(row, branch, style),
        _ => wide(row, branch, left, room - left, style),
    };
    rows.iter().zip(&branches).map(line).collect()
}

fn wide(row: &TreeRow, branch: &str, left: usize, right: usize, style: Style) -> String {
    let room = left.saturating_sub(branch.chars().count() + 2);
    let name = format!("{:room$}", one_line(&agent_and_task(row), room));
    // The agent stands out; the task follows it.
    let (agent, task) = name.split_at(name.find("  ").unwrap_or(name.len()));
    let doing = format!("{:right$}", one_line(&row.doing, right));
    let doing = match row.state {
        TreeState::Failed => style.red(&doing),
        TreeState::Retrying | TreeState::Asking | TreeState::Paused | TreeState::Blocked => style.yellow(&doing),
        _ => style.dim(&doing),
    };
    let time = format!("{:>TIME$}", row.millis.map(elapsed).unwrap_or_default());
    let price = format!("{:>PRICE$}", one_line(&row.price, PRICE));
    let symbol = symbol(row.state, style);
    format!("{}{symbol} {}{task}  {doing}{}{price}", style.dim(branch), style.bold(agent), style.dim(&time))
}

fn narrow(row: &TreeRow, branch: &str, style: Style) -> String {
    let room = style.width.saturating_sub(branch.chars().count() + 2);
    let text = one_line(&format!("{}  {}", agent_and_task(row), row.doing), room);
    format!("{}{} {text}", style.dim(branch), symbol(row.state, style))
}

/// Agent and task, without control sequences.
fn agent_and_task(row: &TreeRow) -> String {
    let mark = if row.background { " &" } else { "" };
    one_line(&format!("{}{mark}  {}", one_line(&row.agent, MAX_NAME), row.task), usize::MAX)
}

/// A branch, or the end of one that is too long.
fn shorten_branch(branch: String, max: usize) -> String {
    let length = branch.chars().count();
    if length <= max {
        return branch;
    }
    std::iter::once('…').chain(branch.chars().skip(length + 1 - max.max(1))).collect()
}

/// The branch in front of each row: `│  ├─ `.
fn branches(rows: &[TreeRow]) -> Vec<String> {
    let ends = |at: usize, depth: usize| {
        let after = rows[at + 1..].iter().map(|row| row.depth).find(|next| *next <= depth);
        after != Some(depth)
    };
    // Whether the branch at each depth continues below the current row.
    let mut open: Vec<bool> = Vec::new();
    let branch = |(at, row): (usize, &TreeRow)| {
        if row.depth == 0 {
            open.clear();
            return String::new();
        }
        let last = ends(at, row.depth);
        open.resize(row.depth, false);
        open[row.depth - 1] = !last;
        let above: String = open[..row.depth - 1].iter().map(|open| if *open { "│  " } else { "   " }).collect();
        above + if last { "└─ " } else { "├─ " }
    };
    rows.iter().enumerate().map(branch).collect()
}

/// The symbol of a state.
pub fn symbol(state: TreeState, style: Style) -> String {
    match state {
        TreeState::Running => style.cyan("●"),
        TreeState::Retrying => style.yellow("↻"),
        TreeState::Asking => style.yellow("?"),
        TreeState::Paused => style.yellow("‖"),
        TreeState::Blocked => style.yellow("$"),
        TreeState::Idle => style.green("✓"),
        TreeState::Failed => style.red("✗"),
        TreeState::Cancelled => style.dim("⊘"),
        TreeState::Interrupted => style.yellow("!"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(depth: usize, agent: &str, task: &str) -> TreeRow {
        TreeRow {
            depth,
            state: TreeState::Running,
            background: false,
            agent: agent.into(),
            task: task.into(),
            doing: "thinking".into(),
            millis: Some(1_200),
            price: "$0.0100".into(),
        }
    }

    #[test]
    fn branches_show_who_belongs_to_whom() {
        let mut rows = vec![
            row(0, "build", "Fix it"),
            row(1, "explore", "Look"),
            row(2, "general", "Try"),
            row(2, "general", "Try again"),
            row(1, "general", "Test"),
            row(2, "explore", "Find"),
        ];
        rows[4].background = true;
        rows[5].state = TreeState::Failed;
        rows[5].doing = "no such file".into();
        rows[5].millis = None;
        let style = Style { color: false, width: 72 };
        assert_eq!(
            draw(&rows, style).join("\n"),
            "\
● build  Fix it             thinking                    1.2 s    $0.0100
├─ ● explore  Look          thinking                    1.2 s    $0.0100
│  ├─ ● general  Try        thinking                    1.2 s    $0.0100
│  └─ ● general  Try again  thinking                    1.2 s    $0.0100
└─ ● general &  Test        thinking                    1.2 s    $0.0100
   └─ ✗ explore  Find       no such file                         $0.0100"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_or_moves_it() {
        let mut long = row(3, "agent\x1b[2J\nname", &"task\t".repeat(50));
        long.doing = "x\r".repeat(300);
        long.price = "$123456789.1234".into();
        for width in [20, 30, 40, 80, 200] {
            let style = Style { color: false, width };
            for line in draw(&[row(0, "a", "b"), long.clone()], style) {
                assert!(line.chars().count() <= width, "{width}: {} {line:?}", line.chars().count());
                assert_eq!(api::strip_control(&line), line);
                assert!(!line.contains(['\n', '\r', '\t']), "{line:?}");
            }
        }
    }
}
