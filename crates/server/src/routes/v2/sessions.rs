//! Sessions, as the newer API tells them.

use api::{ModelRef, Session, SessionId, SessionRevert, SessionStatus, SessionTokens, Timestamp, Usd};
use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{ByAge, SessionQuery};

use super::{Bare, NamedModel};
use crate::State;
use crate::error::{Error, Where};
use crate::operation::request::{Call, Nothing};
use crate::operation::{Data, Operation, operation};
use crate::routes::sessions::session::{SessionPath, whole};

/// Sessions of a page without a limit, and the most that one may ask for.
const PAGE: usize = 50;
const MAX_PAGE: usize = 1000;
/// The longest cursor.
const MAX_CURSOR: usize = 16 << 10;

pub const NO_SESSION: &[&str] = &["SessionNotFoundError"];

pub fn operations() -> Vec<Operation> {
    let (list_of, one) = ("/api/session", "/api/session/{sessionID}");
    vec![
        operation(
            Method::GET,
            list_of,
            "v2.session.list",
            "The sessions of every directory, the youngest first.",
            list,
        )
        .v2()
        .global()
        .error(400, &["InvalidCursorError", "InvalidRequestError"]),
        operation(Method::GET, "/api/session/active", "v2.session.active", "The sessions with a turn.", active)
            .v2()
            .global(),
        operation(Method::GET, one, "v2.session.get", "A session.", get).v2().global().error(404, NO_SESSION),
    ]
}

/// Where a session is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LocationRef")]
struct Location {
    directory: String,
    #[serde(rename = "workspaceID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^wrk"))]
    workspace: Option<String>,
}

/// When things happened to a session.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Time {
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
struct Info {
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
    time: Time,
    title: String,
    location: Location,
    #[serde(skip_serializing_if = "Option::is_none")]
    subpath: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revert: Option<SessionRevert>,
}

impl From<Session> for Info {
    fn from(session: Session) -> Self {
        let named = |model: api::SessionModel| {
            let variant = model.variant.unwrap_or_else(|| "default".to_owned());
            NamedModel::new(ModelRef::new(&model.provider_id, &model.id), Some(variant))
        };
        Self {
            model: session.model.map(named),
            cost: session.cost.unwrap_or_default(),
            tokens: session.tokens.unwrap_or_default(),
            time: Time {
                created: session.time.created,
                updated: session.time.updated,
                archived: session.time.archived,
            },
            location: Location { directory: session.directory, workspace: session.workspace_id },
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

/// Which sessions.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    /// Only those of this workspace.
    #[schemars(regex(pattern = "^wrk"))]
    workspace: Option<String>,
    /// The most.
    limit: Option<f64>,
    /// The oldest or the youngest first.
    order: Option<Order>,
    /// Only those whose title contains it.
    search: Option<String>,
    /// Only those of this very directory.
    directory: Option<String>,
    /// Only those of this project.
    project: Option<String>,
    /// Only those at or below this path of their project.
    subpath: Option<String>,
    /// Where another page ended, and what it was a page of.
    cursor: Option<String>,
}

/// What a page is a page of. It travels in the cursor.
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

/// A cursor: a session at an end of a page, and which way to go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Cursor {
    #[serde(flatten)]
    filter: Filter,
    id: SessionId,
    direction: Direction,
}

impl Cursor {
    fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.get(..MAX_CURSOR).unwrap_or(text).trim_end_matches('=')).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn text(&self) -> Option<String> {
        Some(URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).ok()?))
    }
}

/// A page of sessions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionsResponse")]
struct Page {
    data: Vec<Info>,
    cursor: Ends,
}

/// The pages beside this one.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(inline)]
struct Ends {
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

async fn list(call: Call<Nothing, ListQuery>) -> Result<Data<Page>, Error> {
    let query = call.query;
    let limit = match whole("limit", query.limit)? {
        None => PAGE,
        Some(0) => {
            let message = "Expected a value greater than 0, got 0\n  at [\"limit\"]";
            return Err(Error::bad_request(Where::Query, message));
        }
        Some(limit) => usize::try_from(limit).unwrap_or(MAX_PAGE).min(MAX_PAGE),
    };
    let (filter, anchor) = match &query.cursor {
        Some(text) => {
            let bad = || Error::tagged(StatusCode::BAD_REQUEST, "InvalidCursorError", &[], "Not a cursor of this list");
            let cursor = Cursor::parse(text).ok_or_else(bad)?;
            (cursor.filter, Some((cursor.id, cursor.direction)))
        }
        None => {
            let given = |text: Option<String>| text.filter(|text| !text.is_empty());
            let filter = Filter {
                order: query.order.unwrap_or(Order::Desc),
                workspace: given(query.workspace),
                search: given(query.search),
                directory: given(query.directory).map(|_| call.scope.directory.clone()),
                project: given(query.project),
                subpath: given(query.subpath),
            };
            (filter, None)
        }
    };
    page(&call.state, filter, anchor, limit).map(Data)
}

fn page(state: &State, filter: Filter, anchor: Option<(SessionId, Direction)>, limit: usize) -> Result<Page, Error> {
    let back = anchor.as_ref().is_some_and(|(_, direction)| *direction == Direction::Previous);
    let by_age = ByAge { ascending: (filter.order == Order::Asc) != back, after: anchor.map(|(id, _)| id) };
    let query = SessionQuery {
        project: filter.project.clone(),
        directory: filter.directory.clone(),
        search: filter.search.clone(),
        path: filter.subpath.clone(),
        workspace: filter.workspace.clone(),
        by_age: Some(by_age),
        limit,
        ..SessionQuery::default()
    };
    let mut sessions = state.engine.store().sessions(&query)?;
    if back {
        sessions.reverse();
    }
    let end = |session: Option<&Session>, direction| {
        Cursor { filter: filter.clone(), id: session?.id.clone(), direction }.text()
    };
    let cursor =
        Ends { previous: end(sessions.first(), Direction::Previous), next: end(sessions.last(), Direction::Next) };
    Ok(Page { data: sessions.into_iter().map(Info::from).collect(), cursor })
}

/// A session has a turn.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionActive")]
struct Active {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["running"]))]
    kind: &'static str,
}

async fn active(call: Call) -> Result<Data<Bare<IndexMap<SessionId, Active>>>, Error> {
    let statuses = call.state.engine.store().statuses()?;
    let running = statuses.into_iter().filter(|(_, status)| *status != SessionStatus::Idle);
    Ok(Data(Bare { data: running.map(|(id, _)| (id, Active { kind: "running" })).collect() }))
}

/// The session of a path, which says where it is itself.
pub fn session(state: &State, id: &SessionId) -> Result<Session, Error> {
    state.engine.store().session(id)?.ok_or_else(|| {
        let message = format!("Session not found: {id}");
        Error::tagged(StatusCode::NOT_FOUND, NO_SESSION[0], &[("sessionID", id.as_str())], message)
    })
}

async fn get(call: Call<SessionPath>) -> Result<Data<Bare<Info>>, Error> {
    Ok(Data(Bare { data: session(&call.state, &call.path.session.0)?.into() }))
}
