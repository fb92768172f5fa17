//! An operation of the API: its name, path, types and handler. The router, the OpenAPI document and the table of
//! operations are made from the same list.

pub mod openapi;
pub mod request;
pub mod router;

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use api::PartialList;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use futures::future::BoxFuture;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use store::Store;

use crate::State;
use crate::error::Error;
use crate::operation::request::{Request, RequestBody, parse_path, parse_query, parse_scope, read_body};

/// How much of an operation Trefoil supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// All of it.
    Full,
    /// Part of it; says what is missing.
    Partial(&'static str),
    /// None of it: it answers with an error that says why.
    NotOffered(&'static str),
}

/// The types of an operation, as schemas.
pub struct OperationSchema {
    /// The path parameters: an object.
    pub path: Schema,
    /// The query parameters: an object.
    pub query: Schema,
    /// The body, and whether it is required.
    pub body: Option<(Schema, bool)>,
    /// The response: its status and, if it has a body, content type and schema.
    pub reply: (u16, Option<(&'static str, Schema)>),
}

/// A request that was routed but not parsed.
pub struct RawRequest {
    /// The server's state.
    pub state: Arc<State>,
    /// The path that matched, with its parameters.
    pub path: String,
    /// The head.
    pub parts: Parts,
    /// The body.
    pub body: Body,
}

type Handler = Box<dyn Fn(RawRequest) -> BoxFuture<'static, Result<Response<Body>, Error>> + Send + Sync>;

/// An operation of the API.
pub struct Operation {
    /// OpenCode's name for it.
    pub id: &'static str,
    /// Its method.
    pub method: Method,
    /// Its path, with `{name}` for parameters.
    pub path: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// How much of it Trefoil supports.
    pub support: Support,
    /// The statuses of its errors, each with the names of its schemas, as OpenCode documents them.
    pub errors: Vec<(u16, &'static [&'static str])>,
    /// Whether it takes a directory.
    pub scoped: bool,
    /// Whether it belongs to the newer API, which has its own form of errors.
    pub v2: bool,
    pub(crate) schema: fn(&mut SchemaGenerator) -> OperationSchema,
    pub(crate) handler: Handler,
}

/// Makes an operation with `{"name", "data"}` errors.
pub fn operation<P, Q, B, R, F, Fut>(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: F,
) -> Operation
where
    P: DeserializeOwned + JsonSchema + Send + 'static,
    Q: DeserializeOwned + JsonSchema + Send + 'static,
    B: RequestBody + 'static,
    R: Reply,
    F: Fn(Request<P, Q, B>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Error>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let handle = move |raw: RawRequest| -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let handler = handler.clone();
        Box::pin(async move {
            let RawRequest { state, path: matched_path, parts, body } = raw;
            let query = parts.uri.query().unwrap_or_default();
            let (scope, directory_in_query) = parse_scope(&parts.headers, query, &state.directory)?;
            let path = parse_path(&matched_path, path)?;
            let query = parse_query(query)?;
            let bytes = if B::IS_READ { read_body(&parts.headers, body).await? } else { Bytes::new() };
            let body = B::read(&bytes)?;
            let (shared, requested_scope) = (state.clone(), scope.clone());
            let engine = state.client_handles.of(&state.engine, &parts.headers);
            let host = Arc::new(engine.clone());
            let request = Request { state, host, engine, scope, directory_in_query, path, query, body, parts };
            let answer =
                handler(request).await.inspect_err(|error| shared.notify_not_offered(&requested_scope, error))?;
            Ok(answer.into_response())
        })
    };
    Operation {
        id,
        method,
        path,
        summary,
        support: Support::Full,
        errors: vec![(400, BAD_REQUEST)],
        scoped: true,
        v2: false,
        schema: |generator| OperationSchema {
            path: P::json_schema(generator),
            query: Q::json_schema(generator),
            body: B::schema(generator),
            reply: (R::STATUS, R::schema(generator)),
        },
        handler: Box::new(handle),
    }
}

/// The usual schema of a 400.
const BAD_REQUEST: &[&str] = &["BadRequestError"];

impl Operation {
    /// Marks it as partly supported.
    pub fn partial(mut self, missing: &'static str) -> Self {
        self.support = Support::Partial(missing);
        self
    }

    /// Marks it as not supported.
    pub fn not_offered(mut self, why: &'static str) -> Self {
        self.support = Support::NotOffered(why);
        self
    }

    /// Adds or replaces an error that it documents.
    pub fn error(mut self, status: u16, schemas: &'static [&'static str]) -> Self {
        self.errors.retain(|(known, _)| *known != status);
        self.errors.push((status, schemas));
        self
    }

    /// Documents the 404 of a missing session or message.
    pub fn not_found(self) -> Self {
        self.error(404, &["NotFoundError"])
    }

    /// Documents the 409 of a session whose turn is running.
    pub fn busy(self) -> Self {
        self.error(409, &["SessionBusyError"])
    }

    /// Moves it to the newer API below `/api`.
    pub fn v2(mut self) -> Self {
        self.v2 = true;
        self.error(400, &["InvalidRequestError"]).error(401, &["UnauthorizedError"])
    }

    /// Marks it as global: it takes no directory.
    pub fn global(mut self) -> Self {
        self.scoped = false;
        self
    }
}

