//! Terminals.

use std::path::Path;
use std::sync::Arc;

use api::{Pty, PtyId};
use axum::extract::FromRequestParts as _;
use axum::extract::ws::WebSocketUpgrade;
use axum::http::{Method, StatusCode};
use exec::Size;
use indexmap::{IndexMap, IndexSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Where};
use crate::operation::request::{Call, Given, JsonBody, Maybe, Nothing};
use crate::operation::{Data, Operation, Raw, operation};
use crate::terminal::{self, Begin, Terminal, Wanted};

pub fn operations() -> Vec<Operation> {
    const PTY: &str = "/pty/{ptyID}";
    const MISSING: &[&str] = &["PtyNotFoundError"];
    let token = "/pty/{ptyID}/connect-token";
    let connect = "/pty/{ptyID}/connect";
    vec![
        operation(Method::GET, "/pty/shells", "pty.shells", "The shells of this machine.", shells),
        operation(Method::GET, "/pty", "pty.list", "The terminals of a directory.", list),
        operation(Method::POST, "/pty", "pty.create", "Open a terminal.", create),
        operation(Method::GET, PTY, "pty.get", "A terminal.", get).error(404, MISSING),
        operation(Method::PUT, PTY, "pty.update", "Change a terminal's title or size.", update).error(404, MISSING),
        operation(Method::DELETE, PTY, "pty.remove", "End a terminal.", remove).error(404, MISSING),
        operation(Method::POST, token, "pty.connectToken", "A ticket for a connection.", connect_token)
            .error(403, &["PtyForbiddenError"])
            .error(404, MISSING),
        operation(Method::GET, connect, "pty.connect", "Connect to a terminal, by WebSocket.", self::connect)
            .error(403, &["effect_HttpApiError_Forbidden"])
            .not_found(),
    ]
}

/// A shell.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Shell {
    path: String,
    name: String,
    /// Whether tools can use it: rules are judged on POSIX syntax.
    acceptable: bool,
}

/// Where the system lists its shells.
const SHELLS: &str = "/etc/shells";

async fn shells(_: Call) -> Result<Data<Vec<Shell>>, Error> {
    let listed = tokio::fs::read_to_string(SHELLS).await.unwrap_or_default();
    let lines = listed.lines().map(str::trim).filter(|line| line.starts_with('/'));
    let mut paths: IndexSet<&str> = lines.collect();
    if paths.is_empty() {
        paths.extend(["/bin/bash", "/bin/zsh", "/bin/sh"]);
    }
    let shell = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        Shell { path: path.to_owned(), acceptable: !matches!(name.as_str(), "fish" | "nu"), name }
    };
    let there = paths.into_iter().filter(|path| Path::new(path).is_file());
    Ok(Data(there.map(shell).collect()))
}

async fn list(call: Call) -> Result<Data<Vec<Pty>>, Error> {
    Ok(Data(call.state.ptys.list(&call.scope)))
}

/// A terminal to open; what is left out is a shell in the directory.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct Create {
    command: Option<String>,
    args: Option<Vec<String>>,
    cwd: Option<String>,
    title: Option<String>,
    env: Option<IndexMap<String, String>>,
}

async fn create(call: Call<Nothing, Nothing, Maybe<Create>>) -> Result<Data<Pty>, Error> {
    let Maybe(Create { command, args, cwd, title, env }) = call.body;
    let wanted = Wanted { command, args: args.unwrap_or_default(), cwd, title, env: env.unwrap_or_default() };
    Ok(Data(terminal::open(&call.state, &call.scope, wanted).await?))
}

/// A terminal in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct PtyPath {
    #[serde(rename = "ptyID")]
    pty: Given<PtyId>,
}

fn missing(id: &PtyId) -> Error {
    let message = format!("PTY session not found: {id}");
    Error::tagged(StatusCode::NOT_FOUND, "PtyNotFoundError", &[("ptyID", id.as_str())], message)
}

fn find<Q, B>(call: &Call<PtyPath, Q, B>) -> Result<Arc<Terminal>, Error> {
    call.state.ptys.get(&call.scope, &call.path.pty.0).ok_or_else(|| missing(&call.path.pty.0))
}

async fn get(call: Call<PtyPath>) -> Result<Data<Pty>, Error> {
    Ok(Data(find(&call)?.info()))
}

