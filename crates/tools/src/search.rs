//! Tools that search folders (`grep`, `glob`, `list`), the search that clients use, and the walk they share.
//! Nothing here opens a file behind a symbolic link, or one that the session's rules do not allow to be read.

pub(crate) mod find;
pub(crate) mod folder;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod list;
#[cfg(test)]
mod races;
pub(crate) mod top_n;
pub(crate) mod walk;
