//! Turns the four error formats of servers into [`HostError`]s.

use api::{HostError, Json, SessionId};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, SERVER};
use serde::Deserialize;

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The connection failed before or during the response. It is unknown whether the server executed the request.
    Connection(HostError),
    /// The server responded with an error.
    Refused(HostError),
}

impl From<RequestError> for HostError {
    fn from(failure: RequestError) -> Self {
        match failure {
            RequestError::Connection(error) | RequestError::Refused(error) => error,
        }
    }
}

/// A failure below HTTP, with its innermost cause.
pub(crate) fn connection_error(server: &str, error: reqwest::Error) -> RequestError {
    let cause = web::root_cause(&error);
    let text = if error.is_connect() {
        format!("{server} cannot be reached: {cause}. Is the server running there?")
    } else {
        format!("The connection to {server} broke: {cause}")
    };
    RequestError::Connection(HostError::Unavailable(text))
}

/// A failure below HTTP at an address that may not be a server of ours at all.
pub(crate) fn foreign_server_error(server: &str, error: reqwest::Error) -> HostError {
    let broke = !error.is_connect();
    match connection_error(server, error).into() {
        HostError::Unavailable(text) if broke => {
            HostError::Failed(format!("{text}. Something listens there, but it does not answer as a web server does"))
        }
        other => other,
    }
}

/// The most characters of a response that an error quotes.
const MAX_QUOTE: usize = 80;

/// Describes a response in a few words: `404 Not Found, a web page "Welcome" (nginx)`.
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
        None => "no content type".to_owned(),
    };
    let by = header(SERVER).map(|server| format!(" ({server})")).unwrap_or_default();
    format!("{status}, {what}{by}")
}

/// The title of a web page.
fn title(page: &str) -> Option<&str> {
    // ASCII letters have the same size in lower case, so positions do not change.
    let lower = page.to_ascii_lowercase();
    let start = lower.find("<title")?;
    let start = start + lower[start..].find('>')? + 1;
    page.get(start..start + lower[start..].find("</title")?)
}

/// The tag of an error about what a caller may not do, as opposed to a wrong password.
const FORBIDDEN: &str = "ForbiddenError";
/// Tags of errors of the server itself, as opposed to those of a proxy in front of it.
const UPSTREAM: &str = "UpstreamError";
const UNAVAILABLE: &str = "ServiceUnavailableError";
const TIMEOUT: &str = "TimeoutError";
const TOO_LARGE: &str = "PayloadTooLarge";

/// `{"name", "data": {"message"}}` or `{"_tag", "message"}`. Some have nothing but the tag, some no body at all.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    #[serde(rename = "_tag")]
    tag: Option<String>,
    name: Option<String>,
    data: Option<Data>,
    /// An unhealthy server calls it `reason`.
    #[serde(alias = "reason")]
    message: Option<String>,
    /// Failed sign-ins to an MCP server have only this field.
    error: Option<String>,
    #[serde(rename = "sessionID")]
    session_id: Option<String>,
    /// What an upstream of the server answered.
    status: Json,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    message: Option<String>,
    reason: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
}

/// Translates an error response. `request_line` is `GET http://host/path`, `server` is the name of the server.
pub(crate) fn response_error(status: StatusCode, body: &[u8], request_line: &str, server: &str) -> HostError {
    let parsed: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    let kind = parsed.tag.or(parsed.name).unwrap_or_default();
    let data = parsed.data.unwrap_or_default();
    let message = data.message.or(parsed.message).or(parsed.error).filter(|text| !text.is_empty());
    let reference = data.reference.map(|reference| format!(" ({reference})")).unwrap_or_default();
    let text = |otherwise: &str| message.clone().unwrap_or_else(|| otherwise.to_owned());
    if kind == "SessionBusyError"
        && let Some(Ok(session)) = parsed.session_id.as_deref().map(SessionId::parse)
    {
        return HostError::Busy(session);
    }
    if data.reason.as_deref() == Some(HostError::NO_MODEL)
        && let Some(message) = message
    {
        return HostError::NoModel { message, advice: None };
    }
    match status {
        StatusCode::NOT_FOUND => not_found(&text(request_line)),
        StatusCode::BAD_REQUEST => HostError::Invalid(text(&format!("{request_line} was refused as malformed"))),
        StatusCode::PAYLOAD_TOO_LARGE if kind == TOO_LARGE => {
            HostError::Invalid(text(&format!("{request_line} was refused as too large")))
        }
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => HostError::Unsupported("This operation"),
        StatusCode::INSUFFICIENT_STORAGE => HostError::Full(text(&format!("{server} has no space left"))),
        StatusCode::CONFLICT => HostError::Conflict(text(&format!("{request_line} conflicts with the current state"))),
        StatusCode::FORBIDDEN if kind == FORBIDDEN => {
            HostError::Forbidden(text(&format!("{request_line} is forbidden")))
        }
        StatusCode::SERVICE_UNAVAILABLE if kind == UNAVAILABLE => HostError::Unavailable(text(&busy(request_line))),
        StatusCode::GATEWAY_TIMEOUT if kind == TIMEOUT => HostError::Late(text(&late(request_line))),
        StatusCode::BAD_GATEWAY if kind == UPSTREAM => HostError::Upstream {
            status: parsed.status.as_u64().and_then(|status| status.try_into().ok()).unwrap_or(status.as_u16()),
            message: text(&format!("{request_line} was refused by another server")),
        },
        _ => HostError::Upstream {
            status: status.as_u16(),
            message: describe_refusal(status, message.as_deref(), request_line, server) + &reference,
        },
    }
}

