//! Sessions, their turns and messages, what they ask, and their events.

pub mod ask;
pub mod event;
pub mod history;
pub mod message;
pub mod session;
pub mod tree;
pub mod turn;
pub mod turn_object;

use crate::operation::Operation;

/// The operations of this area.
pub fn operations() -> Vec<Operation> {
    [
        event::operations(),
        session::operations(),
        message::operations(),
        turn::operations(),
        turn_object::operations(),
        tree::operations(),
        ask::operations(),
        history::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
