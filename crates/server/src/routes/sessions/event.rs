//! Event streams.

use api::{Event, WatchScope};
use axum::http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::events::{self, Envelope};
use crate::operation::request::{Call, Nothing};
use crate::operation::{Events, Operation, operation};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/event", "event.subscribe", "The events of a directory, as they happen.", directory),
        operation(Method::GET, "/global/event", "global.event", "The events of all directories.", everywhere).global(),
    ]
}

/// Where to go on.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct After {
    /// The last event that the client knows: the value of its SSE `id`. `Last-Event-ID` does the same.
    pub after: Option<String>,
}

async fn directory(call: Call<Nothing, After>) -> Result<Events<Event>, Error> {
    let after = events::cursor(&call.parts.headers, call.query.after.as_deref());
    let scope = WatchScope::Directory(call.scope.directory);
    let reader = call.state.backlog.reader(&call.parts);
    Ok(Events::new(events::stream(&call.state, reader, scope, Envelope::Plain, after).await?))
}

async fn everywhere(call: Call<Nothing, After>) -> Result<Events<api::GlobalEvent>, Error> {
    let after = events::cursor(&call.parts.headers, call.query.after.as_deref());
    let reader = call.state.backlog.reader(&call.parts);
    Ok(Events::new(events::stream(&call.state, reader, WatchScope::All, Envelope::Global, after).await?))
}
