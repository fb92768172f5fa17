//! The merged configuration as typed values.

use std::fmt;

use api::{AgentMode, Budget, Json, JsonMap, ModelStatus, Ruleset};
use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use crate::schema::AGENT_FIELDS;

/// The configuration in effect. Its strings may hold secrets, so it shows nothing of itself in logs.
#[derive(Clone, Default)]
pub struct Config {
    /// The model, `provider/model`.
    pub model: Option<String>,
    /// The model for titles and the like.
    pub small_model: Option<String>,
    /// The agent of a prompt that names none.
    pub default_agent: Option<String>,
    /// How deep subagents may nest.
    pub subagent_depth: Option<u32>,
    /// What bounds subagents otherwise.
    pub subagents: SubagentsConfig,
    /// What becomes of a request that nobody answers.
    pub ask: AskConfig,
    /// What programs see of the environment.
    pub env: EnvConfig,
    /// The name under which the user is addressed.
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
    /// The rules of all files, those of `tools` included; the last match wins.
    pub permission: Option<Ruleset>,
    /// Rules that can only make decisions stricter: the engine takes the maximum of them and the ordinary ones. Each
    /// one that matches counts, whatever their order. They come from repositories that are not trusted, and stand in
    /// for the denials that a file which cannot be read may have held.
    pub tighten: Ruleset,
    /// The same for single agents, whether or not they exist: what stands in for rules of theirs that cannot be read.
    pub tighten_agent: IndexMap<String, Ruleset>,
    /// Tools that are switched on or off by name.
    pub tools: IndexMap<String, bool>,
    /// Agents by name.
    pub agent: IndexMap<String, AgentConfig>,
    /// Commands by name.
    pub command: IndexMap<String, CommandConfig>,
    /// Providers by id.
    pub provider: IndexMap<String, ProviderConfig>,
    /// Providers that are not used.
    pub disabled_providers: Vec<String>,
    /// If given, the only providers that are used.
    pub enabled_providers: Option<Vec<String>>,
    /// Further instruction files, as written.
    pub instructions: Vec<String>,
    /// Where more skills are.
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
    /// How long conversations are shortened.
    pub compaction: CompactionConfig,
    /// Switches that may go away.
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

/// An agent, as far as files say something about it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AgentConfig {
    /// Its model, `provider/model`.
    pub model: Option<String>,
    /// Reasoning effort or the like.
    pub variant: Option<String>,
    /// Sampling.
    pub temperature: Option<f64>,
    /// Sampling.
    pub top_p: Option<f64>,
    /// Its system prompt.
    pub prompt: Option<String>,
    /// Tools that are switched on or off by name; `permission` has them too.
    pub tools: IndexMap<String, bool>,
    /// Whether it is taken away.
    pub disable: Option<bool>,
    /// When to use it.
    pub description: Option<String>,
    /// Who uses it.
    pub mode: Option<AgentMode>,
    /// Whether it is kept out of lists.
    pub hidden: Option<bool>,
    /// Provider options; keys that we do not know are among them.
    pub options: JsonMap,
    /// How a client paints it.
    pub color: Option<String>,
    /// The most model steps of one turn.
    pub steps: Option<u32>,
    /// Its rules; the last match wins.
    pub permission: Option<Ruleset>,
    /// The only tools that it may use: these keep their rules, everything else is denied.
    pub only: Option<Vec<String>>,
    /// What each of its sessions and all below it may use.
    pub budget: Option<Budget>,
    /// Where its sessions work, if not where their caller does.
    pub isolation: Option<Isolation>,
    /// The program that is this agent, if it is another one that speaks the Agent Client Protocol.
    pub acp: Option<RunnerSettings>,
}

impl AgentConfig {
    /// Who does the work of this agent, if not we: the kind of runner, and what it is told.
    pub fn runner(&self) -> Option<(&'static str, &RunnerSettings)> {
        self.acp.as_ref().map(|settings| ("acp", settings))
    }
}

/// What whoever does an agent's work is told. It may hold secrets, so it shows only its keys in logs.
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

/// A place of its own for a subagent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// A linked git worktree with a branch of its own.
    Worktree,
}

/// What bounds subagents.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SubagentsConfig {
    /// How many of one turn work at once.
    pub at_once: Option<u32>,
    /// The most sessions below one root.
    pub descendants: Option<u32>,
    /// What each task of a root and all below it may use, unless its agent or the call says otherwise.
    pub budget: Option<Budget>,
    /// How many seconds a turn waits for its budget to be raised before it fails.
    pub wait: Option<u64>,
    /// Whether a model may have subagents work in the background.
    pub background: Option<bool>,
}

/// What programs see of the environment.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EnvConfig {
    /// Variables that no program gets which we start: names, in which a star stands for anything. Each file adds to them.
    pub hide: Vec<String>,
}

