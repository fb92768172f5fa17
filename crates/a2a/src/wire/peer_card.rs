//! The card of another agent, of either line.

use api::Json;

use super::dialect::{AskedVersion, Transport};
use super::fields::{Object, Path};
use crate::error::{Error, ErrorKind};
use crate::model::Line;

/// An interface of an agent that we can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInterface {
    /// Where it is.
    pub url: String,
    /// The line that it speaks.
    pub line: Line,
    /// How it speaks it.
    pub transport: Transport,
    /// The tenant that requests name.
    pub tenant: Option<String>,
}

/// What we need of an agent's card.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerCard {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Its version.
    pub version: String,
    /// Whether it streams.
    pub streaming: bool,
    /// Whether it has an extended card.
    pub extended_card: bool,
    /// Its interfaces that we can call, the best first as the agent orders them.
    pub interfaces: Vec<PeerInterface>,
    /// The identifiers of its extensions.
    pub extensions: Vec<String>,
    /// The whole card.
    pub document: Json,
}

/// Reads a card.
///
/// # Errors
/// It is no card, or has no interface that we can call.
pub fn parse_card(body: &[u8]) -> Result<PeerCard, Error> {
    let malformed = |what: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidAgentResponse, format!("The agent's card is malformed: {what}"))
    };
    let document: Json = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    let card = read(&document).map_err(|error| malformed(&error.message))?;
    if card.interfaces.is_empty() {
        let message = "The agent's card has no interface for A2A 0.3 or 1.0 with JSON-RPC or HTTP+JSON";
        return Err(Error::new(ErrorKind::InvalidAgentResponse, message));
    }
    Ok(card)
}

fn read(document: &Json) -> Result<PeerCard, Error> {
    let mut card = Object::new(document.clone(), Path::Root("card"))?;
    let capabilities = card.take("capabilities").unwrap_or_default();
    let flag = |name: &str| capabilities[name].as_bool().unwrap_or(false);
    let extensions = capabilities["extensions"].as_array().into_iter().flatten();
    let mut interfaces = new_interfaces(&mut card)?;
    for interface in old_interfaces(&mut card, interfaces.is_empty())? {
        if !interfaces.contains(&interface) {
            interfaces.push(interface);
        }
    }
    Ok(PeerCard {
        name: card.text("name")?.unwrap_or_default(),
        description: card.text("description")?.unwrap_or_default(),
        version: card.text("version")?.unwrap_or_default(),
        streaming: flag("streaming"),
        extended_card: flag("extendedAgentCard") || card.boolean("supportsAuthenticatedExtendedCard")?.unwrap_or(false),
        interfaces,
        extensions: extensions.filter_map(|extension| Some(extension["uri"].as_str()?.to_owned())).collect(),
        document: document.clone(),
    })
}

fn transport(name: &str) -> Option<Transport> {
    match name {
        "JSONRPC" => Some(Transport::JsonRpc),
        "HTTP+JSON" => Some(Transport::Rest),
        _ => None,
    }
}

fn new_interfaces(card: &mut Object<'_>) -> Result<Vec<PeerInterface>, Error> {
    let found = card.each("supportedInterfaces", |value, path| {
        let mut interface = Object::new(value, path)?;
        let binding = interface.text("protocolBinding")?.unwrap_or_default();
        let version = interface.text("protocolVersion")?.unwrap_or_default();
        let line = match AskedVersion::parse(&version) {
            AskedVersion::Line(line) => line,
            AskedVersion::Default => Line::V10,
            AskedVersion::Unknown(_) => return Ok(None),
        };
        let url = interface.required("url")?;
        let tenant = interface.filled("tenant")?;
        Ok(transport(&binding).map(|transport| PeerInterface { url, line, transport, tenant }))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// The interfaces of 0.3. `alone` tells that the card has no others, so that it need not name its version.
fn old_interfaces(card: &mut Object<'_>, alone: bool) -> Result<Vec<PeerInterface>, Error> {
    let version = card.text("protocolVersion")?.unwrap_or_default();
    let speaks = match AskedVersion::parse(&version) {
        AskedVersion::Line(line) => line == Line::V03,
        AskedVersion::Default => alone,
        AskedVersion::Unknown(_) => false,
    };
    if !speaks {
        return Ok(Vec::new());
    }
    let interface = |url: String, name: &str| {
        transport(name).map(|transport| PeerInterface { url, line: Line::V03, transport, tenant: None })
    };
    let preferred = card.text("preferredTransport")?.unwrap_or_else(|| "JSONRPC".to_owned());
    let mut interfaces: Vec<_> = card.filled("url")?.and_then(|url| interface(url, &preferred)).into_iter().collect();
    let additional = card.each("additionalInterfaces", |value, path| {
        let mut object = Object::new(value, path)?;
        let name = object.text("transport")?.unwrap_or_default();
        Ok(interface(object.required("url")?, &name))
    })?;
    for interface in additional.into_iter().flatten() {
        if !interfaces.contains(&interface) {
            interfaces.push(interface);
        }
    }
    Ok(interfaces)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn interfaces(card: Json) -> Vec<(String, Line, Transport)> {
        let card = parse_card(card.to_string().as_bytes()).unwrap();
        card.interfaces.into_iter().map(|it| (it.url, it.line, it.transport)).collect()
    }

    #[test]
    fn interfaces_of_both_lines_come_in_the_agents_order() {
        let card = json!({
            "name": "both", "url": "http://a", "protocolVersion": "0.3.0", "preferredTransport": "HTTP+JSON",
            "additionalInterfaces": [{"url": "http://a", "transport": "HTTP+JSON"}, {"url": "http://a", "transport": "GRPC"}],
            "supportedInterfaces": [
                {"url": "http://b", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
                {"url": "http://b", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                {"url": "http://b", "protocolBinding": "JSONRPC", "protocolVersion": "2.0"},
            ],
        });
        assert_eq!(
            interfaces(card),
            [("http://b".into(), Line::V10, Transport::JsonRpc), ("http://a".into(), Line::V03, Transport::Rest),]
        );
        assert_eq!(interfaces(json!({"url": "http://c"})), [("http://c".into(), Line::V03, Transport::JsonRpc)]);
    }

    #[test]
    fn a_card_without_an_interface_for_us_is_refused() {
        for card in [json!([]), json!({}), json!({"url": "x", "protocolVersion": "0.2.5"}), json!({"url": 5})] {
            let error = parse_card(card.to_string().as_bytes()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidAgentResponse, "{card}");
        }
    }
}