/// What changes.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Update {
    title: Option<String>,
    size: Option<Area>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Area {
    #[schemars(extend("exclusiveMinimum" = 0))]
    rows: u64,
    #[schemars(extend("exclusiveMinimum" = 0))]
    cols: u64,
}

impl Area {
    fn size(&self) -> Result<Size, Error> {
        let count = |name: &str, value: u64| match u16::try_from(value) {
            Ok(count @ 1..) => Ok(count),
            _ => {
                let message =
                    format!("Expected a number from 1 to {}, got {value}\n  at [\"size\"][{name:?}]", u16::MAX);
                Err(Error::bad_request(Where::Payload, message))
            }
        };
        Ok(Size { rows: count("rows", self.rows)?, cols: count("cols", self.cols)? })
    }
}

async fn update(call: Call<PtyPath, Nothing, JsonBody<Update>>) -> Result<Data<Pty>, Error> {
    let terminal = find(&call)?;
    let JsonBody(Update { title, size }) = call.body;
    let size = size.map(|size| size.size()).transpose()?;
    Ok(Data(terminal.update(&call.state, title, size)?))
}

async fn remove(call: Call<PtyPath>) -> Result<Data<bool>, Error> {
    let id = &call.path.pty.0;
    if !call.state.ptys.remove(&call.state, &call.scope, id) {
        return Err(missing(id));
    }
    Ok(Data(true))
}

/// A page of another site cannot send it with a form, nor with a script that we did not allow.
const TICKET_HEADER: &str = "x-opencode-ticket";

/// A ticket.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PtyTicketConnectToken")]
struct Ticket {
    ticket: String,
    /// For how many seconds it is good.
    #[schemars(extend("exclusiveMinimum" = 0))]
    expires_in: u64,
}

async fn connect_token(call: Call<PtyPath>) -> Result<Data<Ticket>, Error> {
    if call.parts.headers.get(TICKET_HEADER).is_none_or(|value| value != "1") {
        let message = format!("A ticket is given to requests with the header {TICKET_HEADER}: 1");
        return Err(Error::tagged(StatusCode::FORBIDDEN, "PtyForbiddenError", &[], message));
    }
    find(&call)?;
    let ticket = call.state.ptys.tickets.issue(&call.path.pty.0)?;
    Ok(Data(Ticket { ticket, expires_in: terminal::GOOD_FOR.as_secs() }))
}

/// Where to go on, and the ticket of a client that cannot send a password.
#[derive(Debug, Deserialize, JsonSchema)]
struct Connect {
    /// How much of the output is known already; -1 for all of it.
    cursor: Option<String>,
    /// A ticket, which is used up.
    ticket: Option<String>,
}

async fn connect(mut call: Call<PtyPath, Connect>) -> Result<Raw<bool>, Error> {
    let id = &call.path.pty.0;
    let terminal = call.state.ptys.get(&call.scope, id);
    let terminal = terminal.ok_or_else(|| Error::not_found(format!("PTY session not found: {id}")))?;
    // Invariant: the guard lets requests with a ticket pass without a password, so it is checked whatever else is known.
    if let Some(ticket) = call.query.ticket.as_deref().filter(|ticket| !ticket.is_empty())
        && !call.state.ptys.tickets.take(ticket, id)
    {
        let message = "The ticket is not good for this terminal, or not any more; ask for another";
        return Err(Error::tagged(StatusCode::FORBIDDEN, "Forbidden", &[], message));
    }
    let upgrade = WebSocketUpgrade::from_request_parts(&mut call.parts, &()).await;
    let upgrade = upgrade.map_err(|refused| Error::bad_request(Where::Headers, refused.body_text()))?;
    let seat = terminal.seat().ok_or_else(|| {
        let message = "This terminal has as many clients as it can have; close one first";
        Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    })?;
    let begin = Begin::parse(call.query.cursor.as_deref());
    let (closing, running) = (call.state.closing.clone(), call.state.ptys.tasks.token());
    let client = call.state.backlog.reader(&call.parts);
    let response = upgrade.max_message_size(terminal::MAX_MESSAGE).on_upgrade(async move |socket| {
        let _held = (seat, running);
        terminal::attend(terminal, begin, socket, client, closing).await;
    });
    Ok(Raw::response(response))
}
