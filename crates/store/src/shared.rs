//! Texts that many rows have in common, such as the rules in force when a prompt was accepted. Each is stored once, by
//! its hash: a copy in every row would cost pages in every commit.

use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

/// A text that rows refer to by its hash. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedText(Arc<(String, String)>);

impl SharedText {
    /// Hashes a text.
    pub fn new(text: String) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        let mut hash = String::with_capacity(2 * digest.len());
        for byte in digest {
            let _ = write!(hash, "{byte:02x}");
        }
        Self(Arc::new((hash, text)))
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
