//! Follows turns on any [`Host`](api::Host): the engine of this process, Trefoil over HTTP, or OpenCode over HTTP.
//!
//! A [`Feed`] gives the events of a session and its subagents. Where events were lost it reads the stored state again.
//! A [`TurnHandle`] begins a turn, or waits for one that somebody else began, and returns its answer once the feed has
//! delivered what belongs to it. A [`Stopper`] stops the turn, also one that has not begun yet.
//!
//! Faces show what comes out of it; nothing here knows a protocol.

mod delivery;
mod feed;
mod retry;
mod running;
mod stop;
mod stored;
mod turn;

pub use delivery::FeedHandle;
pub use feed::{Feed, Item};
pub use retry::Patience;
pub use running::{Running, running};
pub use stop::Stopper;
pub use stored::{MAX_MESSAGES, Stored, family, open_asks};
pub use turn::{Answer, Task, TurnHandle};
