//! The server itself.

use api::Json;
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use store::Store;

use crate::error::Error;
use crate::operation::openapi;
use crate::operation::request::Request;
use crate::operation::{JsonReply, Operation, RawReply, operation};
use crate::{OPENCODE_VERSION, State};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/global/health", "global.health", "Whether the server is healthy.", health).global(),
        operation(Method::GET, "/doc", "doc.get", "This document.", get_document).global(),
    ]
}

/// The server is healthy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Health {
    #[schemars(extend("enum" = [true]))]
    healthy: bool,
    /// The version of OpenCode whose API this is.
    version: &'static str,
}

async fn health(request: Request) -> Result<JsonReply<Health>, Error> {
    check_health(&request.state)?;
    Ok(JsonReply(Health { healthy: true, version: OPENCODE_VERSION }))
}

/// Fails with a 503 that says why, if the server cannot store anything.
pub fn check_health(state: &State) -> Result<(), Error> {
    state.engine.store().health().map_err(|error| {
        let body = json!({ "healthy": false, "version": OPENCODE_VERSION, "reason": error.to_string() });
        Error::new(StatusCode::SERVICE_UNAVAILABLE, body)
    })
}

async fn get_document(request: Request) -> Result<RawReply<Json>, Error> {
    let state = request.state.clone();
    let build = move |_: &Store| {
        let document = openapi::document(state.router.operations(), &state.version);
        serde_json::to_vec(&document).map_err(Error::internal)
    };
    Ok(RawReply::json(request.state.engine.store().long_read(build).await?))
}
