//! Decides from the head of a request whether a browser may have sent it: no web page of another site, also by DNS rebinding.
//! Credentials are the business of each face.

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response, StatusCode, header};

/// How long a browser may remember the response to a preflight, in seconds.
const PREFLIGHT_MAX_AGE: &str = "86400";

/// The rules for the host names and web pages that requests name.
#[derive(Debug, Clone, Default)]
pub struct OriginPolicy {
    /// Further origins whose pages may call.
    pub origins: Vec<String>,
    /// Further host names under which the server is reached.
    pub hosts: Vec<String>,
    /// Whether any host name is allowed. A page that makes its own name resolve to this machine (DNS rebinding) has no
    /// credentials, so a server that asks for them can allow any.
    pub any_host: bool,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The server does not answer to this host name.
    Host(String),
    /// Pages of this origin may not call.
    Origin(String),
    /// The browser says that a page of another site has sent it.
    Site,
}

impl OriginPolicy {
    /// Checks the host, the origin and what the browser says of the page that sent the request.
    pub fn check(&self, request: &Parts) -> Result<(), Refusal> {
        let host = authority(request);
        if !self.any_host && !self.allows_host(host) {
            return Err(Refusal::Host(host.to_owned()));
        }
        let mut origins = request.headers.get_all(header::ORIGIN).iter();
        let origin = origins.next().map(|origin| origin.to_str().unwrap_or("invalid"));
        let origin = if origins.next().is_some() { Some("several") } else { origin };
        let is_allowed_page = origin.is_some_and(|origin| self.allows_origin(origin, host));
        if let Some(origin) = origin.filter(|_| !is_allowed_page) {
            return Err(Refusal::Origin(origin.to_owned()));
        }
        let site = request.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if !is_allowed_page && site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return Err(Refusal::Site);
        }
        Ok(())
    }

    fn allows_host(&self, host: &str) -> bool {
        let name = without_port(host);
        is_loopback(name) || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Whether pages of an origin may call: our own, and those that were configured. Anybody can serve a page on another
    /// port or loopback address of this machine, so those are refused.
    fn allows_origin(&self, origin: &str, host: &str) -> bool {
        if self.origins.iter().any(|known| known == origin) {
            return true;
        }
        let Some((scheme, rest)) = origin.split_once("://") else { return false };
        // We speak no TLS. On this machine an https origin is another program; elsewhere it is a proxy in front of us.
        let ours = scheme == "http" || (scheme == "https" && !is_loopback(without_port(host)));
        ours && !host.is_empty() && rest.eq_ignore_ascii_case(host)
    }
}

/// The response to a browser that asks whether a page may send a request, if the request is such a question. Check its
/// origin before. Browsers send no credentials with it.
pub fn preflight(request: &Parts, allowed_methods: &'static str) -> Option<Response<Body>> {
    if request.method != Method::OPTIONS || !request.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(allowed_methods));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_MAX_AGE));
    if let Some(requested) = request.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
    }
    Some(response)
}

/// Adds the headers that a page needs to read the response and the exposed headers. `origin` is the request's, if it is
/// allowed.
pub fn add_cors_headers(origin: Option<&HeaderValue>, exposed_headers: &'static str, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(exposed_headers));
    }
}

