//! Agent cards as peers publish them, of both lines, and which interface of a peer to use. Pure.

use api::Json;
use url::Url;

use super::{ClientError, ClientOptions};
use crate::model::Line;
use crate::wire::{self, Dialect, PeerInterface, Transport};

/// The paths of cards below an agent's URL, the current one first.
pub(super) const CARD_PATHS: [&str; 2] = [".well-known/agent-card.json", ".well-known/agent.json"];
/// The most skills, extensions or schemes of a card that are read.
const MAX_ENTRIES: usize = 100;

/// The extensions that make an answer say more: which a client asks for where a card has them.
const WANTED: [wire::Extension; 3] =
    [wire::Extension::SessionBinding, wire::Extension::StreamHints, wire::Extension::InteractiveInterrupt];

/// An agent card.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentCard {
    /// The agent's name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Its version.
    pub version: String,
    /// Where it can be reached in a way that this client knows, in its order of preference.
    pub interfaces: Vec<PeerInterface>,
    /// Whether it streams.
    pub streaming: bool,
    /// Whether it sends notifications.
    pub push: bool,
    /// Whether authenticated clients get a card with more in it.
    pub has_extended: bool,
    /// What it can do.
    pub skills: Vec<Skill>,
    /// The extensions that it has.
    pub extensions: Vec<Extension>,
    /// The ways to authenticate: name and description of each.
    pub security: Vec<(String, String)>,
    /// The card as it is.
    pub document: Json,
}

/// A skill of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
}

/// An extension of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// What identifies it.
    pub uri: String,
    /// What it is.
    pub description: String,
    /// Whether clients must support it.
    pub required: bool,
}

/// An interface that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub url: Url,
    pub dialect: Dialect,
    pub tenant: Option<String>,
}

impl AgentCard {
    /// Reads a card of either line.
    pub(super) fn read(body: &[u8]) -> Result<Self, crate::Error> {
        let card = wire::parse_card(body)?;
        let document = card.document;
        let capabilities = &document["capabilities"];
        let flag = |value: &Json| value.as_bool().unwrap_or(false);
        let skill = |skill: &Json| Skill {
            id: text(skill, "id"),
            name: text(skill, "name"),
            description: text(skill, "description"),
        };
        let extension = |extension: &Json| Extension {
            uri: text(extension, "uri"),
            description: text(extension, "description"),
            required: flag(&extension["required"]),
        };
        Ok(Self {
            name: card.name,
            description: card.description,
            version: card.version,
            interfaces: card.interfaces,
            streaming: card.streaming,
            push: flag(&capabilities["pushNotifications"]),
            has_extended: card.extended_card,
            skills: list(&document["skills"]).map(skill).collect(),
            extensions: list(&capabilities["extensions"]).map(extension).collect(),
            security: security(&document),
            document,
        })
    }

    /// The interface to use: of the newest line that both sides speak, and of the transport that either the card or this
    /// client prefers.
    pub(super) fn choose(&self, options: &ClientOptions) -> Result<Choice, ClientError> {
        let lines = Line::ALL.into_iter().rev().filter(|line| options.line.is_none_or(|only| only == *line));
        for line in lines {
            let rank = |transport| options.transports.iter().position(|one| *one == transport);
            let usable =
                |one: &&PeerInterface| one.line == line && rank(one.transport).is_some() && http_url(one).is_some();
            let mut usable: Vec<&PeerInterface> = self.interfaces.iter().filter(usable).collect();
            if options.use_client_preference {
                usable.sort_by_key(|one| rank(one.transport));
            }
            if let Some((one, url)) = usable.first().and_then(|one| Some((one, http_url(one)?))) {
                let dialect = Dialect { payload: line, errors: line, transport: one.transport };
                return Ok(Choice { url, dialect, tenant: one.tenant.clone() });
            }
        }
        Err(self.no_interface(options))
    }

