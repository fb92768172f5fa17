//! The handlers of all operations, by area. Each file lists its operations beside its handlers.

mod catalog;
mod service;
mod sessions;
mod v2;
mod workspace;

use crate::operation::Operation;

/// All operations.
pub fn operations() -> Vec<Operation> {
    [service::operations(), sessions::operations(), workspace::operations(), catalog::operations(), v2::operations()]
        .into_iter()
        .flatten()
        .collect()
}
