//! What a repository's configuration may do before the user trusts it: choose, describe and tighten. Whatever executes,
//! redirects, reveals or loosens something is removed and reported. Rules that ask or deny stay; the loader puts them
//! where they can only tighten.
//!
//! Keys are allowed by name, so that a new one needs trust until someone decides otherwise.

use api::{Action, Json, JsonMap};

use crate::load::substitute::has_placeholder;
use crate::rules::ruleset;
use crate::schema::check::MAX_FINDINGS;

#[cfg(test)]
mod tests;

/// Removes what needs trust from an untrusted configuration. Returns the reasons; those above [`MAX_FINDINGS`] are only
/// counted.
pub(crate) fn guard(config: &mut JsonMap) -> Vec<String> {
    Guard { reasons: Vec::new(), more: 0, placeholders: true }.run(config)
}

/// Likewise for a markdown file, whose text is literal: braces in it have no meaning.
pub(crate) fn guard_markdown(config: &mut JsonMap) -> Vec<String> {
    Guard { reasons: Vec::new(), more: 0, placeholders: false }.run(config)
}

struct Guard {
    reasons: Vec<String>,
    more: usize,
    /// Whether `{env:}` and `{file:}` are filled in.
    placeholders: bool,
}

impl Guard {
    fn run(mut self, config: &mut JsonMap) -> Vec<String> {
        config.retain(|key, value| self.top(key, value));
        if self.more > 0 {
            self.reasons.push(format!("and {} more", self.more));
        }
        self.reasons
    }

    /// Records a reason. Always returns `false`, so that the value is removed.
    fn refuse(&mut self, key: &str, why: &str) -> bool {
        if self.reasons.len() < MAX_FINDINGS {
            self.reasons.push(format!("{key} {why}"));
        } else {
            self.more += 1;
        }
        false
    }

    fn top(&mut self, key: &str, value: &mut Json) -> bool {
        match key {
            "$schema" | "model" | "small_model" | "username" | "logLevel" | "layout" | "watcher" | "attachment"
            | "compaction" | "tool_output" | "disabled_providers" | "enabled_providers" => self.plain(key, value),
            "permission" => self.permission(key, value),
            "tools" => self.tools(key, value),
            "agent" | "mode" => self.each(key, value, Self::agent),
            "command" => self.each(key, value, Self::command),
            "provider" => self.each(key, value, Self::provider),
            "mcp" => self.each(key, value, Self::mcp),
            "instructions" => self.paths(key, value),
            "skills" => self.each(key, value, |this, key, value| match key {
                "skills.paths" => this.paths(key, value),
                _ => this.refuse(key, "loads text from the network"),
            }),
            "formatter" | "lsp" => *value == Json::Bool(false) || self.refuse(key, "starts programs"),
            "share" => value == "disabled" || self.refuse(key, "can publish the conversation"),
            "autoshare" => *value == Json::Bool(false) || self.refuse(key, "publishes the conversation"),
            "autoupdate" => *value == Json::Bool(false) || self.refuse(key, "can replace the program"),
            "snapshot" => *value == Json::Bool(true) || self.refuse(key, "switches undo off"),
            "shell" => self.refuse(key, "chooses the program that runs commands"),
            "plugin" => self.refuse(key, "runs code"),
            "server" | "a2a" => self.refuse(key, "opens the server to others"),
            "enterprise" => self.refuse(key, "redirects what is shared"),
            "default_agent" => self.refuse(key, "replaces the agent that you use, with its rules"),
            "subagent_depth" | "subagents" => self.refuse(key, "raises a limit"),
            "ask" => self.refuse(key, "decides what you are asked"),
            "env" => self.each(key, value, |this, key, value| match key {
                "env.hide" => this.plain(key, value),
                _ => this.refuse(key, "changes the environment of programs"),
            }),
            "session" => self.refuse(key, "deletes sessions"),
            "websearch" => self.refuse(key, "sends queries to an address of its choice"),
            "reference" | "references" => self.refuse(key, "reads from outside of the repository"),
            _ => self.refuse(key, "is not among the keys that need no trust"),
        }
    }

    fn each(&mut self, key: &str, value: &mut Json, mut one: impl FnMut(&mut Self, &str, &mut Json) -> bool) -> bool {
        let Json::Object(map) = value else { return self.refuse(key, "is not an object") };
        map.retain(|name, value| one(self, &format!("{key}.{name}"), value));
        true
    }

    /// A harmless value, unless it reveals something through a placeholder.
    fn plain(&mut self, key: &str, value: &mut Json) -> bool {
        match value {
            Json::String(text) if self.placeholders && has_placeholder(text) => {
                self.refuse(key, "reveals an environment variable or a file")
            }
            Json::Object(map) => {
                map.retain(|name, value| self.plain(&format!("{key}.{name}"), value));
                true
            }
            Json::Array(list) => {
                list.retain_mut(|value| self.plain(key, value));
                true
            }
            _ => true,
        }
    }

