//! The service below a prefix of another face's address, with its card also at the root of that address.

use std::sync::Arc;

use axum::body::Body;
use axum::http::uri::{PathAndQuery, Uri};
use axum::http::{Request, Response};
use futures::future::BoxFuture;
use transport::mount::Mount;

use super::Endpoint;

/// Where the service is.
pub const MOUNT_PATH: &str = "/a2a";

/// Where clients look for the card of an address.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

impl Mount for Endpoint {
    fn takes(&self, path: &str) -> bool {
        CARDS.contains(&path)
            || path.strip_prefix(MOUNT_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn respond(self: Arc<Self>, mut request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        if let Some(inner) = below_mount(request.uri()) {
            *request.uri_mut() = inner;
        }
        Box::pin(Endpoint::respond(self, request))
    }
}

/// The address without the prefix.
fn below_mount(uri: &Uri) -> Option<Uri> {
    let rest = uri.path().strip_prefix(MOUNT_PATH)?;
    let path = if rest.is_empty() { "/" } else { rest };
    let text = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(text).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_goes_and_the_rest_stays() {
        for (given, want) in [
            ("/a2a", "/"),
            ("/a2a/", "/"),
            ("/a2a?x=1", "/?x=1"),
            ("/a2a/v1/message:send", "/v1/message:send"),
            ("/a2a/tasks?pageSize=2", "/tasks?pageSize=2"),
            ("http://h:1/a2a/tasks", "http://h:1/tasks"),
        ] {
            let uri: Uri = given.parse().unwrap();
            assert_eq!(below_mount(&uri).unwrap().to_string(), want, "{given}");
        }
        assert_eq!(below_mount(&"/.well-known/agent.json".parse().unwrap()), None);
    }
}
