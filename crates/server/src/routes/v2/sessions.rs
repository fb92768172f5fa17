//! Sessions in the form of the newer API.

use api::{Host, HostError, ModelRef, Session, SessionId, SessionRevert, SessionStatus, SessionTokens, Timestamp, Usd};
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{CreationOrder, SessionQuery};

use super::{DataOnly, NamedModel};
use crate::State;
use crate::error::{Error, RequestPart};
use crate::operation::request::{NoParams, Request};
use crate::operation::{JsonReply, Operation, RawReply, operation};
use crate::routes::sessions::session::{SessionPath, whole_number};

/// The page size without a limit, and the largest limit.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 1000;
/// The longest cursor, in bytes.
const MAX_CURSOR_BYTES: usize = 16 << 10;

pub const SESSION_NOT_FOUND: &[&str] = &["SessionNotFoundError"];

pub fn operations() -> Vec<Operation> {
    let (list_of, one) = ("/api/session", "/api/session/{sessionID}");
    vec![
        operation(Method::GET, list_of, "v2.session.list", "The sessions of every directory, newest first.", list)
            .v2()
            .global()
            .error(400, &["InvalidCursorError", "InvalidRequestError"]),
        operation(
            Method::GET,
            "/api/session/active",
            "v2.session.active",
            "The sessions whose turn is running.",
            active,
        )
        .v2()
        .global(),
        operation(Method::GET, one, "v2.session.get", "A session.", get).v2().global().error(404, SESSION_NOT_FOUND),
    ]
}

/// The place of a session.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LocationRef")]
struct SessionLocation {
    directory: String,
    #[serde(rename = "workspaceID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^wrk"))]
    workspace: Option<String>,
}

/// When a session was created and changed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct SessionTime {
    #[schemars(with = "f64")]
    created: Timestamp,
    #[schemars(with = "f64")]
    updated: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    archived: Option<Timestamp>,
}

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionV2Info")]
struct SessionInfo {
    id: SessionId,
    #[serde(rename = "parentID", skip_serializing_if = "Option::is_none")]
    parent: Option<SessionId>,
    #[serde(rename = "projectID")]
    project: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<NamedModel>,
    cost: Usd,
    tokens: SessionTokens,
    time: SessionTime,
    title: String,
    location: SessionLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    subpath: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revert: Option<SessionRevert>,
}

impl From<Session> for SessionInfo {
    fn from(session: Session) -> Self {
        let named = |model: api::SessionModel| {
            let variant = model.variant.unwrap_or_else(|| "default".to_owned());
            NamedModel::new(ModelRef::new(&model.provider_id, &model.id), Some(variant))
        };
        Self {
            model: session.model.map(named),
            cost: session.cost.unwrap_or_default(),
            tokens: session.tokens.unwrap_or_default(),
            time: SessionTime {
                created: session.time.created,
                updated: session.time.updated,
                archived: session.time.archived,
            },
            location: SessionLocation { directory: session.directory, workspace: session.workspace_id },
            subpath: session.path.filter(|path| !path.is_empty()),
            id: session.id,
            parent: session.parent_id,
            project: session.project_id,
            agent: session.agent,
            title: session.title,
            revert: session.revert,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Order {
    Asc,
    Desc,
}

/// Filters the sessions.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    /// Only sessions of this workspace.
    #[schemars(regex(pattern = "^wrk"))]
    workspace: Option<String>,
    /// The page size.
    limit: Option<f64>,
    /// Whether the oldest or the newest come first.
    order: Option<Order>,
    /// Only sessions whose title contains this text.
    search: Option<String>,
    /// Only sessions of exactly this directory.
    directory: Option<String>,
    /// Only sessions of this project.
    project: Option<String>,
    /// Only sessions at or below this path of their project.
    subpath: Option<String>,
    /// The end of another page, with its filter.
    cursor: Option<String>,
}

/// The filter of a page. The cursor carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Filter {
    order: Order,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subpath: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Next,
    Previous,
}

/// A cursor: a session at one end of a page, and the direction in which to continue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cursor {
    #[serde(flatten)]
    filter: Filter,
    id: SessionId,
    direction: Direction,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.get(..MAX_CURSOR_BYTES).unwrap_or(text).trim_end_matches('=')).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn encode(&self) -> Option<String> {
        Some(URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).ok()?))
    }
}

