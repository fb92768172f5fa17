//! The part of the newer API below `/api` that OpenCode's terminal client and web page read: the same data in another
//! form.

mod asks;
mod files;
mod sessions;

use api::{Action, Agent, AgentMode, Command, CommandSource, JsonMap, Model, ModelRef, ModelStatus, Provider, Usd};
use api::{Modalities, ProviderSource, Scope};
use axum::http::{Method, StatusCode};
use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::State;
use crate::error::{Error, RequestPart};
use crate::operation::request::Request;
use crate::operation::{JsonReply, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const PROVIDER: &str = "/api/provider/{providerID}";
    const INTEGRATION: &str = "/api/integration/{integrationID}";
    let no_effect = "references in the configuration have no effect yet";
    let mut operations = vec![
        operation(Method::GET, "/api/health", "v2.health.get", "Whether the server is healthy.", health).v2().global(),
        operation(Method::GET, "/api/location", "v2.location.get", "The location of a request.", location).v2(),
        operation(Method::GET, "/api/agent", "v2.agent.list", "The agents.", agents).v2(),
        operation(Method::GET, "/api/model", "v2.model.list", "The models that can be used.", models).v2(),
        operation(Method::GET, "/api/provider", "v2.provider.list", "The providers that can be used.", providers).v2(),
        operation(Method::GET, PROVIDER, "v2.provider.get", "A provider.", provider)
            .v2()
            .error(404, &["ProviderNotFoundError"]),
        operation(
            Method::GET,
            "/api/integration",
            "v2.integration.list",
            "The integrations that can be connected.",
            integrations,
        )
        .v2(),
        operation(Method::GET, INTEGRATION, "v2.integration.get", "An integration.", integration).v2(),
        operation(Method::GET, "/api/reference", "v2.reference.list", "The references.", references)
            .v2()
            .partial(no_effect),
        operation(Method::GET, "/api/command", "v2.command.list", "The commands.", commands).v2(),
        operation(Method::GET, "/api/skill", "v2.skill.list", "The skills.", skills).v2(),
    ];
    operations.extend([files::operations(), sessions::operations(), asks::operations()].into_iter().flatten());
    operations
}

/// The server is healthy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Health {
    #[schemars(extend("enum" = [true]))]
    healthy: bool,
}

async fn health(request: Request) -> Result<JsonReply<Health>, Error> {
    super::service::global::check_health(&request.state)?;
    Ok(JsonReply(Health { healthy: true }))
}

/// The location of a request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "LocationInfo")]
struct Location {
    directory: String,
    #[serde(rename = "workspaceID", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^wrk"))]
    workspace: Option<String>,
    project: LocationProject,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct LocationProject {
    id: String,
    directory: String,
}

/// Data without a location.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct DataOnly<T> {
    data: T,
}

/// Data with the location that it belongs to.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct WithLocation<T> {
    location: Location,
    data: T,
}

async fn location_of(state: &State, scope: &Scope) -> Result<Location, Error> {
    let workspace = scope.workspace.clone();
    if let Some(other) = workspace.as_ref().filter(|id| !id.starts_with("wrk")) {
        let message = format!("Expected a string starting with \"wrk\", got {other:?}\n  at [\"workspace\"]");
        return Err(Error::bad_request(RequestPart::Query, message));
    }
    let project = state.host.project(scope).await?;
    let project = LocationProject { id: project.id, directory: project.worktree };
    Ok(Location { directory: scope.directory.clone(), workspace, project })
}

async fn location(request: Request) -> Result<JsonReply<Location>, Error> {
    Ok(JsonReply(location_of(&request.state, &request.scope).await?))
}

async fn with_location<T>(state: &State, scope: &Scope, data: T) -> Result<JsonReply<WithLocation<T>>, Error> {
    Ok(JsonReply(WithLocation { location: location_of(state, scope).await?, data }))
}

/// Additions to the model requests of an agent, a model or a provider. Headers may be secrets, so they are left out.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "ProviderRequest")]
struct RequestOptions {
    headers: IndexMap<String, String>,
    body: JsonMap,
}

/// A model, by name.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelRef")]
struct NamedModel {
    id: String,
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<String>,
}

impl NamedModel {
    fn new(model: ModelRef, variant: Option<String>) -> Self {
        Self { id: model.model_id, provider: model.provider_id, variant }
    }
}

