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

use crate::error::{Error, RequestPart};
use crate::operation::request::{JsonBody, NoParams, OptionalJsonBody, ParsedId, Request};
use crate::operation::{JsonReply, Operation, RawReply, operation};
use crate::terminal::{self, StartPosition, Terminal, TerminalOptions};

pub fn operations() -> Vec<Operation> {
    const PTY: &str = "/pty/{ptyID}";
    const NOT_FOUND: &[&str] = &["PtyNotFoundError"];
    let token = "/pty/{ptyID}/connect-token";
    let connect = "/pty/{ptyID}/connect";
    vec![
        operation(Method::GET, "/pty/shells", "pty.shells", "The shells of this machine.", shells),
        operation(Method::GET, "/pty", "pty.list", "The terminals of a directory.", list),
        operation(Method::POST, "/pty", "pty.create", "Open a terminal.", create),
        operation(Method::GET, PTY, "pty.get", "A terminal.", get).error(404, NOT_FOUND),
        operation(Method::PUT, PTY, "pty.update", "Change a terminal's title or size.", update).error(404, NOT_FOUND),
        operation(Method::DELETE, PTY, "pty.remove", "End a terminal.", remove).error(404, NOT_FOUND),
        operation(Method::POST, token, "pty.connectToken", "Issue a ticket for a connection.", connect_token)
            .error(403, &["PtyForbiddenError"])
            .error(404, NOT_FOUND),
        operation(Method::GET, connect, "pty.connect", "Connect to a terminal over a WebSocket.", self::connect)
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
    /// Whether tools can use it: permission rules assume POSIX syntax.
    acceptable: bool,
}

/// The system's list of shells.
const SHELLS: &str = "/etc/shells";

async fn shells(_: Request) -> Result<JsonReply<Vec<Shell>>, Error> {
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
    let existing = paths.into_iter().filter(|path| Path::new(path).is_file());
    Ok(JsonReply(existing.map(shell).collect()))
}

async fn list(request: Request) -> Result<JsonReply<Vec<Pty>>, Error> {
    Ok(JsonReply(request.state.terminals.list(&request.scope)))
}

/// A new terminal; by default a shell in the directory.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(inline)]
struct CreateBody {
    command: Option<String>,
    args: Option<Vec<String>>,
    cwd: Option<String>,
    title: Option<String>,
    env: Option<IndexMap<String, String>>,
}

async fn create(request: Request<NoParams, NoParams, OptionalJsonBody<CreateBody>>) -> Result<JsonReply<Pty>, Error> {
    let OptionalJsonBody(CreateBody { command, args, cwd, title, env }) = request.body;
    let options = TerminalOptions { command, args: args.unwrap_or_default(), cwd, title, env: env.unwrap_or_default() };
    Ok(JsonReply(terminal::open(&request.state, &request.scope, options).await?))
}

/// A terminal in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct PtyPath {
    #[serde(rename = "ptyID")]
    pty: ParsedId<PtyId>,
}

fn not_found(id: &PtyId) -> Error {
    let message = format!("PTY session not found: {id}");
    Error::tagged(StatusCode::NOT_FOUND, "PtyNotFoundError", &[("ptyID", id.as_str())], message)
}

fn find<Q, B>(request: &Request<PtyPath, Q, B>) -> Result<Arc<Terminal>, Error> {
    request.state.terminals.get(&request.scope, &request.path.pty.0).ok_or_else(|| not_found(&request.path.pty.0))
}

async fn get(request: Request<PtyPath>) -> Result<JsonReply<Pty>, Error> {
    Ok(JsonReply(find(&request)?.info()))
}

/// Changes to a terminal.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct UpdateBody {
    title: Option<String>,
    size: Option<SizeBody>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct SizeBody {
    #[schemars(extend("exclusiveMinimum" = 0))]
    rows: u64,
    #[schemars(extend("exclusiveMinimum" = 0))]
    cols: u64,
}

