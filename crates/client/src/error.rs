//! What went wrong, out of the four shapes in which servers say it.

use std::error::Error;

use api::{HostError, SessionId};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, SERVER};
use serde::Deserialize;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The connection failed, before or while the answer came. Whether the server did what was asked is not known.
    Broken(HostError),
    /// The server answered, and said no.
    Refused(HostError),
}

impl From<Failure> for HostError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Broken(error) | Failure::Refused(error) => error,
        }
    }
}

/// A failure below HTTP, with its innermost cause.
pub(crate) fn network(server: &str, error: reqwest::Error) -> Failure {
    let mut cause: &dyn Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let text = if error.is_connect() {
        format!("{server} cannot be reached: {cause}. Is the server running there?")
    } else {
        format!("The connection to {server} broke: {cause}")
    };
    Failure::Broken(HostError::Failed(text))
}

/// A failure below HTTP at an address that may not be a server of ours at all.
pub(crate) fn stranger(server: &str, error: reqwest::Error) -> HostError {
    let broke = !error.is_connect();
    match network(server, error).into() {
        HostError::Failed(text) if broke => {
            HostError::Failed(format!("{text}. Something listens there, but it does not answer as a web server does"))
        }
        other => other,
    }
}

/// The most of an answer that an error quotes, in characters.
const MAX_QUOTE: usize = 80;

/// What was answered, in a few words: `404 Not Found, a web page "Welcome" (nginx)`.
pub(crate) fn describe(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let kind = header(CONTENT_TYPE).map(|kind| kind.split(';').next().unwrap_or_default().trim());
    let text = String::from_utf8_lossy(body);
    let quoted = |text: &str| {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let start: String = words.chars().take(MAX_QUOTE).collect();
        if start.is_empty() { String::new() } else { format!(" {start:?}") }
    };
    let what = match kind {
        Some("text/html") => format!("a web page{}", quoted(title(&text).unwrap_or_default())),
        Some(kind) if kind.starts_with("text/") || kind.contains("json") => format!("{kind}{}", quoted(&text)),
        Some(kind) => kind.to_owned(),
        None => "nothing that says what it is".to_owned(),
    };
    let by = header(SERVER).map(|server| format!(" ({server})")).unwrap_or_default();
    format!("{status}, {what}{by}")
}

/// The title of a web page.
fn title(page: &str) -> Option<&str> {
    // Lower case letters take as many bytes, so positions are the same.
    let lower = page.to_ascii_lowercase();
    let start = lower.find("<title")?;
    let start = start + lower[start..].find('>')? + 1;
    page.get(start..start + lower[start..].find("</title")?)
}

/// `{"name", "data": {"message"}}` or `{"_tag", "message"}`. Some have nothing but the tag, some no body at all.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    #[serde(rename = "_tag")]
    tag: Option<String>,
    name: Option<String>,
    data: Option<Data>,
    /// An unhealthy server calls it `reason`.
    #[serde(alias = "reason")]
    message: Option<String>,
    /// What is wrong with signing in at an MCP server has nothing else.
    error: Option<String>,
    #[serde(rename = "sessionID")]
    session_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    message: Option<String>,
    reason: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
}

/// What a refusal means. `asked` is the request (`GET http://host/path`), `server` who refused.
pub(crate) fn refused(status: StatusCode, body: &[u8], asked: &str, server: &str) -> HostError {
    let refusal: Refusal = serde_json::from_slice(body).unwrap_or_default();
    let kind = refusal.tag.or(refusal.name).unwrap_or_default();
    let data = refusal.data.unwrap_or_default();
    let said = data.message.or(refusal.message).or(refusal.error).filter(|text| !text.is_empty());
    let reference = data.reference.map(|reference| format!(" ({reference})")).unwrap_or_default();
    let text = |otherwise: &str| said.clone().unwrap_or_else(|| otherwise.to_owned());
    if kind == "SessionBusyError"
        && let Some(Ok(session)) = refusal.session_id.as_deref().map(SessionId::parse)
    {
        return HostError::Busy(session);
    }
    if data.reason.as_deref() == Some(HostError::NO_MODEL)
        && let Some(message) = said
    {
        return HostError::NoModel { message, advice: None };
    }
    match status {
        StatusCode::NOT_FOUND => not_found(&text(asked)),
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
            HostError::Invalid(text(&format!("{asked} was refused as malformed")))
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            HostError::Unavailable(text(&format!("{asked} cannot be done at the moment; try again later")))
        }
        StatusCode::INSUFFICIENT_STORAGE => HostError::Full(text(&format!("{server} has no space left"))),
        StatusCode::CONFLICT => HostError::Conflict(text(&format!("{asked} contradicts what is there"))),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => HostError::Failed(format!(
            "{server} asks for a password, and refused this one or none ({status}). Set OPENCODE_SERVER_PASSWORD to \
             the password that the server was started with, and OPENCODE_SERVER_USERNAME if it has another user"
        )),
        _ if status.is_redirection() => HostError::Failed(format!(
            "{server} is somewhere else now ({status}). Give the address that a browser ends up at"
        )),
        _ => HostError::Failed(format!("{asked} failed: {}{reference}", text(status.as_str()))),
    }
}

