//! Agents, commands and skills.

use api::{Agent, Command, Skill};
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
    Ok(JsonReply(request.host.agents(&request.scope).await?))
}

async fn commands(request: Request) -> Result<JsonReply<Vec<Command>>, Error> {
    Ok(JsonReply(request.host.commands(&request.scope).await?))
}

async fn session_commands(request: Request<SessionPath>) -> Result<JsonReply<Vec<Command>>, Error> {
    Ok(JsonReply(request.host.session_commands(&request.path.session.0).await?))
}

async fn skills(request: Request) -> Result<JsonReply<Vec<Skill>>, Error> {
    Ok(JsonReply(request.host.skills(&request.scope).await?))
}
