//! The merged configuration as typed values.

use std::fmt;

use api::{AgentMode, Budget, Json, JsonMap, ModelStatus, Ruleset};
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use crate::schema::AGENT_FIELDS;

/// The configuration in effect. Its strings may contain secrets, so its `Debug` output reveals nothing.
#[derive(Clone, Default)]
pub struct Config {
    /// The model, `provider/model`.
    pub model: Option<String>,
    /// The model for titles and similar tasks.
    pub small_model: Option<String>,
    /// The agent for prompts that name none.
    pub default_agent: Option<String>,
    /// The maximum nesting depth of subagents.
    pub subagent_depth: Option<u32>,
    /// Further limits for subagents.
    pub subagents: SubagentsConfig,
    /// What happens to a request that nobody answers.
    pub ask: AskConfig,
    /// Which environment variables programs get.
    pub env: EnvConfig,
    /// The name by which the user is addressed.
    pub username: Option<String>,
    /// The shell that runs commands.
    pub shell: Option<String>,
    /// `DEBUG`, `INFO`, `WARN` or `ERROR`.
    pub log_level: Option<String>,
    /// Whether undo is on.
    pub snapshot: Option<bool>,
    /// `manual`, `auto` or `disabled`.
    pub share: Option<String>,
    /// A boolean or `notify`.
    pub autoupdate: Option<Json>,
    /// The rules of all files, including those of `tools`; the last match wins.
    pub permission: Option<Ruleset>,
    /// Rules that can only make decisions stricter: the engine takes the maximum of them and the ordinary ones. Every
    /// matching one counts, regardless of order. They come from untrusted repositories, and stand in for denials that
    /// an unreadable file may have contained.
    pub tighten: Ruleset,
    /// Likewise for single agents, whether or not they exist: stands in for rules of theirs that could not be read.
    pub tighten_agent: IndexMap<String, Ruleset>,
    /// Tools that are switched on or off by name.
    pub tools: IndexMap<String, bool>,
    /// Agents by name.
    pub agent: IndexMap<String, AgentConfig>,
    /// Commands by name.
    pub command: IndexMap<String, CommandConfig>,
    /// Providers by id.
    pub provider: IndexMap<String, ProviderConfig>,
    /// Providers that must not be used.
    pub disabled_providers: Vec<String>,
    /// If set, the only providers that may be used.
    pub enabled_providers: Option<Vec<String>>,
    /// Additional instruction files, as written.
    pub instructions: Vec<String>,
    /// Where to find more skills.
    pub skills: SkillsConfig,
    /// MCP servers by name.
    pub mcp: JsonMap,
    /// A switch, or formatters by name.
    pub formatter: Option<Json>,
    /// A switch, or language servers by name.
    pub lsp: Option<Json>,
    /// How `serve` listens.
    pub server: JsonMap,
    /// How much of a tool's output the model gets.
    pub tool_output: ToolOutputConfig,
    /// How long conversations are compacted.
    pub compaction: CompactionConfig,
    /// Switches that may be removed.
    pub experimental: JsonMap,
    /// How attachments are prepared.
    pub attachment: JsonMap,
    /// Known keys that have no field of their own.
    pub other: JsonMap,
}

impl Config {
    /// The rules that can only make decisions about an agent stricter.
    pub fn tightened(&self, agent: &str) -> Ruleset {
        self.tighten.iter().chain(self.tighten_agent.get(agent).into_iter().flatten()).cloned().collect()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("model", &self.model).finish_non_exhaustive()
    }
}

/// An agent, as far as files configure it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    /// Its model, `provider/model`.
    pub model: Option<String>,
    /// The model variant, for example its reasoning effort.
    pub variant: Option<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Its system prompt.
    pub prompt: Option<String>,
    /// Tools that are switched on or off by name; `permission` has them too.
    pub tools: IndexMap<String, bool>,
    /// Whether it is removed.
    pub disable: Option<bool>,
    /// When to use it.
    pub description: Option<String>,
    /// Who uses it.
    pub mode: Option<AgentMode>,
    /// Whether lists leave it out.
    pub hidden: Option<bool>,
    /// Provider options, including unknown keys.
    pub options: JsonMap,
    /// The colour that clients show it in.
    pub color: Option<String>,
    /// The maximum number of model steps in one turn.
    pub steps: Option<u32>,
    /// Its rules; the last match wins.
    pub permission: Option<Ruleset>,
    /// The only tools it may use: these keep their rules, everything else is denied.
    pub only: Option<Vec<String>>,
    /// What each of its sessions and their descendants may use.
    pub budget: Option<Budget>,
    /// Where its sessions work, if not where their caller does.
    pub isolation: Option<Isolation>,
    /// The external program that is this agent, if it speaks the Agent Client Protocol.
    pub acp: Option<RunnerSettings>,
}

