//! Decides from the head of a request who may call: no web page of another site, and nobody without the password if one is
//! set. Other users of the machine were refused before, when they connected.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response, StatusCode, header};
use base64::Engine as _;
use transport::origin::{self, OriginPolicy, Refusal};
use transport::secret::constant_time_eq;

use crate::error::Error;

/// The answer to another user of this machine, and to a client that closed its connection before it was identified.
pub const STRANGER_REFUSAL: &str = "{\"name\":\"Forbidden\",\"data\":{\"message\":\"This server belongs to another user of \
    this machine, or it cannot tell who you are; start it with --password to share it\"}}";

/// The credentials that clients must send.
#[derive(Clone)]
pub struct Password {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: String,
}

/// The rules for callers.
pub struct Guard {
    password: Option<Password>,
    policy: OriginPolicy,
}

/// Origins of OpenCode's own desktop clients; no web page has them.
const OPENCODE_ORIGINS: [&str; 4] =
    ["tauri://localhost", "http://tauri.localhost", "https://tauri.localhost", "oc://renderer"];

const ALLOWED_METHODS: &str = "GET, HEAD, PUT, PATCH, POST, DELETE";
const EXPOSED_HEADERS: &str = "Link, X-Next-Cursor, X-Request-Id, X-Trefoil-Missing, Acp-Connection-Id";

impl Guard {
    /// The rules of a server with these credentials, further origins whose pages may call, and further host names.
    pub fn new(password: Option<Password>, cors: Vec<String>, hosts: Vec<String>) -> Self {
        let origins = cors.into_iter().chain(OPENCODE_ORIGINS.map(str::to_owned)).collect();
        let policy = OriginPolicy { origins, hosts, any_host: password.is_some() };
        Self { password, policy }
    }

    /// Whether clients need a password.
    pub fn needs_password(&self) -> bool {
        self.password.is_some()
    }

    /// A response that ends the request here: a preflight's, or a refusal.
    pub fn check(&self, parts: &Parts) -> Option<Response<Body>> {
        if let Err(refusal) = self.policy.check(parts) {
            return Some(Error::named(StatusCode::FORBIDDEN, "Forbidden", explain(refusal)).into());
        }
        let preflight = origin::preflight(parts, ALLOWED_METHODS);
        let is_refused = || !self.is_authenticated(parts) && !has_ticket(parts);
        preflight.or_else(|| is_refused().then(|| unauthorized(parts.uri.path())))
    }

    /// Adds the headers that a page needs to read the response.
    pub fn add_cors_headers(&self, origin: Option<&HeaderValue>, response: &mut Response<Body>) {
        origin::add_cors_headers(origin, EXPOSED_HEADERS, response);
    }

    fn is_authenticated(&self, parts: &Parts) -> bool {
        let Some(expected) = &self.password else { return true };
        let expected = format!("{}:{}", expected.username, expected.password);
        let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text.trim()).ok();
        let basic = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let basic = basic.and_then(|value| {
            let (scheme, rest) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("basic").then(|| decode(rest)).flatten()
        });
        let token = || {
            let query = parts.uri.query()?;
            let token = url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "auth_token")?.1;
            decode(&token)
        };
        basic.or_else(token).is_some_and(|given| constant_time_eq(&given, expected.as_bytes()))
    }
}

fn explain(refusal: Refusal) -> String {
    match refusal {
        Refusal::Host(host) => {
            format!("This server does not answer to the host name {host:?}; start it with --allow-host to allow it")
        }
        Refusal::Origin(origin) => {
            format!("Pages of {origin:?} may not call this server; allow the origin with --cors")
        }
        Refusal::Site => "A page of another site may not call this server; allow its origin with --cors".into(),
    }
}

/// Whether a request carries a ticket for a terminal's connection. That operation checks the ticket.
fn has_ticket(parts: &Parts) -> bool {
    let id = parts.uri.path().strip_prefix("/pty/").and_then(|rest| rest.strip_suffix("/connect"));
    let query = parts.uri.query().unwrap_or_default();
    id.is_some_and(|id| !id.contains('/'))
        && url::form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "ticket" && !value.is_empty())
}

