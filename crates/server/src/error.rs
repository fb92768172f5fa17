//! Errors as OpenCode's clients know them. There are two families: `{"name", "data": {"message"}}` and `{"_tag",
//! "message"}`; which operation uses which is part of the wire.

use api::{HostError, Json};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;
use store::StoreError;

/// The part of a request that was wrong. Its name is on the wire, as `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPart {
    /// The path.
    Params,
    /// A header.
    Headers,
    /// The query.
    Query,
    /// A body that is not JSON, or too large.
    Body,
    /// A JSON body of the wrong shape.
    Payload,
}

/// An error response: why a request was refused or failed.
#[derive(Debug, Clone)]
pub struct Error {
    /// The status.
    pub status: StatusCode,
    /// The body; a few errors have none.
    pub body: Option<Json>,
    /// What to write to the log.
    pub cause: Option<String>,
    /// Whether Trefoil lacks the feature. Terminal clients show that as a toast.
    pub not_offered: bool,
}

impl Error {
    /// An error with a body of its own shape.
    pub fn new(status: StatusCode, body: Json) -> Self {
        Self { status, body: Some(body), cause: None, not_offered: false }
    }

    /// `{"name", "data": {"message"}}`.
    pub fn named(status: StatusCode, name: &str, message: impl Into<String>) -> Self {
        Self::new(status, json!({ "name": name, "data": { "message": message.into() } }))
    }

    /// `{"_tag", …, "message"}`.
    pub fn tagged(status: StatusCode, tag: &str, fields: &[(&str, &str)], message: impl Into<String>) -> Self {
        let mut body = api::JsonMap::new();
        body.insert("_tag".into(), tag.into());
        for (key, value) in fields {
            body.insert((*key).into(), (*value).into());
        }
        body.insert("message".into(), Json::String(message.into()));
        Self::new(status, Json::Object(body))
    }

    /// The request is malformed.
    pub fn bad_request(part: RequestPart, message: impl Into<String>) -> Self {
        let kind = format!("{part:?}");
        let data = json!({ "message": message.into(), "kind": kind });
        Self::new(StatusCode::BAD_REQUEST, json!({ "name": "BadRequest", "data": data }))
    }

    /// There is no such session, message, file…
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::named(StatusCode::NOT_FOUND, "NotFoundError", message)
    }

    /// What cannot be done here, and why. The client's mistake, not a fault of the server.
    pub fn unsupported(what: impl std::fmt::Display) -> Self {
        Self { not_offered: true, ..Self::bad_request(RequestPart::Payload, what.to_string()) }
    }

    /// The error of a feature that Trefoil lacks, for which clients know a body of its own shape.
    pub fn not_offered(body: Json) -> Self {
        Self { not_offered: true, ..Self::new(StatusCode::BAD_REQUEST, body) }
    }

    /// The text for a person.
    pub fn message(&self) -> Option<&str> {
        let body = self.body.as_ref()?;
        body["data"]["message"].as_str().or_else(|| body["message"].as_str()).or_else(|| body["error"].as_str())
    }

    /// The same error in the form of the newer API. Tagged and internal errors stay as they are.
    #[must_use]
    pub fn in_v2(mut self) -> Self {
        if let Some(body) = &self.body
            && let Some(name) = body.get("name").and_then(Json::as_str).filter(|name| *name != "UnknownError")
        {
            let tag = if name == "BadRequest" { "InvalidRequestError" } else { name };
            let mut tagged = json!({ "_tag": tag });
            for (key, value) in body["data"].as_object().into_iter().flatten() {
                tagged[key] = value.clone();
            }
            self.body = Some(tagged);
        }
        self
    }

    /// Something broke. The client gets a reference, the log gets the cause.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        let reference = format!("err_{:08x}", fastrand::u32(..));
        let message = "The server failed; its log has the cause, under this reference.";
        let body = json!({ "name": "UnknownError", "data": { "message": message, "ref": reference } });
        let cause = Some(format!("{reference}: {cause}"));
        Self { cause, ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, body) }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        HostError::from(engine::Error::from(error)).into()
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        let message = error.to_string();
        match error {
            HostError::NotFound { what, id, .. } => {
                let tagged = |tag, field| Self::tagged(StatusCode::NOT_FOUND, tag, &[(field, &id)], &message);
                match what {
                    "permission request" | "permission" => tagged("PermissionNotFoundError", "requestID"),
                    "question request" | "question" => tagged("QuestionNotFoundError", "requestID"),
                    "project" => tagged("ProjectNotFoundError", "projectID"),
                    "MCP server" => tagged("McpServerNotFoundError", "name"),
                    // The resource in the path exists; what the body names does not.
                    "agent" | "model" | "provider" | "command" | "skill" => {
                        Self::bad_request(RequestPart::Payload, message)
                    }
                    _ => Self::not_found(message),
                }
            }
            HostError::NoModel { .. } => {
                let mut error = Self::bad_request(RequestPart::Payload, message);
                // Lets our own client tell this from a malformed request.
                if let Some(body) = &mut error.body {
                    body["data"]["reason"] = json!(HostError::NO_MODEL);
                }
                error
            }
            HostError::Invalid(_) => Self::bad_request(RequestPart::Payload, message),
            HostError::Unsupported(_) => Self::unsupported(message),
            HostError::Busy(session) => {
                let fields = [("sessionID", session.as_str())];
                Self::tagged(StatusCode::CONFLICT, "SessionBusyError", &fields, message)
            }
            HostError::Conflict(_) => Self::tagged(StatusCode::CONFLICT, "ConflictError", &[], message),
            HostError::Forbidden(_) => Self::tagged(StatusCode::FORBIDDEN, "ForbiddenError", &[], message),
            HostError::Late(_) => Self::tagged(StatusCode::GATEWAY_TIMEOUT, "TimeoutError", &[], message),
            HostError::Upstream { status, .. } => {
                let mut error = Self::tagged(StatusCode::BAD_GATEWAY, "UpstreamError", &[], message);
                if let Some(body) = &mut error.body {
                    body["status"] = json!(status);
                }
                error
            }
            HostError::Unavailable(_) | HostError::Overloaded(_) => {
                Self::tagged(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", &[], message)
            }
            HostError::Full(_) => {
                Self::tagged(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorageError", &[], message)
            }
            HostError::Payload(_) | HostError::Failed(_) => Self::internal(message),
        }
    }
}