/// A page of sessions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionsResponse")]
struct SessionPage {
    data: Vec<SessionInfo>,
    cursor: PageCursors,
}

/// Cursors of the neighbouring pages.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(inline)]
struct PageCursors {
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

async fn list(request: Request<NoParams, ListQuery>) -> Result<RawReply<SessionPage>, Error> {
    let query = request.query;
    let limit = match whole_number("limit", query.limit)? {
        None => DEFAULT_LIMIT,
        Some(0) => {
            let message = "Expected a value greater than 0, got 0\n  at [\"limit\"]";
            return Err(Error::bad_request(RequestPart::Query, message));
        }
        Some(limit) => usize::try_from(limit).unwrap_or(MAX_LIMIT).min(MAX_LIMIT),
    };
    let (filter, anchor) = match &query.cursor {
        Some(text) => {
            let bad = || Error::tagged(StatusCode::BAD_REQUEST, "InvalidCursorError", &[], "Not a cursor of this list");
            let cursor = Cursor::parse(text).ok_or_else(bad)?;
            (cursor.filter, Some((cursor.id, cursor.direction)))
        }
        None => {
            let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
            let filter = Filter {
                order: query.order.unwrap_or(Order::Desc),
                workspace: non_empty(query.workspace),
                search: non_empty(query.search),
                directory: non_empty(query.directory).map(|_| request.scope.directory.clone()),
                project: non_empty(query.project),
                subpath: non_empty(query.subpath),
            };
            (filter, None)
        }
    };
    let page = read_page(&request.state, filter, anchor, limit).await?;
    RawReply::large(&request.state, page).await
}

async fn read_page(
    state: &State,
    filter: Filter,
    anchor: Option<(SessionId, Direction)>,
    limit: usize,
) -> Result<SessionPage, Error> {
    let is_backwards = anchor.as_ref().is_some_and(|(_, direction)| *direction == Direction::Previous);
    let creation_order =
        CreationOrder { ascending: (filter.order == Order::Asc) != is_backwards, after: anchor.map(|(id, _)| id) };
    let query = SessionQuery {
        project: filter.project.clone(),
        directory: filter.directory.clone(),
        search: filter.search.clone(),
        path: filter.subpath.clone(),
        workspace: filter.workspace.clone(),
        creation_order: Some(creation_order),
        limit,
        ..SessionQuery::default()
    };
    let mut sessions = state.engine.store().long_read(move |store| store.sessions(&query)).await?;
    if is_backwards {
        sessions.reverse();
    }
    let cursor_at = |session: Option<&Session>, direction| {
        Cursor { filter: filter.clone(), id: session?.id.clone(), direction }.encode()
    };
    let cursor = PageCursors {
        previous: cursor_at(sessions.first(), Direction::Previous),
        next: cursor_at(sessions.last(), Direction::Next),
    };
    Ok(SessionPage { data: sessions.into_iter().map(SessionInfo::from).collect(), cursor })
}

/// The status of a session whose turn is running.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionActive")]
struct ActiveSession {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["running"]))]
    kind: &'static str,
}

async fn active(request: Request) -> Result<JsonReply<DataOnly<IndexMap<SessionId, ActiveSession>>>, Error> {
    let statuses = request.host.statuses(&request.scope).await?;
    let running = statuses.into_iter().filter(|(_, status)| *status != SessionStatus::Idle);
    Ok(JsonReply(DataOnly { data: running.map(|(id, _)| (id, ActiveSession { kind: "running" })).collect() }))
}

/// The session in the path. It knows its own directory.
pub async fn session(host: &dyn Host, id: &SessionId) -> Result<Session, Error> {
    host.session(id).await.map_err(|error| {
        if !matches!(error, HostError::NotFound { .. }) {
            return error.into();
        }
        let fields = [("sessionID", id.as_str())];
        Error::tagged(StatusCode::NOT_FOUND, SESSION_NOT_FOUND[0], &fields, error.to_string())
    })
}

async fn get(request: Request<SessionPath>) -> Result<JsonReply<DataOnly<SessionInfo>>, Error> {
    Ok(JsonReply(DataOnly { data: session(&*request.host, &request.path.session.0).await?.into() }))
}
