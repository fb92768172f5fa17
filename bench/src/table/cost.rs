//! Measured costs, their budgets, and how both are shown.

use serde_json::{Value, json};

/// What one program spent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cost {
    /// Milliseconds: wall time is a median, CPU time (user and system) a mean.
    Time { wall: f64, cpu: f64 },
    /// Megabytes of resident memory.
    Memory(f64),
}

/// A budget from the design.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Budget {
    /// Milliseconds of wall time.
    Wall(f64),
    /// Milliseconds of CPU time.
    Cpu(f64),
    /// Megabytes.
    Memory(f64),
    /// This many times the peer's wall time.
    TimesPeer(f64),
    /// At least this many times faster than the peer.
    TimesFaster(f64),
}

/// What another program spent on the same work.
pub struct Peer {
    pub name: &'static str,
    /// `None` if it could not be measured; the line says why.
    pub cost: Option<Cost>,
}

/// One line of the table.
pub struct Line {
    pub name: &'static str,
    pub what: String,
    pub budget: Budget,
    pub ours: Cost,
    /// Empty if no peer was requested, or none can do it. A budget relative to a peer refers to the first.
    pub peers: Vec<Peer>,
}

impl Cost {
    /// The figure that a budget is about.
    fn of(self, budget: Budget) -> f64 {
        match (self, budget) {
            (Self::Memory(megabytes), _) => megabytes,
            (Self::Time { cpu, .. }, Budget::Cpu(_)) => cpu,
            (Self::Time { wall, .. }, _) => wall,
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Time { wall, cpu } => json!({"wall_ms": wall, "cpu_ms": cpu}),
            Self::Memory(megabytes) => json!({"mb": megabytes}),
        }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Time { wall, cpu } => write!(f, "{} / {}", figure(*wall), figure(*cpu)),
            Self::Memory(megabytes) => write!(f, "{megabytes:.1} MB"),
        }
    }
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wall(budget) => write!(f, "{budget} ms"),
            Self::Cpu(budget) => write!(f, "{budget} ms CPU"),
            Self::Memory(budget) => write!(f, "{budget} MB"),
            Self::TimesPeer(budget) => write!(f, "{budget} × the peer"),
            Self::TimesFaster(budget) => write!(f, "{budget} × faster"),
        }
    }
}

/// Large numbers get fewer decimals.
fn figure(value: f64) -> String {
    let decimals = match value {
        value if value < 0.1 => 4,
        value if value < 1.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

impl Line {
    /// The peer's cost relative to ours.
    fn ratio(&self, peer: &Peer) -> Option<f64> {
        let ours = self.ours.of(self.budget);
        peer.cost.map(|cost| cost.of(self.budget) / ours).filter(|_| ours > 0.0)
    }

    /// Whether the budget is met; `None` if that is unknown.
    fn kept(&self) -> Option<bool> {
        let peer = || Some(self.peers.first()?.cost?.of(self.budget));
        let budget = match self.budget {
            Budget::Wall(budget) | Budget::Cpu(budget) | Budget::Memory(budget) => budget,
            Budget::TimesPeer(times) => times * peer()?,
            Budget::TimesFaster(times) => peer()? / times,
        };
        Some(self.ours.of(self.budget) <= budget)
    }

    /// The line in markdown.
    pub fn row(&self) -> String {
        let dash = || "–".to_owned();
        let each = |show: &dyn Fn(&Peer) -> String| match self.peers.as_slice() {
            [] => dash(),
            peers => peers.iter().map(show).collect::<Vec<_>>().join("; "),
        };
        let peers = each(&|peer| format!("{} {}", peer.name, peer.cost.map_or_else(dash, |cost| cost.to_string())));
        let ratios = each(&|peer| match self.ratio(peer) {
            Some(ratio) if ratio < 10.0 => format!("{ratio:.1}×"),
            Some(ratio) => format!("{ratio:.0}×"),
            None => dash(),
        });
        let kept = match self.kept() {
            Some(true) => "ok",
            Some(false) => "over",
            None => "–",
        };
        format!("| {} | {} | {} | {} | {peers} | {ratios} | {kept} |", self.name, self.what, self.budget, self.ours)
    }

    fn json(&self) -> Value {
        let peer =
            |peer: &Peer| json!({"name": peer.name, "cost": peer.cost.map(Cost::json), "ratio": self.ratio(peer)});
        json!({
            "name": self.name, "what": self.what, "budget": self.budget.to_string(), "ours": self.ours.json(),
            "peers": self.peers.iter().map(peer).collect::<Vec<_>>(), "ok": self.kept(),
        })
    }
}

/// The head of the table, in markdown.
pub const HEAD: &str = "| name | what | budget | trefoil | peers | ratio | |\n|---|---|---|---|---|---|---|";

/// The table for programs.
pub fn json(lines: &[Line]) -> Value {
    lines.iter().map(Line::json).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(budget: Budget, ours: Cost, peer: Option<Cost>) -> Line {
        let peers = peer.map(|cost| Peer { name: "y", cost: Some(cost) }).into_iter().collect();
        Line { name: "x", what: "an x".to_owned(), budget, ours, peers }
    }

    #[test]
    fn a_budget_is_compared_with_its_own_figure() {
        let (fast, slow) = (Cost::Time { wall: 2.0, cpu: 6.0 }, Cost::Time { wall: 500.0, cpu: 60.0 });
        let wall = line(Budget::Wall(5.0), fast, Some(slow));
        let ratio = |line: &Line| line.peers.first().and_then(|peer| line.ratio(peer));
        assert_eq!((wall.kept(), ratio(&wall)), (Some(true), Some(250.0)));
        let cpu = line(Budget::Cpu(5.0), fast, Some(slow));
        assert_eq!((cpu.kept(), ratio(&cpu)), (Some(false), Some(10.0)));
        let memory = line(Budget::Memory(40.0), Cost::Memory(40.5), None);
        assert_eq!((memory.kept(), ratio(&memory)), (Some(false), None));
    }

    #[test]
    fn a_budget_in_terms_of_the_peer_needs_one() {
        let time = |wall| Cost::Time { wall, cpu: 1.0 };
        let kept = |ours, peer: Option<f64>| line(Budget::TimesPeer(1.2), time(ours), peer.map(time)).kept();
        assert_eq!(kept(11.0, Some(10.0)), Some(true));
        assert_eq!(kept(12.5, Some(10.0)), Some(false));
        assert_eq!(kept(1.0, None), None);
    }

    #[test]
    fn a_row_shows_everything() {
        let time = |wall, cpu| Cost::Time { wall, cpu };
        let mut line = line(Budget::Wall(5.0), time(0.25, 12.34), Some(time(617.2, 150.0)));
        assert_eq!(line.row(), "| x | an x | 5 ms | 0.25 / 12.3 | y 617 / 150 | 2469× | ok |");
        line.peers.push(Peer { name: "z", cost: None });
        assert_eq!(line.row(), "| x | an x | 5 ms | 0.25 / 12.3 | y 617 / 150; z – | 2469×; – | ok |");
        assert_eq!(line.json()["ours"], json!({"wall_ms": 0.25, "cpu_ms": 12.34}));
    }
}
