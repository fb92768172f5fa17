//! Messages and parts.

use api::{HostError, ListMessages, MessageId, MessageWithParts, Part, PartId, SessionId, Timestamp};
use axum::body::Body;
use axum::http::{HeaderValue, Method, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{MessagePages, Store, StoreError};

use super::session::{SessionPath, whole_number};
use crate::error::{Error, RequestPart};
use crate::operation::request::{JsonBody, NoParams, ParsedId, Request};
use crate::operation::{JsonReply, Operation, RawReply, json, operation};

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

/// A list of up to this many messages is sent as a whole.
const SHORT_LIST: usize = 256;

/// Selects messages.
#[derive(Debug, Deserialize, JsonSchema)]
struct ListQuery {
    /// The newest this many; all without it.
    #[schemars(with = "Option<u64>")]
    limit: Option<f64>,
    /// The cursor of the previous page.
    before: Option<String>,
}

/// A position in a conversation, in the form of OpenCode's clients: JSON in base64.
#[derive(Debug, Serialize, Deserialize)]
struct PageCursor {
    id: ParsedId<MessageId>,
    time: Timestamp,
}

impl PageCursor {
    fn of(message: &MessageWithParts) -> Self {
        Self { id: ParsedId(message.info.id().clone()), time: message.info.created() }
    }

    fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn decode(text: &str) -> Option<Self> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?).ok()
    }
}

/// A long list of messages that is being streamed.
struct MessageList {
    store: Store,
    pages: MessagePages,
    has_begun: bool,
}

impl MessageList {
    /// The next messages as JSON, with the end of the list if they are the last.
    fn next_json(&mut self, messages: &[MessageWithParts]) -> Vec<u8> {
        let mut out = if std::mem::replace(&mut self.has_begun, true) { Vec::new() } else { vec![b'['] };
        for message in messages {
            if out.last() != Some(&b'[') {
                out.push(b',');
            }
            // What was stored as JSON can be written as JSON.
            let _ = serde_json::to_writer(&mut out, message);
        }
        if self.pages.is_done() {
            out.push(b']');
        }
        out
    }

    /// The whole list, of which `begin` is the start.
    fn stream(self, begin: Vec<u8>) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
        let rest = stream::unfold(Some(self), |list| async {
            let mut list = list.filter(|list| !list.pages.is_done())?;
            let store = list.store.clone();
            let read = move |_: &Store| list.pages.next_page().map(|messages| (list.next_json(&messages), list));
            Some(match store.long_read(read).await {
                Ok((json, list)) => (Ok(json.into()), Some(list)),
                // Too late for another status: the connection breaks.
                Err(error) => (Err(std::io::Error::other(error)), None),
            })
        });
        stream::iter([Ok(begin.into())]).chain(rest)
    }
}

async fn list(request: Request<SessionPath, ListQuery>) -> Result<RawReply<Vec<MessageWithParts>>, Error> {
    let limit = whole_number("limit", request.query.limit)?.filter(|limit| *limit > 0);
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let bad = |why: &str| Error::bad_request(RequestPart::Query, format!("{why}\n  at [\"before\"]"));
    let before = match request.query.before.as_deref() {
        None | Some("") => None,
        Some(_) if limit.is_none() => return Err(bad("A cursor needs a limit")),
        Some(text) => Some(PageCursor::decode(text).ok_or_else(|| bad("Not a cursor of this server"))?.id.0),
    };
    let session = &request.path.session.0;
    // A short list is sent as a whole, a long one page by page as the client reads it.
    let (body, next) = if limit.is_some_and(|limit| limit <= SHORT_LIST) {
        let page = request.host.messages(session, ListMessages { limit, before }).await?;
        let first = page.messages.first().filter(|_| page.older.is_some()).map(PageCursor::of);
        let serialize = move |_: &Store| serde_json::to_vec(&page.messages).map_err(Error::internal);
        (request.state.engine.store().long_read(serialize).await?.into(), first)
    } else {
        request.host.session(session).await?;
        let session = session.clone();
        let begin = move |store: &Store| {
            let pages = store.message_pages(&session, limit, before.as_ref())?;
            let mut list = MessageList { store: store.clone(), pages, has_begun: false };
            let messages = list.pages.next_page()?;
            let first = messages.first().filter(|_| list.pages.has_older()).map(PageCursor::of);
            Ok::<_, StoreError>((list.next_json(&messages), first, list))
        };
        let begun = request.state.engine.store().long_read(begin).await;
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
        if let Ok(link) = HeaderValue::from_str(&next_page_link(&request.parts, &cursor)) {
            headers.insert(header::LINK, link);
        }
        headers.insert("x-next-cursor", value);
        let exposed = HeaderValue::from_static("Link, X-Next-Cursor");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    }
    Ok(RawReply::response(response))
}