/// A permission rule.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionV2Rule")]
struct Rule {
    action: String,
    resource: String,
    effect: Effect,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "PermissionV2Effect")]
enum Effect {
    Allow,
    Deny,
    Ask,
}

/// Permission rules, in order.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionV2Ruleset")]
struct Rules(Vec<Rule>);

/// The colour of an agent in clients: `#rrggbb`, or the name of a theme colour.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentColor", extend("anyOf" = [
    { "type": "string", "pattern": "^#[0-9a-fA-F]{6}$" },
    { "type": "string", "enum": AgentColor::NAMES },
]))]
struct AgentColor(String);

impl AgentColor {
    const NAMES: [&str; 7] = ["primary", "secondary", "accent", "success", "warning", "error", "info"];

    fn new(text: String) -> Option<Self> {
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6);
        let is_hex = digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        (is_hex || Self::NAMES.contains(&text.as_str())).then_some(Self(text))
    }
}

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentV2Info")]
struct AgentInfo {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<NamedModel>,
    request: RequestOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    mode: AgentMode,
    hidden: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<AgentColor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    steps: Option<u32>,
    permissions: Rules,
}

impl From<Agent> for AgentInfo {
    fn from(agent: Agent) -> Self {
        let mut body = agent.options;
        for (key, value) in [("temperature", agent.temperature), ("top_p", agent.top_p)] {
            if let Some(value) = value {
                body.insert(key.into(), value.into());
            }
        }
        let rules = agent.permission.into_iter().map(|rule| Rule {
            action: rule.permission,
            resource: rule.pattern,
            effect: match rule.action {
                Action::Allow => Effect::Allow,
                Action::Deny => Effect::Deny,
                Action::Ask => Effect::Ask,
            },
        });
        Self {
            id: agent.name,
            model: agent.model.map(|model| NamedModel::new(model, agent.variant)),
            request: RequestOptions { headers: IndexMap::new(), body },
            system: agent.prompt,
            description: agent.description,
            mode: agent.mode,
            hidden: agent.hidden.unwrap_or_default(),
            color: agent.color.and_then(AgentColor::new),
            steps: agent.steps,
            permissions: Rules(rules.collect()),
        }
    }
}

async fn agents(request: Request) -> Result<JsonReply<WithLocation<Vec<AgentInfo>>>, Error> {
    let agents = request.host.agents(&request.scope).await?;
    with_location(&request.state, &request.scope, agents.into_iter().map(AgentInfo::from).collect()).await
}

