//! Agents, commands and skills.

use api::{Agent, Command, Host as _, Skill};
use axum::http::Method;

use crate::error::Error;
use crate::operation::request::Call;
use crate::operation::{Data, Operation, operation};
use crate::routes::sessions::session::SessionPath;

pub fn operations() -> Vec<Operation> {
    let of_session = "The commands of a directory, and what the MCP servers that a session brought add to them.";
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

async fn agents(call: Call) -> Result<Data<Vec<Agent>>, Error> {
    Ok(Data(call.state.engine.agents(&call.scope).await?))
}

async fn commands(call: Call) -> Result<Data<Vec<Command>>, Error> {
    Ok(Data(call.state.engine.commands(&call.scope).await?))
}

async fn session_commands(call: Call<SessionPath>) -> Result<Data<Vec<Command>>, Error> {
    let (engine, session) = (&call.state.engine, &call.path.session.0);
    engine.session(&call.scope, session).await?;
    Ok(Data(engine.session_commands(&call.scope, session).await?))
}

async fn skills(call: Call) -> Result<Data<Vec<Skill>>, Error> {
    Ok(Data(call.state.engine.skills(&call.scope).await?))
}
