//! What OpenCode's terminal client and its web page read of the newer API below `/api`: the same things, in other words.

mod asks;
mod files;
mod sessions;

use api::{
    Action, Agent, AgentMode, Command, CommandSource, Host as _, JsonMap, Model, ModelRef, ModelStatus, Provider, Usd,
};
use api::{Modalities, ProviderSource, Scope};
use axum::http::{Method, StatusCode};
use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::State;
use crate::error::{Error, Where};
use crate::operation::request::Call;
use crate::operation::{Data, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const PROVIDER: &str = "/api/provider/{providerID}";
    const INTEGRATION: &str = "/api/integration/{integrationID}";
    let no_references = "references of the configuration have no effect yet";
    let mut operations = vec![
        operation(Method::GET, "/api/health", "v2.health.get", "Whether the server works.", health).v2().global(),
        operation(Method::GET, "/api/location", "v2.location.get", "The place of a request.", place).v2(),
        operation(Method::GET, "/api/agent", "v2.agent.list", "The agents.", agents).v2(),
        operation(Method::GET, "/api/model", "v2.model.list", "The models that can be used.", models).v2(),
        operation(Method::GET, "/api/provider", "v2.provider.list", "The providers that can be used.", providers).v2(),
        operation(Method::GET, PROVIDER, "v2.provider.get", "A provider.", provider)
            .v2()
            .error(404, &["ProviderNotFoundError"]),
        operation(Method::GET, "/api/integration", "v2.integration.list", "What can be connected.", integrations).v2(),
        operation(Method::GET, INTEGRATION, "v2.integration.get", "One that can be connected.", integration).v2(),
        operation(Method::GET, "/api/reference", "v2.reference.list", "The references.", references)
            .v2()
            .partial(no_references),
        operation(Method::GET, "/api/command", "v2.command.list", "The commands.", commands).v2(),
        operation(Method::GET, "/api/skill", "v2.skill.list", "The skills.", skills).v2(),
    ];
    operations.extend([files::operations(), sessions::operations(), asks::operations()].into_iter().flatten());
    operations
}

/// The server works.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Health {
    #[schemars(extend("enum" = [true]))]
    healthy: bool,
}

async fn health(call: Call) -> Result<Data<Health>, Error> {
    super::service::global::well(&call.state)?;
    Ok(Data(Health { healthy: true }))
}

/// The place of a request.
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

/// Something that is of no place.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Bare<T> {
    data: T,
}

/// Something, and the place it is of.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct At<T> {
    location: Location,
    data: T,
}

async fn location(state: &State, scope: &Scope) -> Result<Location, Error> {
    let workspace = scope.workspace.clone();
    if let Some(other) = workspace.as_ref().filter(|id| !id.starts_with("wrk")) {
        let message = format!("Expected a string starting with \"wrk\", got {other:?}\n  at [\"workspace\"]");
        return Err(Error::bad_request(Where::Query, message));
    }
    let project = state.engine.project(scope).await?;
    let project = LocationProject { id: project.id, directory: project.worktree };
    Ok(Location { directory: scope.directory.clone(), workspace, project })
}

async fn place(call: Call) -> Result<Data<Location>, Error> {
    Ok(Data(location(&call.state, &call.scope).await?))
}

async fn at<T>(state: &State, scope: &Scope, data: T) -> Result<Data<At<T>>, Error> {
    Ok(Data(At { location: location(state, scope).await?, data }))
}

/// What goes into the requests of an agent, a model or a provider. Headers may be secrets, and are not shown.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "ProviderRequest")]
struct Request {
    headers: IndexMap<String, String>,
    body: JsonMap,
}

/// A model by name.
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

/// A rule.
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

/// Rules in their order.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PermissionV2Ruleset")]
struct Rules(Vec<Rule>);

/// How a client paints an agent: `#rrggbb`, or the name of a colour of its theme.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AgentColor", extend("anyOf" = [
    { "type": "string", "pattern": "^#[0-9a-fA-F]{6}$" },
    { "type": "string", "enum": Color::NAMES },
]))]
struct Color(String);

impl Color {
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
    request: Request,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    mode: AgentMode,
    hidden: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    color: Option<Color>,
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
            request: Request { headers: IndexMap::new(), body },
            system: agent.prompt,
            description: agent.description,
            mode: agent.mode,
            hidden: agent.hidden.unwrap_or_default(),
            color: agent.color.and_then(Color::new),
            steps: agent.steps,
            permissions: Rules(rules.collect()),
        }
    }
}

