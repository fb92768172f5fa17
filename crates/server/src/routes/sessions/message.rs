//! Messages and parts.

use api::{Host as _, HostError, ListMessages, MessageId, MessageWithParts, Part, PartId, SessionId, Timestamp};
use axum::body::Body;
use axum::http::{HeaderValue, Method, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{Pages, StoreError};

use super::session::{SessionPath, whole};
use crate::error::{Error, Where};
use crate::operation::request::{Call, Given, JsonBody, Nothing};
use crate::operation::{Data, Operation, Raw, json, operation};

pub fn operations() -> Vec<Operation> {
    const MESSAGES: &str = "/session/{sessionID}/message";
    const MESSAGE: &str = "/session/{sessionID}/message/{messageID}";
    const PART: &str = "/session/{sessionID}/message/{messageID}/part/{partID}";
    vec![
        operation(Method::GET, MESSAGES, "session.messages", "The messages of a session, oldest first.", list)
            .not_found(),
        operation(Method::GET, MESSAGE, "session.message", "A message with its parts.", get).not_found(),
        operation(Method::DELETE, MESSAGE, "session.deleteMessage", "Delete a message.", delete).not_found().busy(),
        operation(Method::PATCH, PART, "part.update", "Replace a part.", update_part).not_found().busy(),
        operation(Method::DELETE, PART, "part.delete", "Delete a part.", delete_part).not_found().busy(),
    ]
}

/// A list of so many messages is read at once.
const FEW: usize = 256;

/// Which messages.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    /// The newest so many; all without it.
    #[schemars(with = "Option<u64>")]
    limit: Option<f64>,
    /// The cursor of the page before.
    before: Option<String>,
}

/// A place in a conversation, as OpenCode's clients carry it: base64 of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct PageCursor {
    id: Given<MessageId>,
    time: Timestamp,
}

impl PageCursor {
    fn of(message: &MessageWithParts) -> Self {
        Self { id: Given(message.info.id().clone()), time: message.info.created() }
    }

    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn decode(text: &str) -> Option<Self> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?).ok()
    }
}

/// A long list of messages that is being written.
struct List {
    pages: Pages,
    begun: bool,
}

impl List {
    /// The next messages of the list, and its end if they are the last.
    fn json(&mut self, messages: &[MessageWithParts]) -> Vec<u8> {
        let mut out = if std::mem::replace(&mut self.begun, true) { Vec::new() } else { vec![b'['] };
        for message in messages {
            if out.last() != Some(&b'[') {
                out.push(b',');
            }
            // What was stored as JSON can be written as such.
            let _ = serde_json::to_writer(&mut out, message);
        }
        if self.pages.is_done() {
            out.push(b']');
        }
        out
    }

    /// The list, of which this is the beginning.
    fn stream(self, begin: Vec<u8>) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
        let rest = stream::unfold(Some(self), |list| async {
            let mut list = list.filter(|list| !list.pages.is_done())?;
            let read = move || list.pages.next_page().map(|messages| (list.json(&messages), list));
            Some(match tokio::task::spawn_blocking(read).await.map_err(std::io::Error::other) {
                Ok(Ok((json, list))) => (Ok(json.into()), Some(list)),
                // Too late for another status: the connection breaks off.
                Ok(Err(error)) => (Err(std::io::Error::other(error)), None),
                Err(error) => (Err(error), None),
            })
        });
        stream::iter([Ok(begin.into())]).chain(rest)
    }
}

