//! Work that keeps the database small: removing the rows of deleted sessions, and giving free pages back.

pub(crate) mod space;
pub(crate) mod sweep;
