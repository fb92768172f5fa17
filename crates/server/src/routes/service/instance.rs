//! Dropping the state that the server keeps for directories.

use axum::http::Method;

use crate::error::Error;
use crate::operation::request::Request;
use crate::operation::{JsonReply, Operation, operation};

pub fn operations() -> Vec<Operation> {
    vec![
        operation(
            Method::POST,
            "/instance/dispose",
            "instance.dispose",
            "Drop the state of a directory: its terminals end, its configuration is read again.",
            dispose_directory,
        ),
        operation(Method::POST, "/global/dispose", "global.dispose", "Drop the state of all directories.", dispose_all)
            .global(),
    ]
}

async fn dispose_directory(request: Request) -> Result<JsonReply<bool>, Error> {
    request.state.dispose(&request.scope);
    Ok(JsonReply(true))
}

async fn dispose_all(request: Request) -> Result<JsonReply<bool>, Error> {
    request.state.terminals.dispose(&request.state, None);
    let places = request.engine.reload_below("/");
    request.state.announce_global_reload(&places);
    Ok(JsonReply(true))
}
