//! Decides from the head of a request who may call: no web page by CORS or DNS rebinding, and nobody without the password
//! if one is set. `listen.rs` has refused other users of the machine before.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use base64::Engine as _;

use crate::error::Error;

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
    /// The credentials, if any are required.
    pub password: Option<Password>,
    /// Further origins whose pages may call.
    pub cors: Vec<String>,
    /// Further host names under which the server is reached.
    pub hosts: Vec<String>,
}

/// Origins of OpenCode's own desktop clients; no web page has them.
const OPENCODE_ORIGINS: [&str; 4] =
    ["tauri://localhost", "http://tauri.localhost", "https://tauri.localhost", "oc://renderer"];

const ALLOWED_METHODS: &str = "GET, HEAD, PUT, PATCH, POST, DELETE";
const EXPOSED_HEADERS: &str = "Link, X-Next-Cursor, X-Request-Id, X-Trefoil-Missing, Acp-Connection-Id";

impl Guard {
    /// A response that ends the request here: a preflight's, or a refusal.
    pub fn check(&self, parts: &Parts) -> Option<Response<Body>> {
        let refuse = |message: String| Some(Error::named(StatusCode::FORBIDDEN, "Forbidden", message).into());
        let host = authority(parts);
        if self.password.is_none() && !self.allows_host(host) {
            return refuse(format!(
                "This server does not answer to the host name {host:?}; start it with --allow-host to allow it"
            ));
        }
        let mut origins = parts.headers.get_all(header::ORIGIN).iter();
        let origin = origins.next().map(|origin| origin.to_str().unwrap_or("invalid"));
        let origin = if origins.next().is_some() { Some("several") } else { origin };
        let is_allowed_page = origin.is_some_and(|origin| self.allows_origin(origin, host));
        if let Some(origin) = origin.filter(|_| !is_allowed_page) {
            return refuse(format!("Pages of {origin:?} may not call this server; allow the origin with --cors"));
        }
        let site = parts.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if !is_allowed_page && site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return refuse("A page of another site may not call this server; allow its origin with --cors".into());
        }
        if parts.method == Method::OPTIONS && parts.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
            return Some(preflight(&parts.headers));
        }
        if !self.is_authenticated(parts) && !has_ticket(parts) {
            return Some(unauthorized(parts.uri.path()));
        }
        None
    }

    /// Adds the headers that a page needs to read the response.
    pub fn add_cors_headers(&self, origin: Option<&HeaderValue>, response: &mut Response<Body>) {
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
        }
    }

    fn allows_host(&self, host: &str) -> bool {
        let name = without_port(host);
        is_loopback(name) || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Whether pages of an origin may call: our own, those of OpenCode's programs, and those that were configured.
    /// Anybody can serve a page on another port or loopback address of this machine, so those are refused.
    fn allows_origin(&self, origin: &str, host: &str) -> bool {
        if OPENCODE_ORIGINS.contains(&origin) || self.cors.iter().any(|known| known == origin) {
            return true;
        }
        let Some((scheme, rest)) = origin.split_once("://") else { return false };
        // We speak no TLS. On this machine an https origin is another program; elsewhere it is a proxy in front of us.
        let ours = scheme == "http" || (scheme == "https" && !is_loopback(without_port(host)));
        ours && !host.is_empty() && rest.eq_ignore_ascii_case(host)
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

/// Whether a request carries a ticket for a terminal's connection. That operation checks the ticket.
fn has_ticket(parts: &Parts) -> bool {
    let id = parts.uri.path().strip_prefix("/pty/").and_then(|rest| rest.strip_suffix("/connect"));
    let query = parts.uri.query().unwrap_or_default();
    id.is_some_and(|id| !id.contains('/'))
        && url::form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "ticket" && !value.is_empty())
}

/// Compares two secrets in constant time.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    let differences = left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differences) == 0
}

/// The host name that the client used.
fn authority(parts: &Parts) -> &str {
    let header = parts.headers.get(header::HOST).map(|host| host.to_str().unwrap_or("invalid"));
    parts.uri.authority().map(|authority| authority.as_str()).or(header).unwrap_or_default()
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').filter(|(name, _)| !name.contains(':')).map_or(host, |(name, _)| name),
    }
}

