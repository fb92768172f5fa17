//! OpenAI's chat completions, as OpenAI and many others speak them.

mod chunk;
mod decode;
mod request;

pub(crate) use chunk::usage;
pub use decode::Decoder;
pub(crate) use decode::finish_reason;
pub use request::request;
