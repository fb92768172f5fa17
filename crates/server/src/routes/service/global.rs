//! The server itself.

use api::Json;
use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use crate::error::Error;
use crate::operation::openapi;
use crate::operation::request::Call;
use crate::operation::{Data, Operation, operation};
use crate::{COMPATIBLE, State};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(Method::GET, "/global/health", "global.health", "Whether the server works.", health).global(),
        operation(Method::GET, "/doc", "doc.get", "This document.", document).global(),
    ]
}

/// The server works.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Health {
    #[schemars(extend("enum" = [true]))]
    healthy: bool,
    /// The version of OpenCode whose API this is.
    version: &'static str,
}

async fn health(call: Call) -> Result<Data<Health>, Error> {
    well(&call.state)?;
    Ok(Data(Health { healthy: true, version: COMPATIBLE }))
}

/// A 503 that says why, if the server cannot store anything.
pub fn well(state: &State) -> Result<(), Error> {
    state.engine.store().health().map_err(|error| {
        let body = json!({ "healthy": false, "version": COMPATIBLE, "reason": error.to_string() });
        Error::new(StatusCode::SERVICE_UNAVAILABLE, body)
    })
}

async fn document(call: Call) -> Result<Data<Json>, Error> {
    Ok(Data(openapi::document(call.state.router.operations(), &call.state.version)))
}
