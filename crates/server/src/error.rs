//! Errors as OpenCode's clients know them. There are two families: `{"name", "data": {"message"}}` and `{"_tag", "message"}`;
//! which operation uses which is part of the wire.

use api::{HostError, Json};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;
use store::StoreError;

/// Which part of a request was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// The path.
    Params,
    /// A header.
    Headers,
    /// The query.
    Query,
    /// The body is not JSON, or too large.
    Body,
    /// The body is JSON, but not what is wanted.
    Payload,
}

/// Why a request was refused or failed.
#[derive(Debug, Clone)]
pub struct Error {
    /// The status.
    pub status: StatusCode,
    /// The body; none for the few answers that have none.
    pub body: Option<Json>,
    /// What is worth a line in the log.
    pub cause: Option<String>,
    /// Trefoil has no such feature. A terminal client shows that as a notice.
    pub not_offered: bool,
}

impl Error {
    /// With a body of its own shape.
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

    /// The request makes no sense.
    pub fn bad_request(place: Where, message: impl Into<String>) -> Self {
        let place = format!("{place:?}");
        let data = json!({ "message": message.into(), "kind": place });
        Self::new(StatusCode::BAD_REQUEST, json!({ "name": "BadRequest", "data": data }))
    }

    /// There is no such session, message, file…
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::named(StatusCode::NOT_FOUND, "NotFoundError", message)
    }

    /// What cannot be done here, and why. A client's mistake, not the server's: nothing is broken.
    pub fn unsupported(what: impl std::fmt::Display) -> Self {
        Self { not_offered: true, ..Self::bad_request(Where::Payload, what.to_string()) }
    }

    /// The body of a feature that Trefoil has not, where clients know a shape of their own for it.
    pub fn not_offered(body: Json) -> Self {
        Self { not_offered: true, ..Self::new(StatusCode::BAD_REQUEST, body) }
    }

    /// What it says to a person.
    pub fn message(&self) -> Option<&str> {
        let body = self.body.as_ref()?;
        body["data"]["message"].as_str().or_else(|| body["message"].as_str()).or_else(|| body["error"].as_str())
    }

    /// The same as the newer API says it. What is tagged already stays, and so does what is broken.
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
        let message = "The server failed to do this; its log says why, under the reference.";
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
                    // The resource of the path exists; what the body names does not.
                    "agent" | "model" | "provider" | "command" | "skill" => Self::bad_request(Where::Payload, message),
                    _ => Self::not_found(message),
                }
            }
            HostError::NoModel { .. } => {
                let mut error = Self::bad_request(Where::Payload, message);
                // Lets our own client tell it from a request that is wrong in itself.
                if let Some(body) = &mut error.body {
                    body["data"]["reason"] = json!(HostError::NO_MODEL);
                }
                error
            }
            HostError::Invalid(_) => Self::bad_request(Where::Payload, message),
            HostError::Unsupported(_) => Self::unsupported(message),
            HostError::Busy(session) => {
                let fields = [("sessionID", session.as_str())];
                Self::tagged(StatusCode::CONFLICT, "SessionBusyError", &fields, message)
            }
            HostError::Conflict(_) => Self::tagged(StatusCode::CONFLICT, "ConflictError", &[], message),
            HostError::Unavailable(_) => {
                Self::tagged(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", &[], message)
            }
            HostError::Full(_) => {
                Self::tagged(StatusCode::INSUFFICIENT_STORAGE, "InsufficientStorageError", &[], message)
            }
            HostError::Failed(_) => Self::internal(message),
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
