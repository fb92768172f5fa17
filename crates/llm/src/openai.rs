//! OpenAI's chat completions, as OpenAI and many others speak them.

mod chunk;
mod decode;
mod details;
mod dialect;
mod request;

pub(crate) use chunk::usage;
pub use decode::Decoder;
pub(crate) use decode::finish_reason;
pub use dialect::{ChatDialect, ReasoningField};
pub use request::request;
