//! Agent cards and the contracts that they publish. Pure: settings in, JSON out.

use std::path::Path;

use api::Json;

use crate::{Scheme, Settings};

/// What the cards say.
#[derive(Debug, Clone)]
pub struct CardInput {}

/// A document as it is sent.
pub struct Document {
    /// Its bytes.
    pub body: Vec<u8>,
    /// Its entity tag, with `W/` and quotes.
    pub etag: String,
}

/// A private key that signs cards.
pub struct CardKey {}

/// Why a key cannot sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CardKeyError(String);

impl CardInput {
    /// What the cards of a service with these settings say.
    pub fn new(
        settings: &Settings,
        public_url: &str,
        schemes: &[Scheme],
        workspace_root: &Path,
        version: &str,
    ) -> Self {
        let _ = (settings, public_url, schemes, workspace_root, version);
        unimplemented!()
    }
}

impl CardKey {
    /// Reads a PKCS#8 key. `id` is its `kid`, `url` the address of its public half, if that is published.
    pub fn from_pem(pem: &str, id: &str, url: Option<&str>) -> Result<Self, CardKeyError> {
        let _ = (pem, id, url);
        unimplemented!()
    }
}

/// The card that everybody may read.
pub fn public_card(input: &CardInput) -> Json {
    let _ = input;
    unimplemented!()
}

/// The card for authenticated clients.
pub fn extended_card(input: &CardInput) -> Json {
    let _ = input;
    unimplemented!()
}

/// The answer of `GET /health`.
pub fn health(input: &CardInput) -> Json {
    let _ = input;
    unimplemented!()
}

/// The OpenAPI document.
pub fn openapi(input: &CardInput) -> Json {
    let _ = input;
    unimplemented!()
}

/// Adds one signature for each line.
pub fn sign(card: &mut Json, key: &CardKey) -> Result<(), CardKeyError> {
    let _ = (card, key);
    unimplemented!()
}

/// The bytes and the entity tag of a document.
pub fn document(json: &Json) -> Document {
    let _ = json;
    unimplemented!()
}