/// What a refusal means that came too late for a status; nothing if this is none.
pub(crate) fn failed_late(body: &[u8], asked: &str) -> Option<HostError> {
    let Refusal { tag, name, data, message, .. } = serde_json::from_slice(body).ok()?;
    let kind = tag.or(name)?;
    data.and_then(|data| data.message).or(message)?;
    let status = match kind.as_str() {
        "ServiceUnavailableError" => StatusCode::SERVICE_UNAVAILABLE,
        "InsufficientStorageError" => StatusCode::INSUFFICIENT_STORAGE,
        "NotFoundError" => StatusCode::NOT_FOUND,
        "BadRequest" => StatusCode::BAD_REQUEST,
        "ConflictError" | "SessionBusyError" => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Some(refused(status, body, asked, ""))
}

/// The things that can be missing, as hosts name them.
const THINGS: [&str; 14] = [
    "session",
    "message",
    "part",
    "permission request",
    "question request",
    "worktree",
    "file",
    "project",
    "agent",
    "model",
    "provider",
    "command",
    "skill",
    "MCP server",
];

/// Reads `Session not found: ses_x. Known: ses_y, ses_z`.
fn not_found(text: &str) -> HostError {
    let (what, rest) = text.split_once(" not found: ").unwrap_or(("resource", text));
    let (id, known) = rest.split_once(". Known: ").unwrap_or((rest, ""));
    HostError::NotFound {
        what: THINGS.into_iter().find(|thing| thing.eq_ignore_ascii_case(what)).unwrap_or("resource"),
        id: id.to_owned(),
        known: known.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> HostError {
        refused(StatusCode::from_u16(status).unwrap(), body.as_bytes(), "GET http://host/x", "http://host")
    }

    #[test]
    fn all_shapes_are_read() {
        let error = read(404, r#"{"name":"NotFoundError","data":{"message":"Session not found: ses_x"}}"#);
        assert!(
            matches!(&error, HostError::NotFound { what: "session", id, known } if id == "ses_x" && known.is_empty())
        );
        assert_eq!(error.to_string(), "Session not found: ses_x");
        let error = read(
            404,
            r#"{"_tag":"PermissionNotFoundError","requestID":"per_x","message":"Permission request not found: per_x"}"#,
        );
        assert!(matches!(&error, HostError::NotFound { what: "permission request", id, .. } if id == "per_x"));
        let error =
            read(400, r#"{"name":"BadRequest","data":{"message":"Missing key\n  at [\"parts\"]","kind":"Payload"}}"#);
        assert!(matches!(&error, HostError::Invalid(text) if text.starts_with("Missing key")));
        let error = read(400, r#"{"_tag":"BadRequest"}"#);
        assert!(matches!(&error, HostError::Invalid(text) if text == "GET http://host/x was refused as malformed"));
        let error = read(409, r#"{"_tag":"SessionBusyError","sessionID":"ses_x","message":"Session is busy: ses_x"}"#);
        assert!(matches!(&error, HostError::Busy(id) if id.as_str() == "ses_x"));
        let error = read(409, r#"{"_tag":"ConflictError","message":"per_x was answered already"}"#);
        assert!(matches!(&error, HostError::Conflict(text) if text == "per_x was answered already"));
        let error = read(500, r#"{"name":"UnknownError","data":{"message":"Unexpected.","ref":"err_1"}}"#);
        assert_eq!(error.to_string(), "GET http://host/x failed: Unexpected. (err_1)");
        let error = read(503, r#"{"healthy":false,"version":"1","reason":"the database was moved"}"#);
        assert!(matches!(&error, HostError::Unavailable(text) if text == "the database was moved"));
        for status in [401, 403] {
            let error = read(status, "").to_string();
            assert!(error.contains("OPENCODE_SERVER_PASSWORD"), "{error}");
        }
        let error = read(400, r#"{"name":"BadRequest","data":{"message":"No model.","reason":"NoModel"}}"#);
        assert!(matches!(&error, HostError::NoModel { message, .. } if message == "No model."), "{error:?}");
    }

    #[test]
    fn what_exists_instead_is_kept() {
        let error =
            read(404, r#"{"name":"NotFoundError","data":{"message":"Agent not found: x. Known: build, plan"}}"#);
        assert_eq!(error.to_string(), "Agent not found: x. Known: build, plan");
        let error =
            read(404, r#"{"_tag":"McpServerNotFoundError","name":"nope","message":"MCP server not found: nope"}"#);
        assert_eq!(error.to_string(), "MCP server not found: nope");
    }
}
