//! `trefoil mcp`: lists MCP servers, changes their configuration, and signs in to them.

use api::{CatalogHost, Json, JsonMap, McpConfig, McpStatus, Scope};
use engine::Engine;
use indexmap::IndexMap;
use serde_json::json;

use crate::args::{AddServer, Mcp};
use crate::exit::{Exit, Failure};
use crate::terminal::{self, one_line, print_json};

/// `trefoil mcp`. The configuration of a server cannot be changed from here.
pub async fn command(
    command: &Mcp,
    host: &dyn CatalogHost,
    local: Option<&Engine>,
    scope: &Scope,
) -> anyhow::Result<()> {
    match command {
        Mcp::List { json } => list(host, scope, *json).await,
        Mcp::Add(args) => {
            let local = local.ok_or_else(|| {
                Failure::new(
                    Exit::Usage,
                    "MCP servers can only be added to the configuration of this machine, not of a server",
                )
                .hint("run `trefoil mcp add` where the server runs")
            })?;
            add(local, scope, args).await
        }
        Mcp::Remove { name, project } => {
            let local = local.ok_or_else(|| {
                Failure::new(
                    Exit::Usage,
                    "MCP servers can only be removed from the configuration of this machine, not of a server",
                )
                .hint("run `trefoil mcp remove` where the server runs")
            })?;
            remove(local, scope, name, *project).await
        }
        Mcp::Auth { name } => auth(host, scope, name).await,
        Mcp::Logout { name } => {
            host.mcp_auth_remove(scope, name).await?;
            Ok(terminal::print(&format!("Signed out of {}.\n", one_line(name, 80)))?)
        }
    }
}

async fn list(host: &dyn CatalogHost, scope: &Scope, json: bool) -> anyhow::Result<()> {
    let servers = host.mcp(scope).await?;
    if json {
        return print_json(&servers);
    }
    if servers.is_empty() {
        terminal::say("There are no MCP servers. `trefoil mcp add` adds one to the configuration.\n");
    }
    let rows = servers.iter().map(|(name, status)| {
        let (word, detail) = describe(status);
        vec![one_line(name, 40), word.to_owned(), one_line(&detail, 200)]
    });
    Ok(terminal::print(&terminal::table(&rows.collect::<Vec<_>>()))?)
}

fn describe(status: &McpStatus) -> (&'static str, String) {
    match status {
        McpStatus::Connected => ("connected", String::new()),
        McpStatus::Disabled => ("disabled", String::new()),
        McpStatus::Failed { error } => ("failed", error.clone()),
        McpStatus::NeedsAuth => ("needs auth", "run `trefoil mcp auth` with its name".to_owned()),
        McpStatus::NeedsClientRegistration { error } => ("needs registration", error.clone()),
    }
}

async fn add(engine: &Engine, scope: &Scope, args: &AddServer) -> anyhow::Result<()> {
    let config = match &args.url {
        Some(url) => McpConfig::Remote {
            url: url.clone(),
            enabled: None,
            headers: pairs(&args.header, "--header")?,
            oauth: None,
            timeout: None,
        },
        None if args.command.is_empty() => {
            let missing = Failure::new(Exit::Usage, "neither --url nor a command is given");
            return Err(missing.hint("trefoil mcp add NAME --url URL, or trefoil mcp add NAME -- COMMAND").into());
        }
        None => McpConfig::Local {
            command: args.command.clone(),
            cwd: None,
            environment: pairs(&args.env, "--env")?,
            enabled: None,
            timeout: None,
        },
    };
    let servers = json!({ "mcp": { args.name.as_str(): config } });
    let change: JsonMap = serde_json::from_value(servers)?;
    if args.project {
        engine.change_config(scope, change).await?;
    } else {
        engine.change_global_config(change).await?;
    }
    let name = one_line(&args.name, 40);
    let status = engine.mcp(scope).await?.shift_remove(&args.name);
    let (word, detail) = status.as_ref().map_or(("not in use", String::new()), describe);
    let detail = if detail.is_empty() { detail } else { format!(", {}", one_line(&detail, 200)) };
    Ok(terminal::print(&format!("added {name}: {word}{detail}\n"))?)
}

/// Removes a server from one of the two configuration files that `add` writes.
async fn remove(engine: &Engine, scope: &Scope, name: &str, project: bool) -> anyhow::Result<()> {
    let in_effect = engine.loaded(scope).raw.clone();
    let known = |config: &Json| config["mcp"].get(name).is_some();
    let (own, everywhere) = (known(&engine.global_config().await?), known(&in_effect));
    if !everywhere && !own {
        let names: Vec<String> = in_effect["mcp"].as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
        return Err(Failure::unknown("MCP server", name, &names).into());
    }
    if !project && !own {
        return Err(Failure::new(Exit::Failed, format!("{} is not in your own configuration", one_line(name, 40)))
            .hint("trefoil mcp remove NAME --project removes it from the configuration of this repository")
            .into());
    }
    let change: JsonMap = serde_json::from_value(json!({ "mcp": { name: null } }))?;
    if project {
        engine.change_config(scope, change).await?;
    } else {
        engine.change_global_config(change).await?;
    }
    let name_shown = one_line(name, 40);
    if known(&engine.loaded(scope).raw) {
        let other = if project { "your own configuration" } else { "the configuration of this repository" };
        return Err(Failure::new(Exit::Failed, format!("{name_shown} is still configured, in {other}")).into());
    }
    // Its credentials are of no use any more.
    let _ = engine.mcp_auth_remove(scope, name).await;
    Ok(terminal::print(&format!("removed {name_shown}\n"))?)
}

/// `NAME=VALUE` pairs.
fn pairs(given: &[String], option: &str) -> anyhow::Result<Option<IndexMap<String, String>>> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty())?;
        Some((name.to_owned(), value.to_owned()))
    };
    let pairs: Option<IndexMap<String, String>> = given.iter().map(pair).collect();
    let wrong = || Failure::new(Exit::Usage, format!("{option} needs NAME=VALUE"));
    Ok(Some(pairs.ok_or_else(wrong)?).filter(|pairs| !pairs.is_empty()))
}

async fn auth(host: &dyn CatalogHost, scope: &Scope, name: &str) -> anyhow::Result<()> {
    let started = host.mcp_auth_start(scope, name).await?;
    if !started.authorization_url.is_empty() {
        terminal::eprint(&format!("Sign in with your browser at\n{}\n", one_line(&started.authorization_url, 4000)));
    }
    let status = host.mcp_authenticate(scope, name).await?;
    match status {
        McpStatus::Connected => Ok(terminal::print(&format!("Signed in to {}.\n", one_line(name, 80)))?),
        other => {
            let (word, detail) = describe(&other);
            let message = format!("cannot sign in to {}: {}", one_line(name, 80), one_line(&detail, 500));
            Err(Failure::new(Exit::Failed, message).hint(format!("the status of the server is: {word}")).into())
        }
    }
}
