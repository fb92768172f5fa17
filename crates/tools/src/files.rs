//! Tools that read and change files (`read`, `edit`, `write`, `apply_patch`), and what they share: paths, locks, line endings,
//! indentation, and writing to the disk without following a link that the caller did not resolve.

pub(crate) mod attachment;
pub(crate) mod diff;
pub(crate) mod disk;
pub(crate) mod edit;
pub(crate) mod indent;
pub(crate) mod known_files;
pub(crate) mod lock;
pub(crate) mod newlines;
pub(crate) mod patch;
pub(crate) mod path;
#[cfg(test)]
mod peer_cases;
pub(crate) mod read;
pub(crate) mod write;