impl From<Error> for Response<Body> {
    fn from(error: Error) -> Self {
        if let Some(cause) = &error.cause {
            tracing::error!(status = error.status.as_u16(), cause, "request failed");
        }
        let body = error.body.map(|body| body.to_string());
        let is_json = body.is_some();
        let mut response = Response::new(body.map_or_else(Body::empty, Body::from));
        *response.status_mut() = error.status;
        if is_json {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use api::SessionId;

    use super::*;

    /// Each error of the contract that an engine makes has a status and a name of its own, which the client turns back
    /// into the same error.
    #[test]
    fn host_errors_have_their_status_and_name() {
        let text = || "why".to_owned();
        let session = SessionId::new();
        for (error, status, name) in [
            (HostError::not_found("session", "ses_x"), 404, "NotFoundError"),
            (HostError::not_found("permission request", "per_x"), 404, "PermissionNotFoundError"),
            (HostError::not_found("agent", "x"), 400, "BadRequest"),
            (HostError::NoModel { message: text(), advice: None }, 400, "BadRequest"),
            (HostError::Invalid(text()), 400, "BadRequest"),
            (HostError::Unsupported("This"), 400, "BadRequest"),
            (HostError::Busy(session), 409, "SessionBusyError"),
            (HostError::Conflict(text()), 409, "ConflictError"),
            (HostError::Forbidden(text()), 403, "ForbiddenError"),
            (HostError::Unavailable(text()), 503, "ServiceUnavailableError"),
            (HostError::Overloaded(text()), 503, "ServiceUnavailableError"),
            (HostError::Late(text()), 504, "TimeoutError"),
            (HostError::Upstream { status: 429, message: text() }, 502, "UpstreamError"),
            (HostError::Full(text()), 507, "InsufficientStorageError"),
            (HostError::Payload("secret".to_owned()), 500, "UnknownError"),
            (HostError::Failed("secret".to_owned()), 500, "UnknownError"),
        ] {
            let (shown, want) = (format!("{error:?}"), error.to_string());
            let response = Error::from(error);
            let body = response.body.clone().unwrap_or_default();
            let got = body["_tag"].as_str().or_else(|| body["name"].as_str());
            assert_eq!((response.status.as_u16(), got), (status, Some(name)), "{shown}");
            match response.message() {
                // What broke is for the log alone.
                Some(message) if status == 500 => assert!(!message.contains("secret"), "{message}"),
                message => assert_eq!(message, Some(want.as_str()), "{shown}"),
            }
            assert_eq!(body["status"].as_u64(), (status == 502).then_some(429), "{shown}");
        }
    }
}