impl AgentConfig {
    /// The kind of runner that does this agent's work, and its settings, if it is not us.
    pub fn runner(&self) -> Option<(&'static str, &RunnerSettings)> {
        self.acp.as_ref().map(|settings| ("acp", settings))
    }
}

/// The settings of a runner. They may contain secrets, so only the keys are logged.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct RunnerSettings(pub JsonMap);

impl RunnerSettings {
    /// The program and its arguments.
    pub fn command(&self) -> Vec<&str> {
        let words = self.0.get("command").and_then(Json::as_array).into_iter().flatten();
        words.filter_map(Json::as_str).collect()
    }
}

impl fmt::Debug for RunnerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// How a subagent is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A linked git worktree with its own branch.
    Worktree,
}

/// Limits for subagents.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SubagentsConfig {
    /// How many subagents of one turn run concurrently.
    pub at_once: Option<u32>,
    /// The maximum number of sessions below one root.
    pub descendants: Option<u32>,
    /// What each task of a root and its descendants may use, unless its agent or the call says otherwise.
    pub budget: Option<Budget>,
    /// How many seconds a turn waits for its budget to be raised before it fails.
    pub wait: Option<u64>,
    /// Whether a model may run subagents in the background.
    pub background: Option<bool>,
}

/// Which environment variables programs get.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EnvConfig {
    /// Variables that programs we start never get: names, in which `*` matches anything. Files add to each other's
    /// lists.
    pub hide: Vec<String>,
}

/// What happens to a request that nobody answers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AskConfig {
    /// After how many seconds it is decided without an answer; 0 means immediately.
    pub timeout: Option<u64>,
    /// How it is decided then.
    pub then: Option<AskThen>,
}

/// How an unanswered request is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AskThen {
    /// Reject it.
    Reject,
    /// Allow it once.
    Allow,
}

/// A command.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CommandConfig {
    /// The prompt, with its placeholders.
    pub template: String,
    /// What it does.
    pub description: Option<String>,
    /// The agent it runs with.
    pub agent: Option<String>,
    /// The model it runs with.
    pub model: Option<String>,
    /// The model variant, for example its reasoning effort.
    pub variant: Option<String>,
    /// Whether a subagent runs it.
    pub subtask: Option<bool>,
}

/// Where to find more skills.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SkillsConfig {
    /// Folders, as written.
    pub paths: Vec<String>,
    /// URLs.
    pub urls: Vec<String>,
}

/// How much of a tool's output the model gets.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ToolOutputConfig {
    /// The maximum number of lines.
    pub max_lines: Option<u64>,
    /// The maximum number of bytes.
    pub max_bytes: Option<u64>,
}

/// How long conversations are compacted.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CompactionConfig {
    /// Whether it happens automatically.
    pub auto: Option<bool>,
    /// Whether old tool output is dropped.
    pub prune: Option<bool>,
    /// Turns that are kept unchanged.
    pub tail_turns: Option<u64>,
    /// Recent tokens that are kept unchanged.
    pub preserve_recent_tokens: Option<u64>,
    /// Tokens to keep free.
    pub reserved: Option<u64>,
}

/// A provider. Its options contain keys, so they are not logged.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct ProviderConfig {
    /// Its base URL, if `options.baseURL` is not set.
    pub api: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// The environment variables that may hold its key.
    pub env: Option<Vec<String>>,
    /// The AI SDK package, which identifies its wire format.
    pub npm: Option<String>,
    /// If set, the only models that may be used.
    pub whitelist: Option<Vec<String>>,
    /// Models that must not be used.
    pub blacklist: Vec<String>,
    /// `baseURL`, `apiKey`, `headers`, timeouts and other options.
    pub options: JsonMap,
    /// Its models by id.
    pub models: IndexMap<String, ModelConfig>,
}

impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A model of a provider.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelConfig {
    /// The vendor's name for it, if it differs from its key.
    pub id: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// Its family.
    pub family: Option<String>,
    /// Its release date.
    pub release_date: Option<String>,
    /// It accepts files.
    pub attachment: Option<bool>,
    /// It reasons.
    pub reasoning: Option<bool>,
    /// It accepts a temperature.
    pub temperature: Option<bool>,
    /// It calls tools.
    pub tool_call: Option<bool>,
    /// Whether reasoning is interleaved with text, or the field of the answer that carries it.
    pub interleaved: Option<Json>,
    /// Prices per million tokens.
    pub cost: Option<PriceConfig>,
    /// Its token limits.
    pub limit: Option<LimitConfig>,
    /// Kinds of content.
    pub modalities: Option<ModalitiesConfig>,
    /// Its release stage.
    pub status: Option<ModelStatus>,
    /// A wire format or URL other than its provider's.
    pub provider: ModelProviderConfig,
    /// Options to put into the request.
    pub options: JsonMap,
    /// Headers to send with the request.
    pub headers: IndexMap<String, String>,
    /// Named sets of options.
    pub variants: IndexMap<String, JsonMap>,
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PriceConfig {
    /// Uncached input.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Tokens read from the cache.
    pub cache_read: f64,
    /// Tokens written to the cache.
    pub cache_write: f64,
}

/// Token limits of a model; 0 means unknown.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct LimitConfig {
    /// Input and output together.
    pub context: u64,
    /// Input alone.
    pub input: Option<u64>,
    /// Output.
    pub output: u64,
}

/// Kinds of content that a model accepts and produces.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModalitiesConfig {
    /// What it accepts.
    pub input: Option<Vec<String>>,
    /// What it produces.
    pub output: Option<Vec<String>>,
}

/// A wire format or URL for one model.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelProviderConfig {
    /// The AI SDK package, which identifies the wire format.
    pub npm: Option<String>,
    /// The base URL.
    pub api: Option<String>,
}

/// Reads the merged configuration key by key, so that an invalid one affects nothing else. `tighten` is not one of its
/// keys, and stays empty.
pub(crate) fn read(mut map: JsonMap, problems: &mut Vec<Problem>) -> Config {
    if let Some(Json::Object(agents)) = map.get_mut("agent") {
        agents.values_mut().filter_map(Json::as_object_mut).for_each(normalize_agent);
    }
    let mut reader = Reader { map: &mut map, problems };
    let mut config = Config {
        model: reader.take("model"),
        small_model: reader.take("small_model"),
        default_agent: reader.take("default_agent"),
        subagent_depth: reader.take("subagent_depth"),
        subagents: reader.take("subagents"),
        env: reader.take("env"),
        ask: reader.take("ask"),
        username: reader.take("username"),
        shell: reader.take("shell"),
        log_level: reader.take("logLevel"),
        snapshot: reader.take("snapshot"),
        share: reader.take("share"),
        autoupdate: reader.take("autoupdate"),
        permission: reader.take("permission"),
        tighten: Ruleset::new(),
        tighten_agent: IndexMap::new(),
        tools: reader.take("tools"),
        agent: reader.take_each("agent"),
        command: reader.take_each("command"),
        provider: reader.take_each("provider"),
        disabled_providers: reader.take("disabled_providers"),
        enabled_providers: reader.take("enabled_providers"),
        instructions: reader.take("instructions"),
        skills: reader.take("skills"),
        mcp: reader.take("mcp"),
        formatter: reader.take("formatter"),
        lsp: reader.take("lsp"),
        server: reader.take("server"),
        tool_output: reader.take("tool_output"),
        compaction: reader.take("compaction"),
        experimental: reader.take("experimental"),
        attachment: reader.take("attachment"),
        other: JsonMap::new(),
    };
    config.other = map;
    config.agent.retain(|name, agent| {
        let usable = agent.acp.as_ref().is_none_or(|acp| acp.command().first().is_some_and(|word| !word.is_empty()));
        if !usable {
            let key = format!("agent.{name}.acp");
            let text = format!("{key} has no command: a list of the program and its arguments; the agent is left out");
            problems.push(Problem::error(text).about(key));
        }
        usable
    });
    config.command.retain(|name, command| {
        let usable = !command.template.is_empty();
        if !usable {
            let key = format!("command.{name}");
            problems.push(Problem::error(format!("{key} has no template; it is left out")).about(key));
        }
        usable
    });
    config
}

