//! Documents that do not change while the service runs: cards, health, OpenAPI. Each is written and compressed once.

use api::Json;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use transport::conditional::is_not_modified;
use transport::gzip;

use crate::card::{self, CardInput, CardKey, CardKeyError};

const PUBLIC_CACHE: &str = "public, max-age=300";
const PRIVATE_CACHE: &str = "private, max-age=300";

/// Why the documents cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The key cannot sign.
    #[error("A2A_CARD_SIGNING_KEY: {0}")]
    Key(#[from] CardKeyError),
}

/// The documents of a service.
pub(super) struct Documents {
    public: Document,
    extended: Document,
    health: Document,
    openapi: Document,
    extended_card: Json,
}

struct Document {
    body: Bytes,
    /// Compressed, if that pays.
    gzip: Option<Bytes>,
    etag: HeaderValue,
    cache: &'static str,
    vary: &'static str,
}

impl Documents {
    pub(super) fn new(input: &CardInput, key: Option<&str>, gzip_minimum: usize) -> Result<Self, DocumentError> {
        let (mut public, mut extended) = (card::public_card(input), card::extended_card(input));
        if let Some(pem) = key {
            let key = CardKey::from_pem(pem, "trefoil", None)?;
            card::sign(&mut public, &key)?;
            card::sign(&mut extended, &key)?;
        }
        let private = |json: &Json| Document::new(json, PRIVATE_CACHE, "Authorization, Accept-Encoding", gzip_minimum);
        Ok(Self {
            public: Document::new(&public, PUBLIC_CACHE, "Accept-Encoding", gzip_minimum),
            extended: private(&extended),
            health: Document::new(&card::health(input), "no-store", "Authorization, Accept-Encoding", gzip_minimum),
            openapi: private(&card::openapi(input)),
            extended_card: extended,
        })
    }

    pub(super) fn public(&self, request: &Parts) -> Response<Body> {
        self.public.response(request)
    }

    pub(super) fn extended(&self, request: &Parts) -> Response<Body> {
        self.extended.response(request)
    }

    pub(super) fn health(&self, request: &Parts) -> Response<Body> {
        self.health.response(request)
    }

    pub(super) fn openapi(&self, request: &Parts) -> Response<Body> {
        self.openapi.response(request)
    }

    pub(super) fn extended_card(&self) -> &Json {
        &self.extended_card
    }
}

impl Document {
    fn new(json: &Json, cache: &'static str, vary: &'static str, gzip_minimum: usize) -> Self {
        let document = card::document(json);
        let gzip = (document.body.len() >= gzip_minimum).then(|| gzip::compress_document(&document.body)).flatten();
        // An entity tag is hexadecimal digits in quotes.
        let etag = HeaderValue::from_str(&document.etag).unwrap_or(HeaderValue::from_static("W/\"\""));
        Self { body: document.body.into(), gzip, etag, cache, vary }
    }

    fn response(&self, request: &Parts) -> Response<Body> {
        let is_current = is_not_modified(&request.headers, &self.etag);
        let mut response = if is_current {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            let compressed = self.gzip.as_ref().filter(|_| gzip::is_accepted(&request.headers));
            let mut response =
                super::plain(StatusCode::OK, "application/json", compressed.unwrap_or(&self.body).clone());
            if compressed.is_some() {
                response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            response
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, self.etag.clone());
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(self.cache));
        headers.insert(header::VARY, HeaderValue::from_static(self.vary));
        response
    }
}
