//! Sessions of every project, and the log that replicas read.

use api::{EventId, Host as _, JsonMap, ListSessions, Session, SessionId, Timestamp};
use axum::http::{HeaderValue, Method};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{Store, StoreError};

use super::session::whole;
use crate::error::Error;
use crate::events;
use crate::operation::request::{Call, Given, JsonBody, Maybe, Nothing};
use crate::operation::{Data, Never, Operation, Raw, Reply as _, operation};

/// Sessions of a page without a limit, and the most that one may ask for.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;
/// An answer ends after so many events, or bytes of them.
const EVENTS: usize = 5000;
const EVENT_BYTES: usize = 16 << 20;

pub fn operations() -> Vec<Operation> {
    const LIST: &str = "/experimental/session";
    const NO_REPLICAS: &str = "sessions are not replicated between servers";
    vec![
        operation(Method::GET, LIST, "experimental.session.list", "The sessions of every project.", sessions),
        operation(Method::POST, "/sync/start", "sync.start", "Begin to replicate.", start).not_offered(NO_REPLICAS),
        operation(Method::POST, "/sync/replay", "sync.replay", "Take over events.", replay).not_offered(NO_REPLICAS),
        operation(Method::POST, "/sync/steal", "sync.steal", "Take over a session.", steal).not_offered(NO_REPLICAS),
        operation(Method::POST, "/sync/history", "sync.history.list", "Events of sessions.", history)
            .partial("the newest that the log still has, some 5000 at once; numbers count for all sessions together"),
    ]
}

/// Which sessions.
#[derive(Debug, Deserialize, JsonSchema)]
struct SessionsQuery {
    /// Only those without a parent.
    roots: Option<bool>,
    /// Only those that changed at or after.
    start: Option<f64>,
    /// Only those that changed before: where the page before ended.
    cursor: Option<f64>,
    /// Only those whose title contains it.
    search: Option<String>,
    /// The most.
    limit: Option<f64>,
    /// Those that were archived, too.
    archived: Option<bool>,
}

/// A session, and its project in short.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GlobalSession")]
struct GlobalSession {
    #[serde(flatten)]
    session: Session,
    #[schemars(with = "api::schema::Nullable<ProjectSummary>")]
    project: Option<ProjectSummary>,
}

/// A project in short.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "ProjectSummary")]
struct ProjectSummary {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    worktree: String,
}

async fn sessions(call: Call<Nothing, SessionsQuery>) -> Result<Raw<Vec<GlobalSession>>, Error> {
    let query = call.query;
    let time = |name, value| whole(name, value).map(|at| at.and_then(|at| Timestamp::try_from(at).ok()));
    let limit = whole("limit", query.limit)?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(PAGE);
    let limit = limit.min(MAX_PAGE);
    let list = ListSessions {
        directory_only: call.directory_in_query,
        everywhere: !call.directory_in_query,
        roots: query.roots.unwrap_or_default(),
        search: query.search,
        start: time("start", query.start)?,
        before: time("cursor", query.cursor)?,
        unarchived: !query.archived.unwrap_or_default(),
        // One more shows whether there is a next page.
        limit: Some(limit + 1),
        ..ListSessions::default()
    };
    let mut found = call.state.engine.sessions(&call.scope, list).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|session| session.time.updated);
    let projects: IndexMap<String, ProjectSummary> =
        call.state.engine.projects().await?.into_iter().map(short).collect();
    let full = |session: Session| GlobalSession { project: projects.get(&session.project_id).cloned(), session };
    let mut response = Data(found.into_iter().map(full).collect::<Vec<_>>()).into_response();
    if let Some(next) = next {
        response.headers_mut().insert("x-next-cursor", HeaderValue::from(next));
    }
    Ok(Raw::response(response))
}

fn short(project: api::Project) -> (String, ProjectSummary) {
    let summary = ProjectSummary { id: project.id.clone(), name: project.name, worktree: project.worktree };
    (project.id, summary)
}

fn no_replicas<T>() -> Result<Never<T>, Error> {
    Err(Error::unsupported(
        "Sessions are not replicated between servers; several processes may share one database instead",
    ))
}

async fn start(_: Call) -> Result<Never<bool>, Error> {
    no_replicas()
}

/// Events of another server.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Replay {
    #[serde(rename = "directory")]
    _directory: String,
    #[serde(rename = "events")]
    #[schemars(length(min = 1))]
    _events: Vec<Replayed>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Replayed {
    #[serde(rename = "id")]
    #[schemars(regex(pattern = "^evt_"))]
    _id: String,
    #[serde(rename = "aggregateID")]
    _aggregate: String,
    #[serde(rename = "seq")]
    _seq: u64,
    #[serde(rename = "type")]
    _kind: String,
    #[serde(rename = "data")]
    _data: JsonMap,
}

/// The session that events were of.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Replicated {
    #[serde(rename = "sessionID")]
    session: String,
}

async fn replay(_: Call<Nothing, Nothing, JsonBody<Replay>>) -> Result<Never<Replicated>, Error> {
    no_replicas()
}

/// A session to take over.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct Steal {
    #[serde(rename = "sessionID")]
    _session: Given<SessionId>,
}

async fn steal(_: Call<Nothing, Nothing, JsonBody<Steal>>) -> Result<Never<Stolen>, Error> {
    no_replicas()
}

/// The session that was taken over.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Stolen {
    #[serde(rename = "sessionID")]
    session: SessionId,
}

/// An event of a session's log.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Logged {
    id: EventId,
    aggregate_id: String,
    seq: u64,
    #[serde(rename = "type")]
    kind: String,
    #[schemars(with = "JsonMap")]
    data: Box<RawValue>,
}

/// The last event that the client has of each session; of those that it does not name it has none.
type Known = IndexMap<String, u64>;

async fn history(call: Call<Nothing, Nothing, Maybe<Known>>) -> Result<Data<Vec<Logged>>, Error> {
    let (store, known) = (call.state.engine.store().clone(), call.body.0);
    let read = tokio::task::spawn_blocking(move || logged(&store, &known)).await;
    Ok(Data(read.map_err(Error::internal)??))
}

fn logged(store: &Store, known: &Known) -> Result<Vec<Logged>, StoreError> {
    let (mut events, mut bytes, mut at) = (Vec::new(), 0, 0);
    while events.len() < EVENTS
        && bytes < EVENT_BYTES
        && let Some((frames, next)) = store.history(at)?
    {
        at = next;
        for frame in &frames {
            let (Some(cursor), Some(session)) = (&frame.cursor, &frame.session) else { continue };
            if known.get(session.as_str()).is_some_and(|last| cursor.seq <= *last) {
                continue;
            }
            if let Some(event) = events::synced(frame) {
                bytes += frame.json().len();
                events.push(Logged {
                    id: cursor.id.clone(),
                    aggregate_id: session.to_string(),
                    seq: cursor.seq,
                    kind: format!("{}.1", event.kind),
                    data: event.properties.to_owned(),
                });
            }
        }
    }
    Ok(events)
}
