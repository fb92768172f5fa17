//! The server itself, and the clients that it drives or hosts.

pub mod acp;
pub mod global;
pub mod home;
pub mod hosted;
pub mod instance;
pub mod log;
pub mod metrics;
pub mod tui;

use crate::operation::Operation;

/// The operations of this area.
pub fn operations() -> Vec<Operation> {
    [
        home::operations(),
        global::operations(),
        instance::operations(),
        tui::operations(),
        hosted::operations(),
        log::operations(),
        metrics::operations(),
        acp::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