/// The URL of the next page, as a `Link` header.
fn next_page_link(parts: &axum::http::request::Parts, cursor: &str) -> String {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let current = parts.uri.query().unwrap_or_default();
    query.extend_pairs(url::form_urlencoded::parse(current.as_bytes()).filter(|(name, _)| name != "before"));
    query.append_pair("before", cursor);
    format!("<http://{host}{}?{}>; rel=\"next\"", parts.uri.path(), query.finish())
}

/// A message in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct MessagePath {
    #[serde(rename = "sessionID")]
    session: ParsedId<SessionId>,
    #[serde(rename = "messageID")]
    message: ParsedId<MessageId>,
}

async fn get(request: Request<MessagePath>) -> Result<RawReply<MessageWithParts>, Error> {
    let MessagePath { session, message } = request.path;
    let message = request.host.message(&session.0, &message.0).await?;
    RawReply::large(&request.state, message).await
}

async fn delete(request: Request<MessagePath>) -> Result<JsonReply<bool>, Error> {
    let MessagePath { session, message } = request.path;
    match request.engine.delete_message(&session.0, &message.0).await {
        // It is gone, as the client wanted; it does not matter who deleted it.
        Ok(()) | Err(HostError::NotFound { what: "message", .. }) => Ok(JsonReply(true)),
        Err(error) => Err(error.into()),
    }
}

/// A part in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct PartPath {
    #[serde(rename = "sessionID")]
    session: ParsedId<SessionId>,
    #[serde(rename = "messageID")]
    message: ParsedId<MessageId>,
    #[serde(rename = "partID")]
    part: ParsedId<PartId>,
}

async fn update_part(request: Request<PartPath, NoParams, JsonBody<Part>>) -> Result<JsonReply<Part>, Error> {
    let JsonBody(part) = request.body;
    let PartPath { session, message, part: id } = request.path;
    let head =
        part.head().ok_or_else(|| Error::bad_request(RequestPart::Payload, "Not a part: it has no known type"))?;
    for (name, given, wanted) in [
        ("id", head.id.as_str(), id.0.as_str()),
        ("messageID", head.message_id.as_str(), message.0.as_str()),
        ("sessionID", head.session_id.as_str(), session.0.as_str()),
    ] {
        if given != wanted {
            let message = format!("The part is not the one in the path: {given:?}, not {wanted:?}\n  at [{name:?}]");
            return Err(Error::bad_request(RequestPart::Payload, message));
        }
    }
    Ok(JsonReply(request.engine.update_part(part).await?))
}

async fn delete_part(request: Request<PartPath>) -> Result<JsonReply<bool>, Error> {
    let PartPath { session, message, part } = request.path;
    match request.engine.delete_part(&session.0, &message.0, &part.0).await {
        // As with a message.
        Ok(()) | Err(HostError::NotFound { what: "message" | "part", .. }) => Ok(JsonReply(true)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_a_round_trip() {
        let cursor =
            PageCursor { id: ParsedId(MessageId::parse("msg_1de008bed001").unwrap()), time: 1_794_725_940_205 };
        let text = cursor.encode();
        assert_eq!(PageCursor::decode(&text).unwrap().id, cursor.id);
        assert!(PageCursor::decode("nope").is_none());
        assert!(PageCursor::decode("eyJpZCI6Im5vcGUiLCJ0aW1lIjoxfQ").is_none(), "an id needs its prefix");
    }
}