/// How to reach a provider.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "ProviderApi")]
enum ProviderApi {
    /// Over the protocol of an AI SDK package.
    #[schemars(title = "ProviderAISDK")]
    AiSdk {
        package: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// Inside this program.
    #[schemars(title = "ProviderNative")]
    Native { settings: JsonMap },
}

impl ProviderApi {
    fn new(npm: &str, url: &str) -> Self {
        let url = Some(url.to_owned()).filter(|url| !url.is_empty());
        match npm {
            "" => Self::Native { settings: JsonMap::new() },
            npm => Self::AiSdk { package: npm.to_owned(), url },
        }
    }
}

/// How to reach a model.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelApi")]
struct ModelApi {
    id: String,
    #[serde(flatten)]
    api: ProviderApi,
}

/// What a model accepts and produces.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelCapabilities")]
struct ModelCapabilities {
    tools: bool,
    input: Vec<&'static str>,
    output: Vec<&'static str>,
}

/// Prices per million tokens.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelCost")]
struct ModelCost {
    input: Usd,
    output: Usd,
    cache: api::CostTier,
}

/// A named set of options.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ModelVariant {
    id: String,
    headers: IndexMap<String, String>,
    body: JsonMap,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ModelTime {
    /// In milliseconds; 0 if unknown.
    #[schemars(with = "f64")]
    released: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ModelLimit {
    #[schemars(with = "i64")]
    context: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    input: Option<u64>,
    #[schemars(with = "i64")]
    output: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ModelRequest {
    headers: IndexMap<String, String>,
    body: JsonMap,
}

/// A model.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelV2Info")]
struct ModelInfo {
    id: String,
    #[serde(rename = "providerID")]
    provider: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
    name: String,
    api: ModelApi,
    capabilities: ModelCapabilities,
    request: ModelRequest,
    variants: Vec<ModelVariant>,
    time: ModelTime,
    cost: Vec<ModelCost>,
    status: ModelStatus,
    enabled: bool,
    limit: ModelLimit,
}

fn modality_names(modalities: &Modalities) -> Vec<&'static str> {
    let all = [
        ("text", modalities.text),
        ("audio", modalities.audio),
        ("image", modalities.image),
        ("video", modalities.video),
        ("pdf", modalities.pdf),
    ];
    all.into_iter().filter_map(|(kind, has)| has.then_some(kind)).collect()
}

/// Midnight of a day in UTC, in milliseconds.
fn midnight_millis(day: &str) -> i64 {
    let day = day.parse::<chrono::NaiveDate>().ok();
    day.map_or(0, |day| day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis())
}

impl From<Model> for ModelInfo {
    fn from(model: Model) -> Self {
        let variants = model.variants.into_iter().flatten();
        Self {
            api: ModelApi { id: model.api.id, api: ProviderApi::new(&model.api.npm, &model.api.url) },
            capabilities: ModelCapabilities {
                tools: model.capabilities.toolcall,
                input: modality_names(&model.capabilities.input),
                output: modality_names(&model.capabilities.output),
            },
            request: ModelRequest { headers: IndexMap::new(), body: model.options },
            variants: variants.map(|(id, body)| ModelVariant { id, headers: IndexMap::new(), body }).collect(),
            time: ModelTime { released: midnight_millis(&model.release_date) },
            cost: vec![ModelCost { input: model.cost.input, output: model.cost.output, cache: model.cost.cache }],
            limit: ModelLimit { context: model.limit.context, input: model.limit.input, output: model.limit.output },
            id: model.id,
            provider: model.provider_id,
            family: model.family.filter(|family| !family.is_empty()),
            name: model.name,
            status: model.status,
            enabled: true,
        }
    }
}

async fn models(request: Request) -> Result<JsonReply<WithLocation<Vec<ModelInfo>>>, Error> {
    let providers = request.host.providers(&request.scope).await?;
    let models = providers.into_iter().flat_map(|provider| provider.models.into_values()).map(ModelInfo::from);
    with_location(&request.state, &request.scope, models.collect()).await
}

/// A provider.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProviderV2Info")]
struct ProviderInfo {
    id: String,
    name: String,
    api: ProviderApi,
    request: RequestOptions,
}

impl From<Provider> for ProviderInfo {
    fn from(provider: Provider) -> Self {
        // Only models know how they are reached, nearly always all of a provider in the same way.
        let first = provider.models.values().next();
        let (npm, url) = first.map_or(("", ""), |model| (model.api.npm.as_str(), model.api.url.as_str()));
        Self {
            api: ProviderApi::new(npm, url),
            id: provider.id,
            name: provider.name,
            request: RequestOptions::default(),
        }
    }
}

async fn providers(request: Request) -> Result<JsonReply<WithLocation<Vec<ProviderInfo>>>, Error> {
    let providers = request.host.providers(&request.scope).await?;
    with_location(&request.state, &request.scope, providers.into_iter().map(ProviderInfo::from).collect()).await
}

/// A provider in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ProviderPath {
    #[serde(rename = "providerID")]
    provider: String,
}

async fn provider(request: Request<ProviderPath>) -> Result<JsonReply<WithLocation<ProviderInfo>>, Error> {
    let id = request.path.provider;
    let providers = request.host.providers(&request.scope).await?;
    let found = providers.into_iter().find(|provider| provider.id == id).ok_or_else(|| {
        let fields = [("providerID", id.as_str())];
        Error::tagged(StatusCode::NOT_FOUND, "ProviderNotFoundError", &fields, format!("Provider not found: {id}"))
    })?;
    with_location(&request.state, &request.scope, found.into()).await
}

/// A way to connect an integration.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "IntegrationMethod")]
enum IntegrationMethod {
    /// With a stored key.
    #[schemars(title = "IntegrationKeyMethod")]
    Key {},
    /// With a key in the environment.
    #[schemars(title = "IntegrationEnvMethod")]
    Env { names: Vec<String> },
}

/// How an integration is connected.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "ConnectionInfo")]
enum IntegrationConnection {
    /// With a stored key.
    #[schemars(title = "ConnectionCredentialInfo")]
    Credential { id: String, label: &'static str },
    /// With a key in the environment.
    #[schemars(title = "ConnectionEnvInfo")]
    Env { name: String },
}

/// Something that can be connected.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationInfo")]
struct Integration {
    id: String,
    name: String,
    methods: Vec<IntegrationMethod>,
    connections: Vec<IntegrationConnection>,
}

async fn list_integrations(state: &State, scope: &Scope) -> Result<Vec<Integration>, Error> {
    let connected = state.host.providers(scope).await?;
    let loaded = state.engine.loaded(scope);
    // Scripts need no connection.
    let connectable = connected.into_iter().filter(|provider| provider.source != ProviderSource::Custom);
    let integration = |provider: Provider| {
        let stored = (provider.source == ProviderSource::Api)
            .then(|| IntegrationConnection::Credential { id: provider.id.clone(), label: "API key" });
        let set = provider.env.iter().filter(|name| state.engine.is_set(name));
        let connections =
            stored.into_iter().chain(set.map(|name| IntegrationConnection::Env { name: name.clone() })).collect();
        let env = (!provider.env.is_empty()).then_some(IntegrationMethod::Env { names: provider.env });
        let methods = std::iter::once(IntegrationMethod::Key {}).chain(env).collect();
        Integration { id: provider.id, name: provider.name, methods, connections }
    };
    Ok(connectable.chain(loaded.connectable.iter().cloned()).map(integration).collect())
}

async fn integrations(request: Request) -> Result<JsonReply<WithLocation<Vec<Integration>>>, Error> {
    let all = list_integrations(&request.state, &request.scope).await?;
    with_location(&request.state, &request.scope, all).await
}

/// An integration in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct IntegrationPath {
    #[serde(rename = "integrationID")]
    integration: String,
}

/// An integration; `null` if there is none.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct IntegrationOrNull(#[schemars(schema_with = "integration_or_null")] Option<Integration>);

fn integration_or_null(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [generator.subschema_for::<Integration>(), { "type": "null" }] })
}

