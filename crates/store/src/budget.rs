//! What sessions use, what a model call may use, and the budget that it would exceed. The ledger of a back end decides.

use api::{Bound, Budget, SessionId, Usage, Usd};

use crate::batch::{Batch, Op};

/// A running model call: the most it may use, and what it costs if it is interrupted.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// The id of the message that it writes, or any other unique id.
    pub id: String,
    /// The session whose budget it uses.
    pub session: SessionId,
    /// How many steps it counts as.
    pub steps: u64,
    /// The estimated tokens of the prompt.
    pub prompt: u64,
    /// The cost of the prompt.
    pub prompt_cost: Usd,
    /// The price of a million output tokens.
    pub output_price: Usd,
    /// The most tokens it may use.
    pub max_tokens: u64,
    /// The most it may cost.
    pub max_cost: Usd,
}

impl Reservation {
    /// Estimates what it used if nobody reported it: the prompt, and this many output tokens.
    pub fn estimate(&self, output: u64) -> Usage {
        let cost = Usd(self.prompt_cost.0 + output as f64 * self.output_price.0 / 1e6);
        let mut used =
            Usage { cost, steps: self.steps, estimated_cost: cost, estimated_steps: self.steps, ..Usage::default() };
        used.tokens.input = self.prompt;
        used.tokens.output = output;
        used.estimated_tokens = self.prompt + output;
        used
    }
}

/// The budget that the next model call would exceed. Costs are in billionths of a dollar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetExceeded {
    /// The session whose budget it is.
    pub session: SessionId,
    /// Which limit was hit.
    pub bound: Bound,
    /// The limit.
    pub limit: u64,
    /// What was used so far.
    pub spent: u64,
    /// What running calls may still use.
    pub reserved: u64,
    /// What the next call may use.
    pub needed: u64,
}

/// A change of the ledger.
#[derive(Debug)]
pub(crate) enum LedgerOp {
    Usage { session: SessionId, used: Box<Usage> },
    ChangedFile { session: SessionId, file: String },
    Reserve(Box<Reservation>),
    Spend { id: String, used: Box<Usage> },
    Budget { session: SessionId, budget: Option<Budget>, is_additional: bool },
}

impl Batch {
    /// Adds usage to a session's own sum, and to its total and those of all its ancestors.
    pub fn usage(&mut self, session: &SessionId, used: &Usage) {
        self.ledger_op(LedgerOp::Usage { session: session.clone(), used: Box::new(used.clone()) });
    }

    /// Counts a file that a session changed. Each file counts once per session and once per tree.
    pub fn count_changed_file(&mut self, session: &SessionId, file: &str) {
        self.ledger_op(LedgerOp::ChangedFile { session: session.clone(), file: file.to_owned() });
    }

    /// Reserves budget for a model call that is about to begin. If a budget of the session or an ancestor cannot cover
    /// the most the call may use, nothing after this in the batch is written, and
    /// [`CommitOutcome::budget_exceeded`](crate::CommitOutcome::budget_exceeded) says why.
    pub fn reserve(&mut self, call: &Reservation) {
        self.ledger_op(LedgerOp::Reserve(Box::new(call.clone())));
    }

    /// Replaces a reservation by what the ended model call used. Does nothing if it was already replaced, so the first
    /// report counts.
    pub fn spend(&mut self, reservation: &str, used: &Usage) {
        self.ledger_op(LedgerOp::Spend { id: reservation.to_owned(), used: Box::new(used.clone()) });
    }

    /// Sets the budget of a session and its descendants, including what they have already used; `None` removes it.
    /// Seconds count from when a time limit was first set.
    pub fn budget(&mut self, session: &SessionId, budget: Option<&Budget>) {
        self.ledger_op(LedgerOp::Budget { session: session.clone(), budget: budget.copied(), is_additional: false });
    }

    /// Sets a budget for a session and its descendants on top of what they have already used.
    pub fn grant(&mut self, session: &SessionId, budget: &Budget) {
        self.ledger_op(LedgerOp::Budget { session: session.clone(), budget: Some(*budget), is_additional: true });
    }

    fn ledger_op(&mut self, op: LedgerOp) {
        self.ops.push(Op::Ledger(op));
    }
}

impl std::fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { session, bound, limit, spent, reserved, needed } = self;
        let show = |amount: u64| match bound {
            Bound::Cost => format!("${:.4}", amount as f64 / 1e9),
            Bound::Tokens => format!("{amount} tokens"),
            Bound::Steps => format!("{amount} steps"),
            Bound::Seconds => format!("{amount} s"),
        };
        let (limit, spent) = (show(*limit), show(*spent));
        if *bound == Bound::Seconds {
            return write!(f, "The budget of {session} is over: {spent} of {limit} have passed");
        }
        write!(f, "The budget of {session} does not suffice: {spent} of {limit} are used")?;
        if *reserved > 0 {
            write!(f, ", calls that run may take {}", show(*reserved))?;
        }
        write!(f, ", the next call may take {}", show(*needed))
    }
}
