//! Methods and paths to what they ask for.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::percent_decode_str;

use super::dialect::{Dialect, Settings, Transport};
use super::extension::Subject;
use super::head::Head;
use super::methods::{Operation, card_path};
use super::reply;
use super::request::Rejection;
use crate::error::{Error, ErrorKind};
use crate::model::Line;

/// What a request asks for, as far as its method and path tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A JSON-RPC request.
    JsonRpc,
    /// An operation of REST.
    Rest(RestCall),
    /// The public card.
    PublicCard,
    /// The extended card, at its path outside of REST.
    ExtendedCard,
    /// The state of the service.
    Health,
    /// Metrics.
    Metrics,
    /// The OpenAPI document.
    OpenApi,
}

/// An operation of REST with the parameters of its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestCall {
    /// The operation.
    pub operation: Operation,
    /// The task.
    pub task: Option<String>,
    /// The push configuration.
    pub push: Option<String>,
}

/// A request before its body is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// What it asks for.
    pub target: Target,
    /// What its headers and its query say.
    pub head: Head,
    /// The tenant of a path of 1.0.
    pub tenant: Option<String>,
    pub(super) path: String,
    pub(super) query: String,
    dialect: Dialect,
}

impl Route {
    /// Whether it needs no credentials.
    pub fn is_public(&self) -> bool {
        self.target == Target::PublicCard
    }

    /// Whether its body is read.
    pub fn has_body(&self) -> bool {
        match &self.target {
            Target::JsonRpc => true,
            Target::Rest(call) => {
                matches!(call.operation, Operation::Send | Operation::Stream | Operation::PutPush | Operation::Cancel)
            }
            _ => false,
        }
    }

    /// Whether its reply is an event stream. Unknown of JSON-RPC before its body is read.
    pub fn is_stream(&self) -> bool {
        matches!(&self.target, Target::Rest(call) if call.operation.is_stream())
    }

    /// The dialect of errors that come before the body is read.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The response headers of the extended card that say what was agreed on.
    pub fn card_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let requested = &self.head.extensions;
        reply::negotiated_headers(self.dialect, requested, requested.activated(Subject::Card))
    }
}

/// Finds out what a request asks for.
///
/// # Errors
/// No such path, no such method of it, or a version that the path does not have.
pub fn route(
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    settings: &Settings,
) -> Result<Route, Rejection> {
    let head = Head::read(headers, query);
    let found = find(path);
    let transport = match found {
        Some(Place { target: Target::JsonRpc, .. }) => Transport::JsonRpc,
        _ => Transport::Rest,
    };
    let refuse = |line: Line, error: Error| Rejection::new(Dialect::of(line, transport), error);
    // Before the body is read, a JSON-RPC request has no name yet. Its version is checked with its method.
    let neutral = match head.version.negotiate(None, settings) {
        Ok((payload, errors)) => Dialect { payload, errors, transport },
        Err((line, _)) => Dialect::of(line, transport),
    };
    let Some(place) = found else {
        return Err(Rejection::new(neutral, Error::new(ErrorKind::PathNotFound, "Not Found")));
    };
    if !place.methods.contains(method) {
        let allowed: Vec<&str> = place.methods.iter().map(Method::as_str).collect();
        let error = Error::new(ErrorKind::HttpMethodNotAllowed, "Method Not Allowed").with("allowed", allowed);
        return Err(Rejection::new(neutral, error));
    }
    let dialect = match (&place.target, place.line) {
        (Target::Rest(_), line) => match head.version.negotiate(line, settings) {
            Ok((payload, errors)) => Dialect { payload, errors, transport },
            Err((line, error)) => return Err(refuse(line, error)),
        },
        _ => neutral,
    };
    let target = by_method(place.target, method);
    Ok(Route { target, head, tenant: place.tenant, path: path.to_owned(), query: query.to_owned(), dialect })
}

struct Place {
    target: Target,
    line: Option<Line>,
    tenant: Option<String>,
    methods: &'static [Method],
}

const GET: &[Method] = &[Method::GET];
const POST: &[Method] = &[Method::POST];
const GET_POST: &[Method] = &[Method::GET, Method::POST];
const GET_DELETE: &[Method] = &[Method::GET, Method::DELETE];