async fn integration(request: Request<IntegrationPath>) -> Result<JsonReply<WithLocation<IntegrationOrNull>>, Error> {
    let all = list_integrations(&request.state, &request.scope).await?;
    let found = all.into_iter().find(|one| one.id == request.path.integration);
    with_location(&request.state, &request.scope, IntegrationOrNull(found)).await
}

/// The source of a reference.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "ReferenceSource")]
#[expect(dead_code, reason = "there are no references yet; the schema says what they will be")]
enum ReferenceSource {
    /// A folder.
    #[schemars(title = "ReferenceLocalSource")]
    Local { path: String, description: Option<String>, hidden: Option<bool> },
    /// A repository.
    #[schemars(title = "ReferenceGitSource")]
    Git { repository: String, branch: Option<String>, description: Option<String>, hidden: Option<bool> },
}

/// Material outside the project that agents may read.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReferenceInfo")]
struct Reference {
    name: String,
    path: String,
    description: Option<String>,
    hidden: Option<bool>,
    source: ReferenceSource,
}

async fn references(request: Request) -> Result<JsonReply<WithLocation<Vec<Reference>>>, Error> {
    with_location(&request.state, &request.scope, Vec::new()).await
}

/// A command.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CommandV2Info")]
struct CommandInfo {
    name: String,
    template: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<NamedModel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subtask: Option<bool>,
}

impl From<Command> for CommandInfo {
    fn from(command: Command) -> Self {
        let model = command.model.as_deref().and_then(ModelRef::parse);
        Self {
            name: command.name,
            template: command.template,
            description: command.description,
            agent: command.agent,
            model: model.map(|model| NamedModel::new(model, None)),
            subtask: command.subtask,
        }
    }
}

async fn commands(request: Request) -> Result<JsonReply<WithLocation<Vec<CommandInfo>>>, Error> {
    let commands = request.host.commands(&request.scope).await?;
    // Skills have their own list.
    let commands = commands.into_iter().filter(|command| command.source != Some(CommandSource::Skill));
    with_location(&request.state, &request.scope, commands.map(CommandInfo::from).collect()).await
}

/// A skill.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SkillV2Info")]
struct SkillInfo {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    location: String,
    content: String,
}

async fn skills(request: Request) -> Result<JsonReply<WithLocation<Vec<SkillInfo>>>, Error> {
    let skills = request.host.skills(&request.scope).await?;
    let skills = skills.into_iter().map(|skill| SkillInfo {
        name: skill.name,
        description: skill.description,
        location: skill.location,
        content: skill.content,
    });
    with_location(&request.state, &request.scope, skills.collect()).await
}
