//! One operation of the API: its name, path, types and handler. The router, the OpenAPI document and the table of
//! operations are all made from the same list.

pub mod openapi;
pub mod request;
pub mod router;

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use futures::future::BoxFuture;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::State;
use crate::error::Error;
use crate::operation::request::{Call, Payload, parse_path, parse_query, read_body, scope};

/// How much of an operation there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// All of it.
    Done,
    /// Some of it; what is missing.
    Partial(&'static str),
    /// It answers an error that says why.
    NotOffered(&'static str),
}

/// The types of an operation, as schemas.
pub struct Shape {
    /// The path's parameters: an object.
    pub path: Schema,
    /// The query's: an object.
    pub query: Schema,
    /// The body, and whether it must be there.
    pub body: Option<(Schema, bool)>,
    /// The status and, if it has a body, content type and schema of the answer.
    pub reply: (u16, Option<(&'static str, Schema)>),
}

/// A request on its way to a handler.
pub struct Incoming {
    /// The server.
    pub state: Arc<State>,
    /// The path that was matched, with its parameters.
    pub path: String,
    /// The head.
    pub parts: Parts,
    /// The body.
    pub body: Body,
}

type Handler = Box<dyn Fn(Incoming) -> BoxFuture<'static, Result<Response<Body>, Error>> + Send + Sync>;

/// One operation.
pub struct Operation {
    /// OpenCode's name of it.
    pub id: &'static str,
    /// Its method.
    pub method: Method,
    /// Its path, with `{name}` for parameters.
    pub path: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// How much of it there is.
    pub offer: Offer,
    /// The statuses of its errors, each with the name of its schema, as OpenCode documents them.
    pub errors: Vec<(u16, &'static [&'static str])>,
    /// Whether it is about a directory.
    pub scoped: bool,
    /// Whether it is of the newer API, with its own form of errors.
    pub v2: bool,
    pub(crate) shape: fn(&mut SchemaGenerator) -> Shape,
    pub(crate) handler: Handler,
}

/// An operation with `{"name", "data"}` errors.
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
    B: Payload + 'static,
    R: Reply,
    F: Fn(Call<P, Q, B>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Error>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let handle = move |incoming: Incoming| -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let handler = handler.clone();
        Box::pin(async move {
            let Incoming { state, path: matched, parts, body } = incoming;
            let query = parts.uri.query().unwrap_or_default();
            let (scope, directory_in_query) = scope(&parts.headers, query, &state.directory)?;
            let path = parse_path(&matched, path)?;
            let query = parse_query(query)?;
            let bytes = if B::WANTED { read_body(body).await? } else { Bytes::new() };
            let body = B::read(&bytes)?;
            let (server, place) = (state.clone(), scope.clone());
            let call = Call { state, scope, directory_in_query, path, query, body, parts };
            let answer = handler(call).await.inspect_err(|error| server.tell_not_offered(&place, error))?;
            Ok(answer.into_response())
        })
    };
    Operation {
        id,
        method,
        path,
        summary,
        offer: Offer::Done,
        errors: vec![(400, BAD_REQUEST)],
        scoped: true,
        v2: false,
        shape: |generator| Shape {
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
    /// Some of it is missing.
    pub fn partial(mut self, missing: &'static str) -> Self {
        self.offer = Offer::Partial(missing);
        self
    }

    /// It answers an error.
    pub fn not_offered(mut self, why: &'static str) -> Self {
        self.offer = Offer::NotOffered(why);
        self
    }

    /// Adds or replaces an error that it documents.
    pub fn error(mut self, status: u16, schemas: &'static [&'static str]) -> Self {
        self.errors.retain(|(known, _)| *known != status);
        self.errors.push((status, schemas));
        self
    }

    /// A session or message that is not there.
    pub fn not_found(self) -> Self {
        self.error(404, &["NotFoundError"])
    }

    /// A turn runs.
    pub fn busy(self) -> Self {
        self.error(409, &["SessionBusyError"])
    }

    /// It is of the newer API below `/api`.
    pub fn v2(mut self) -> Self {
        self.v2 = true;
        self.error(400, &["InvalidRequestError"]).error(401, &["UnauthorizedError"])
    }

    /// It is about the whole server, not about a directory.
    pub fn global(mut self) -> Self {
        self.scoped = false;
        self
    }
}

/// What an answer can be.
pub trait Reply {
    /// Its status.
    const STATUS: u16;
    /// Its content type and schema, if it has a body.
    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)>;
    /// The response.
    fn into_response(self) -> Response<Body>;
}

const JSON: &str = "application/json";

/// A response with JSON in it.
pub fn json(body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// A value as JSON.
pub struct Data<T>(pub T);

impl<T: Serialize + JsonSchema> Reply for Data<T> {
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

/// A list that may lack something. A header says what: `files`, their `lines`, `patches`.
#[derive(Debug)]
pub struct Cut<T> {
    /// The list.
    pub list: Vec<T>,
    /// What it lacks.
    pub missing: Vec<&'static str>,
}

impl<T> Default for Cut<T> {
    fn default() -> Self {
        Self { list: Vec::new(), missing: Vec::new() }
    }
}

/// The header that says what an answer lacks.
pub const MISSING: HeaderName = HeaderName::from_static("x-trefoil-missing");

impl<T: Serialize + JsonSchema> Reply for Cut<T> {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Data::<Vec<T>>::schema(generator)
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Data(self.list).into_response();
        if !self.missing.is_empty()
            && let Ok(missing) = HeaderValue::from_str(&self.missing.join(", "))
        {
            response.headers_mut().insert(MISSING, missing);
        }
        response
    }
}

/// A value that is JSON already.
pub struct Raw<T> {
    response: Response<Body>,
    of: PhantomData<fn() -> T>,
}

impl<T> Raw<T> {
    /// A whole response, for those that set headers or write their body bit by bit.
    pub fn response(response: Response<Body>) -> Self {
        Self { response, of: PhantomData }
    }

    /// JSON text.
    pub fn json(text: impl Into<Body>) -> Self {
        Self::response(json(text))
    }
}

impl<T: JsonSchema> Reply for Raw<T> {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some((JSON, generator.subschema_for::<T>()))
    }

    fn into_response(self) -> Response<Body> {
        self.response
    }
}

/// Done, and nothing to say: 204.
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

/// It is being done, and there is nothing to say yet: 202.
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

/// A stream of events, each of that type.
pub struct Events<T> {
    body: Body,
    of: PhantomData<fn() -> T>,
}

impl<T> Events<T> {
    /// From a body that is framed already.
    pub fn new(body: Body) -> Self {
        Self { body, of: PhantomData }
    }
}

impl<T: JsonSchema> Reply for Events<T> {
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

/// What cannot be returned: for operations that only ever refuse.
pub struct Never<T> {
    never: std::convert::Infallible,
    of: PhantomData<fn() -> T>,
}

impl<T: JsonSchema> Reply for Never<T> {
    const STATUS: u16 = 200;

    fn schema(generator: &mut SchemaGenerator) -> Option<(&'static str, Schema)> {
        Some((JSON, generator.subschema_for::<T>()))
    }

    fn into_response(self) -> Response<Body> {
        match self.never {}
    }
}