/// Paths with several methods are found as what `GET` does there.
fn by_method(target: Target, method: &Method) -> Target {
    match target {
        Target::Rest(call) => {
            let operation = match (call.operation, method) {
                (Operation::ListPush, &Method::POST) => Operation::PutPush,
                (Operation::GetPush, &Method::DELETE) => Operation::DeletePush,
                (operation, _) => operation,
            };
            Target::Rest(RestCall { operation, ..call })
        }
        target => target,
    }
}

fn find(path: &str) -> Option<Place> {
    let fixed = |target, methods| Some(Place { target, line: None, tenant: None, methods });
    match path {
        "/" | "" => return fixed(Target::JsonRpc, POST),
        "/.well-known/agent-card.json" | "/.well-known/agent.json" => return fixed(Target::PublicCard, GET),
        "/agent/authenticatedExtendedCard" => return fixed(Target::ExtendedCard, GET),
        "/health" => return fixed(Target::Health, GET),
        "/metrics" => return fixed(Target::Metrics, GET),
        "/openapi.json" => return fixed(Target::OpenApi, GET),
        _ => {}
    }
    let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let place = |line, tenant: Option<String>, (call, methods)| {
        Some(Place { target: Target::Rest(call), line: Some(line), tenant, methods })
    };
    if let ["v1", rest @ ..] = segments.as_slice() {
        // `v1` is no tenant: these are the paths of 0.3.
        return rest_call(rest, card_path(Line::V03)).and_then(|found| place(Line::V03, None, found));
    }
    if let Some(found) = rest_call(&segments, card_path(Line::V10)) {
        return place(Line::V10, None, found);
    }
    let (tenant, rest) = segments.split_first()?;
    let tenant = decode(tenant)?;
    rest_call(rest, card_path(Line::V10)).and_then(|found| place(Line::V10, Some(tenant), found))
}

fn rest_call(segments: &[&str], card: &str) -> Option<(RestCall, &'static [Method])> {
    let call = |operation, task, push| RestCall { operation, task, push };
    let found = match segments {
        [only] => match decode(only)?.as_str() {
            "message:send" => (call(Operation::Send, None, None), POST),
            "message:stream" => (call(Operation::Stream, None, None), POST),
            "tasks" => (call(Operation::List, None, None), GET),
            name if name == card => (call(Operation::ExtendedCard, None, None), GET),
            _ => return None,
        },
        ["tasks", task] => match verb(task) {
            (id, "cancel") => (call(Operation::Cancel, Some(decode(id)?), None), POST),
            (id, "subscribe") => (call(Operation::Subscribe, Some(decode(id)?), None), GET_POST),
            _ => (call(Operation::Get, Some(decode(task)?), None), GET),
        },
        ["tasks", task, "pushNotificationConfigs"] => (call(Operation::ListPush, Some(decode(task)?), None), GET_POST),
        ["tasks", task, "pushNotificationConfigs", push] => {
            (call(Operation::GetPush, Some(decode(task)?), Some(decode(push)?)), GET_DELETE)
        }
        _ => return None,
    };
    Some(found)
}

/// Takes the verb off a segment like `id:cancel`, before it is decoded: an id may contain an encoded colon.
fn verb(segment: &str) -> (&str, &str) {
    ["cancel", "subscribe"]
        .into_iter()
        .find_map(|verb| Some((segment.strip_suffix(verb)?.strip_suffix(':')?, verb)))
        .unwrap_or((segment, ""))
}

