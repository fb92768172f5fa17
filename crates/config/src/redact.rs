//! Masks secrets for display in a configuration, options, a command line or a text. Secrets are recognised by their
//! position (after a key, option or header), by their form, and by the values in the environment and the stored
//! credentials; what may be a secret counts as one. Placeholders stay: they say where a secret is, not what it is.

mod shape;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use api::{Json, JsonMap};

use crate::load::substitute::has_placeholder;
use crate::provider::credentials;
use shape::{is_secret_name, looks_random, tokens};

/// Shown instead of a secret.
pub(crate) const MASK: &str = "***";
/// The minimum length of values from the environment or stored credentials to search for, in bytes.
const MIN_KNOWN: usize = 8;
/// Sections whose texts are prose, rules or names: no position in them indicates a secret.
const PROSE_SECTIONS: &[&str] = &[
    "$schema",
    "command",
    "default_agent",
    "disabled_providers",
    "enabled_providers",
    "env",
    "instructions",
    "model",
    "permission",
    "shell",
    "skills",
    "small_model",
    "tools",
    "username",
];
/// Keys of names, wherever they occur: a name may look like an option with a value (`vendor/key-model:free`).
const NAMES: &[&str] = &["family", "id", "model", "name", "npm", "release_date"];
/// Likewise, for the keys of an agent.
const PROSE_FIELDS: &[&str] =
    &["permission", "tools", "prompt", "description", "name", "model", "variant", "mode", "color", "isolation"];
/// Objects whose values are all secret.
const SECRET_OBJECTS: &[&str] = &["headers", "environment", "env"];
/// Options of well-known programs whose argument is a header, or a name and a password.
const HEADER_OPTIONS: &[&str] = &["-H", "--header", "--headers"];
const USER_OPTIONS: &[&str] = &["-u", "--user", "--proxy-user"];
/// Words that precede a credential.
const SCHEMES: &[&str] = &["bearer", "basic", "token"];

/// Masks secrets. Cheap to clone; its `Debug` output reveals nothing.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<[String]>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// Knows the secrets in an environment, and the given ones.
    pub fn new(env: &BTreeMap<String, String>, credentials: impl IntoIterator<Item = String>) -> Self {
        let named = env.iter().filter(|(name, _)| is_secret_name(name)).map(|(_, value)| value.clone());
        let mut known: Vec<String> = named.chain(credentials).filter(|value| value.len() >= MIN_KNOWN).collect();
        // Replace longer secrets first, since they may contain shorter ones.
        known.sort_by_key(|value| std::cmp::Reverse(value.len()));
        known.dedup();
        Self { known: known.into() }
    }

    /// Knows the secrets in an environment, and the stored credentials.
    pub fn read(env: &BTreeMap<String, String>, data: &Path) -> Self {
        Self::new(env, credentials::secrets(env, data))
    }

    /// Masks secrets in a merged configuration.
    pub fn config(&self, config: &mut JsonMap) {
        for (key, section) in config {
            match key.as_str() {
                prose if PROSE_SECTIONS.contains(&prose) => self.prose(section),
                "agent" | "mode" => {
                    for agent in section.as_object_mut().into_iter().flat_map(JsonMap::values_mut) {
                        self.agent(agent);
                    }
                }
                _ => self.entry(key, section, false),
            }
        }
    }

    fn agent(&self, agent: &mut Json) {
        for (key, value) in agent.as_object_mut().into_iter().flatten() {
            if PROSE_FIELDS.contains(&key.as_str()) { self.prose(value) } else { self.entry(key, value, false) }
        }
    }

    /// Masks secrets in options.
    pub fn options(&self, options: &mut JsonMap) {
        for (key, value) in options {
            self.entry(key, value, false);
        }
    }

    /// Masks secrets that are recognisable in any text: in URLs, by their form, and known ones.
    pub fn text(&self, text: &str) -> String {
        let text = self.known.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), MASK));
        tokens(&mask_urls(&text), MASK)
    }

    fn prose(&self, value: &mut Json) {
        match value {
            Json::String(text) => *text = self.text(text),
            Json::Array(list) => list.iter_mut().for_each(|value| self.prose(value)),
            Json::Object(map) => map.values_mut().for_each(|value| self.prose(value)),
            _ => {}
        }
    }

    fn value(&self, value: &mut Json, secret: bool) {
        match value {
            Json::String(text) if secret => mask(text),
            Json::String(text) => *text = self.words(text),
            Json::Array(list) => self.list(list, secret),
            Json::Object(map) => {
                for (key, value) in map {
                    self.entry(key, value, secret);
                }
            }
            _ => {}
        }
    }

    fn entry(&self, key: &str, value: &mut Json, secret: bool) {
        if !secret && NAMES.contains(&key) && value.is_string() {
            return self.prose(value);
        }
        let named = is_secret_name(key) && !value.is_object();
        // A provider's `env` is a list of names, a server's is an object of values.
        let holds = SECRET_OBJECTS.contains(&key.to_lowercase().as_str()) && value.is_object();
        self.value(value, secret || named || holds);
    }

    /// A list may be a program and its arguments, where an option determines what the next argument is.
    fn list(&self, list: &mut [Json], secret: bool) {
        let mut before = String::new();
        for value in list {
            let Json::String(text) = value else {
                self.value(value, secret);
                before.clear();
                continue;
            };
            let option = std::mem::replace(&mut before, text.clone());
            let argument = !text.starts_with('-');
            if secret || (argument && (names_secret(&option) || USER_OPTIONS.contains(&option.as_str()))) {
                mask(text);
            } else if argument && HEADER_OPTIONS.contains(&option.as_str()) {
                mask_after(text, &[':', '=']);
            } else {
                *text = self.words(text);
            }
        }
    }

    /// Masks what follows an option, a name or a header in a text that may be a command line.
    fn words(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut state = Preceding::Nothing;
        for word in text.split_inclusive(char::is_whitespace) {
            let bare = word.trim_end();
            let (blank, quote) = (&word[bare.len()..], bare.chars().next().filter(|c| matches!(c, '"' | '\'')));
            let mut shown = bare.to_owned();
            let mut next = Preceding::Nothing;
            match state {
                _ if bare.is_empty() => next = state,
                Preceding::Option if !bare.starts_with('-') => mask(&mut shown),
                Preceding::Header(until) => {
                    if !SCHEMES.contains(&bare.to_lowercase().as_str()) {
                        mask(&mut shown);
                    }
                    let ends = until.is_some_and(|quote| bare.ends_with(quote));
                    next = if ends { Preceding::Nothing } else { state };
                }
                Preceding::Option | Preceding::Nothing => {
                    let scheme = SCHEMES.contains(&unquoted(bare).to_lowercase().as_str());
                    if scheme || names_secret(unquoted(bare)) || USER_OPTIONS.contains(&unquoted(bare)) {
                        next = Preceding::Option;
                    } else if let Some(name) = unquoted(bare).strip_suffix(':')
                        && is_secret_name(name)
                    {
                        next = Preceding::Header(quote);
                    } else {
                        self.word(&mut shown);
                    }
                }
            }
            state = next;
            out.push_str(&shown);
            out.push_str(blank);
        }
        self.text(&out)
    }

    /// Masks the value in `NAME=value`, `--name=value` and `Name:value`.
    fn word(&self, word: &mut String) {
        let name = word.split(['=', ':']).next().unwrap_or_default();
        let address = word[name.len()..].starts_with("://");
        if name.len() < word.len() && !address && is_secret_name(name.trim_start_matches(['-', '"', '\''])) {
            mask_after(word, &['=', ':']);
        }
    }
}

