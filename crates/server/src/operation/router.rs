//! Finds the operation of a method and path.

use std::collections::HashMap;

use axum::http::{HeaderValue, Method, StatusCode, header};

use crate::error::Error;
use crate::operation::Operation;

/// All operations, by path and method.
pub struct Router {
    operations: Vec<Operation>,
    paths: matchit::Router<HashMap<Method, usize>>,
}

/// Why a request has no operation.
pub enum RouteError {
    /// There is no such path.
    NotFound,
    /// The path exists, but not with this method; says which it has.
    MethodNotAllowed(HeaderValue),
}

impl Router {
    /// Makes a router. If two operations share a method and path, which is a bug of ours, the first wins.
    pub fn new(operations: Vec<Operation>) -> Self {
        let mut by_path: Vec<(&'static str, HashMap<Method, usize>)> = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            match by_path.iter_mut().find(|(path, _)| *path == operation.path) {
                Some((_, methods)) => drop(methods.entry(operation.method.clone()).or_insert(index)),
                None => by_path.push((operation.path, HashMap::from([(operation.method.clone(), index)]))),
            }
        }
        let mut paths = matchit::Router::new();
        for (path, methods) in by_path {
            if let Err(error) = paths.insert(path, methods) {
                tracing::error!(path, %error, "an operation has no route");
            }
        }
        Self { operations, paths }
    }

    /// All operations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operation of a request. `HEAD` is `GET` without the body.
    pub fn find(&self, method: &Method, path: &str) -> Result<&Operation, RouteError> {
        let methods = self.paths.at(path).map_err(|_| RouteError::NotFound)?.value;
        let lookup = if method == Method::HEAD { &Method::GET } else { method };
        if let Some(index) = methods.get(lookup) {
            return Ok(&self.operations[*index]);
        }
        let mut allowed: Vec<&str> = methods.keys().map(Method::as_str).collect();
        allowed.sort_unstable();
        Err(RouteError::MethodNotAllowed(
            HeaderValue::from_str(&allowed.join(", ")).unwrap_or(HeaderValue::from_static("")),
        ))
    }
}

impl RouteError {
    /// The response to such a request.
    pub fn into_response(self, method: &Method, path: &str) -> axum::http::Response<axum::body::Body> {
        let v2 = path.starts_with("/api/") || path == "/api";
        let error = |status, name: &str, message: String| match v2 {
            true => Error::tagged(status, name, &[], message),
            false => Error::named(status, name, message),
        };
        match self {
            Self::NotFound => {
                let message = format!("There is no operation at {path}; GET /doc lists them");
                error(StatusCode::NOT_FOUND, "NotFoundError", message).into()
            }
            Self::MethodNotAllowed(allowed) => {
                let message = format!("{path} does not support {method}");
                let mut response: axum::http::Response<axum::body::Body> =
                    error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).into();
                response.headers_mut().insert(header::ALLOW, allowed);
                response
            }
        }
    }
}
