//! Tools that use the network: `webfetch`, `websearch` and `a2a_call`.

pub(crate) mod a2a_call;
pub(crate) mod webfetch;
pub(crate) mod websearch;