/// A type that a handler can answer with.
pub trait Reply {
    /// Its status.
    const STATUS: u16;
    /// Its content type and schema, if it has a body.
    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)>;
    /// The response.
    fn into_response(self) -> Response<Body>;
}

const JSON: &str = "application/json";

/// A response with a JSON body.
pub fn json(body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// A value, sent as JSON. It is serialized on the thread that serves the request: see [`RawReply::large`].
pub struct JsonReply<T>(pub T);

impl<T: Serialize + JsonSchema> Reply for JsonReply<T> {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some((JSON, generator.subschema_for::<T>()))
    }

    fn into_response(self) -> Response<Body> {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => json(bytes),
            Err(error) => Error::internal(error).into(),
        }
    }
}

/// A list that may be incomplete. A header names what is missing: `files`, their `lines`, `patches`.
#[derive(Debug)]
pub struct TruncatedList<T> {
    /// The list.
    pub list: Vec<T>,
    /// What is missing.
    pub missing: Vec<&'static str>,
}

impl<T> From<PartialList<T>> for TruncatedList<T> {
    fn from(PartialList { list, missing }: PartialList<T>) -> Self {
        Self { list, missing }
    }
}

/// The header that names what a response lacks.
pub const MISSING: HeaderName = HeaderName::from_static("x-trefoil-missing");

impl<T: Serialize + JsonSchema> Reply for TruncatedList<T> {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        JsonReply::<Vec<T>>::schema(generator)
    }

    fn into_response(self) -> Response<Body> {
        let mut response = JsonReply(self.list).into_response();
        if !self.missing.is_empty()
            && let Ok(missing) = HeaderValue::from_str(&self.missing.join(", "))
        {
            response.headers_mut().insert(MISSING, missing);
        }
        response
    }
}

/// A response that the handler has built itself; `T` documents its body.
pub struct RawReply<T> {
    response: Response<Body>,
    body_type: PhantomData<fn() -> T>,
}

impl<T> RawReply<T> {
    /// A complete response, for handlers that set headers or stream the body.
    pub fn response(response: Response<Body>) -> Self {
        Self { response, body_type: PhantomData }
    }

    /// A value that may be large. It is serialized on a thread for long reads, so that nobody waits for it.
    pub async fn large(state: &State, value: T) -> Result<Self, Error>
    where
        T: Serialize + Send + 'static,
    {
        let serialize = move |_: &Store| serde_json::to_vec(&value).map_err(Error::internal);
        Ok(Self::json(state.engine.store().long_read(serialize).await?))
    }

    /// Text that is JSON already.
    pub fn json(text: impl Into<Body>) -> Self {
        Self::response(json(text))
    }
}

impl<T: JsonSchema> Reply for RawReply<T> {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some((JSON, generator.subschema_for::<T>()))
    }

    fn into_response(self) -> Response<Body> {
        self.response
    }
}

/// 204: done, nothing to return.
pub struct NoContent;

impl Reply for NoContent {
    const STATUS: u16 = 204;

    fn schema(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        None
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        response
    }
}

/// 202: accepted, nothing to return yet.
pub struct Accepted;

impl Reply for Accepted {
    const STATUS: u16 = 202;

    fn schema(_: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        None
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::ACCEPTED;
        response
    }
}

/// A stream of events of type `T`.
pub struct EventStream<T> {
    body: Body,
    body_type: PhantomData<fn() -> T>,
}

impl<T> EventStream<T> {
    /// Wraps a body that is framed already.
    pub fn new(body: Body) -> Self {
        Self { body, body_type: PhantomData }
    }
}

impl<T: JsonSchema> Reply for EventStream<T> {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some(("text/event-stream", generator.subschema_for::<T>()))
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }
}

/// The reply of an operation that always refuses; `T` documents what OpenCode returns.
pub struct NeverReply<T> {
    never: std::convert::Infallible,
    body_type: PhantomData<fn() -> T>,
}

impl<T: JsonSchema> Reply for NeverReply<T> {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some((JSON, generator.subschema_for::<T>()))
    }

    fn into_response(self) -> Response<Body> {
        match self.never {}
    }
}
