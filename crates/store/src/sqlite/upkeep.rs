//! Work that keeps the database small: deleting the rows of deleted sessions and releasing free pages.

pub(crate) mod space;
pub(crate) mod sweep;
