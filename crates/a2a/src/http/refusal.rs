//! Requests that are refused before they become a call, each in the shape of the line that it asks in.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use transport::body::BodyError;
use transport::limit::ConcurrencyPermit;
use transport::origin::Refusal;

use super::{Endpoint, into_response};
use crate::wire::{self, Dialect, RequestId};
use crate::{Error, ErrorKind, Principal};

/// A refusal that has its response already. Boxed, as most requests have none.
pub(super) type Refused = Box<Response<Body>>;

/// The response for an error about a request that has not been read.
pub(super) fn refuse(error: &Error, dialect: Dialect) -> Response<Body> {
    into_response(wire::error(error, dialect, &RequestId::Null))
}

impl Endpoint {
    /// Who sends the request, if it may go on.
    pub(super) fn authenticate(&self, headers: &HeaderMap, dialect: Dialect) -> Result<Principal, Refused> {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(principal) = self.credentials.authenticate(authorization) else {
            let error = Error::new(ErrorKind::Unauthorized, "Unauthorized");
            let mut response = refuse(&error, dialect);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, self.authenticate_header.clone());
            return Err(Box::new(response));
        };
        if let Some(rate) = &self.rate
            && let Err(retry_after) = rate.take(&principal.identity)
        {
            let error = Error::new(ErrorKind::TooManyRequests, "Too many requests")
                .with("retry_after", retry_after.as_secs() + 1);
            return Err(Box::new(refuse(&error, dialect)));
        }
        Ok(principal)
    }

    /// A place for a stream of an identity.
    pub(super) fn stream_permit(&self, principal: &Principal) -> Result<ConcurrencyPermit, Error> {
        self.streams.try_acquire(&principal.identity).ok_or_else(|| {
            let message = format!("Too many open streams; {} are allowed", self.settings.max_streams);
            Error::new(ErrorKind::TooManyRequests, message).with("retry_after", 1)
        })
    }

    pub(super) fn refuse_origin(&self, parts: &Parts, refusal: Refusal) -> Response<Body> {
        let message = match refusal {
            Refusal::Host(host) => format!("The host name {host:?} is not allowed; A2A_ALLOWED_HOSTS can allow it"),
            Refusal::Origin(_) | Refusal::Site => "Cross-origin request rejected".to_owned(),
        };
        let query = parts.uri.query().unwrap_or_default();
        let dialect = match wire::route(&parts.method, parts.uri.path(), query, &parts.headers, &self.wire) {
            Ok(route) => route.dialect(),
            Err(rejection) => rejection.dialect,
        };
        refuse(&Error::new(ErrorKind::Forbidden, message), dialect)
    }
}

/// Why a body cannot be read.
pub(super) fn body_error(error: &BodyError) -> Error {
    match error {
        BodyError::TooLarge { limit, size } => {
            let error = Error::new(ErrorKind::BodyTooLarge, "Request body too large").with("max_bytes", *limit);
            match size {
                Some(size) => error.with("actual_size", *size),
                None => error,
            }
        }
        BodyError::Stalled | BodyError::Broken(_) => Error::new(ErrorKind::InvalidRequest, error.to_string()),
    }
}

/// Whether a body may be JSON: it says so, or nothing.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return true };
    let given = given.to_str().unwrap_or_default();
    let name = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    name == "application/json" || name.ends_with("+json")
}

/// Adds what was agreed on. Only a response that succeeds names extensions.
pub(super) fn add_negotiated_headers(negotiated: Vec<(HeaderName, HeaderValue)>, response: &mut Response<Body>) {
    const VERSION: HeaderName = HeaderName::from_static("a2a-version");
    let failed = response.status().is_client_error() || response.status().is_server_error();
    for (name, value) in negotiated {
        if !failed || name == VERSION {
            response.headers_mut().insert(name, value);
        }
    }
}