/// Renames old keys, and moves unknown keys to the options.
fn normalize_agent(agent: &mut JsonMap) {
    agent.shift_remove("name");
    if let Some(steps) = agent.shift_remove("maxSteps")
        && !agent.contains_key("steps")
    {
        agent.insert("steps".to_owned(), steps);
    }
    let mut unknown = JsonMap::new();
    agent.retain(|key, value| {
        let known = AGENT_FIELDS.iter().any(|(name, _)| *name == key);
        if !known {
            unknown.insert(key.clone(), value.take());
        }
        known
    });
    if !unknown.is_empty()
        && let Some(options) = agent.entry("options").or_insert_with(|| JsonMap::new().into()).as_object_mut()
    {
        options.extend(unknown);
    }
}

struct Reader<'a> {
    map: &'a mut JsonMap,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn take<T: DeserializeOwned + Default>(&mut self, key: &str) -> T {
        self.map.shift_remove(key).and_then(|value| self.value(key, value)).unwrap_or_default()
    }

    fn take_each<T: DeserializeOwned>(&mut self, key: &str) -> IndexMap<String, T> {
        let Some(Json::Object(map)) = self.map.shift_remove(key) else { return IndexMap::new() };
        map.into_iter()
            .filter_map(|(name, value)| Some((name.clone(), self.value(&format!("{key}.{name}"), value)?)))
            .collect()
    }

    fn value<T: DeserializeOwned>(&mut self, key: &str, value: Json) -> Option<T> {
        match serde_json::from_value(value) {
            Ok(value) => Some(value),
            Err(error) => {
                self.problems.push(Problem::error(format!("{key}: {error}; it is ignored")).about(key));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(value: Json) -> (Config, Vec<Problem>) {
        let Json::Object(map) = value else { panic!("not an object") };
        let mut problems = Vec::new();
        (read(map, &mut problems), problems)
    }

    #[test]
    fn agents_keep_unknown_keys_as_options() {
        let (config, problems) = config(json!({"agent": {"a": {
            "name": "a", "mode": "primary", "maxSteps": 4, "options": {"x": 1}, "reasoningEffort": "high",
            "permission": [{"permission": "edit", "pattern": "*", "action": "deny"}], "tools": {"list": true},
        }}, "layout": "auto"}));
        assert_eq!(problems, []);
        let agent = &config.agent["a"];
        assert_eq!(agent.mode, Some(AgentMode::Primary));
        assert_eq!(agent.steps, Some(4));
        assert_eq!(Json::Object(agent.options.clone()), json!({"x": 1, "reasoningEffort": "high"}));
        assert_eq!(agent.permission.as_ref().map(Vec::len), Some(1));
        assert!(agent.tools["list"]);
        assert_eq!(config.other.get("layout"), Some(&json!("auto")));
    }

    #[test]
    fn an_invalid_value_affects_nothing_else() {
        let (config, problems) = config(json!({
            "subagent_depth": 1u64 << 40, "model": "a/b", "command": {"no": {}, "yes": {"template": "t"}},
            "agent": {"bad": {"steps": 1u64 << 40}, "good": {}},
        }));
        assert_eq!(config.model.as_deref(), Some("a/b"));
        assert_eq!(config.command.keys().collect::<Vec<_>>(), ["yes"]);
        assert_eq!(config.agent.keys().collect::<Vec<_>>(), ["good"]);
        let keys: Vec<_> = problems.iter().filter_map(|problem| problem.key.as_deref()).collect();
        assert_eq!(keys, ["subagent_depth", "agent.bad", "command.no"]);
    }

    #[test]
    fn an_external_agent_needs_a_command() {
        let (config, problems) = config(json!({"agent": {
            "good": {"acp": {"command": ["other", "acp"], "environment": {"KEY": "sk-secret"}}},
            "none": {"acp": {}}, "empty": {"acp": {"command": [""]}},
        }}));
        assert_eq!(config.agent.keys().collect::<Vec<_>>(), ["good"]);
        let (kind, settings) = config.agent["good"].runner().unwrap();
        assert_eq!((kind, settings.command()), ("acp", vec!["other", "acp"]));
        assert!(!format!("{:?}", config.agent["good"]).contains("secret"));
        let keys: Vec<_> = problems.iter().filter_map(|problem| problem.key.as_deref()).collect();
        assert_eq!(keys, ["agent.none.acp", "agent.empty.acp"]);
    }

    #[test]
    fn debug_output_shows_no_secrets() {
        let (config, _) = config(json!({"provider": {"p": {"options": {"apiKey": "sk-secret"}}}}));
        assert!(!format!("{config:?} {:?}", config.provider).contains("secret"));
    }
}