/// Names of this machine that no DNS answer can change. A request over a unix socket may have none.
fn is_loopback(name: &str) -> bool {
    name.is_empty()
        || name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn preflight(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let response_headers = response.headers_mut();
    response_headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOWED_METHODS));
    response_headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    if let Some(requested) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        response_headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
    }
    response
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
        Guard { password, cors: vec!["https://app.example".into()], hosts: vec!["box.lan".into()] }
    }

    fn status(guard: &Guard, headers: &[(&str, &str)]) -> u16 {
        guard.check(&head("GET", "/session", headers)).map_or(200, |response| response.status().as_u16())
    }

    #[test]
    fn a_rebound_host_name_is_refused() {
        let open = guard(None);
        for host in ["localhost:4096", "127.0.0.1:1", "[::1]:4096", "box.lan", "BOX.LAN:80", "127.0.0.2"] {
            assert_eq!(status(&open, &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1:4096", "127.0.0.1.nip.io"] {
            assert_eq!(status(&open, &[("host", host)]), 403, "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        // The host that the page calls, its origin, and whether it may.
        let cases = [
            ("localhost:4096", "http://localhost:4096", true),
            ("127.0.0.1:4096", "http://127.0.0.1:4096", true),
            ("[::1]:4096", "http://[::1]:4096", true),
            ("LOCALHOST:4096", "http://localhost:4096", true),
            ("box.lan", "http://box.lan", true),
            ("box.lan", "https://box.lan", true),
            ("localhost:4096", "https://app.example", true),
            ("localhost:4096", "tauri://localhost", true),
            ("localhost:4096", "http://tauri.localhost", true),
            ("localhost:4096", "https://tauri.localhost", true),
            ("localhost:4096", "oc://renderer", true),
            // Others on this machine: another port, another address, another scheme.
            ("localhost:4096", "http://localhost:3000", false),
            ("localhost:4096", "http://localhost", false),
            ("localhost:4096", "http://127.0.0.1:1", false),
            ("localhost:4096", "http://127.0.0.1:4096", false),
            ("localhost:4096", "http://[::1]:4096", false),
            ("127.0.0.1:4096", "http://localhost:4096", false),
            ("127.0.0.1:4096", "http://127.0.0.2:4096", false),
            ("localhost:4096", "https://localhost:4096", false),
            ("localhost:4096", "ws://localhost:4096", false),
            ("localhost:4096", "file://localhost:4096", false),
            ("localhost", "http://localhost:80", false),
            // Names that look like ours.
            ("localhost:4096", "http://localhost.:4096", false),
            ("localhost:4096", "http://localhost:4096.", false),
            ("localhost:4096", "http://localhost:4096/", false),
            ("localhost:4096", "http://localhost:40960", false),
            ("localhost:4096", "http://evil@localhost:4096", false),
            ("localhost:4096", "http://localhost:4096@evil.example", false),
            ("localhost:4096", "http://localhost.evil.example", false),
            ("localhost:4096", "https://app.example.evil", false),
            ("localhost:4096", "https://app.example:444", false),
            ("localhost:4096", "http://app.example", false),
            ("localhost:4096", "HTTP://LOCALHOST:4096", false),
            ("localhost:4096", "tauri://localhost.evil", false),
            ("localhost:4096", "oc://renderer.evil", false),
            ("localhost:4096", "https://app.opencode.ai", false),
            ("localhost:4096", "https://evil.example", false),
            ("localhost:4096", "null", false),
            ("localhost:4096", "", false),
            ("localhost:4096", "localhost:4096", false),
            ("", "http://", false),
            ("", "http://localhost:4096", false),
        ];
        // Hosts that are not ours; neither are their pages.
        let hosts = [
            ("evil.example", "http://evil.example", false),
            ("localhost.:4096", "http://localhost.:4096", false),
            ("evil@localhost:4096", "http://evil@localhost:4096", false),
        ];
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
        for (host, origin, allowed) in cases.into_iter().chain(hosts) {
            for path in ["/session", "/pty", "/pty/pty_1/connect", "/acp", "/event"] {
                for site in [None, Some("cross-site"), Some("same-site"), Some("same-origin")] {
                    let mut headers = vec![("host", host), ("origin", origin)];
                    headers.extend(site.map(|site| ("sec-fetch-site", site)));
                    headers.extend(upgrade.iter().filter(|_| path.ends_with("/connect") || path == "/acp"));
                    let refused = guard(None).check(&head("POST", path, &headers));
                    assert_eq!(refused.map(|r| r.status().as_u16()), (!allowed).then_some(403), "{headers:?} {path}");
                    headers.push(("access-control-request-method", "POST"));
                    let preflight = guard(None).check(&head("OPTIONS", path, &headers)).unwrap().status().as_u16();
                    assert_eq!(preflight, if allowed { 204 } else { 403 }, "{headers:?}");
                }
            }
        }
        // Even with a password, a refused page cannot try one.
        for (host, origin, allowed) in cases {
            let want = if allowed { 401 } else { 403 };
            assert_eq!(status(&guard(Some("x")), &[("host", host), ("origin", origin)]), want, "{host} {origin}");
        }
        let twice = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "https://evil.example")];
        assert_eq!(status(&guard(None), &twice), 403);
    }

    #[test]
    fn requests_without_an_origin_are_judged_by_their_fetch_site() {
        let cases =
            [("none", 200), ("same-origin", 200), ("cross-site", 403), ("same-site", 403), ("", 403), ("x", 403)];
        for (site, want) in cases {
            assert_eq!(status(&guard(None), &[("host", "localhost"), ("sec-fetch-site", site)]), want, "{site}");
        }
        assert_eq!(status(&guard(None), &[("host", "localhost")]), 200, "no browser");
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

    #[test]
    fn preflight_comes_before_the_password() {
        let shut = guard(Some("secret"));
        let preflight = head(
            "OPTIONS",
            "/session",
            &[("origin", "https://app.example"), ("access-control-request-method", "POST")],
        );
        assert_eq!(shut.check(&preflight).unwrap().status(), 204);
    }
}
