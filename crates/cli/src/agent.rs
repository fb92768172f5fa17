//! `trefoil agent list|show|add|create`.

use std::io::Read as _;

use anyhow::Context as _;
use api::{Agent, AgentMode, Host, Scope};
use config::{AgentPlace, NewAgent, OPTIONAL_AGENTS, OptionalAgent};
use serde_json::json;

use crate::args::{CreateAgent, Where};
use crate::exit::{Exit, Failure};
use crate::session::print_json;
use crate::term::{self, one_line};
use crate::wire::World;

/// The most bytes of a prompt that comes from standard input.
const MAX_PROMPT: u64 = 1 << 20;

/// Lists the agents, and those that can be installed. `tools`: the names of the tools that there are; unknown far away.
pub async fn list(host: &dyn Host, scope: &Scope, tools: Option<&[String]>, json: bool) -> anyhow::Result<()> {
    let mut agents = host.agents(scope).await?;
    let optional: Vec<&OptionalAgent> =
        OPTIONAL_AGENTS.iter().filter(|agent| agents.iter().all(|known| known.name != agent.name)).collect();
    if json {
        let optional = optional.iter().map(|agent| {
            let missing = tools.and_then(|tools| missing(agent, tools));
            json!({ "name": agent.name, "description": agent.description(), "missing": missing })
        });
        return print_json(&json!({ "agents": agents, "optional": optional.collect::<Vec<_>>() }));
    }
    agents.retain(|agent| agent.hidden != Some(true));
    let mut rows: Vec<Vec<String>> = agents.iter().map(row).collect();
    rows.extend(optional.iter().map(|agent| {
        vec![agent.name.to_owned(), "can be added".to_owned(), String::new(), one_line(&agent.description(), 80)]
    }));
    term::print(&term::table(&rows))?;
    if let Some((agent, missing)) = optional
        .iter()
        .find_map(|agent| Some((agent, missing(agent, tools.unwrap_or_default())?)))
        .filter(|_| tools.is_some())
    {
        term::eprint(&lacks(agent.name, missing));
    }
    if !optional.is_empty() {
        term::eprint("`trefoil agent add NAME` installs one of those that can be added.\n");
    }
    Ok(())
}

/// An agent as a line.
fn row(agent: &Agent) -> Vec<String> {
    let model = agent.model.as_ref().map(ToString::to_string).or_else(|| program(agent)).unwrap_or_default();
    let description = one_line(agent.description.as_deref().unwrap_or_default(), 80);
    vec![one_line(&agent.name, 40), mode(agent.mode).to_owned(), one_line(&model, 60), description]
}

/// The program that an agent is, if it is another one.
fn program(agent: &Agent) -> Option<String> {
    let words = agent.options.get("acp")?.get("command")?.as_array()?;
    Some(words.iter().filter_map(|word| word.as_str()).collect::<Vec<_>>().join(" "))
}

fn mode(mode: AgentMode) -> &'static str {
    match mode {
        AgentMode::Primary => "primary",
        AgentMode::Subagent => "subagent",
        AgentMode::All => "all",
    }
}

/// The tool that an agent cannot do without and that is not there.
fn missing(agent: &OptionalAgent, tools: &[String]) -> Option<&'static str> {
    agent.needs.filter(|needed| tools.iter().all(|tool| tool != needed))
}

/// What to do so that an agent has its tool. An MCP server may have it; that is not known before it was started.
fn lacks(agent: &str, tool: &str) -> String {
    format!(
        "{agent} uses the tool {tool}: give `{tool}` a `url` in trefoil.json, unless an MCP server of yours searches the web.\n"
    )
}

