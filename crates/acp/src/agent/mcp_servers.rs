//! The MCP servers that a client supplies for a session.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use api::{EventBody, Host, HostError, Json, McpConfig, Scope, SessionId, WatchItem, WatchScope};
use futures::StreamExt as _;
use indexmap::IndexMap;

use crate::lock;
use crate::rpc::Error;

/// The most servers of one session.
const MAX_SERVERS: usize = 100;

/// Which client supplied the MCP servers of each session: the last one did, and they end when it disconnects. Cheap to
/// clone: clones share it.
#[derive(Debug, Clone, Default)]
pub struct McpOwners(Arc<OwnerTable>);

#[derive(Debug, Default)]
struct OwnerTable {
    next_client: AtomicU64,
    owners: Mutex<HashMap<SessionId, Owner>>,
}

#[derive(Debug)]
struct Owner {
    client: u64,
    servers: IndexMap<String, McpConfig>,
}

impl McpOwners {
    /// Numbers a new client.
    pub(crate) fn register_client(&self) -> u64 {
        self.0.next_client.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets the servers that a client supplies for a session; an empty map removes them.
    pub(crate) fn set(&self, client: u64, session: &SessionId, servers: IndexMap<String, McpConfig>) {
        let mut owners = lock(&self.0.owners);
        if !servers.is_empty() {
            owners.insert(session.clone(), Owner { client, servers });
        } else if owners.get(session).is_some_and(|owner| owner.client == client) {
            owners.remove(session);
        }
    }

    /// The servers that the client supplied, unless another client has replaced them since.
    pub(crate) fn servers_of(&self, client: u64, session: &SessionId) -> Option<IndexMap<String, McpConfig>> {
        let owners = lock(&self.0.owners);
        owners.get(session).filter(|owner| owner.client == client).map(|owner| owner.servers.clone())
    }

    /// Ends the servers of a client that has disconnected once the session is idle, unless another client has replaced
    /// them.
    pub(crate) async fn end_servers(&self, client: u64, host: &dyn Host, scope: &Scope, session: &SessionId) {
        if self.servers_of(client, session).is_none() {
            return;
        }
        if let Err(error) = wait_until_idle(host, scope, session).await {
            tracing::warn!(%error, %session, "cannot tell whether a session is idle");
        }
        if self.servers_of(client, session).is_some() {
            self.set(client, session, IndexMap::new());
            let ended = host.session_servers(session, IndexMap::new()).await;
            ended
                .unwrap_or_else(|error| tracing::warn!(%error, %session, "failed to end the MCP servers of a session"));
        }
    }
}

/// Waits until the session runs no turn.
async fn wait_until_idle(host: &dyn Host, scope: &Scope, session: &SessionId) -> Result<(), HostError> {
    let mut events = host.watch(WatchScope::Session(session.clone()), None).await?;
    while host.statuses(scope).await?.contains_key(session) {
        loop {
            match events.next().await {
                Some(WatchItem::Frame(frame)) => {
                    let event = frame.event();
                    if matches!(event.as_deref().map(|event| &event.body), Some(EventBody::SessionIdle { .. })) {
                        break;
                    }
                }
                Some(WatchItem::Resync(_)) => break,
                Some(WatchItem::Lagged) | None => return Ok(()),
            }
        }
    }
    Ok(())
}

/// Parses `mcpServers`, in the current form and in those of older clients: `type` `local` or `remote`, a command as a
/// list.
pub fn parse(given: Option<&Json>) -> Result<IndexMap<String, McpConfig>, Error> {
    let list = match given {
        None | Some(Json::Null) => return Ok(IndexMap::new()),
        Some(Json::Array(list)) => list,
        Some(_) => return Err(Error::invalid_params("mcpServers must be a list")),
    };
    if list.len() > MAX_SERVERS {
        return Err(Error::invalid_params(format!("A session has at most {MAX_SERVERS} MCP servers")));
    }
    let mut servers = IndexMap::new();
    for (index, server) in list.iter().enumerate() {
        let at = |what: &str| Error::invalid_params(format!("mcpServers[{index}]{what}"));
        let name = text(server, "name").ok_or_else(|| at(".name must be a string"))?;
        let config = match server["type"].as_str() {
            None | Some("stdio" | "local") => parse_local(server).map_err(|what| at(&what))?,
            Some("http" | "sse" | "remote") => parse_remote(server).map_err(|what| at(&what))?,
            Some(other) => return Err(at(&format!(".type {other:?} is not supported; use stdio, http or sse"))),
        };
        if servers.insert(name.clone(), config).is_some() {
            return Err(at(&format!(".name {name:?} appears twice")));
        }
    }
    Ok(servers)
}

fn text(value: &Json, key: &str) -> Option<String> {
    value[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn texts(value: &Json) -> Option<Vec<String>> {
    match value {
        Json::Null => Some(Vec::new()),
        Json::Array(list) => list.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

fn parse_local(server: &Json) -> Result<McpConfig, String> {
    let mut command = match &server["command"] {
        Json::String(command) => vec![command.clone()],
        list => texts(list).ok_or(".command must be a string or a list of strings")?,
    };
    command.extend(texts(&server["args"]).ok_or(".args must be a list of strings")?);
    if command.first().is_none_or(String::is_empty) {
        return Err(".command is empty".to_owned());
    }
    let environment = pairs(&server["env"]).ok_or(".env must be a list of {name, value}")?;
    let environment = (!environment.is_empty()).then_some(environment);
    Ok(McpConfig::Local { command, cwd: None, environment, enabled: None, timeout: None })
}

fn parse_remote(server: &Json) -> Result<McpConfig, String> {
    let url = text(server, "url").filter(|url| url::Url::parse(url).is_ok()).ok_or(".url must be a URL")?;
    let headers = pairs(&server["headers"]).ok_or(".headers must be a list of {name, value}")?;
    let headers = (!headers.is_empty()).then_some(headers);
    Ok(McpConfig::Remote { url, enabled: None, headers, oauth: None, timeout: None })
}

/// Parses `[{name, value}]` or an object.
fn pairs(value: &Json) -> Option<IndexMap<String, String>> {
    match value {
        Json::Null => Some(IndexMap::new()),
        Json::Array(list) => {
            list.iter().map(|item| Some((text(item, "name")?, item["value"].as_str()?.to_owned()))).collect()
        }
        Json::Object(map) => map.iter().map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn current_and_older_forms() {
        let list = json!([
            {"name": "a", "command": "/bin/a", "args": ["-x"], "env": [{"name": "K", "value": "v"}]},
            {"name": "b", "type": "local", "command": ["bun", "x", "pkg"], "args": [], "env": []},
            {"name": "c", "type": "http", "url": "https://c.example/mcp", "headers": [{"name": "H", "value": "1"}]},
            {"name": "d", "type": "sse", "url": "https://d.example", "headers": []},
            {"name": "e", "type": "remote", "url": "https://e.example", "headers": {"H": "1"}},
        ]);
        let servers = parse(Some(&list)).unwrap();
        assert_eq!(servers.keys().collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
        let McpConfig::Local { command, environment, .. } = &servers["a"] else { panic!("not local") };
        assert_eq!((command.join(" "), environment.as_ref().unwrap()["K"].as_str()), ("/bin/a -x".to_owned(), "v"));
        assert!(matches!(&servers["b"], McpConfig::Local { command, .. } if command.len() == 3));
        assert!(matches!(&servers["e"], McpConfig::Remote { headers: Some(headers), .. } if headers["H"] == "1"));
    }

    #[test]
    fn errors_name_the_field() {
        for (list, want) in [
            (json!({}), "must be a list"),
            (json!([{"command": "x"}]), "mcpServers[0].name"),
            (json!([{"name": "a"}]), ".command"),
            (json!([{"name": "a", "command": ""}]), ".command is empty"),
            (json!([{"name": "a", "command": "x", "args": [1]}]), ".args"),
            (json!([{"name": "a", "command": "x", "env": [{"name": 1}]}]), ".env"),
            (json!([{"name": "a", "type": "http", "url": "nope"}]), ".url"),
            (json!([{"name": "a", "type": "acp"}]), "not supported"),
            (json!([{"name": "a", "command": "x"}, {"name": "a", "command": "y"}]), "twice"),
            (json!([5]), "mcpServers[0].name"),
        ] {
            let error = parse(Some(&list)).unwrap_err();
            assert!(error.message.contains(want), "{list}: {error}");
        }
        assert!(parse(None).unwrap().is_empty());
    }
}
