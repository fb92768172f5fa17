//! Counters for Prometheus. Not one of OpenCode's operations.

use axum::body::Body;
use axum::http::{HeaderValue, Method, Response, header};
use schemars::{JsonSchema as _, Schema, SchemaGenerator};
use transport::metrics::CONTENT_TYPE;

use crate::error::Error;
use crate::metrics;
use crate::operation::request::Request;
use crate::operation::{Operation, Reply, operation};

pub fn operations() -> Vec<Operation> {
    vec![operation(Method::GET, "/metrics", "metrics.get", "Counters, in the text format of Prometheus.", get).global()]
}

/// Text in Prometheus's format.
struct PrometheusReply(String);

impl Reply for PrometheusReply {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("text/plain", String::json_schema(generator)))
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.0));
        let kind = HeaderValue::from_static(CONTENT_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

async fn get(request: Request) -> Result<PrometheusReply, Error> {
    let state = request.state;
    let text = tokio::task::spawn_blocking(move || metrics::render(&state)).await;
    text.map(PrometheusReply).map_err(Error::internal)
}