/// What precedes a word of a command line.
#[derive(Clone, Copy)]
enum Preceding {
    Nothing,
    /// An option with a secret argument, or an authentication scheme.
    Option,
    /// The name of a header, which started with this quote.
    Header(Option<char>),
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

/// Whether a word is an option whose argument, the next word, is a secret.
fn names_secret(word: &str) -> bool {
    word.starts_with('-') && !word.contains('=') && is_secret_name(word.trim_start_matches('-'))
}

fn mask(text: &mut String) {
    if !text.is_empty() && !has_placeholder(text) {
        *text = MASK.to_owned();
    }
}

/// Masks what follows the first separator, without surrounding blanks.
fn mask_after(text: &mut String, separators: &[char]) {
    let Some(at) = text.find(separators).map(|at| at + 1) else { return mask(text) };
    let blank = text[at..].len() - text[at..].trim_start().len();
    if at + blank < text.len() && !has_placeholder(&text[at..]) {
        text.replace_range(at + blank.., MASK);
    }
}

/// Masks the user in URLs, and possible secrets in the path and after it.
fn mask_urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, address) = rest.split_at(at + 3);
        out.push_str(before);
        let length = address.find(|c: char| c.is_whitespace() || "\"'<>`".contains(c)).unwrap_or(address.len());
        let (address, after) = address.split_at(length);
        out.push_str(&mask_url(address));
        rest = after;
    }
    out.push_str(rest);
    out
}

fn mask_url(address: &str) -> String {
    let host_length = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (host, rest) = address.split_at(host_length);
    let host = match host.rfind('@') {
        Some(at) if !has_placeholder(&host[..at]) => format!("{MASK}{}", &host[at..]),
        _ => host.to_owned(),
    };
    let path_length = rest.find(['?', '#']).unwrap_or(rest.len());
    let (path, query) = rest.split_at(path_length);
    let path: Vec<&str> = path.split('/').map(|step| if looks_random(step, 20) { MASK } else { step }).collect();
    let mut out = format!("{host}{}", path.join("/"));
    for part in query.split_inclusive(['?', '&', '#', ';']) {
        let (pair, end) = match part.char_indices().next_back() {
            Some((at, '?' | '&' | '#' | ';')) => part.split_at(at),
            _ => (part, ""),
        };
        match pair.split_once('=') {
            Some((name, value)) if !has_placeholder(value) && !value.is_empty() => {
                let secret = is_secret_name(name) || looks_random(value, 16);
                out.push_str(&format!("{name}={}", if secret { MASK } else { value }));
            }
            None if looks_random(pair, 16) => out.push_str(MASK),
            _ => out.push_str(pair),
        }
        out.push_str(end);
    }
    out
}

#[cfg(test)]
mod tests;
