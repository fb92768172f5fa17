//! How each line of the protocol and each transport spells calls, replies, events and errors. Bytes in, values out, and back:
//! the only place that knows it. No I/O, no clock, no configuration besides [`Settings`].
//!
//! * Requests: [`route`] finds out what a method and a path ask for, [`parse`] reads the body.
//! * Replies: [`reply`], [`error`], and an [`EventWriter`] for each stream.
//! * `client`: the same as seen by a client of other agents.

mod body;
mod client;
mod dialect;
mod enums;
mod error;
mod extension;
mod fields;
mod head;
pub mod methods;
mod params;
mod peer_card;
mod read;
mod reply;
mod request;
mod route;
mod time;
mod view;
mod write;

#[cfg(test)]
mod tests;

pub use client::{Outgoing, StreamItem, outgoing, parse_event, parse_reply};
pub use dialect::{AskedVersion, Dialect, Settings, Transport};
pub use error::Response;
pub(crate) use error::type_and_code;
pub use extension::{Extension, ExtensionSet, Requested};
pub use head::Head;
pub use methods::Operation;
pub use params::{MAX_PAGE, OUTPUT_MODES, is_text_only};
pub use peer_card::{PeerCard, PeerInterface, parse_card};
pub use reply::{EventWriter, error, error_response, message_json, reply, task_json, webhook_body};
#[cfg(feature = "grpc")]
pub use request::parse_proto;
pub use request::{Rejection, Request, RequestId, parse};
pub use route::{RestCall, Route, Target, route};
pub use time::{parse_timestamp, timestamp};
pub use view::View;