fn unauthorized(path: &str) -> Response<Body> {
    let error = if path.starts_with("/api/") {
        Error::tagged(StatusCode::UNAUTHORIZED, "UnauthorizedError", &[], "Authentication required")
    } else {
        Error { status: StatusCode::UNAUTHORIZED, body: None, cause: None, not_offered: false }
    };
    let mut response: Response<Body> = error.into();
    let realm = HeaderValue::from_static("Basic realm=\"Secure Area\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, realm);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = axum::http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn guard(password: Option<&str>) -> Guard {
        let password = password.map(|password| Password { username: "opencode".into(), password: password.into() });
        Guard::new(password, vec!["https://app.example".into()], vec!["box.lan".into()])
    }

    fn status(guard: &Guard, headers: &[(&str, &str)]) -> u16 {
        guard.check(&head("GET", "/session", headers)).map_or(200, |response| response.status().as_u16())
    }

    #[test]
    fn a_host_name_must_be_known_unless_there_is_a_password() {
        for (host, want) in [("localhost:4096", 200), ("box.lan", 200), ("evil.example", 403)] {
            assert_eq!(status(&guard(None), &[("host", host)]), want, "{host}");
            assert_eq!(status(&guard(Some("x")), &[("host", host)]), 401, "{host}");
        }
    }

    /// On every path, also on those that need no password.
    #[test]
    fn pages_of_other_sites_are_refused() {
        let cases = [
            ("http://localhost:4096", true),
            ("https://app.example", true),
            ("tauri://localhost", true),
            ("http://tauri.localhost", true),
            ("https://tauri.localhost", true),
            ("oc://renderer", true),
            ("http://localhost:3000", false),
            ("https://app.opencode.ai", false),
            ("https://evil.example", false),
            ("null", false),
        ];
        for (origin, allowed) in cases {
            let page = [("host", "localhost:4096"), ("origin", origin), ("sec-fetch-site", "cross-site")];
            let upgrade = [&page[..], &[("connection", "upgrade"), ("upgrade", "websocket")]].concat();
            let preflight = [&page[..], &[("access-control-request-method", "POST")]].concat();
            for path in ["/session", "/pty", "/pty/pty_1/connect", "/pty/pty_1/connect?ticket=x", "/acp", "/event"] {
                let answer_to = |guard: &Guard, method, headers: &[(&str, &str)]| {
                    guard.check(&head(method, path, headers)).map(|response| response.status().as_u16())
                };
                for headers in [&page[..], &upgrade] {
                    let refused = answer_to(&guard(None), "POST", headers);
                    assert_eq!(refused, (!allowed).then_some(403), "{headers:?} {path}");
                }
                for guard in [guard(None), guard(Some("x"))] {
                    let answer = answer_to(&guard, "OPTIONS", &preflight);
                    assert_eq!(answer, Some(if allowed { 204 } else { 403 }), "{preflight:?} {path}");
                }
            }
            // Even with a password, a refused page cannot try one.
            assert_eq!(status(&guard(Some("x")), &page), if allowed { 401 } else { 403 }, "{origin}");
        }
        assert_eq!(status(&guard(None), &[("host", "localhost"), ("sec-fetch-site", "cross-site")]), 403);
    }

    #[test]
    fn the_password_comes_as_basic_or_as_a_token() {
        let shut = guard(Some("secret"));
        let basic = |text: &str| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text));
        assert_eq!(status(&shut, &[]), 401);
        assert_eq!(status(&shut, &[("authorization", &basic("opencode:wrong!"))]), 401);
        assert_eq!(status(&shut, &[("authorization", &basic("opencode:secret"))]), 200);
        let token = base64::engine::general_purpose::STANDARD.encode("opencode:secret");
        let token = url::form_urlencoded::byte_serialize(token.as_bytes()).collect::<String>();
        assert!(shut.check(&head("GET", &format!("/event?auth_token={token}"), &[])).is_none());
        assert!(shut.check(&head("GET", "/event?auth_token=%20nope", &[])).is_some());
        assert_eq!(status(&shut, &[("host", "evil.example"), ("authorization", &basic("opencode:secret"))]), 200);
    }
}