async fn agents(call: Call) -> Result<Data<At<Vec<AgentInfo>>>, Error> {
    let agents = call.state.engine.agents(&call.scope).await?;
    at(&call.state, &call.scope, agents.into_iter().map(AgentInfo::from).collect()).await
}

/// How a provider is reached.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "ProviderApi")]
enum ProviderApi {
    /// By the wire that an AI SDK package speaks.
    #[schemars(title = "ProviderAISDK")]
    AiSdk {
        package: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        url: Option<String>,
    },
    /// Inside of this program.
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

/// How a model is reached.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelApi")]
struct ModelApi {
    id: String,
    #[serde(flatten)]
    api: ProviderApi,
}

/// What a model takes and gives.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelCapabilities")]
struct Capabilities {
    tools: bool,
    input: Vec<&'static str>,
    output: Vec<&'static str>,
}

/// Prices per million tokens.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ModelCost")]
struct Price {
    input: Usd,
    output: Usd,
    cache: api::CostTier,
}

/// A named set of options.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct Variant {
    id: String,
    headers: IndexMap<String, String>,
    body: JsonMap,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ModelTime {
    /// Milliseconds; 0 if nobody knows.
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
    capabilities: Capabilities,
    request: ModelRequest,
    variants: Vec<Variant>,
    time: ModelTime,
    cost: Vec<Price>,
    status: ModelStatus,
    enabled: bool,
    limit: ModelLimit,
}

fn kinds(of: &Modalities) -> Vec<&'static str> {
    let all = [("text", of.text), ("audio", of.audio), ("image", of.image), ("video", of.video), ("pdf", of.pdf)];
    all.into_iter().filter_map(|(kind, has)| has.then_some(kind)).collect()
}

/// Midnight of a day in UTC, in milliseconds.
fn midnight(day: &str) -> i64 {
    let day = day.parse::<chrono::NaiveDate>().ok();
    day.map_or(0, |day| day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis())
}