/// The text of a refusal by what may not be the server itself but something in front of it.
fn describe_refusal(status: StatusCode, message: Option<&str>, request_line: &str, server: &str) -> String {
    let text = |otherwise: String| message.map_or(otherwise, str::to_owned);
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!(
            "{server} requires a password and did not accept this one, or none was given ({status}). Set OPENCODE_SERVER_PASSWORD to \
             the password that the server was started with, and OPENCODE_SERVER_USERNAME if it has another user"
        ),
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY | StatusCode::TOO_MANY_REQUESTS => {
            text(busy(request_line))
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => text(late(request_line)),
        StatusCode::PAYLOAD_TOO_LARGE => text(format!("{request_line} was refused as too large")),
        _ if status.is_redirection() => {
            format!("{server} redirects elsewhere ({status}). Use the address that a browser ends up at")
        }
        _ => format!("{request_line} failed: {}", message.unwrap_or(status.as_str())),
    }
}

fn busy(request_line: &str) -> String {
    format!("{request_line} cannot be done at the moment; try again later")
}

fn late(request_line: &str) -> String {
    format!("{request_line} was not done in time")
}

/// Translates an error that came too late for a status, in the body of a successful response. `None` if the body is not
/// an error.
pub(crate) fn error_in_body(body: &[u8], request_line: &str) -> Option<HostError> {
    let ErrorBody { tag, name, data, message, .. } = serde_json::from_slice(body).ok()?;
    let kind = tag.or(name)?;
    data.and_then(|data| data.message).or(message)?;
    let status = match kind.as_str() {
        UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
        "InsufficientStorageError" => StatusCode::INSUFFICIENT_STORAGE,
        "NotFoundError" => StatusCode::NOT_FOUND,
        "BadRequest" => StatusCode::BAD_REQUEST,
        "ConflictError" | "SessionBusyError" => StatusCode::CONFLICT,
        TIMEOUT => StatusCode::GATEWAY_TIMEOUT,
        FORBIDDEN => StatusCode::FORBIDDEN,
        UPSTREAM => StatusCode::BAD_GATEWAY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Some(response_error(status, body, request_line, ""))
}

/// The resources that can be missing, as hosts name them.
const RESOURCES: [&str; 16] = [
    "session",
    "turn",
    "message",
    "part",
    "permission request",
    "question request",
    "worktree",
    "workspace",
    "file",
    "project",
    "agent",
    "model",
    "provider",
    "command",
    "skill",
    "MCP server",
];

/// Parses `Session not found: ses_x. Known: ses_y, ses_z`.
fn not_found(text: &str) -> HostError {
    let (what, rest) = text.split_once(" not found: ").unwrap_or(("resource", text));
    let (id, known) = rest.split_once(". Known: ").unwrap_or((rest, ""));
    HostError::NotFound {
        what: RESOURCES.into_iter().find(|resource| resource.eq_ignore_ascii_case(what)).unwrap_or("resource"),
        id: id.to_owned(),
        known: known.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> HostError {
        response_error(StatusCode::from_u16(status).unwrap(), body.as_bytes(), "GET http://host/x", "http://host")
    }

    #[test]
    fn all_error_formats_are_parsed() {
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
        assert!(matches!(&error, HostError::Upstream { status: 503, message } if message == "the database was moved"));
        for status in [401, 403] {
            let error = read(status, "").to_string();
            assert!(error.contains("OPENCODE_SERVER_PASSWORD"), "{error}");
        }
        let error = read(429, r#"{"error":"Too many requests"}"#);
        assert!(matches!(&error, HostError::Upstream { status: 429, message } if message == "Too many requests"));
        let error = read(400, r#"{"name":"BadRequest","data":{"message":"No model.","reason":"NoModel"}}"#);
        assert!(matches!(&error, HostError::NoModel { message, .. } if message == "No model."), "{error:?}");
    }

    #[test]
    fn each_status_has_its_meaning() {
        let tagged = |tag: &str| format!(r#"{{"_tag":"{tag}","message":"why","status":429}}"#);
        for (status, body, want) in [
            (400, String::new(), "Invalid"),
            (401, String::new(), "Upstream 401"),
            (403, String::new(), "Upstream 403"),
            (403, tagged("ForbiddenError"), "Forbidden why"),
            (404, String::new(), "NotFound"),
            (405, String::new(), "Unsupported"),
            (408, String::new(), "Upstream 408"),
            (409, tagged("ConflictError"), "Conflict why"),
            (413, String::new(), "Upstream 413"),
            (413, r#"{"name":"PayloadTooLarge","data":{"message":"why"}}"#.to_owned(), "Invalid why"),
            (418, String::new(), "Upstream 418"),
            (429, String::new(), "Upstream 429"),
            (500, String::new(), "Upstream 500"),
            (501, String::new(), "Unsupported"),
            (502, String::new(), "Upstream 502"),
            (502, tagged("UpstreamError"), "Upstream 429 why"),
            (503, String::new(), "Upstream 503"),
            (503, tagged("ServiceUnavailableError"), "Unavailable why"),
            (504, String::new(), "Upstream 504"),
            (504, tagged("TimeoutError"), "Late why"),
            (507, tagged("InsufficientStorageError"), "Full why"),
            (302, String::new(), "Upstream 302"),
        ] {
            let error = read(status, &body);
            let kind = match &error {
                HostError::NotFound { .. } => "NotFound".to_owned(),
                HostError::NoModel { .. } => "NoModel".to_owned(),
                HostError::Invalid(_) => "Invalid".to_owned(),
                HostError::Busy(_) => "Busy".to_owned(),
                HostError::Conflict(_) => "Conflict".to_owned(),
                HostError::Forbidden(_) => "Forbidden".to_owned(),
                HostError::Unsupported(_) => "Unsupported".to_owned(),
                HostError::Unavailable(_) => "Unavailable".to_owned(),
                HostError::Late(_) => "Late".to_owned(),
                HostError::Overloaded(_) => "Overloaded".to_owned(),
                HostError::Upstream { status, .. } => format!("Upstream {status}"),
                HostError::Payload(_) => "Payload".to_owned(),
                HostError::Full(_) => "Full".to_owned(),
                HostError::Failed(_) => "Failed".to_owned(),
            };
            let got = if error.to_string() == "why" { format!("{kind} why") } else { kind };
            assert_eq!(got, want, "{status} {body}");
        }
    }

    #[test]
    fn an_error_at_the_end_of_a_response_keeps_its_meaning() {
        let read = |tag: &str| error_in_body(format!(r#"{{"_tag":"{tag}","message":"why"}}"#).as_bytes(), "POST /x");
        assert!(matches!(read("TimeoutError"), Some(HostError::Late(_))));
        assert!(matches!(read("ForbiddenError"), Some(HostError::Forbidden(_))));
        assert!(matches!(read("ServiceUnavailableError"), Some(HostError::Unavailable(_))));
        assert!(matches!(read("UpstreamError"), Some(HostError::Upstream { status: 502, .. })));
        assert!(error_in_body(br#"{"info": {}}"#, "POST /x").is_none());
    }

    #[test]
    fn known_alternatives_are_kept() {
        let error =
            read(404, r#"{"name":"NotFoundError","data":{"message":"Agent not found: x. Known: build, plan"}}"#);
        assert_eq!(error.to_string(), "Agent not found: x. Known: build, plan");
        let error =
            read(404, r#"{"_tag":"McpServerNotFoundError","name":"nope","message":"MCP server not found: nope"}"#);
        assert_eq!(error.to_string(), "MCP server not found: nope");
    }
}
