//! Agents: the built-in ones, and the changes that configuration makes to them.

use std::collections::HashMap;
use std::path::Path;

use api::{Action, Agent, AgentMode, JsonMap, ModelRef, Rule, Ruleset};
use config::{AgentConfig, LoadedConfig};
use indexmap::IndexMap;

use crate::ask::permission;

/// The agent of a prompt that names none, unless the configuration sets another default.
pub(crate) const DEFAULT_AGENT: &str = "build";

/// The permissions a careful engine asks for.
const CAREFUL_PERMISSIONS: [&str; 2] = ["edit", "bash"];

/// All agents by name in listing order (the default first, then by name), and how many of each agent's first rules are
/// built in. With `careful` the built-in rules ask before edits and commands; the configuration may still allow them.
pub(crate) fn agents(
    loaded: &LoadedConfig,
    output_dir: &str,
    careful: bool,
) -> (IndexMap<String, Agent>, HashMap<String, usize>) {
    let readable = readable_folders(loaded, output_dir);
    let mut all: IndexMap<String, Agent> = builtin_agents(&readable).into_iter().map(|a| (a.name.clone(), a)).collect();
    let mut built_in: HashMap<String, usize> = all.values().map(|a| (a.name.clone(), a.permission.len())).collect();
    let global = loaded.config.permission.clone().unwrap_or_default();
    for agent in all.values_mut() {
        if careful {
            ask_instead_of_allow(&mut agent.permission);
        }
        agent.permission.extend(global.iter().cloned());
    }
    for entry in &loaded.agents {
        if entry.config.disable == Some(true) {
            all.shift_remove(&entry.name);
            continue;
        }
        let agent = all.entry(entry.name.clone()).or_insert_with(|| {
            built_in.insert(entry.name.clone(), defaults(&readable).len());
            custom_agent(&entry.name, &global, &readable, careful)
        });
        apply_config(agent, &entry.config);
    }
    // Whatever else is denied, the agent may read the output that we tell it to read.
    for agent in all.values_mut() {
        agent.permission.push(allow_reading(output_dir));
    }
    let default = default_name(loaded, &all);
    all.sort_by(|a, _, b, _| (*a != default).cmp(&(*b != default)).then(a.cmp(b)));
    (all, built_in)
}

/// The name of the agent for a prompt that names none.
pub(crate) fn default_name(loaded: &LoadedConfig, agents: &IndexMap<String, Agent>) -> String {
    let usable = |name: &&String| agents.get(*name).is_some_and(|a| a.mode != AgentMode::Subagent);
    loaded.config.default_agent.as_ref().filter(usable).cloned().unwrap_or_else(|| DEFAULT_AGENT.to_owned())
}

/// Turns allowed into ask; denied stays denied.
fn ask_instead_of_allow(rules: &mut Ruleset) {
    for permission in CAREFUL_PERMISSIONS {
        if api::evaluate(rules.iter(), permission, "*") == Action::Allow {
            rules.push(Rule::new(permission, "*", Action::Ask));
        }
    }
}

/// Folders outside every project that are meant to be read: long outputs, and the folders of skills.
fn readable_folders(loaded: &LoadedConfig, output_dir: &str) -> Ruleset {
    let folders = loaded.skills.iter().filter_map(|skill| Path::new(&skill.location).parent()?.to_str());
    std::iter::once(output_dir).chain(folders).map(allow_reading).collect()
}

fn allow_reading(folder: &str) -> Rule {
    Rule::new("external_directory", format!("{folder}/*"), Action::Allow)
}

fn defaults(readable: &[Rule]) -> Ruleset {
    use Action::{Allow, Ask, Deny};
    let mut rules =
        vec![Rule::new("*", "*", Allow), Rule::new("doom_loop", "*", Ask), Rule::new("external_directory", "*", Ask)];
    rules.extend_from_slice(readable);
    rules.extend([
        Rule::new("git_directory", "*", Deny),
        Rule::new("question", "*", Deny),
        Rule::new("plan_enter", "*", Deny),
        Rule::new("plan_exit", "*", Deny),
        Rule::new("read", "*", Allow),
        Rule::new("read", "*.env", Ask),
        Rule::new("read", "*.env.*", Ask),
        Rule::new("read", "*.env.example", Allow),
    ]);
    rules
}

