//! Finishes the merged configuration: old keys, agents and commands.

use std::collections::BTreeSet;

use api::{Command, CommandSource, Json, JsonMap};
use indexmap::IndexMap;

use crate::load::merge::merge;
use crate::{AgentEntry, Config, rules};

/// Converts old keys of the merged configuration: `mode` becomes a primary agent, `autoshare` becomes `share: auto`,
/// and `tools` become rules.
pub(crate) fn finish(map: &mut JsonMap) {
    if let Some(Json::Object(modes)) = map.shift_remove("mode") {
        let agents = map.entry("agent").or_insert_with(|| JsonMap::new().into());
        for (name, mut mode) in modes {
            if let (Some(agents), Some(mode)) = (agents.as_object_mut(), mode.as_object_mut()) {
                mode.insert("mode".to_owned(), "primary".into());
                merge(agents, [(name, Json::Object(std::mem::take(mode)))].into_iter().collect());
            }
        }
    }
    if map.shift_remove("autoshare") == Some(Json::Bool(true)) && !map.contains_key("share") {
        map.insert("share".to_owned(), "auto".into());
    }
    rules::fold_tools(map);
}

/// Whether a configuration has a key, given with dots between its parts.
pub(crate) fn has(map: &JsonMap, path: &str) -> bool {
    let mut steps = path.split('.');
    let first = steps.next().and_then(|step| map.get(step));
    steps.fold(first, |value, step| value?.get(step)).is_some()
}

/// The agents, each with its last source.
pub(crate) fn agents(config: &Config, sources: &IndexMap<String, String>) -> Vec<AgentEntry> {
    let entry = |(name, config): (&String, &crate::AgentConfig)| AgentEntry {
        name: name.clone(),
        config: config.clone(),
        source: sources.get(name).cloned().unwrap_or_default(),
    };
    config.agent.iter().map(entry).collect()
}

/// The commands.
pub(crate) fn commands(config: &Config) -> Vec<Command> {
    let command = |(name, command): (&String, &crate::CommandConfig)| Command {
        name: name.clone(),
        description: command.description.clone(),
        agent: command.agent.clone(),
        model: command.model.clone(),
        source: Some(CommandSource::Command),
        template: command.template.clone(),
        subtask: command.subtask,
        hints: hints(&command.template),
    };
    config.command.iter().map(command).collect()
}

/// The placeholders in a template as clients list them: numbered ones, then `$ARGUMENTS`.
pub fn hints(template: &str) -> Vec<String> {
    let digits = |(at, _): (usize, &str)| {
        let rest = &template[at + 1..];
        Some(&rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())])
            .filter(|digits| digits.contains(|c| c != '0'))
    };
    let numbered: BTreeSet<&str> = template.match_indices('$').filter_map(digits).collect();
    let all = template.contains("$ARGUMENTS").then(|| "$ARGUMENTS".to_owned());
    numbered.into_iter().map(|digits| format!("${digits}")).chain(all).collect()
}