/// The host name that the client used.
fn authority(request: &Parts) -> &str {
    let header = request.headers.get(header::HOST).map(|host| host.to_str().unwrap_or("invalid"));
    request.uri.authority().map(|authority| authority.as_str()).or(header).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = axum::http::Request::builder().method(method).uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn policy(any_host: bool) -> OriginPolicy {
        let origins = ["https://app.example", "tauri://localhost", "oc://renderer"].map(str::to_owned).into();
        OriginPolicy { origins, hosts: vec!["box.lan".into()], any_host }
    }

    fn check(headers: &[(&str, &str)]) -> Result<(), Refusal> {
        policy(false).check(&head("GET", headers))
    }

    #[test]
    fn a_rebound_host_name_is_refused() {
        for host in ["localhost:4096", "127.0.0.1:1", "[::1]:4096", "box.lan", "BOX.LAN:80", "127.0.0.2"] {
            assert_eq!(check(&[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1:4096", "127.0.0.1.nip.io"] {
            assert_eq!(check(&[("host", host)]), Err(Refusal::Host(host.into())));
            assert_eq!(policy(true).check(&head("GET", &[("host", host)])), Ok(()), "{host}");
        }
    }

    /// The host that a page calls, its origin, and whether it may.
    const PAGES: [(&str, &str, bool); 42] = [
        ("localhost:4096", "http://localhost:4096", true),
        ("127.0.0.1:4096", "http://127.0.0.1:4096", true),
        ("[::1]:4096", "http://[::1]:4096", true),
        ("LOCALHOST:4096", "http://localhost:4096", true),
        ("box.lan", "http://box.lan", true),
        ("box.lan", "https://box.lan", true),
        ("localhost:4096", "https://app.example", true),
        ("localhost:4096", "tauri://localhost", true),
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
        ("localhost:4096", "https://evil.example", false),
        ("localhost:4096", "null", false),
        ("localhost:4096", "", false),
        ("localhost:4096", "localhost:4096", false),
        ("", "http://", false),
        ("", "http://localhost:4096", false),
        // Hosts that are not ours, unless any is; a page that they serve is their own.
        ("evil@localhost:4096", "http://localhost:4096", false),
        ("evil.example", "http://localhost:4096", false),
        ("localhost.:4096", "http://localhost:4096", false),
    ];

    #[test]
    fn pages_of_other_sites_are_refused() {
        for (host, origin, allowed) in PAGES {
            for site in [None, Some("cross-site"), Some("same-site"), Some("same-origin")] {
                let mut headers = vec![("host", host), ("origin", origin)];
                headers.extend(site.map(|site| ("sec-fetch-site", site)));
                let of_page = if allowed { Ok(()) } else { Err(Refusal::Origin(origin.into())) };
                assert_eq!(policy(true).check(&head("POST", &headers)), of_page, "{headers:?}");
                assert_eq!(check(&headers).is_ok(), allowed, "{headers:?}");
            }
        }
        for host in ["evil.example", "localhost.:4096", "evil@localhost:4096"] {
            let own_page = format!("http://{host}");
            let headers = [("host", host), ("origin", own_page.as_str())];
            assert_eq!(check(&headers), Err(Refusal::Host(host.into())));
        }
        let twice = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "https://evil.example")];
        assert_eq!(check(&twice), Err(Refusal::Origin("several".into())));
    }

    #[test]
    fn requests_without_an_origin_are_judged_by_their_fetch_site() {
        for site in ["none", "same-origin"] {
            assert_eq!(check(&[("host", "localhost"), ("sec-fetch-site", site)]), Ok(()), "{site}");
        }
        for site in ["cross-site", "same-site", "", "x"] {
            assert_eq!(check(&[("host", "localhost"), ("sec-fetch-site", site)]), Err(Refusal::Site), "{site}");
        }
        assert_eq!(check(&[("host", "localhost")]), Ok(()), "no browser");
    }

    #[test]
    fn only_a_preflight_is_answered() {
        let asks = [("access-control-request-method", "POST"), ("access-control-request-headers", "x-a, x-b")];
        let response = preflight(&head("OPTIONS", &asks), "GET, POST").unwrap();
        assert_eq!(response.status(), 204);
        assert_eq!(response.headers()["access-control-allow-methods"], "GET, POST");
        assert_eq!(response.headers()["access-control-allow-headers"], "x-a, x-b");
        assert!(preflight(&head("OPTIONS", &[]), "GET").is_none());
        assert!(preflight(&head("POST", &asks), "GET").is_none());
    }

    #[test]
    fn a_page_may_read_the_response_only_if_its_origin_is_allowed() {
        let origin = HeaderValue::from_static("https://app.example");
        let mut response = Response::new(Body::empty());
        add_cors_headers(None, "X-A", &mut response);
        assert_eq!(response.headers()["vary"], "Origin");
        assert!(!response.headers().contains_key("access-control-allow-origin"));
        add_cors_headers(Some(&origin), "X-A", &mut response);
        assert_eq!(response.headers()["access-control-allow-origin"], origin);
        assert_eq!(response.headers()["access-control-expose-headers"], "X-A");
    }
}
