//! Agents: their keys, and the types that they are read into.

use std::fmt;

use api::{AgentMode, Budget, Json, JsonMap, Ruleset};
use indexmap::IndexMap;
use serde::Deserialize;

use crate::schema::Shape::{
    self, Amount, Any, Count, Flag, List, Map, Number, Object, Only, Permission, Text, Tools, Word,
};
use crate::schema::section::section;

/// The keys of [`Budget`].
pub(crate) const BUDGET: Shape =
    Object(&[("cost", Amount), ("tokens", Count(1)), ("steps", Count(1)), ("seconds", Count(1))]);

/// An external agent that speaks the Agent Client Protocol.
const ACP: Shape = Object(&[
    ("command", List(&Text)),
    ("environment", Map(&Text)),
    ("model", Text),
    ("mode", Text),
    ("start", Count(1)),
    ("silence", Count(1)),
]);

/// An agent of another machine that speaks the A2A protocol.
const A2A: Shape = Object(&[
    ("url", Text),
    ("token_env", Text),
    ("version", Word(&["0.3", "1.0"])),
    ("transport", Word(&["JSONRPC", "HTTP+JSON"])),
    ("start", Count(1)),
    ("silence", Count(1)),
]);

section! {
    /// An agent, as far as files configure it. Other keys are options for its provider.
    #[derive(Debug, PartialEq)]
    AgentConfig {
        "name": Text,
        "model": Text => {
            /// Its model, `provider/model`.
            model: Option<String>
        },
        "variant": Text => {
            /// The model variant, for example its reasoning effort.
            variant: Option<String>
        },
        "temperature": Number => {
            /// Sampling temperature.
            temperature: Option<f64>
        },
        "top_p": Number => {
            /// Nucleus sampling.
            top_p: Option<f64>
        },
        "prompt": Text => {
            /// Its system prompt.
            prompt: Option<String>
        },
        "tools": Tools => {
            /// Tools that are switched on or off by name; `permission` has them too.
            tools: IndexMap<String, bool>
        },
        "disable": Flag => {
            /// Whether it is removed.
            disable: Option<bool>
        },
        "description": Text => {
            /// When to use it.
            description: Option<String>
        },
        "mode": Word(&["subagent", "primary", "all"]) => {
            /// Who uses it.
            mode: Option<AgentMode>
        },
        "hidden": Flag => {
            /// Whether lists leave it out.
            hidden: Option<bool>
        },
        "options": Map(&Any) => {
            /// Provider options, including unknown keys.
            options: JsonMap
        },
        "color": Text => {
            /// The colour that clients show it in.
            color: Option<String>
        },
        "steps": Count(1) => {
            /// The maximum number of model steps in one turn.
            steps: Option<u32>
        },
        "maxSteps": Count(1),
        "permission": Permission => {
            /// Its rules; the last match wins.
            permission: Option<Ruleset>
        },
        "budget": BUDGET => {
            /// What each of its sessions and their descendants may use.
            budget: Option<Budget>
        },
        "isolation": Word(&["worktree"]) => {
            /// Where its sessions work, if not where their caller does.
            isolation: Option<Isolation>
        },
        "only": Only => {
            /// The only tools it may use: these keep their rules, everything else is denied.
            only: Option<Vec<String>>
        },
        "acp": ACP => {
            /// The external program that is this agent, if it speaks the Agent Client Protocol.
            acp: Option<RunnerSettings>
        },
        "a2a": A2A => {
            /// Where the agent is that does the work, if it speaks the A2A protocol.
            a2a: Option<RunnerSettings>
        },
    }
}

impl AgentConfig {
    /// The kind of runner that does this agent's work, and its settings, if it is not us.
    pub fn runner(&self) -> Option<(&'static str, &RunnerSettings)> {
        let acp = self.acp.as_ref().map(|settings| ("acp", settings));
        acp.or_else(|| self.a2a.as_ref().map(|settings| ("a2a", settings)))
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

    /// The URL of an agent elsewhere.
    pub fn url(&self) -> Option<&str> {
        self.0.get("url").and_then(Json::as_str)
    }

    /// What clients may see: how the agent is reached. The rest may hold secrets.
    pub fn shown(&self) -> JsonMap {
        let shown = self.0.iter().filter(|(key, _)| matches!(key.as_str(), "command" | "url"));
        shown.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Describes the agent for those who may call it.
    pub fn description(&self) -> String {
        match (self.command().first(), self.url()) {
            (Some(program), _) => format!("Another agent, run as the program {program}."),
            (None, Some(url)) => format!("Another agent, at {}.", host(url)),
            (None, None) => "Another agent.".to_owned(),
        }
    }
}

/// The host and port of a URL; what is before and after them may be a secret.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
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

/// Renames old keys, and moves unknown keys to the options.
pub(crate) fn normalize(agent: &mut JsonMap) {
    agent.shift_remove("name");
    super::rename_old_key(agent, "maxSteps", "steps");
    let mut unknown = JsonMap::new();
    agent.retain(|key, value| {
        let known = AgentConfig::KEYS.iter().any(|(name, _)| *name == key);
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