async fn list(call: Call<SessionPath, ListQuery>) -> Result<Raw<Vec<MessageWithParts>>, Error> {
    let limit = whole("limit", call.query.limit)?.filter(|limit| *limit > 0);
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let bad = |why: &str| Error::bad_request(Where::Query, format!("{why}\n  at [\"before\"]"));
    let before = match call.query.before.as_deref() {
        None | Some("") => None,
        Some(_) if limit.is_none() => return Err(bad("A cursor needs a limit")),
        Some(text) => Some(PageCursor::decode(text).ok_or_else(|| bad("Not a cursor of this server"))?.id.0),
    };
    let session = &call.path.session.0;
    // A short list is read at once, a long one piece by piece while the client takes it.
    let (body, next) = if limit.is_some_and(|limit| limit <= FEW) {
        let page = call.state.engine.messages(&call.scope, session, ListMessages { limit, before }).await?;
        let first = page.messages.first().filter(|_| page.older.is_some()).map(PageCursor::of);
        (serde_json::to_vec(&page.messages).map_err(Error::internal)?.into(), first)
    } else {
        call.state.engine.session(&call.scope, session).await?;
        let (store, session) = (call.state.engine.store().clone(), session.clone());
        let begin = move || {
            let mut list = List { pages: store.pages(&session, limit, before.as_ref())?, begun: false };
            let messages = list.pages.next_page()?;
            let first = messages.first().filter(|_| list.pages.has_older()).map(PageCursor::of);
            Ok((list.json(&messages), first, list))
        };
        let begun: Result<_, StoreError> = tokio::task::spawn_blocking(begin).await.map_err(Error::internal)?;
        let (json, first, list) = begun.map_err(|error| match error {
            StoreError::NoMessage { id } => HostError::not_found("message", id.as_str()).into(),
            error => Error::internal(error),
        })?;
        let body = if list.pages.is_done() { json.into() } else { Body::from_stream(list.stream(json)) };
        (body, first)
    };
    let mut response = json(body);
    if let Some(cursor) = next.map(|cursor| cursor.encode())
        && let Ok(value) = HeaderValue::from_str(&cursor)
    {
        let headers = response.headers_mut();
        if let Ok(link) = HeaderValue::from_str(&next_page(&call.parts, &cursor)) {
            headers.insert(header::LINK, link);
        }
        headers.insert("x-next-cursor", value);
        let exposed = HeaderValue::from_static("Link, X-Next-Cursor");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
    Ok(Raw::response(response))
}

/// The same URL with another cursor, as a link.
fn next_page(parts: &axum::http::request::Parts, cursor: &str) -> String {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let given = parts.uri.query().unwrap_or_default();
    query.extend_pairs(url::form_urlencoded::parse(given.as_bytes()).filter(|(name, _)| name != "before"));
    query.append_pair("before", cursor);
    format!("<http://{host}{}?{}>; rel=\"next\"", parts.uri.path(), query.finish())
}

/// A message in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct MessagePath {
    #[serde(rename = "sessionID")]
    session: Given<SessionId>,
    #[serde(rename = "messageID")]
    message: Given<MessageId>,
}

async fn get(call: Call<MessagePath>) -> Result<Data<MessageWithParts>, Error> {
    let MessagePath { session, message } = call.path;
    Ok(Data(call.state.engine.message(&call.scope, &session.0, &message.0).await?))
}

async fn delete(call: Call<MessagePath>) -> Result<Data<bool>, Error> {
    let MessagePath { session, message } = call.path;
    match call.state.engine.delete_message(&call.scope, &session.0, &message.0).await {
        // It is gone, whoever did it: what the client wants.
        Ok(()) | Err(HostError::NotFound { what: "message", .. }) => Ok(Data(true)),
        Err(error) => Err(error.into()),
    }
}

/// A part in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct PartPath {
    #[serde(rename = "sessionID")]
    session: Given<SessionId>,
    #[serde(rename = "messageID")]
    message: Given<MessageId>,
    #[serde(rename = "partID")]
    part: Given<PartId>,
}

async fn update_part(call: Call<PartPath, Nothing, JsonBody<Part>>) -> Result<Data<Part>, Error> {
    let JsonBody(part) = call.body;
    let PartPath { session, message, part: id } = call.path;
    let head = part.head().ok_or_else(|| Error::bad_request(Where::Payload, "Not a part: it has no known type"))?;
    for (name, given, wanted) in [
        ("id", head.id.as_str(), id.0.as_str()),
        ("messageID", head.message_id.as_str(), message.0.as_str()),
        ("sessionID", head.session_id.as_str(), session.0.as_str()),
    ] {
        if given != wanted {
            let message = format!("The part is not the one of the path: {given:?}, not {wanted:?}\n  at [{name:?}]");
            return Err(Error::bad_request(Where::Payload, message));
        }
    }
    Ok(Data(call.state.engine.update_part(&call.scope, part).await?))
}

async fn delete_part(call: Call<PartPath>) -> Result<Data<bool>, Error> {
    let PartPath { session, message, part } = call.path;
    match call.state.engine.delete_part(&call.scope, &session.0, &message.0, &part.0).await {
        // As with a message.
        Ok(()) | Err(HostError::NotFound { what: "message" | "part", .. }) => Ok(Data(true)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_what_opencode_writes() {
        let cursor = PageCursor { id: Given(MessageId::parse("msg_1de008bed001").unwrap()), time: 1_794_725_940_205 };
        let text = cursor.encode();
        assert_eq!(PageCursor::decode(&text).unwrap().id, cursor.id);
        assert!(PageCursor::decode("nope").is_none());
        assert!(PageCursor::decode("eyJpZCI6Im5vcGUiLCJ0aW1lIjoxfQ").is_none(), "an id has its prefix");
    }
}
