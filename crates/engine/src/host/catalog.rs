//! The engine as a [`CatalogHost`].

use api::{
    Agent, CatalogHost, Command, HostFuture, Json, McpAuthorization, McpConfig, McpResource, McpStatus, ModelRef,
    Project, Provider, ProviderCatalog, Scope, SessionId, Skill,
};
use indexmap::IndexMap;

use crate::Engine;
use crate::access::Right;
use crate::project::mcp;

impl CatalogHost for Engine {
    fn agents<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Agent>> {
        Box::pin(async { Ok(self.current_at(scope).await.agents_for_clients()) })
    }

    fn commands<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async {
            let instance = self.current_at(scope).await;
            Ok(self.inner.commands(&instance, None).await)
        })
    }

    fn session_commands<'a>(&'a self, session: &'a SessionId) -> HostFuture<'a, Vec<Command>> {
        Box::pin(async {
            self.check(session, Right::Read)?;
            let directory = self.inner.session(session)?.directory;
            let instance = self.inner.current_instance(directory.as_ref()).await;
            Ok(self.inner.commands(&instance, Some(session)).await)
        })
    }

    fn skills<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Skill>> {
        Box::pin(async { Ok(self.current_at(scope).await.loaded.skills.clone()) })
    }

    fn providers<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Provider>> {
        Box::pin(async { Ok(self.inner.providers(&*self.current_at(scope).await).await) })
    }

    fn provider_catalog<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ProviderCatalog> {
        Box::pin(async { Ok(self.inner.provider_catalog(&*self.current_at(scope).await).await) })
    }

    fn default_model<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, ModelRef> {
        Box::pin(async { self.inner.default_model(&*self.current_at(scope).await).await })
    }

    fn config<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Json> {
        Box::pin(async { Ok(self.current_at(scope).await.loaded.raw.clone()) })
    }

    fn projects<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Vec<Project>> {
        Box::pin(async { self.known_projects(scope) })
    }

    fn project<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, Project> {
        Box::pin(async { self.inner.project_of(&self.at(scope)) })
    }

    fn mcp<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async {
            let instance = self.current_at(scope).await;
            instance.servers.ready().await;
            Ok(instance.server_statuses_for_clients())
        })
    }

    fn mcp_add<'a>(
        &'a self,
        scope: &'a Scope,
        name: &'a str,
        config: McpConfig,
    ) -> HostFuture<'a, IndexMap<String, McpStatus>> {
        Box::pin(async move {
            self.require(Right::Configure)?;
            let instance = self.at(scope);
            instance.servers.add(name, config).await.map_err(mcp::host_error)?;
            Ok(instance.server_statuses_for_clients())
        })
    }

    fn mcp_connect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async {
            self.require(Right::Configure)?;
            self.at(scope).servers.connect(name).await.map(drop).map_err(mcp::host_error)
        })
    }

    fn mcp_disconnect<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async {
            self.require(Right::Configure)?;
            self.at(scope).servers.disconnect(name).await.map_err(mcp::host_error)
        })
    }

    fn mcp_resources<'a>(&'a self, scope: &'a Scope) -> HostFuture<'a, IndexMap<String, McpResource>> {
        Box::pin(async { Ok(mcp::resources(&*self.current_at(scope).await).await) })
    }

    fn mcp_auth_start<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpAuthorization> {
        Box::pin(async {
            self.require(Right::Configure)?;
            let started = self.at(scope).servers.begin_auth(name).await.map_err(mcp::host_error)?;
            Ok(McpAuthorization { authorization_url: started.url, oauth_state: started.state })
        })
    }

    fn mcp_authenticate<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, McpStatus> {
        Box::pin(async {
            self.require(Right::Configure)?;
            self.inner.sign_in(&self.at(scope), name).await
        })
    }

    fn mcp_auth_remove<'a>(&'a self, scope: &'a Scope, name: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async {
            self.require(Right::Configure)?;
            self.at(scope).servers.forget_auth(name).map_err(mcp::host_error)
        })
    }
}
