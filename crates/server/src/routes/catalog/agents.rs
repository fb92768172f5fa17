//! Agents, commands and skills.

use api::{Agent, CatalogHost as _, Command, Skill};
use axum::http::Method;

use crate::error::Error;
use crate::operation::request::Request;
use crate::operation::{JsonReply, Operation, operation};
use crate::routes::sessions::session::SessionPath;

pub fn operations() -> Vec<Operation> {
    let of_session = "The commands of a directory, with those of the MCP servers that a session brought.";
    vec![
        operation(Method::GET, "/agent", "app.agents", "The agents, the default first.", agents),
        operation(Method::GET, "/command", "command.list", "The commands.", commands),
        operation(
            Method::GET,
            "/session/{sessionID}/command",
            "trefoil.session.commands",
            of_session,
            session_commands,
        )
        .not_found(),
        operation(Method::GET, "/skill", "app.skills", "The skills.", skills),
    ]
}

async fn agents(request: Request) -> Result<JsonReply<Vec<Agent>>, Error> {
    Ok(JsonReply(request.engine.agents(&request.scope).await?))
}

async fn commands(request: Request) -> Result<JsonReply<Vec<Command>>, Error> {
    Ok(JsonReply(request.engine.commands(&request.scope).await?))
}

async fn session_commands(request: Request<SessionPath>) -> Result<JsonReply<Vec<Command>>, Error> {
    Ok(JsonReply(request.engine.session_commands(&request.path.session.0).await?))
}

async fn skills(request: Request) -> Result<JsonReply<Vec<Skill>>, Error> {
    Ok(JsonReply(request.engine.skills(&request.scope).await?))
}
