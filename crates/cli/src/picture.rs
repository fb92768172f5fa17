//! Subagents as lines: who works on what, with which tool, since when, for how much. Pure text, no terminal in it.

use api::{Timestamp, TreeState, Usage};

use crate::term::{Style, one_line};

/// The widest names of agents and tasks, in columns.
const MAX_WHO: usize = 60;
/// The columns of the time and of the price.
const TIME: usize = 9;
const PRICE: usize = 11;

/// Terminals that are narrower get no columns.
const NARROW: usize = 60;

/// A session in a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// How far below the first one; 0 has no branch.
    pub depth: usize,
    /// What it does.
    pub state: TreeState,
    /// Whether nobody waits for it.
    pub background: bool,
    /// Its agent.
    pub agent: String,
    /// Its task.
    pub task: String,
    /// What it does right now, in a few words.
    pub doing: String,
    /// How long it works or worked, in milliseconds.
    pub millis: Option<Timestamp>,
    /// What it has cost so far.
    pub price: String,
}

/// The rows as lines of at most the style's width, without line ends. Each is below its parent.
pub fn draw(rows: &[Row], style: Style) -> Vec<String> {
    // Deep branches leave room for what they are about.
    let most = style.width / 3;
    let branches: Vec<String> = branches(rows).into_iter().map(|branch| tail(branch, most)).collect();
    let names = |(row, branch): (&Row, &String)| branch.chars().count() + 2 + who(row).chars().count();
    let widest = rows.iter().zip(&branches).map(names).max().unwrap_or(0);
    let room = style.width.saturating_sub(TIME + PRICE + 2);
    let left = widest.min(MAX_WHO).min(room * 3 / 5);
    let line = |(row, branch): (&Row, &String)| match style.width {
        0..NARROW => narrow(row, branch, style),
        _ => wide(row, branch, left, room - left, style),
    };
    rows.iter().zip(&branches).map(line).collect()
}

fn wide(row: &Row, branch: &str, left: usize, right: usize, style: Style) -> String {
    let room = left.saturating_sub(branch.chars().count() + 2);
    let who = format!("{:room$}", one_line(&who(row), room));
    // The name stands out; the task follows it.
    let (name, task) = who.split_at(who.find("  ").unwrap_or(who.len()));
    let doing = format!("{:right$}", one_line(&row.doing, right));
    let doing = match row.state {
        TreeState::Failed => style.red(&doing),
        TreeState::Retrying | TreeState::Asking | TreeState::Paused | TreeState::Blocked => style.yellow(&doing),
        _ => style.dim(&doing),
    };
    let time = format!("{:>TIME$}", row.millis.map(elapsed).unwrap_or_default());
    let price = format!("{:>PRICE$}", one_line(&row.price, PRICE));
    let sign = sign(row.state, style);
    format!("{}{sign} {}{task}  {doing}{}{price}", style.dim(branch), style.bold(name), style.dim(&time))
}

fn narrow(row: &Row, branch: &str, style: Style) -> String {
    let room = style.width.saturating_sub(branch.chars().count() + 2);
    let text = one_line(&format!("{}  {}", who(row), row.doing), room);
    format!("{}{} {text}", style.dim(branch), sign(row.state, style))
}

/// Agent and task, without anything that moves a terminal.
fn who(row: &Row) -> String {
    let mark = if row.background { " &" } else { "" };
    one_line(&format!("{}{mark}  {}", one_line(&row.agent, MAX_WHO), row.task), usize::MAX)
}

/// The end of a branch that is too long.
fn tail(branch: String, most: usize) -> String {
    let length = branch.chars().count();
    if length <= most {
        return branch;
    }
    std::iter::once('…').chain(branch.chars().skip(length + 1 - most.max(1))).collect()
}

/// What stands before each row: `│  ├─ `.
fn branches(rows: &[Row]) -> Vec<String> {
    let ends = |at: usize, depth: usize| {
        let after = rows[at + 1..].iter().map(|row| row.depth).find(|next| *next <= depth);
        after != Some(depth)
    };
    // Whether the branch of each depth goes on below the row that is drawn.
    let mut open: Vec<bool> = Vec::new();
    let branch = |(at, row): (usize, &Row)| {
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

/// The sign of a state.
pub fn sign(state: TreeState, style: Style) -> String {
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

/// `8.2 s`, `3m 05s`, `2h 07m`.
pub fn elapsed(millis: Timestamp) -> String {
    let millis = millis.max(0);
    match millis / 1000 {
        seconds @ 0..60 => format!("{seconds}.{} s", millis % 1000 / 100),
        seconds @ 60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// What was used, in a few characters: money if any was, else tokens. `~` marks what is partly estimated.
pub fn price(usage: &Usage) -> String {
    let guess = if usage.estimated_steps > 0 { "~" } else { "" };
    match (usage.cost.0, usage.all_tokens()) {
        (cost, _) if cost > 0.0 => format!("{guess}{}", dollars(cost)),
        (_, 0) => String::new(),
        (_, tokens) => format!("{guess}{} tok", short(tokens)),
    }
}

/// `$0.0123`, `$12.34`.
pub fn dollars(amount: f64) -> String {
    if amount < 10.0 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

/// `950`, `12.3k`, `4.5M`.
pub fn short(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(depth: usize, agent: &str, task: &str) -> Row {
        Row {
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

    #[test]
    fn times_and_amounts_are_short() {
        for (millis, want) in
            [(-5, "0.0 s"), (8_250, "8.2 s"), (59_999, "59.9 s"), (185_000, "3m 05s"), (7_620_000, "2h 07m")]
        {
            assert_eq!(elapsed(millis), want);
        }
        let usage = |cost: f64, input: u64, estimated: u64| Usage {
            cost: api::Usd(cost),
            tokens: api::Tokens { input, ..api::Tokens::default() },
            estimated_steps: estimated,
            ..Usage::default()
        };
        assert_eq!(price(&usage(0.0, 0, 0)), "");
        assert_eq!(price(&usage(0.0, 950, 0)), "950 tok");
        assert_eq!(price(&usage(0.0, 12_345, 1)), "~12.3k tok");
        assert_eq!(price(&usage(0.01234, 1, 0)), "$0.0123");
        assert_eq!(price(&usage(123.456, 1, 2)), "~$123.46");
    }
}