impl From<Model> for ModelInfo {
    fn from(model: Model) -> Self {
        let variants = model.variants.into_iter().flatten();
        Self {
            api: ModelApi { id: model.api.id, api: ProviderApi::new(&model.api.npm, &model.api.url) },
            capabilities: Capabilities {
                tools: model.capabilities.toolcall,
                input: kinds(&model.capabilities.input),
                output: kinds(&model.capabilities.output),
            },
            request: ModelRequest { headers: IndexMap::new(), body: model.options },
            variants: variants.map(|(id, body)| Variant { id, headers: IndexMap::new(), body }).collect(),
            time: ModelTime { released: midnight(&model.release_date) },
            cost: vec![Price { input: model.cost.input, output: model.cost.output, cache: model.cost.cache }],
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

async fn models(call: Call) -> Result<Data<At<Vec<ModelInfo>>>, Error> {
    let providers = call.state.engine.providers(&call.scope).await?;
    let models = providers.into_iter().flat_map(|provider| provider.models.into_values()).map(ModelInfo::from);
    at(&call.state, &call.scope, models.collect()).await
}

/// A provider.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProviderV2Info")]
struct ProviderInfo {
    id: String,
    name: String,
    api: ProviderApi,
    request: Request,
}

impl From<Provider> for ProviderInfo {
    fn from(provider: Provider) -> Self {
        // Models know how they are reached; nearly always all of a provider in the same way.
        let first = provider.models.values().next();
        let (npm, url) = first.map_or(("", ""), |model| (model.api.npm.as_str(), model.api.url.as_str()));
        Self { api: ProviderApi::new(npm, url), id: provider.id, name: provider.name, request: Request::default() }
    }
}

async fn providers(call: Call) -> Result<Data<At<Vec<ProviderInfo>>>, Error> {
    let providers = call.state.engine.providers(&call.scope).await?;
    at(&call.state, &call.scope, providers.into_iter().map(ProviderInfo::from).collect()).await
}

/// A provider in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ProviderPath {
    #[serde(rename = "providerID")]
    provider: String,
}

async fn provider(call: Call<ProviderPath>) -> Result<Data<At<ProviderInfo>>, Error> {
    let id = call.path.provider;
    let providers = call.state.engine.providers(&call.scope).await?;
    let found = providers.into_iter().find(|provider| provider.id == id).ok_or_else(|| {
        let fields = [("providerID", id.as_str())];
        Error::tagged(StatusCode::NOT_FOUND, "ProviderNotFoundError", &fields, format!("Provider not found: {id}"))
    })?;
    at(&call.state, &call.scope, found.into()).await
}

/// A way to connect something.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "IntegrationMethod")]
enum Means {
    /// A key that is stored.
    #[schemars(title = "IntegrationKeyMethod")]
    Key {},
    /// A key in the environment.
    #[schemars(title = "IntegrationEnvMethod")]
    Env { names: Vec<String> },
}

/// How something is connected.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(rename = "ConnectionInfo")]
enum Connection {
    /// By a key that is stored.
    #[schemars(title = "ConnectionCredentialInfo")]
    Credential { id: String, label: &'static str },
    /// By a key in the environment.
    #[schemars(title = "ConnectionEnvInfo")]
    Env { name: String },
}

/// Something that can be connected.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "IntegrationInfo")]
struct Integration {
    id: String,
    name: String,
    methods: Vec<Means>,
    connections: Vec<Connection>,
}

async fn all_integrations(state: &State, scope: &Scope) -> Result<Vec<Integration>, Error> {
    let connected = state.engine.providers(scope).await?;
    let loaded = state.engine.loaded(scope);
    // Scripts need no connection.
    let real = connected.into_iter().filter(|provider| provider.source != ProviderSource::Custom);
    let integration = |provider: Provider| {
        let stored = (provider.source == ProviderSource::Api)
            .then(|| Connection::Credential { id: provider.id.clone(), label: "API key" });
        let set = provider.env.iter().filter(|name| state.engine.is_set(name));
        let connections = stored.into_iter().chain(set.map(|name| Connection::Env { name: name.clone() })).collect();
        let env = (!provider.env.is_empty()).then_some(Means::Env { names: provider.env });
        let methods = std::iter::once(Means::Key {}).chain(env).collect();
        Integration { id: provider.id, name: provider.name, methods, connections }
    };
    Ok(real.chain(loaded.connectable.iter().cloned()).map(integration).collect())
}

async fn integrations(call: Call) -> Result<Data<At<Vec<Integration>>>, Error> {
    let all = all_integrations(&call.state, &call.scope).await?;
    at(&call.state, &call.scope, all).await
}

/// An integration in the path.
#[derive(Debug, Deserialize, JsonSchema)]
struct IntegrationPath {
    #[serde(rename = "integrationID")]
    integration: String,
}

/// One that is not there is `null`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct Found(#[schemars(schema_with = "integration_or_null")] Option<Integration>);

fn integration_or_null(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [generator.subschema_for::<Integration>(), { "type": "null" }] })
}

async fn integration(call: Call<IntegrationPath>) -> Result<Data<At<Found>>, Error> {
    let all = all_integrations(&call.state, &call.scope).await?;
    let found = all.into_iter().find(|one| one.id == call.path.integration);
    at(&call.state, &call.scope, Found(found)).await
}

/// Where a reference comes from.
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

/// Something beside the project that agents may look at.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ReferenceInfo")]
struct Reference {
    name: String,
    path: String,
    description: Option<String>,
    hidden: Option<bool>,
    source: ReferenceSource,
}

async fn references(call: Call) -> Result<Data<At<Vec<Reference>>>, Error> {
    at(&call.state, &call.scope, Vec::new()).await
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

async fn commands(call: Call) -> Result<Data<At<Vec<CommandInfo>>>, Error> {
    let commands = call.state.engine.commands(&call.scope).await?;
    // Skills have a list of their own.
    let commands = commands.into_iter().filter(|command| command.source != Some(CommandSource::Skill));
    at(&call.state, &call.scope, commands.map(CommandInfo::from).collect()).await
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

async fn skills(call: Call) -> Result<Data<At<Vec<SkillInfo>>>, Error> {
    let skills = call.state.engine.skills(&call.scope).await?;
    let skills = skills.into_iter().map(|skill| SkillInfo {
        name: skill.name,
        description: skill.description,
        location: skill.location,
        content: skill.content,
    });
    at(&call.state, &call.scope, skills.collect()).await
}