/// What becomes of a request that nobody answers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct AskConfig {
    /// After how many seconds it is decided without an answer; 0 is at once.
    pub timeout: Option<u64>,
    /// How it is decided then.
    pub then: Option<AskThen>,
}

/// How a request is decided that nobody answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AskThen {
    /// As if it was rejected.
    Reject,
    /// As if it was allowed, once.
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
    /// Reasoning effort or the like.
    pub variant: Option<String>,
    /// Whether a subagent runs it.
    pub subtask: Option<bool>,
}

/// Where more skills are.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SkillsConfig {
    /// Folders, as written.
    pub paths: Vec<String>,
    /// Addresses.
    pub urls: Vec<String>,
}

/// How much of a tool's output the model gets.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ToolOutputConfig {
    /// Lines.
    pub max_lines: Option<u64>,
    /// Bytes.
    pub max_bytes: Option<u64>,
}

/// How long conversations are shortened.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CompactionConfig {
    /// Whether it begins by itself.
    pub auto: Option<bool>,
    /// Whether old tool output is dropped.
    pub prune: Option<bool>,
    /// Turns that are kept as they are.
    pub tail_turns: Option<u64>,
    /// Recent tokens that are kept as they are.
    pub preserve_recent_tokens: Option<u64>,
    /// Tokens that are kept free.
    pub reserved: Option<u64>,
}

/// A provider. Its options hold keys, so it shows nothing of them in logs.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub struct ProviderConfig {
    /// Its base address, if `options.baseURL` does not say it.
    pub api: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// The variables that carry its key.
    pub env: Option<Vec<String>>,
    /// The AI SDK package that names its wire.
    pub npm: Option<String>,
    /// If given, the only models that are used.
    pub whitelist: Option<Vec<String>>,
    /// Models that are not used.
    pub blacklist: Vec<String>,
    /// `baseURL`, `apiKey`, `headers`, timeouts and further options.
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
    /// The vendor's name of it, if it differs from its key.
    pub id: Option<String>,
    /// Its display name.
    pub name: Option<String>,
    /// Its family.
    pub family: Option<String>,
    /// When it appeared.
    pub release_date: Option<String>,
    /// It takes files.
    pub attachment: Option<bool>,
    /// It reasons.
    pub reasoning: Option<bool>,
    /// It takes a temperature.
    pub temperature: Option<bool>,
    /// It calls tools.
    pub tool_call: Option<bool>,
    /// Whether reasoning and text alternate, or in which field reasoning comes.
    pub interleaved: Option<Json>,
    /// Prices per million tokens.
    pub cost: Option<PriceConfig>,
    /// How much it takes and gives.
    pub limit: Option<LimitConfig>,
    /// Kinds of content.
    pub modalities: Option<ModalitiesConfig>,
    /// Its stage of life.
    pub status: Option<ModelStatus>,
    /// Another wire or address than its provider's.
    pub provider: ModelProviderConfig,
    /// Options that go into the request.
    pub options: JsonMap,
    /// Headers that go with the request.
    pub headers: IndexMap<String, String>,
    /// Named sets of options.
    pub variants: IndexMap<String, JsonMap>,
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PriceConfig {
    /// Fresh input.
    pub input: f64,
    /// Output.
    pub output: f64,
    /// Cached input that is served.
    pub cache_read: f64,
    /// Cached input that is stored.
    pub cache_write: f64,
}

/// How many tokens a model takes and gives; 0 means unknown.
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

/// Kinds of content that a model takes and gives.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModalitiesConfig {
    /// What it takes.
    pub input: Option<Vec<String>>,
    /// What it gives.
    pub output: Option<Vec<String>>,
}

/// Another wire or address for one model.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelProviderConfig {
    /// The AI SDK package that names the wire.
    pub npm: Option<String>,
    /// The base address.
    pub api: Option<String>,
}

/// Reads the merged configuration, key by key: one that cannot be read takes nothing else with it. `tighten` is no key
/// of it, and stays empty.
pub(crate) fn read(mut map: JsonMap, problems: &mut Vec<Problem>) -> Config {
    if let Some(Json::Object(agents)) = map.get_mut("agent") {
        agents.values_mut().filter_map(Json::as_object_mut).for_each(tidy_agent);
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

/// Old names become new ones, and keys that we do not know become options.
fn tidy_agent(agent: &mut JsonMap) {
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
    fn one_bad_value_takes_nothing_else_with_it() {
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
    fn another_program_needs_a_command() {
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
    fn secrets_do_not_show() {
        let (config, _) = config(json!({"provider": {"p": {"options": {"apiKey": "sk-secret"}}}}));
        assert!(!format!("{config:?} {:?}", config.provider).contains("secret"));
    }
}
