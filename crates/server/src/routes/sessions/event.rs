//! Event streams.

use api::{Event, WatchScope};
use axum::http::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Error;
use crate::events::{self, Envelope};
use crate::operation::request::{NoParams, Request};
use crate::operation::{EventStream, Operation, operation};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/event", "event.subscribe", "The events of a directory, as they happen.", directory),
        operation(Method::GET, "/global/event", "global.event", "The events of all directories.", everywhere).global(),
    ]
}

/// Where to resume.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ResumeQuery {
    /// The last event that the client has seen: its SSE `id`. The header `Last-Event-ID` does the same.
    pub after: Option<String>,
}

async fn directory(request: Request<NoParams, ResumeQuery>) -> Result<EventStream<Event>, Error> {
    let after = events::resume_cursor(&request.parts.headers, request.query.after.as_deref());
    let scope = WatchScope::Directory(request.scope.directory);
    let client = request.state.backlog.client_of(&request.parts);
    Ok(EventStream::new(events::stream(&request.state, &*request.host, client, scope, Envelope::Plain, after).await?))
}

async fn everywhere(request: Request<NoParams, ResumeQuery>) -> Result<EventStream<api::GlobalEvent>, Error> {
    let after = events::resume_cursor(&request.parts.headers, request.query.after.as_deref());
    let client = request.state.backlog.client_of(&request.parts);
    Ok(EventStream::new(
        events::stream(&request.state, &*request.host, client, WatchScope::All, Envelope::Global, after).await?,
    ))
}
