//! `trefoil agent list|show|add|create`.

use std::io::Read as _;

use anyhow::Context as _;
use api::{Agent, AgentMode, CatalogHost, Scope};
use config::{AgentPlace, NewAgent, OPTIONAL_AGENTS, OptionalAgent};
use serde_json::json;

use super::need_local;
use crate::args::{self, AgentLocation, CreateAgent};
use crate::exit::{Exit, Failure};
use crate::terminal::{self, one_line, print_json};
use crate::wiring::{Invocation, LocalEngine};

/// The largest prompt that is read from standard input, in bytes.
const MAX_PROMPT: u64 = 1 << 20;

/// `trefoil agent`.
pub async fn command(
    command: &args::Agent,
    host: &dyn CatalogHost,
    local: Option<&LocalEngine>,
    scope: &Scope,
    invocation: &Invocation,
) -> anyhow::Result<()> {
    let tools = async |local: &LocalEngine| -> Vec<String> {
        local.engine.tools(scope, None).await.iter().map(|tool| tool.name().to_owned()).collect()
    };
    match command {
        args::Agent::List { json } => {
            let known = match local {
                Some(local) => Some(tools(local).await),
                None => None,
            };
            list(host, scope, known.as_deref(), *json).await
        }
        args::Agent::Show { name, json } => show(host, scope, name, *json).await,
        args::Agent::Add { name, location } => add(invocation, &tools(need_local(local)?).await, name, location),
        args::Agent::Create(args) => {
            need_local(local)?;
            create(host, scope, invocation, args).await
        }
    }
}

/// Lists the agents, and those that can be installed. `tools`: the names of all tools; unknown on a server.
async fn list(host: &dyn CatalogHost, scope: &Scope, tools: Option<&[String]>, json: bool) -> anyhow::Result<()> {
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
    terminal::print(&terminal::table(&rows))?;
    if let Some((agent, missing)) = optional
        .iter()
        .find_map(|agent| Some((agent, missing(agent, tools.unwrap_or_default())?)))
        .filter(|_| tools.is_some())
    {
        terminal::say(&missing_tool(agent.name, missing));
    }
    if !optional.is_empty() {
        terminal::say("`trefoil agent add NAME` installs one of those that can be added.\n");
    }
    Ok(())
}

/// An agent as a row of the list.
fn row(agent: &Agent) -> Vec<String> {
    let model = agent
        .model
        .as_ref()
        .map(ToString::to_string)
        .or_else(|| program(agent).or_else(|| url(agent)))
        .unwrap_or_default();
    let description = one_line(agent.description.as_deref().unwrap_or_default(), 80);
    vec![one_line(&agent.name, 40), mode(agent.mode).to_owned(), one_line(&model, 60), description]
}

/// The command of an agent that is another program.
fn program(agent: &Agent) -> Option<String> {
    let words = agent.options.get("acp")?.get("command")?.as_array()?;
    Some(words.iter().filter_map(|word| word.as_str()).collect::<Vec<_>>().join(" "))
}

/// The URL of an agent elsewhere.
fn url(agent: &Agent) -> Option<String> {
    agent.options.get("a2a")?.get("url")?.as_str().map(str::to_owned)
}

fn mode(mode: AgentMode) -> &'static str {
    match mode {
        AgentMode::Primary => "primary",
        AgentMode::Subagent => "subagent",
        AgentMode::All => "all",
    }
}

/// The tool that an agent needs and that does not exist.
fn missing(agent: &OptionalAgent, tools: &[String]) -> Option<&'static str> {
    agent.needs.filter(|needed| tools.iter().all(|tool| tool != needed))
}

/// What to do about a missing tool. An MCP server may have it, which is unknown before the server runs.
fn missing_tool(agent: &str, tool: &str) -> String {
    format!(
        "{agent} uses the tool {tool}: give `{tool}` a `url` in trefoil.json, unless an MCP server of yours searches the web.\n"
    )
}

/// Shows an agent as it is in effect, or the file of one that can be installed.
async fn show(host: &dyn CatalogHost, scope: &Scope, name: &str, json: bool) -> anyhow::Result<()> {
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
        terminal::print(optional.text)?;
        terminal::say(&format!("It is not installed; `trefoil agent add {name}` installs it.\n"));
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
        line("url", url(agent)),
        line("variant", agent.variant.clone()),
        line("temperature", agent.temperature.map(|value| value.to_string())),
        line("top_p", agent.top_p.map(|value| value.to_string())),
        line("steps", agent.steps.map(|value| value.to_string())),
    ];
    let mut text: String = lines.into_iter().flatten().collect();
    text += "rules       the last matching one counts\n";
    let rules = agent.permission.iter().map(|rule| {
        let action = match rule.action {
            api::Action::Allow => "allow",
            api::Action::Ask => "ask",
            api::Action::Deny => "deny",
        };
        vec!["  ".to_owned() + action, one_line(&rule.permission, 40), one_line(&rule.pattern, 120)]
    });
    text += &terminal::table(&rules.collect::<Vec<_>>());
    if let Some(prompt) = &agent.prompt {
        text += &format!("\n{}\n", api::strip_control(prompt.trim()));
    }
    Ok(terminal::print(&text)?)
}

/// Installs an agent that ships with Trefoil.
fn add(invocation: &Invocation, tools: &[String], name: &str, location: &AgentLocation) -> anyhow::Result<()> {
    let names: Vec<String> = OPTIONAL_AGENTS.iter().map(|agent| agent.name.to_owned()).collect();
    let agent = OPTIONAL_AGENTS.iter().find(|agent| agent.name == name);
    let agent = agent.ok_or_else(|| Failure::unknown("optional agent", name, &names))?;
    write(invocation, location, name, agent.text)?;
    if let Some(tool) = missing(agent, tools) {
        terminal::say(&missing_tool(name, tool));
    }
    Ok(())
}

/// Creates an agent as a markdown file.
async fn create(
    host: &dyn CatalogHost,
    scope: &Scope,
    invocation: &Invocation,
    args: &CreateAgent,
) -> anyhow::Result<()> {
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
        let message = format!("an agent {} already exists, and this one would change it", args.name);
        return Err(Failure::new(Exit::Failed, message).hint("choose another name").into());
    }
    write(invocation, &args.location, &args.name, &text)
}

fn write(invocation: &Invocation, location: &AgentLocation, name: &str, text: &str) -> anyhow::Result<()> {
    let inputs = invocation.config_inputs();
    if let Some(path) = config::installed_agent(&inputs, name) {
        return Err(Failure::new(Exit::Failed, format!("{} already exists", path.display())).into());
    }
    let place = match (&location.path, location.global) {
        (Some(path), _) => AgentPlace::Folder(invocation.directory.join(path)),
        (None, true) => AgentPlace::Global,
        (None, false) => AgentPlace::Project,
    };
    let path = config::write_agent(&inputs, &place, name, text)
        .map_err(|error| Failure::new(Exit::Failed, format!("the agent {name} was not written: {error}")))?;
    Ok(terminal::print(&format!("{}\n", path.display()))?)
}