impl SizeBody {
    fn size(&self) -> Result<Size, Error> {
        let count = |name: &str, value: u64| match u16::try_from(value) {
            Ok(count @ 1..) => Ok(count),
            _ => {
                let message =
                    format!("Expected a number from 1 to {}, got {value}\n  at [\"size\"][{name:?}]", u16::MAX);
                Err(Error::bad_request(RequestPart::Payload, message))
            }
        };
        Ok(Size { rows: count("rows", self.rows)?, cols: count("cols", self.cols)? })
    }
}

async fn update(request: Request<PtyPath, NoParams, JsonBody<UpdateBody>>) -> Result<JsonReply<Pty>, Error> {
    let terminal = find(&request)?;
    let JsonBody(UpdateBody { title, size }) = request.body;
    let size = size.map(|size| size.size()).transpose()?;
    Ok(JsonReply(terminal.update(&request.state, title, size)?))
}

async fn remove(request: Request<PtyPath>) -> Result<JsonReply<bool>, Error> {
    let id = &request.path.pty.0;
    if !request.state.terminals.remove(&request.state, &request.scope, id) {
        return Err(not_found(id));
    }
    Ok(JsonReply(true))
}

/// The header that a request for a ticket needs. Pages of other sites cannot send it, neither with a form nor with a
/// script that we did not allow.
const TICKET_HEADER: &str = "x-opencode-ticket";

/// A ticket for a connection.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PtyTicketConnectToken")]
struct Ticket {
    ticket: String,
    /// For how many seconds it is valid.
    #[schemars(extend("exclusiveMinimum" = 0))]
    expires_in: u64,
}

async fn connect_token(request: Request<PtyPath>) -> Result<JsonReply<Ticket>, Error> {
    if request.parts.headers.get(TICKET_HEADER).is_none_or(|value| value != "1") {
        let message = format!("A request for a ticket needs the header {TICKET_HEADER}: 1");
        return Err(Error::tagged(StatusCode::FORBIDDEN, "PtyForbiddenError", &[], message));
    }
    find(&request)?;
    let ticket = request.state.terminals.tickets.issue(&request.path.pty.0)?;
    Ok(JsonReply(Ticket { ticket, expires_in: terminal::TICKET_LIFETIME.as_secs() }))
}

/// Where to resume, and the ticket of a client that cannot send a password.
#[derive(Debug, Deserialize, JsonSchema)]
struct ConnectQuery {
    /// The position up to which the client has the output; -1 for new output only.
    cursor: Option<String>,
    /// A ticket; it can be used once.
    ticket: Option<String>,
}

async fn connect(mut request: Request<PtyPath, ConnectQuery>) -> Result<RawReply<bool>, Error> {
    let id = &request.path.pty.0;
    let terminal = request.state.terminals.get(&request.scope, id);
    let terminal = terminal.ok_or_else(|| Error::not_found(format!("PTY session not found: {id}")))?;
    // Invariant: the guard lets requests with a ticket pass without a password, so the ticket is always checked.
    if let Some(ticket) = request.query.ticket.as_deref().filter(|ticket| !ticket.is_empty())
        && !request.state.terminals.tickets.redeem(ticket, id)
    {
        let message = "The ticket is not valid for this terminal, or no longer; ask for another";
        return Err(Error::tagged(StatusCode::FORBIDDEN, "Forbidden", &[], message));
    }
    let upgrade = WebSocketUpgrade::from_request_parts(&mut request.parts, &()).await;
    let upgrade = upgrade.map_err(|refused| Error::bad_request(RequestPart::Headers, refused.body_text()))?;
    let permit = terminal.client_permit().ok_or_else(|| {
        let message = "This terminal has too many clients; close one first";
        Error::named(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
    })?;
    let start_position = StartPosition::parse(request.query.cursor.as_deref());
    let (closing, running) = (request.state.closing.clone(), request.state.terminals.tasks.token());
    let client = request.state.backlog.client_of(&request.parts);
    let response = upgrade.max_message_size(terminal::MAX_MESSAGE_BYTES).on_upgrade(async move |socket| {
        let _held = (permit, running);
        terminal::serve_client(terminal, start_position, socket, client, closing).await;
    });
    Ok(RawReply::response(response))
}
