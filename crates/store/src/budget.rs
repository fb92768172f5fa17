//! What a model call may use, and the budget that it would exceed. The ledger of a back end decides.

use api::{Bound, SessionId, Usage, Usd};

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
