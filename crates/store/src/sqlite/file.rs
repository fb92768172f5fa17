//! The database's files on disk: checks that they are still the ones that were opened and that no commits are missing, and
//! read access where nothing can be written.

pub(crate) mod data_loss;
pub(crate) mod identity;
pub(crate) mod read_only;
pub(crate) mod wal;
