//! The database's files: whether they are still the ones that were opened, whether commits are missing, and how to read them
//! where nothing can be written.

pub(crate) mod data_loss;
pub(crate) mod identity;
pub(crate) mod read_only;
pub(crate) mod wal;
