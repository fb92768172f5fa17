//! Tools that use the network: `webfetch` and `websearch`.

pub(crate) mod webfetch;
pub(crate) mod websearch;
