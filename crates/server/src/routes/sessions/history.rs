//! The sessions of every project, and the event log that replicas read.

use api::{EventId, JsonMap, ListSessions, Session, SessionId, Timestamp};
use axum::http::{HeaderValue, Method};
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{Store, StoreError};

use super::session::whole_number;
use crate::error::Error;
use crate::events;
use crate::operation::request::{JsonBody, NoParams, OptionalJsonBody, ParsedId, Request};
use crate::operation::{NeverReply, Operation, RawReply, Reply as _, operation};

/// The page size without a limit, and the largest limit.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
/// A response ends after this many events, or bytes of them.
const MAX_EVENTS: usize = 5000;
const MAX_EVENT_BYTES: usize = 16 << 20;

pub fn operations() -> Vec<Operation> {
    const LIST: &str = "/experimental/session";
    const NO_REPLICAS: &str = "sessions are not replicated between servers";
    vec![
        operation(Method::GET, LIST, "experimental.session.list", "The sessions of every project.", sessions),
        operation(Method::POST, "/sync/start", "sync.start", "Start to replicate.", start).not_offered(NO_REPLICAS),
        operation(Method::POST, "/sync/replay", "sync.replay", "Import events.", replay).not_offered(NO_REPLICAS),
        operation(Method::POST, "/sync/steal", "sync.steal", "Take over a session.", steal).not_offered(NO_REPLICAS),
        operation(Method::POST, "/sync/history", "sync.history.list", "The events of sessions.", history).partial(
            "only the events that the log still has, about 5000 at a time; sequence numbers are shared by all sessions",
        ),
    ]
}

/// Filters the sessions.
#[derive(Debug, Deserialize, JsonSchema)]
struct SessionsQuery {
    /// Only sessions without a parent.
    roots: Option<bool>,
    /// Only sessions changed at or after this time.
    start: Option<f64>,
    /// Only sessions changed before this time: the end of the previous page.
    cursor: Option<f64>,
    /// Only sessions whose title contains this text.
    search: Option<String>,
    /// The page size.
    limit: Option<f64>,
    /// Whether to include archived sessions.
    archived: Option<bool>,
}

/// A session with a summary of its project.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GlobalSession")]
struct GlobalSession {
    #[serde(flatten)]
    session: Session,
    #[schemars(with = "api::schema::Nullable<ProjectSummary>")]
    project: Option<ProjectSummary>,
}

/// A summary of a project.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "ProjectSummary")]
struct ProjectSummary {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    worktree: String,
}

async fn sessions(request: Request<NoParams, SessionsQuery>) -> Result<RawReply<Vec<GlobalSession>>, Error> {
    let query = request.query;
    let time = |name, value| whole_number(name, value).map(|at| at.and_then(|at| Timestamp::try_from(at).ok()));
    let limit =
        whole_number("limit", query.limit)?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT);
    let limit = limit.min(MAX_LIMIT);
    let list = ListSessions {
        directory_only: request.directory_in_query,
        everywhere: !request.directory_in_query,
        roots: query.roots.unwrap_or_default(),
        search: query.search,
        start: time("start", query.start)?,
        before: time("cursor", query.cursor)?,
        unarchived: !query.archived.unwrap_or_default(),
        // One more tells whether there is a next page.
        limit: Some(limit + 1),
        ..ListSessions::default()
    };
    let mut found = request.host.sessions(&request.scope, list).await?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(|session| session.time.updated);
    let projects = request.host.projects(&request.scope).await?;
    let projects: IndexMap<String, ProjectSummary> = projects.into_iter().map(summary).collect();
    let with_project =
        |session: Session| GlobalSession { project: projects.get(&session.project_id).cloned(), session };
    let found: Vec<GlobalSession> = found.into_iter().map(with_project).collect();
    let mut response = RawReply::large(&request.state, found).await?.into_response();
    if let Some(next) = next {
        response.headers_mut().insert("x-next-cursor", HeaderValue::from(next));
    }
    Ok(RawReply::response(response))
}

fn summary(project: api::Project) -> (String, ProjectSummary) {
    let summary = ProjectSummary { id: project.id.clone(), name: project.name, worktree: project.worktree };
    (project.id, summary)
}

fn not_replicated<T>() -> Result<NeverReply<T>, Error> {
    Err(Error::unsupported(
        "Sessions are not replicated between servers; several processes may share one database instead",
    ))
}

async fn start(_: Request) -> Result<NeverReply<bool>, Error> {
    not_replicated()
}

/// Events from another server.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct ReplayBody {
    #[serde(rename = "directory")]
    _directory: String,
    #[serde(rename = "events")]
    #[schemars(length(min = 1))]
    _events: Vec<ReplayedEvent>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
struct ReplayedEvent {
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

/// The session that the events belong to.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ReplayResult {
    #[serde(rename = "sessionID")]
    session: String,
}

async fn replay(_: Request<NoParams, NoParams, JsonBody<ReplayBody>>) -> Result<NeverReply<ReplayResult>, Error> {
    not_replicated()
}

/// A session to take over.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
struct StealBody {
    #[serde(rename = "sessionID")]
    _session: ParsedId<SessionId>,
}

async fn steal(_: Request<NoParams, NoParams, JsonBody<StealBody>>) -> Result<NeverReply<StealResult>, Error> {
    not_replicated()
}

/// The session that was taken over.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct StealResult {
    #[serde(rename = "sessionID")]
    session: SessionId,
}

/// An event of a session's log.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct LoggedEvent {
    id: EventId,
    aggregate_id: String,
    seq: u64,
    #[serde(rename = "type")]
    kind: String,
    #[schemars(with = "JsonMap")]
    data: Box<RawValue>,
}

/// The last event that the client has of each session. It has none of sessions that it does not name.
type KnownEvents = IndexMap<String, u64>;

async fn history(
    request: Request<NoParams, NoParams, OptionalJsonBody<KnownEvents>>,
) -> Result<RawReply<Vec<LoggedEvent>>, Error> {
    let mut reader = LogReader { known: request.body.0, events: Vec::new(), bytes: 0, after: 0, is_done: false };
    while !reader.is_done {
        let read = move |store: &Store| {
            reader.read_page(store)?;
            Ok::<_, StoreError>(reader)
        };
        reader = request.state.engine.store().long_read(read).await?;
    }
    RawReply::large(&request.state, reader.events).await
}

/// Collects the events that a client does not have.
struct LogReader {
    known: KnownEvents,
    events: Vec<LoggedEvent>,
    bytes: usize,
    /// Everything up to this sequence number was read.
    after: u64,
    /// Whether the log ended, or the response is full.
    is_done: bool,
}

impl LogReader {
    /// Reads the next page of the log.
    fn read_page(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some((frames, next)) = store.history(self.after)? else {
            self.is_done = true;
            return Ok(());
        };
        self.after = next;
        for frame in &frames {
            let (Some(cursor), Some(session)) = (&frame.cursor, &frame.session) else { continue };
            if self.known.get(session.as_str()).is_some_and(|last| cursor.seq <= *last) {
                continue;
            }
            if let Some(event) = events::replicated_event(frame) {
                self.bytes += frame.json().len();
                self.events.push(LoggedEvent {
                    id: cursor.id.clone(),
                    aggregate_id: session.to_string(),
                    seq: cursor.seq,
                    kind: format!("{}.1", event.kind),
                    data: event.properties.to_owned(),
                });
            }
        }
        self.is_done = self.events.len() >= MAX_EVENTS || self.bytes >= MAX_EVENT_BYTES;
        Ok(())
    }
}
