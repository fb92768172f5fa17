//! The contract about what a directory offers: agents, commands, skills, models, configuration, MCP servers.

use indexmap::IndexMap;

use crate::{
    Agent, Command, HostFuture, Json, McpAuthorization, McpConfig, McpResource, McpStatus, ModelRef, Project, Provider,
    ProviderCatalog, Scope, SessionId, Skill,
};

/// What a directory offers to its sessions.
pub trait CatalogHost: Send + Sync {
    /// Returns the agents.
    fn agents<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Agent>>;
    /// Returns the commands.
    fn commands<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Command>>;
    /// Returns the commands of a session's directory, and those from the session's own MCP servers where the host has
    /// such.
    fn session_commands<'a>(&'a self, session: &'a SessionId) -> HostFuture<'a, Vec<Command>>;
    /// Returns the skills.
    fn skills<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Skill>>;
    /// Returns the usable providers, each with its models.
    fn providers<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Provider>>;
    /// Returns all known providers, the default model of each, and which can be used.
    fn provider_catalog<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ProviderCatalog>;
    /// Returns the model for prompts that name none.
    fn default_model<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ModelRef>;
    /// Returns the configuration in effect, as JSON.
    fn config<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Json>;
    /// Returns the known projects, that of the scope included.
    fn projects<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Project>>;
    /// Returns the project of the scope.
    fn project<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Project>;

    /// Returns the status of each MCP server, starting them first if necessary.
    fn mcp<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpStatus>>;
    /// Adds or replaces a server for the lifetime of the host, and connects to it.
    fn mcp_add<'a>(
        &'a self,
        scope: &'a Scope,
        name: &'a str,
        config: McpConfig,
    ) -> HostFuture<'a, IndexMap<String, McpStatus>>;
    /// Connects to a server.
    fn mcp_connect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
    /// Disconnects from a server.
    fn mcp_disconnect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
    /// Returns the resources of all servers.
    fn mcp_resources<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpResource>>;
    /// Starts signing in to a server: the URL leads the user to a code.
    fn mcp_auth_start<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpAuthorization>;
    /// Signs in with a browser on the host's machine; returns once the user has done so.
    fn mcp_authenticate<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpStatus>;
    /// Deletes the stored sign-in for a server.
    fn mcp_auth_remove<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()>;
}