fn new_agent(name: &str, mode: AgentMode, readable: &[Rule]) -> Agent {
    Agent {
        name: name.to_owned(),
        description: None,
        mode,
        native: None,
        hidden: None,
        top_p: None,
        temperature: None,
        color: None,
        permission: defaults(readable),
        model: None,
        variant: None,
        prompt: None,
        options: JsonMap::new(),
        steps: None,
    }
}

fn custom_agent(name: &str, global: &Ruleset, readable: &[Rule], careful: bool) -> Agent {
    let mut agent = new_agent(name, AgentMode::All, readable);
    agent.native = Some(false);
    if careful {
        ask_instead_of_allow(&mut agent.permission);
    }
    agent.permission.extend(global.iter().cloned());
    agent
}

fn builtin_agents(readable: &[Rule]) -> Vec<Agent> {
    use Action::{Allow, Ask, Deny};
    let native = |name: &str, mode, rules: Vec<Rule>| {
        let mut agent = new_agent(name, mode, readable);
        agent.native = Some(true);
        agent.permission.extend(rules);
        agent
    };
    let hidden = |name: &str, prompt: &str| {
        let mut agent = native(name, AgentMode::Primary, vec![Rule::new("*", "*", Deny)]);
        agent.hidden = Some(true);
        agent.prompt = Some(prompt.to_owned());
        agent
    };
    let mut build = native(
        "build",
        AgentMode::Primary,
        vec![Rule::new("question", "*", Allow), Rule::new("plan_enter", "*", Allow)],
    );
    build.description = Some("Does the work: reads, edits, runs commands, as the rules allow.".to_owned());
    let mut plan = native(
        "plan",
        AgentMode::Primary,
        vec![
            Rule::new("question", "*", Allow),
            Rule::new("plan_exit", "*", Allow),
            Rule::new("task", "general", Deny),
            Rule::new("edit", "*", Deny),
            Rule::new("edit", ".opencode/plans/*.md", Allow),
            Rule::new("edit", ".trefoil/plans/*.md", Allow),
        ],
    );
    plan.description = Some("Explores and answers with a plan; its edits are denied.".to_owned());
    let mut general = native("general", AgentMode::Subagent, vec![Rule::new("todowrite", "*", Deny)]);
    general.description =
        Some("A helper for work of several steps, or for several pieces of work in parallel.".to_owned());
    let looking = ["grep", "glob", "list", "bash", "webfetch", "websearch", "read"];
    let mut rules = vec![Rule::new("*", "*", Deny)];
    rules.extend(looking.iter().map(|name| Rule::new(*name, "*", Allow)));
    rules.push(Rule::new("external_directory", "*", Ask));
    rules.extend_from_slice(readable);
    let mut explore = native("explore", AgentMode::Subagent, rules);
    explore.description = Some(
        "Finds things in a code base and reports them: where something is, how something works. Changes nothing."
            .to_owned(),
    );
    explore.prompt = Some(include_str!("../prompts/explore.md").to_owned());
    let mut title = hidden("title", include_str!("../prompts/title.md"));
    title.temperature = Some(0.5);
    vec![
        build,
        plan,
        general,
        explore,
        title,
        hidden("summary", include_str!("../prompts/summary.md")),
        hidden("compaction", include_str!("../prompts/compaction.md")),
    ]
}

fn apply_config(agent: &mut Agent, config: &AgentConfig) {
    fn set<T: Clone>(slot: &mut Option<T>, value: &Option<T>) {
        if value.is_some() {
            slot.clone_from(value);
        }
    }
    set(&mut agent.description, &config.description);
    set(&mut agent.variant, &config.variant);
    set(&mut agent.temperature, &config.temperature);
    set(&mut agent.top_p, &config.top_p);
    set(&mut agent.prompt, &config.prompt);
    set(&mut agent.hidden, &config.hidden);
    set(&mut agent.color, &config.color);
    set(&mut agent.steps, &config.steps);
    if let Some(mode) = config.mode {
        agent.mode = mode;
    }
    if let Some((kind, settings)) = config.runner() {
        if config.mode.is_none() {
            agent.mode = AgentMode::Subagent;
        }
        agent.description.get_or_insert_with(|| settings.description());
        // Clients expect unknown settings in `options`.
        agent.options.insert(kind.to_owned(), settings.shown().into());
    }
    if let Some(model) = config.model.as_deref().and_then(ModelRef::parse) {
        agent.model = Some(model);
    }
    agent.options.extend(config.options.clone());
    agent.permission.extend(config.permission.iter().flatten().cloned());
    if let Some(tools) = &config.only {
        permission::restrict_to_tools(&mut agent.permission, tools);
    }
}
