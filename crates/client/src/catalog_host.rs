//! The [`CatalogHost`] implementation of the client.

use api::{
    Agent, CatalogHost, Command, HostError, HostFuture, Json, McpAuthorization, McpConfig, McpResource, McpStatus,
    ModelRef, Project, Provider, ProviderCatalog, Scope, SessionId, Skill,
};
use indexmap::IndexMap;
use reqwest::Method;
use serde_json::json;

use crate::Client;
use crate::wire::{self, ProvidersResponse};

impl Client {
    /// The configured model, or the default of the first provider.
    async fn model(&self, scope: &Scope) -> Result<ModelRef, HostError> {
        let config = self.config(scope).await?;
        if let Some(model) = config["model"].as_str().and_then(ModelRef::parse) {
            return Ok(model);
        }
        let known: ProvidersResponse = self.get(scope, &["config", "providers"]).fetch().await?;
        let first = known.default.into_iter().next();
        first.map(|(provider, model)| ModelRef::new(provider, model)).ok_or_else(|| {
            HostError::Failed(format!("{} has no model; configure a provider there", self.inner.display_name))
        })
    }
}

impl CatalogHost for Client {
    fn agents<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Agent>> {
        Box::pin(async { self.get(scope, &["agent"]).fetch().await })
    }

    fn commands<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async { self.get(scope, &["command"]).fetch().await })
    }

    fn session_commands<'a>(&'a self, session: &'a SessionId) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async move {
            let scope = self.scope_of(session).await?;
            if self.is_trefoil() {
                return self.get(&scope, &["session", session.as_str(), "command"]).fetch().await;
            }
            self.commands(&scope).await
        })
    }

    fn skills<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Skill>> {
        Box::pin(async { self.get(scope, &["skill"]).fetch().await })
    }

    fn providers<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Provider>> {
        Box::pin(async {
            let known: ProvidersResponse = self.get(scope, &["config", "providers"]).fetch().await?;
            Ok(known.providers)
        })
    }

    fn provider_catalog<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ProviderCatalog> {
        Box::pin(async { self.get(scope, &["provider"]).fetch().await })
    }

    fn default_model<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ModelRef> {
        Box::pin(self.model(scope))
    }

    fn config<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Json> {
        Box::pin(async { self.get(scope, &["config"]).fetch().await })
    }

    fn projects<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Project>> {
        Box::pin(async { self.get(scope, &["project"]).fetch().await })
    }

    fn project<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Project> {
        Box::pin(async { self.get(scope, &["project", "current"]).fetch().await })
    }

    fn mcp<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async { self.get(scope, &["mcp"]).fetch().await })
    }

    fn mcp_add<'a>(
        &'a self,
        scope: &'a Scope,
        name: &'a str,
        config: McpConfig,
    ) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async move {
            let body = wire::body(&json!({ "name": name, "config": config }))?;
            self.post(scope, &["mcp"], &body).fetch().await
        })
    }

    fn mcp_connect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.request(Method::POST, &["mcp", name, "connect"]).scope(scope).execute().await })
    }

    fn mcp_disconnect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.request(Method::POST, &["mcp", name, "disconnect"]).scope(scope).execute().await })
    }

    fn mcp_resources<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpResource>> {
        Box::pin(async { self.get(scope, &["experimental", "resource"]).fetch().await })
    }

    fn mcp_auth_start<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpAuthorization> {
        Box::pin(async move { self.request(Method::POST, &["mcp", name, "auth"]).scope(scope).fetch().await })
    }

    fn mcp_authenticate<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpStatus> {
        Box::pin(async move {
            self.request(Method::POST, &["mcp", name, "auth", "authenticate"]).scope(scope).run_turn().await
        })
    }

    fn mcp_auth_remove<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move { self.request(Method::DELETE, &["mcp", name, "auth"]).scope(scope).execute().await })
    }
}
