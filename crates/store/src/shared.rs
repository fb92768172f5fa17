//! Texts that many rows have in common, such as the rules in force when a prompt was accepted. Each is stored once, by
//! its hash: a copy in every row would cost pages in every commit.

use std::sync::Arc;

/// A text that rows refer to by its hash. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedText(Arc<(String, String)>);

impl SharedText {
    /// Hashes a text.
    pub fn new(text: String) -> Self {
        Self(Arc::new((api::sha256_hex(text.as_bytes()), text)))
    }

    /// The hash: 64 hexadecimal digits.
    pub fn hash(&self) -> &str {
        &self.0.0
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0.1
    }
}