    /// The interface for methods of extensions, which need JSON-RPC: that choice, or another one of the same line.
    pub(super) fn choose_rpc(&self, choice: &Choice) -> Option<Choice> {
        if choice.dialect.transport == Transport::JsonRpc {
            return Some(choice.clone());
        }
        let line = choice.dialect.payload;
        let is_rpc = |one: &&PeerInterface| one.line == line && one.transport == Transport::JsonRpc;
        let found = self.interfaces.iter().filter(is_rpc);
        found.filter_map(|one| Some((one, http_url(one)?))).next().map(|(one, url)| Choice {
            url,
            dialect: Dialect { payload: line, errors: line, transport: Transport::JsonRpc },
            tenant: one.tenant.clone(),
        })
    }

    /// Whether it has an extension.
    pub(crate) fn has(&self, extension: wire::Extension) -> bool {
        self.extensions.iter().any(|one| wire::Extension::parse(&one.uri) == Some(extension))
    }

    fn no_interface(&self, options: &ClientOptions) -> ClientError {
        let offered =
            self.interfaces.iter().map(|one| format!("{} {} at {}", transport_name(one.transport), one.line, one.url));
        let offered: Vec<String> = offered.collect();
        let wanted: Vec<&str> = options.transports.iter().copied().map(transport_name).collect();
        let line = options.line.map_or_else(|| "0.3 or 1.0".to_owned(), |line| line.to_string());
        ClientError::NoInterface {
            offered: if offered.is_empty() {
                "no interface that this client knows".to_owned()
            } else {
                offered.join(", ")
            },
            wanted: format!("{} in {line}", wanted.join(" or ")),
        }
    }

    /// The extensions to ask for, as the card names them.
    pub(super) fn wanted_extensions(&self) -> Vec<String> {
        let known = self
            .extensions
            .iter()
            .filter(|one| wire::Extension::parse(&one.uri).is_some_and(|extension| WANTED.contains(&extension)));
        known.map(|one| one.uri.clone()).collect()
    }
}

/// The name of a transport, as cards spell it.
pub fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::JsonRpc => "JSONRPC",
        Transport::Rest => "HTTP+JSON",
    }
}

