//! The merged configuration as typed values.

use std::fmt;

use api::{Budget, Json, JsonMap, Ruleset};
use indexmap::IndexMap;
use serde::Deserialize;

use crate::problem::Problem;
use crate::schema::Shape::{Any, Count, Either, Flag, List, Map, Object, Open, Permission, Text, Tools, Word};
use crate::schema::agent::{self, AgentConfig, BUDGET};
use crate::schema::provider::ProviderConfig;
use crate::schema::section::section;
use crate::schema::unread::{COMPACTION, EXPERIMENTAL, FORMATTER, IMAGE, LSP, MCP, REFERENCE, SERVER};

section! {
    /// The configuration in effect. Its strings may contain secrets, so its `Debug` output reveals nothing.
    Config {
        "$schema": Text,
        "a2a": Open(&[]) => {
            /// The settings of the A2A service, which checks them itself.
            a2a: JsonMap
        },
        "agent": Map(&Open(AgentConfig::KEYS)) => {
            /// Agents by name.
            agent: IndexMap<String, AgentConfig>
        },
        "ask": Object(AskConfig::KEYS) => {
            /// What happens to a request that nobody answers.
            ask: AskConfig
        },
        "attachment": Object(&[("image", IMAGE)]),
        "autoshare": Flag,
        "autoupdate": Either(&[Flag, Word(&["notify"])]),
        "command": Map(&Object(CommandConfig::KEYS)) => {
            /// Commands by name.
            command: IndexMap<String, CommandConfig>
        },
        "compaction": COMPACTION,
        "default_agent": Text => {
            /// The agent for prompts that name none.
            default_agent: Option<String>
        },
        "disabled_providers": List(&Text) => {
            /// Providers that must not be used.
            disabled_providers: Vec<String>
        },
        "enabled_providers": List(&Text) => {
            /// If set, the only providers that may be used.
            enabled_providers: Option<Vec<String>>
        },
        "enterprise": Object(&[("url", Text)]),
        "env": Object(EnvConfig::KEYS) => {
            /// Which environment variables programs get.
            env: EnvConfig
        },
        "experimental": EXPERIMENTAL => {
            /// Switches that may be removed.
            experimental: JsonMap
        },
        "formatter": Either(&[Flag, Map(&FORMATTER)]),
        "instructions": List(&Text),
        "layout": Word(&["auto", "stretch"]),
        "logLevel": Word(&["DEBUG", "INFO", "WARN", "ERROR"]),
        "lsp": Either(&[Flag, Map(&LSP)]),
        "mcp": Map(&MCP) => {
            /// MCP servers by name.
            mcp: JsonMap
        },
        "mode": Map(&Open(AgentConfig::KEYS)),
        "model": Text => {
            /// The model, `provider/model`.
            model: Option<String>
        },
        "permission": Permission => {
            /// The rules of all files, including those of `tools`; the last match wins.
            permission: Option<Ruleset>
        },
        "plugin": List(&Either(&[Text, List(&Any)])),
        "provider": Map(&Object(ProviderConfig::KEYS)) => {
            /// Providers by id.
            provider: IndexMap<String, ProviderConfig>
        },
        "reference": Map(&REFERENCE),
        "references": Map(&REFERENCE),
        "server": SERVER => {
            /// How `serve` listens.
            server: JsonMap
        },
        "session": Object(&[("max_age_days", Count(1))]),
        "share": Word(&["manual", "auto", "disabled"]) => {
            /// `manual`, `auto` or `disabled`.
            share: Option<String>
        },
        "shell": Text => {
            /// The shell that runs commands.
            shell: Option<String>
        },
        "skills": Object(&[("paths", List(&Text)), ("urls", List(&Text))]),
        "small_model": Text => {
            /// The model for titles and similar tasks.
            small_model: Option<String>
        },
        "snapshot": Flag,
        "subagent_depth": Count(0) => {
            /// The maximum nesting depth of subagents.
            subagent_depth: Option<u32>
        },
        "subagents": Object(SubagentsConfig::KEYS) => {
            /// Further limits for subagents.
            subagents: SubagentsConfig
        },
        "tool_output": Object(ToolOutputConfig::KEYS) => {
            /// How much of a tool's output the model gets.
            tool_output: ToolOutputConfig
        },
        "tools": Tools => {
            /// Tools that are switched on or off by name.
            tools: IndexMap<String, bool>
        },
        "username": Text => {
            /// The name by which the user is addressed.
            username: Option<String>
        },
        "watcher": Object(&[("ignore", List(&Text))]),
        "websearch": Object(&[("url", Text), ("headers", Map(&Text)), ("body", Open(&[])), ("tool", Text)]),
    }
    plus {
        /// Rules that can only make decisions stricter: the engine takes the maximum of them and the ordinary ones.
        /// Every matching one counts, regardless of order. They come from untrusted repositories, and stand in for
        /// denials that an unreadable file may have contained.
        #[serde(skip)]
        tighten: Ruleset,
        /// Likewise for single agents, whether or not they exist: stands in for rules of theirs that could not be read.
        #[serde(skip)]
        tighten_agent: IndexMap<String, Ruleset>,
        /// Known keys that have no field of their own.
        #[serde(flatten)]
        other: JsonMap,
    }
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

section! {
    /// Limits for subagents.
    #[derive(Debug, PartialEq)]
    SubagentsConfig {
        "max_concurrent": Count(1) => {
            /// How many subagents of one turn run concurrently.
            max_concurrent: Option<u32>
        },
        "at_once": Count(1),
        "descendants": Count(0) => {
            /// The maximum number of sessions below one root.
            descendants: Option<u32>
        },
        "budget": BUDGET => {
            /// What each task of a root and its descendants may use, unless its agent or the call says otherwise.
            budget: Option<Budget>
        },
        "wait": Count(0) => {
            /// How many seconds a turn waits for its budget to be raised before it fails.
            wait: Option<u64>
        },
        "background": Flag => {
            /// Whether a model may run subagents in the background.
            background: Option<bool>
        },
    }
}

section! {
    /// Which environment variables programs get.
    #[derive(Debug, PartialEq)]
    EnvConfig {
        "hide": List(&Text) => {
            /// Variables that programs we start never get: names, in which `*` matches anything. Files add to each
            /// other's lists.
            hide: Vec<String>
        },
    }
}

section! {
    /// What happens to a request that nobody answers.
    #[derive(Debug, PartialEq)]
    AskConfig {
        "timeout": Count(0) => {
            /// After how many seconds it is decided without an answer; 0 means immediately.
            timeout: Option<u64>
        },
        "then": Word(&["reject", "allow"]) => {
            /// How it is decided then.
            then: Option<AskThen>
        },
    }
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

section! {
    /// A command, in a file or in front matter (where the body is the template).
    #[derive(Debug, PartialEq)]
    CommandConfig {
        "template": Text => {
            /// The prompt, with its placeholders.
            template: String
        },
        "description": Text => {
            /// What it does.
            description: Option<String>
        },
        "agent": Text => {
            /// The agent it runs with.
            agent: Option<String>
        },
        "model": Text => {
            /// The model it runs with.
            model: Option<String>
        },
        "variant": Text => {
            /// The model variant, for example its reasoning effort.
            variant: Option<String>
        },
        "subtask": Flag => {
            /// Whether a subagent runs it.
            subtask: Option<bool>
        },
    }
}

section! {
    /// How much of a tool's output the model gets.
    #[derive(Debug, PartialEq)]
    ToolOutputConfig {
        "max_lines": Count(1) => {
            /// The maximum number of lines.
            max_lines: Option<u64>
        },
        "max_bytes": Count(1) => {
            /// The maximum number of bytes.
            max_bytes: Option<u64>
        },
    }
}

/// The sections whose entries are read one by one.
const ENTRIES: [&str; 3] = ["agent", "command", "provider"];

/// Reads the merged configuration, in which one invalid value affects nothing else.
pub(crate) fn read(mut map: JsonMap, problems: &mut Vec<Problem>) -> Config {
    if let Some(Json::Object(agents)) = map.get_mut("agent") {
        agents.values_mut().filter_map(Json::as_object_mut).for_each(agent::normalize);
    }
    if let Some(Json::Object(subagents)) = map.get_mut("subagents") {
        super::rename_old_key(subagents, "at_once", "max_concurrent");
    }
    let mut config = parse(map, problems);
    config.agent.retain(|name, agent| {
        let problem = runner_problem(name, agent);
        let usable = problem.is_none();
        problems.extend(problem);
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

/// Why an agent that others run cannot be used.
fn runner_problem(name: &str, agent: &AgentConfig) -> Option<Problem> {
    let refuse = |key: &str, what: &str| {
        let key = format!("agent.{name}.{key}");
        Problem::error(format!("{key} {what}; the agent is left out")).about(key)
    };
    let is_url = |url: &str| {
        let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
    };
    match (&agent.acp, &agent.a2a) {
        (Some(_), Some(_)) => Some(refuse("a2a", "and acp say where the agent runs, and only one of them can")),
        (Some(acp), None) if acp.command().first().is_none_or(|word| word.is_empty()) => {
            Some(refuse("acp", "has no command: a list of the program and its arguments"))
        }
        (None, Some(a2a)) if !a2a.url().is_some_and(is_url) => {
            Some(refuse("a2a", "has no url that begins with https:// or http://"))
        }
        _ => None,
    }
}

/// Parses what is valid. The check has removed almost everything else; what is left are numbers that are too large and
/// the like.
fn parse(mut map: JsonMap, problems: &mut Vec<Problem>) -> Config {
    if let Ok(config) = Config::deserialize(&map) {
        return config;
    }
    let mut fits = |key: &str, config: JsonMap| match Config::deserialize(&config) {
        Ok(_) => true,
        Err(error) => {
            problems.push(Problem::error(format!("{key}: {error}; it is ignored")).about(key));
            false
        }
    };
    let single = |key: &str, value: &Json| JsonMap::from_iter([(key.to_owned(), value.clone())]);
    map.retain(|key, value| match value {
        Json::Object(entries) if ENTRIES.contains(&key.as_str()) => {
            entries
                .retain(|name, entry| fits(&format!("{key}.{name}"), single(key, &Json::Object(single(name, entry)))));
            true
        }
        value => fits(key, single(key, value)),
    });
    Config::deserialize(&map).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{CONFIG, INERT, OWN_AGENT_KEYS, OWN_KEYS, Shape};
    use api::AgentMode;
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
    fn the_old_name_of_max_concurrent_is_read_too() {
        let max_concurrent = |subagents: Json| config(json!({ "subagents": subagents })).0.subagents.max_concurrent;
        assert_eq!(max_concurrent(json!({"max_concurrent": 3})), Some(3));
        assert_eq!(max_concurrent(json!({"at_once": 2})), Some(2));
        assert_eq!(max_concurrent(json!({"at_once": 2, "max_concurrent": 3})), Some(3));
        assert_eq!(max_concurrent(json!({"max_concurrent": 3, "at_once": 2})), Some(3));
    }

    #[test]
    fn every_key_is_listed_once() {
        fn check(at: &str, shape: &Shape) {
            match shape {
                Shape::Object(fields) | Shape::Open(fields) => {
                    for (index, (key, shape)) in fields.iter().enumerate() {
                        assert!(fields[..index].iter().all(|(other, _)| other != key), "{at}.{key} is listed twice");
                        check(&format!("{at}.{key}"), shape);
                    }
                }
                Shape::List(item) | Shape::Map(item) => check(at, item),
                Shape::Either(shapes) => shapes.iter().for_each(|shape| check(at, shape)),
                _ => {}
            }
        }
        check("", &CONFIG);
    }

    #[test]
    fn keys_with_a_special_meaning_exist() {
        let find = |path: &str| {
            path.split('.').try_fold(&CONFIG, |shape, key| match shape {
                Shape::Object(fields) => fields.iter().find(|(name, _)| *name == key).map(|(_, shape)| shape),
                _ => None,
            })
        };
        for path in INERT.iter().chain(OWN_KEYS) {
            assert!(find(path).is_some(), "{path}");
        }
        for key in OWN_AGENT_KEYS {
            assert!(AgentConfig::KEYS.iter().any(|(name, _)| name == key), "{key}");
        }
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
    fn an_agent_elsewhere_needs_a_url() {
        let (config, problems) = config(json!({"agent": {
            "good": {"a2a": {"url": "https://user:pass@a.example:1/x?key=sk-secret", "token_env": "AGENT_TOKEN"}},
            "none": {"a2a": {}}, "file": {"a2a": {"url": "file:///x"}}, "empty": {"a2a": {"url": "https:///"}},
            "both": {"a2a": {"url": "https://a"}, "acp": {"command": ["x"]}},
        }}));
        assert_eq!(config.agent.keys().collect::<Vec<_>>(), ["good"]);
        let (kind, settings) = config.agent["good"].runner().unwrap();
        assert_eq!((kind, settings.description().as_str()), ("a2a", "Another agent, at a.example:1."));
        assert_eq!(settings.shown().keys().collect::<Vec<_>>(), ["url"]);
        let keys: Vec<_> = problems.iter().filter_map(|problem| problem.key.as_deref()).collect();
        assert_eq!(keys, ["agent.none.a2a", "agent.file.a2a", "agent.empty.a2a", "agent.both.a2a"]);
    }

    #[test]
    fn debug_output_shows_no_secrets() {
        let (config, _) = config(json!({"provider": {"p": {"options": {"apiKey": "sk-secret"}}}}));
        assert!(!format!("{config:?} {:?}", config.provider).contains("secret"));
    }
}
