//! The server itself.

use api::Json;
use axum::http::Method;
use schemars::JsonSchema;
use serde::Serialize;

use crate::call::Call;
use crate::error::Error;
use crate::operation::{Data, Operation, operation};
use crate::{COMPATIBLE, doc};

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

async fn health(_: Call) -> Result<Data<Health>, Error> {
    Ok(Data(Health { healthy: true, version: COMPATIBLE }))
}

async fn document(call: Call) -> Result<Data<Json>, Error> {
    Ok(Data(doc::openapi(call.state.router.operations(), &call.state.version)))
}