fn http_url(interface: &PeerInterface) -> Option<Url> {
    Url::parse(&interface.url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// The schemes of a card. In 1.0 each is wrapped in its kind.
fn security(raw: &Json) -> Vec<(String, String)> {
    let schemes = raw["securitySchemes"].as_object().into_iter().flatten().take(MAX_ENTRIES);
    let describe = |(name, scheme): (&String, &Json)| {
        let inner = scheme.as_object().and_then(|map| match map.get("type") {
            Some(_) => None,
            None => map.values().find(|value| value.is_object()),
        });
        let body = inner.unwrap_or(scheme);
        let kind = ["scheme", "type", "name"].into_iter().find_map(|key| body[key].as_str()).unwrap_or("unknown");
        let description = body["description"].as_str().unwrap_or_default();
        (name.clone(), if description.is_empty() { kind.to_owned() } else { format!("{kind}: {description}") })
    };
    schemes.map(describe).collect()
}

fn list(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten().take(MAX_ENTRIES)
}

fn text(value: &Json, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// The URLs at which the card of an agent may be: of its own, if the URL is that of a card, else below it.
pub(super) fn card_urls(url: &Url) -> Vec<Url> {
    let path = url.path();
    if CARD_PATHS.iter().any(|card| path.strip_suffix(card).is_some_and(|base| base.ends_with('/'))) {
        return vec![url.clone()];
    }
    let base = format!("{}/", path.trim_end_matches('/'));
    let below = |card: &&str| {
        let mut found = url.clone();
        found.set_path(&format!("{base}{card}"));
        found.set_query(None);
        found.set_fragment(None);
        found
    };
    CARD_PATHS.iter().map(below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn options() -> ClientOptions {
        ClientOptions::default()
    }

    fn card(body: &Json) -> AgentCard {
        AgentCard::read(body.to_string().as_bytes()).unwrap()
    }

    fn old() -> Json {
        json!({
            "name": "old", "version": "1", "url": "http://a/rest", "preferredTransport": "HTTP+JSON", "protocolVersion": "0.3.0",
            "additionalInterfaces": [{"transport": "HTTP+JSON", "url": "http://a/rest"}, {"transport": "JSONRPC", "url": "http://a/rpc"}],
        })
    }

    #[test]
    fn a_card_is_found_from_its_own_url_or_the_agents() {
        let urls = |url: &str| card_urls(&Url::parse(url).unwrap()).iter().map(Url::to_string).collect::<Vec<_>>();
        for own in ["http://a/.well-known/agent-card.json", "http://a/b/.well-known/agent.json"] {
            assert_eq!(urls(own), [own]);
        }
        let below = ["http://a/b/.well-known/agent-card.json", "http://a/b/.well-known/agent.json"];
        assert_eq!(urls("http://a/b"), below);
        assert_eq!(urls("http://a/b/?x=1#y"), below);
    }

    #[test]
    fn the_order_of_the_card_decides_unless_the_client_prefers_its_own() {
        let chosen = |options: &ClientOptions| card(&old()).choose(options).unwrap();
        let first = chosen(&options());
        assert_eq!((first.url.as_str(), first.dialect), ("http://a/rest", Dialect::of(Line::V03, Transport::Rest)));
        let own = chosen(&ClientOptions { use_client_preference: true, ..options() });
        assert_eq!((own.url.as_str(), own.dialect.transport), ("http://a/rpc", Transport::JsonRpc));
        let only = chosen(&ClientOptions { transports: vec![Transport::JsonRpc], ..options() });
        assert_eq!(only.dialect.transport, Transport::JsonRpc);
    }

    #[test]
    fn the_newest_common_line_is_spoken() {
        let mut both = old();
        both["supportedInterfaces"] = json!([
            {"url": "https://a/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "https://a/one", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t"},
        ]);
        let both = card(&both);
        let chosen = both.choose(&options()).unwrap();
        assert_eq!(
            (chosen.dialect.payload, chosen.url.as_str(), chosen.tenant.as_deref()),
            (Line::V10, "https://a/one", Some("t"))
        );
        let older = both.choose(&ClientOptions { line: Some(Line::V03), ..options() }).unwrap();
        assert_eq!(older.dialect.payload, Line::V03);
    }

    #[test]
    fn a_card_without_a_usable_interface_says_what_it_offers() {
        let only = ClientOptions { transports: vec![Transport::JsonRpc], line: Some(Line::V10), ..options() };
        let error = card(&old()).choose(&only).unwrap_err().to_string();
        assert!(error.contains("HTTP+JSON 0.3 at http://a/rest"), "{error}");
        assert!(error.contains("JSONRPC in 1.0"), "{error}");
        let mut strange = old();
        strange["url"] = "ftp://a".into();
        strange["additionalInterfaces"] = json!([]);
        assert!(card(&strange).choose(&options()).is_err(), "a URL that is no HTTP");
    }

    #[test]
    fn only_known_extensions_are_asked_for() {
        let mut body = old();
        let hints = wire::Extension::StreamHints.urn();
        body["capabilities"] = json!({"extensions": [{"uri": hints}, {"uri": "urn:other"}]});
        assert_eq!(card(&body).wanted_extensions(), [hints]);
    }

    #[test]
    fn security_is_read_in_both_shapes() {
        let mut body = old();
        body["securitySchemes"] = json!({
            "old": {"type": "http", "scheme": "bearer", "description": "a token"},
            "new": {"httpAuthSecurityScheme": {"scheme": "basic"}},
        });
        let expected =
            [("old", "bearer: a token"), ("new", "basic")].map(|(name, kind)| (name.to_owned(), kind.to_owned()));
        assert_eq!(card(&body).security, expected);
    }
}
