//! Another face at some paths of a server.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Response};
use futures::future::BoxFuture;

use crate::listen::Handler;

/// A face that answers some paths of a server, with credentials and rules of its own.
pub trait Mount: Send + Sync + 'static {
    /// Whether it answers a path.
    fn takes(&self, path: &str) -> bool;
    /// Answers a request to such a path.
    fn respond(self: Arc<Self>, request: Request<Body>) -> BoxFuture<'static, Response<Body>>;
}

/// A face, and another one that may be mounted in it.
pub struct Mounted<H> {
    /// Answers what nobody else takes.
    pub face: Arc<H>,
    /// Answers the paths that it takes.
    pub mount: Option<Arc<dyn Mount>>,
}

impl<H: Handler> Handler for Mounted<H> {
    async fn respond(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        match &self.mount {
            Some(mount) if mount.takes(request.uri().path()) => mount.clone().respond(request).await,
            _ => self.face.clone().respond(request).await,
        }
    }
}