/// Shows an agent: as it is in effect, or the file of one that can be installed.
pub async fn show(host: &dyn Host, scope: &Scope, name: &str, json: bool) -> anyhow::Result<()> {
    let agents = host.agents(scope).await?;
    let Some(agent) = agents.iter().find(|agent| agent.name == name) else {
        let names = agents.iter().map(|agent| agent.name.as_str());
        let known: Vec<String> =
            names.chain(OPTIONAL_AGENTS.iter().map(|agent| agent.name)).map(str::to_owned).collect();
        let optional = OPTIONAL_AGENTS.iter().find(|agent| agent.name == name);
        let optional = optional.ok_or_else(|| Failure::unknown("agent", name, &known))?;
        if json {
            return print_json(&json!({ "name": optional.name, "installed": false, "text": optional.text }));
        }
        term::print(optional.text)?;
        term::eprint(&format!("It is not installed; `trefoil agent add {name}` does that.\n"));
        return Ok(());
    };
    if json {
        return print_json(agent);
    }
    let line = |key: &str, value: Option<String>| value.map(|value| format!("{key:<12}{}\n", one_line(&value, 400)));
    let lines = [
        line("name", Some(agent.name.clone())),
        line("description", agent.description.clone()),
        line("mode", Some(mode(agent.mode).to_owned())),
        line("model", agent.model.as_ref().map(ToString::to_string)),
        line("program", program(agent)),
        line("variant", agent.variant.clone()),
        line("temperature", agent.temperature.map(|value| value.to_string())),
        line("top_p", agent.top_p.map(|value| value.to_string())),
        line("steps", agent.steps.map(|value| value.to_string())),
    ];
    let mut text: String = lines.into_iter().flatten().collect();
    text += "rules       the last that matches counts\n";
    let rules = agent.permission.iter().map(|rule| {
        let action = match rule.action {
            api::Action::Allow => "allow",
            api::Action::Ask => "ask",
            api::Action::Deny => "deny",
        };
        vec!["  ".to_owned() + action, one_line(&rule.permission, 40), one_line(&rule.pattern, 120)]
    });
    text += &term::table(&rules.collect::<Vec<_>>());
    if let Some(prompt) = &agent.prompt {
        text += &format!("\n{}\n", api::strip_control(prompt.trim()));
    }
    Ok(term::print(&text)?)
}

/// Installs an agent that ships.
pub fn add(world: &World, tools: &[String], name: &str, place: &Where) -> anyhow::Result<()> {
    let names: Vec<String> = OPTIONAL_AGENTS.iter().map(|agent| agent.name.to_owned()).collect();
    let agent = OPTIONAL_AGENTS.iter().find(|agent| agent.name == name);
    let agent = agent.ok_or_else(|| Failure::unknown("optional agent", name, &names))?;
    write(world, place, name, agent.text)?;
    if let Some(tool) = missing(agent, tools) {
        term::eprint(&lacks(name, tool));
    }
    Ok(())
}

/// Writes a new agent.
pub async fn create(host: &dyn Host, scope: &Scope, world: &World, args: &CreateAgent) -> anyhow::Result<()> {
    let prompt = match args.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin().take(MAX_PROMPT).read_to_string(&mut text).context("cannot read the prompt")?;
            text
        }
        text => text.to_owned(),
    };
    let agent = NewAgent {
        description: args.description.clone(),
        mode: Some(args.mode.into()),
        model: args.model.clone(),
        temperature: args.temperature,
        steps: args.steps,
        tools: args.tools.clone(),
        isolated: args.isolated,
        prompt,
    };
    let refused = |error: config::AgentFileError| Failure::new(Exit::Usage, error.to_string());
    let text = agent.markdown().map_err(refused)?;
    if host.agents(scope).await?.iter().any(|known| known.name == args.name) {
        let message = format!("there is an agent {} already, which this one would change", args.name);
        return Err(Failure::new(Exit::Failed, message).hint("choose another name").into());
    }
    write(world, &args.place, &args.name, &text)
}

fn write(world: &World, place: &Where, name: &str, text: &str) -> anyhow::Result<()> {
    let inputs = world.inputs();
    if let Some(path) = config::installed_agent(&inputs, name) {
        return Err(Failure::new(Exit::Failed, format!("{} is there already", path.display())).into());
    }
    let place = match (&place.path, place.global) {
        (Some(path), _) => AgentPlace::Folder(world.directory.join(path)),
        (None, true) => AgentPlace::Global,
        (None, false) => AgentPlace::Project,
    };
    let path = config::write_agent(&inputs, &place, name, text)
        .map_err(|error| Failure::new(Exit::Failed, format!("the agent {name} was not written: {error}")))?;
    Ok(term::print(&format!("{}\n", path.display()))?)
}
