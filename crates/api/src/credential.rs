//! Credentials for model vendors.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::tagged;

/// A credential. Its `Debug` output reveals nothing.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(!tag, untagged, rename = "Auth")]
pub enum Credential {
    /// Tokens from a vendor's OAuth login.
    Oauth(OAuthCredential),
    /// An API key.
    Api(ApiCredential),
    /// A token of an organisation's own server.
    WellKnown(WellKnownCredential),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Oauth(_) => "Oauth(…)",
            Self::Api(_) => "Api(…)",
            Self::WellKnown(_) => "WellKnown(…)",
        })
    }
}

/// Tokens from a vendor's OAuth login.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "OAuth", transform = tagged("type", "oauth"))]
pub struct OAuthCredential {
    /// The refresh token.
    pub refresh: String,
    /// The access token.
    pub access: String,
    /// When the access token expires.
    pub expires: u64,
    /// The account it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// The vendor's address, if not the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enterprise_url: Option<String>,
}

/// An API key.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ApiAuth", transform = tagged("type", "api"))]
pub struct ApiCredential {
    /// The key.
    pub key: String,
    /// Further values that the vendor needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<IndexMap<String, String>>,
}

/// A token of an organisation's own server.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WellKnownAuth", transform = tagged("type", "wellknown"))]
pub struct WellKnownCredential {
    /// The environment variable that holds it.
    pub key: String,
    /// The token.
    pub token: String,
}