/// A segment without its percent encoding, if it is not empty and is text.
fn decode(segment: &str) -> Option<String> {
    let text = percent_decode_str(segment).decode_utf8().ok()?;
    (!text.is_empty()).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            default_line: Line::V03,
            supported: Line::ALL.to_vec(),
            session_shell: false,
            workspace_mutations: false,
        }
    }

    fn ask(method: &str, path: &str) -> Result<Route, Rejection> {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        route(&method, path, "", &HeaderMap::new(), &settings())
    }

    #[test]
    fn paths_of_both_lines_lead_to_their_operations() {
        for (method, path, operation, task, push) in [
            ("POST", "message:send", Operation::Send, None, None),
            ("POST", "message:stream", Operation::Stream, None, None),
            ("GET", "tasks", Operation::List, None, None),
            ("GET", "tasks/t%2F1", Operation::Get, Some("t/1"), None),
            ("POST", "tasks/t1:cancel", Operation::Cancel, Some("t1"), None),
            ("GET", "tasks/t1:subscribe", Operation::Subscribe, Some("t1"), None),
            ("POST", "tasks/a%3Acancel:subscribe", Operation::Subscribe, Some("a:cancel"), None),
            ("GET", "tasks/t1/pushNotificationConfigs", Operation::ListPush, Some("t1"), None),
            ("POST", "tasks/t1/pushNotificationConfigs", Operation::PutPush, Some("t1"), None),
            ("GET", "tasks/t1/pushNotificationConfigs/p", Operation::GetPush, Some("t1"), Some("p")),
            ("DELETE", "tasks/t1/pushNotificationConfigs/p", Operation::DeletePush, Some("t1"), Some("p")),
        ] {
            for (prefix, line, tenant) in
                [("/v1/", Line::V03, None), ("/", Line::V10, None), ("/acme/", Line::V10, Some("acme"))]
            {
                let route = ask(method, &format!("{prefix}{path}")).unwrap();
                let call = RestCall { operation, task: task.map(str::to_owned), push: push.map(str::to_owned) };
                assert_eq!(route.target, Target::Rest(call), "{method} {prefix}{path}");
                assert_eq!(route.dialect(), Dialect::of(line, Transport::Rest));
                assert_eq!(route.tenant.as_deref(), tenant);
                assert_eq!(route.is_stream(), operation.is_stream());
            }
        }
        for (path, line) in
            [("/v1/card", Line::V03), ("/extendedAgentCard", Line::V10), ("/t/extendedAgentCard", Line::V10)]
        {
            let route = ask("GET", path).unwrap();
            assert!(matches!(&route.target, Target::Rest(call) if call.operation == Operation::ExtendedCard));
            assert_eq!(route.dialect().payload, line);
        }
    }

    #[test]
    fn fixed_paths() {
        assert_eq!(ask("POST", "/").unwrap().target, Target::JsonRpc);
        for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
            assert!(ask("GET", path).unwrap().is_public());
        }
        assert_eq!(ask("GET", "/agent/authenticatedExtendedCard").unwrap().target, Target::ExtendedCard);
        assert_eq!(ask("GET", "/health").unwrap().target, Target::Health);
        assert_eq!(ask("GET", "/metrics").unwrap().target, Target::Metrics);
        assert_eq!(ask("GET", "/openapi.json").unwrap().target, Target::OpenApi);
    }

    #[test]
    fn other_paths_and_methods_are_refused() {
        for path in [
            "/nope",
            "/v1",
            "/v1/",
            "/v1/nope",
            "/tasks/",
            "/a/b/tasks",
            "/tasks/t/x",
            "/v1/extendedAgentCard",
            "/%ff/tasks",
        ] {
            assert_eq!(ask("GET", path).unwrap_err().error.kind, ErrorKind::PathNotFound, "{path}");
        }
        for (method, path, allowed) in [
            ("OPTIONS", "/", "POST"),
            ("GET", "/v1/message:send", "POST"),
            ("DELETE", "/tasks/t/pushNotificationConfigs", "GET, POST"),
            ("POST", "/v1/tasks/t/pushNotificationConfigs/p", "GET, DELETE"),
        ] {
            let rejection = ask(method, path).unwrap_err();
            assert_eq!(rejection.error.kind, ErrorKind::HttpMethodNotAllowed);
            let response = rejection.response();
            assert_eq!(response.status, 405);
            assert!(
                response.headers.iter().any(|(name, value)| name == "allow" && value == allowed),
                "{method} {path}"
            );
        }
    }

    #[test]
    fn a_path_decides_the_payload_and_the_version_the_errors() {
        let mut headers = HeaderMap::new();
        headers.insert("a2a-version", "1.0".parse().unwrap());
        let old = route(&Method::GET, "/v1/tasks/t", "", &headers, &settings()).unwrap();
        assert_eq!(old.dialect(), Dialect { payload: Line::V03, errors: Line::V10, transport: Transport::Rest });
        let refused = route(&Method::GET, "/tasks/t", "A2A-Version=0.3", &HeaderMap::new(), &settings()).unwrap_err();
        assert_eq!(refused.dialect.errors, Line::V03);
        assert_eq!(refused.error.kind, ErrorKind::VersionNotSupported);
        // The card has no version.
        assert!(route(&Method::GET, "/health", "A2A-Version=abc", &HeaderMap::new(), &settings()).is_ok());
    }
}
