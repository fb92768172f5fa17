//! The status of external helpers: MCP servers, language servers, formatters.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The status of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
#[schemars(rename = "MCPStatus")]
pub enum McpStatus {
    /// It is connected.
    #[schemars(title = "MCPStatusConnected")]
    Connected,
    /// It is disabled.
    #[schemars(title = "MCPStatusDisabled")]
    Disabled,
    /// The connection failed.
    #[schemars(title = "MCPStatusFailed")]
    Failed {
        /// Why.
        error: String,
    },
    /// The user must sign in.
    #[schemars(title = "MCPStatusNeedsAuth")]
    NeedsAuth,
    /// It requires a registered client.
    #[schemars(title = "MCPStatusNeedsClientRegistration")]
    NeedsClientRegistration {
        /// Why.
        error: String,
    },
}

/// A resource of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpResource {
    /// Its name.
    pub name: String,
    /// Its URI.
    pub uri: String,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The server.
    pub client: String,
}

/// How to reach an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(inline)]
pub enum McpConfig {
    /// A program on this machine.
    #[schemars(title = "McpLocalConfig")]
    Local {
        /// The program and its arguments.
        command: Vec<String>,
        /// Its working directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Additional environment variables.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<IndexMap<String, String>>,
        /// Whether it is enabled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enabled: Option<bool>,
        /// The timeout for responses, in milliseconds.
        #[schemars(extend("exclusiveMinimum" = 0))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
    /// A remote server.
    #[schemars(title = "McpRemoteConfig")]
    Remote {
        /// Its URL.
        url: String,
        /// Whether it is enabled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        enabled: Option<bool>,
        /// Additional headers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        headers: Option<IndexMap<String, String>>,
        /// How to sign in; `false` turns sign-in off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        oauth: Option<McpOAuth>,
        /// The timeout for responses, in milliseconds.
        #[schemars(extend("exclusiveMinimum" = 0))]
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<u64>,
    },
}

/// Whether and how to sign in to an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum McpOAuth {
    /// Sign in like this.
    Config(McpOAuthConfig),
    /// `false`: do not sign in.
    Off(#[schemars(extend("enum" = [false]))] bool),
}

/// How to sign in to an MCP server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "McpOAuthConfig")]
pub struct McpOAuthConfig {
    /// The client id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The client secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// The scopes to request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The local port that receives the callback.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_port: Option<u16>,
    /// The redirect URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

/// Where a user signs in to an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct McpAuthorization {
    /// The URL; empty if no sign-in is needed.
    pub authorization_url: String,
    /// The state that comes back with the code.
    pub oauth_state: String,
}

/// The status of a language server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LSPStatus")]
pub struct LspStatus {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its root directory.
    pub root: String,
    /// Whether it is running.
    pub status: LspState,
}

/// Whether a language server is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LspState {
    /// It is.
    Connected,
    /// It is not.
    Error,
}

/// The status of a formatter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormatterStatus {
    /// Its name.
    pub name: String,
    /// The file extensions that it handles.
    pub extensions: Vec<String>,
    /// Whether it is enabled.
    pub enabled: bool,
}