    fn agent(&mut self, key: &str, value: &mut Json) -> bool {
        let prefix = key.len() + 1;
        let elsewhere = [("acp", "starts a program"), ("a2a", "sends what it is told to another machine")];
        for (runner, why) in elsewhere {
            if value.get(runner).is_none() {
                continue;
            }
            // The rest would configure another agent with our own model; only what tightens may stay.
            self.refuse(&format!("{key}.{runner}"), why);
            let Json::Object(map) = &mut *value else { return false };
            map.retain(|name, _| name == "permission" || name == "tools");
            if map.is_empty() {
                return false;
            }
        }
        if value.get("only").is_some() {
            // The list could give back what another file removed; without it the agent would have more tools than
            // intended.
            self.refuse(&format!("{key}.only"), "says which tools an agent may use, so it may use none");
            let Json::Object(map) = &mut *value else { return false };
            map.shift_remove("only");
            map.insert("permission".to_owned(), "deny".into());
        }
        self.each(key, value, |this, key, value| match &key[prefix..] {
            "name" | "model" | "variant" | "temperature" | "top_p" | "prompt" | "description" | "mode" | "hidden"
            | "color" | "steps" | "maxSteps" | "isolation" => this.plain(key, value),
            "budget" => this.refuse(key, "raises a limit"),
            "permission" => {
                let stays = this.permission(key, value);
                for rule in ruleset(value).into_iter().filter(|rule| rule.action == Action::Ask) {
                    let key = format!("{key}.{}.{}", rule.permission, rule.pattern);
                    this.refuse(&key, "is asked of every agent, not of this one only");
                }
                stays
            }
            "tools" => this.tools(key, value),
            "disable" => *value == Json::Bool(false) || this.refuse(key, "removes an agent and its rules"),
            _ => this.refuse(key, "goes into model requests"),
        })
    }

    fn command(&mut self, key: &str, value: &mut Json) -> bool {
        if let Some(template) = value.get("template").and_then(Json::as_str) {
            if template.contains("!`") {
                return self.refuse(key, "runs shell commands");
            }
            if mentions_outside(template) {
                return self.refuse(key, "reads files outside of the repository");
            }
        }
        self.plain(key, value)
    }

    fn provider(&mut self, key: &str, value: &mut Json) -> bool {
        let prefix = key.len() + 1;
        self.each(key, value, |this, key, value| match &key[prefix..] {
            "name" | "whitelist" | "blacklist" => this.plain(key, value),
            "models" => this.each(key, value, Self::model),
            "options" => {
                let prefix = key.len() + 1;
                this.each(key, value, |this, key, value| match &key[prefix..] {
                    "timeout" | "headerTimeout" | "chunkTimeout" | "setCacheKey" => this.plain(key, value),
                    "baseURL" => this.refuse(key, "redirects model traffic"),
                    "headers" => this.refuse(key, "adds headers to model requests"),
                    "apiKey" => this.refuse(key, "bills another account, which may read the traffic"),
                    _ => this.refuse(key, "goes into model requests"),
                })
            }
            "env" => this.refuse(key, "chooses environment variables to send"),
            _ => this.refuse(key, "redirects model traffic"),
        })
    }

    fn model(&mut self, key: &str, value: &mut Json) -> bool {
        let prefix = key.len() + 1;
        self.each(key, value, |this, key, value| match &key[prefix..] {
            "id" | "name" | "family" | "release_date" | "attachment" | "reasoning" | "temperature" | "tool_call"
            | "interleaved" | "cost" | "limit" | "modalities" | "experimental" | "status" => this.plain(key, value),
            "provider" => this.refuse(key, "redirects model traffic"),
            "headers" => this.refuse(key, "adds headers to model requests"),
            _ => this.refuse(key, "goes into model requests"),
        })
    }

    fn mcp(&mut self, key: &str, value: &mut Json) -> bool {
        let off = value.as_object().is_some_and(|map| map.len() == 1 && map.get("enabled") == Some(&Json::Bool(false)));
        match (off, value.get("url")) {
            (true, _) => true,
            (false, Some(_)) => self.refuse(key, "connects to a server that offers tools"),
            (false, None) => self.refuse(key, "starts a program"),
        }
    }

    /// Denying and asking rules stay, allowing ones are removed.
    fn permission(&mut self, key: &str, value: &mut Json) -> bool {
        let mut kept = JsonMap::new();
        for rule in ruleset(value) {
            let action = match rule.action {
                Action::Deny => "deny",
                Action::Ask => "ask",
                Action::Allow => {
                    let key = format!("{key}.{}.{}", rule.permission, rule.pattern);
                    self.refuse(&key, "allows what may be asked or denied");
                    continue;
                }
            };
            if let Some(patterns) = kept.entry(rule.permission).or_insert_with(|| JsonMap::new().into()).as_object_mut()
            {
                patterns.insert(rule.pattern, action.into());
            }
        }
        *value = Json::Object(kept);
        true
    }

    fn tools(&mut self, key: &str, value: &mut Json) -> bool {
        self.each(key, value, |this, key, value| {
            *value != Json::Bool(true) || this.refuse(key, "allows a tool that may be denied")
        })
    }

    fn paths(&mut self, key: &str, value: &mut Json) -> bool {
        let Json::Array(list) = value else { return self.refuse(key, "is not a list") };
        list.retain_mut(|item| {
            let text = item.as_str().unwrap_or("/");
            if text.contains("://") {
                return self.refuse(key, &format!("fetches {text}"));
            }
            if leaves(text) {
                return self.refuse(key, &format!("reads {text}, which is outside of the repository"));
            }
            self.plain(key, item)
        });
        true
    }
}

/// Whether a path may lead out of the folder that it is relative to.
fn leaves(path: &str) -> bool {
    path.starts_with(['/', '~']) || path.split(['/', '\\']).any(|step| step == "..")
}

/// Whether an `@file` in a template may lead out of the repository.
fn mentions_outside(template: &str) -> bool {
    template.split('@').skip(1).any(|after| leaves(after.split(char::is_whitespace).next().unwrap_or_default()))
}
