//! Providers and their models, ready to be called.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use api::{
    Capabilities, Cost, CostTier, Json, JsonMap, Limit, Modalities, Model, ModelApi, Provider, ProviderSource, Usd,
};

use crate::problem::Problem;
use crate::redact::{MASK, Redactor};
use crate::schema::provider::{ModelConfig, ProviderConfig};
use crate::schema::typed::Config;
use vendor::{COMPATIBLE, VENDORS, Vendor};

pub(crate) mod credentials;
#[cfg(test)]
mod tests;
pub(crate) mod vendor;

/// Stands for "no timeout": nothing waits forever.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The wire format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// OpenAI chat completions.
    OpenAiChat,
}

/// Timeouts of a provider; `None` leaves it to the caller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// For a complete answer.
    pub total: Option<Duration>,
    /// Until the answer starts.
    pub header: Option<Duration>,
    /// Between two chunks.
    pub chunk: Option<Duration>,
}

/// A usable provider. It holds its key, so its `Debug` output does not reveal it.
#[derive(Clone, PartialEq)]
pub struct ProviderEntry {
    /// What clients may see: no key, no headers.
    pub provider: Provider,
    /// The base URL, without a trailing slash. A model's own `api.url` takes precedence.
    pub base_url: String,
    /// The key.
    pub api_key: Option<String>,
    /// Headers to send with each request.
    pub headers: Vec<(String, String)>,
    /// Its wire format.
    pub wire: Wire,
    /// Its timeouts.
    pub timeouts: Timeouts,
}

impl ProviderEntry {
    /// Whether its models are not configured, so that its server has to list them.
    pub fn lists_models(&self) -> bool {
        self.provider.models.is_empty()
    }

    /// The path below its URL where the vendor confirms a key, if its list of models does not.
    pub fn key_check(&self) -> Option<&'static str> {
        vendor::key_check(&self.provider.id)
    }

    /// The models of its vendor that suit an agent, the best first; none if the vendor is not known.
    pub fn preferred_models(&self) -> &'static [&'static str] {
        vendor::preferred(&self.provider.id)
    }

    /// A model that its server listed, of which nothing else is known.
    pub fn listed_model(&self, id: &str) -> Model {
        Model {
            id: id.to_owned(),
            name: id.to_owned(),
            provider_id: self.provider.id.clone(),
            api: ModelApi { id: id.to_owned(), url: self.base_url.clone(), npm: COMPATIBLE.to_owned() },
            ..vendor::blank()
        }
    }
}

impl fmt::Debug for ProviderEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderEntry").field("id", &self.provider.id).finish_non_exhaustive()
    }
}

/// A provider that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableProvider {
    /// The reason, a colon, and how to fix it.
    pub why: String,
    /// Whether the user meant to use it: it is configured, or its key is set.
    pub meant: bool,
}

/// All configured and known providers.
#[derive(Debug, Default)]
pub(crate) struct Providers {
    /// Usable ones: those of the configuration in order, then known vendors that have a key.
    pub(crate) usable: Vec<ProviderEntry>,
    /// The others, by id.
    pub(crate) unusable: BTreeMap<String, UnusableProvider>,
}

/// Determines which providers are usable.
pub(crate) fn providers(
    config: &Config,
    env: &BTreeMap<String, String>,
    keys: &BTreeMap<String, String>,
    problems: &mut Vec<Problem>,
) -> Providers {
    let nothing = ProviderConfig::default();
    let has_key = |vendor: &Vendor| vendor.env.iter().any(|name| set(env, name).is_some());
    let has_address = |vendor: &Vendor| vendor.id == "openai" && set(env, "OPENAI_BASE_URL").is_some();
    let mut all = Providers::default();
    for vendor in VENDORS.iter().filter(|vendor| !config.provider.contains_key(vendor.id)) {
        let id = vendor.id.to_owned();
        all.unusable.insert(id, UnusableProvider { why: how_to_connect(vendor), meant: false });
    }
    for vendor in vendor::UNSUPPORTED_VENDORS.iter().filter(|vendor| !config.provider.contains_key(vendor.id)) {
        let meant = keys.contains_key(vendor.id) || vendor.env.iter().any(|name| set(env, name).is_some());
        all.unusable
            .insert(vendor.id.to_owned(), UnusableProvider { why: unsupported_wire(vendor.id, vendor.wire), meant });
    }
    let vendors = VENDORS.iter().filter(|vendor| !config.provider.contains_key(vendor.id));
    let vendors = vendors.filter(|vendor| keys.contains_key(vendor.id) || has_key(vendor) || has_address(vendor));
    let vendors = vendors.map(|vendor| (vendor.id, &nothing));
    for (id, provider) in config.provider.iter().map(|(id, provider)| (id.as_str(), provider)).chain(vendors) {
        let refuse = |why: String, all: &mut Providers| {
            all.unusable.insert(id.to_owned(), UnusableProvider { why, meant: true });
        };
        if let Some(why) = why_disabled(config, id) {
            refuse(why, &mut all);
            continue;
        }
        let key = keys.get(id).map(String::as_str);
        match (Builder { id, config: provider, env, key, problems }).entry() {
            Ok(entry) => {
                all.unusable.remove(id);
                all.usable.push(entry);
            }
            Err(why) => {
                problems.push(Problem::warning(why.clone()).about(format!("provider.{id}")));
                refuse(why, &mut all);
            }
        }
    }
    all
}

/// How to connect a known vendor that is not configured.
fn how_to_connect(vendor: &Vendor) -> String {
    let Vendor { id, url, env, .. } = vendor;
    match env.first() {
        Some(name) => no_key(id, name),
        None => format!(
            "{id} is not configured: add {{\"provider\": {{\"{id}\": {{}}}}}} to trefoil.json, or set OPENAI_BASE_URL={url}"
        ),
    }
}

fn no_key(id: &str, variable: &str) -> String {
    format!("{id} has no key: set {variable}, or store one with `trefoil auth login {id}`")
}

fn unsupported_wire(id: &str, wire: &str) -> String {
    format!("{id} speaks {wire}: {SUPPORTED_WIRES}")
}

/// Why the configuration disables a provider, if it does.
fn why_disabled(config: &Config, id: &str) -> Option<String> {
    if config.disabled_providers.iter().any(|disabled| disabled == id) {
        return Some(format!("{id} is switched off: remove it from `disabled_providers` in the configuration"));
    }
    let enabled = config.enabled_providers.as_ref()?;
    let missing = !enabled.iter().any(|enabled| enabled == id);
    missing.then(|| format!("{id} is switched off: add it to `enabled_providers` in the configuration"))
}

/// What Trefoil supports, for messages about anything else.
const SUPPORTED_WIRES: &str =
    "today Trefoil speaks OpenAI chat completions; OpenAI Responses, Anthropic Messages and Gemini are planned";

/// Vendors that only need a key: their URL and their models are known.
pub(crate) fn connectable(config: &Config, connected: &[ProviderEntry]) -> Vec<Provider> {
    let absent = |id: &str| connected.iter().all(|entry| entry.provider.id != id) && why_disabled(config, id).is_none();
    let vendors = VENDORS.iter().filter(|vendor| vendor.id == "openai" && absent(vendor.id));
    vendors
        .map(|vendor| Provider {
            id: vendor.id.to_owned(),
            name: vendor.name.to_owned(),
            source: ProviderSource::Custom,
            env: vendor.env.iter().map(|name| (*name).to_owned()).collect(),
            key: None,
            options: JsonMap::new(),
            models: vendor::openai_models()
                .map(|mut model| {
                    model.provider_id = vendor.id.to_owned();
                    model.api =
                        ModelApi { id: model.id.clone(), url: vendor.url.to_owned(), npm: COMPATIBLE.to_owned() };
                    (model.id.clone(), model)
                })
                .collect(),
        })
        .collect()
}

/// A provider as clients may see it: possible secrets in its options and its models' headers are masked.
pub fn presentable(provider: &Provider, redactor: &Redactor) -> Provider {
    let mut shown = Provider { key: None, ..provider.clone() };
    redactor.options(&mut shown.options);
    for model in shown.models.values_mut() {
        redactor.options(&mut model.options);
        model.api.url = redactor.text(&model.api.url);
        model.headers.values_mut().for_each(|value| *value = MASK.to_owned());
        for options in model.variants.iter_mut().flat_map(|variants| variants.values_mut()) {
            redactor.options(options);
        }
    }
    shown
}

fn set<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    env.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

struct Builder<'a> {
    id: &'a str,
    config: &'a ProviderConfig,
    env: &'a BTreeMap<String, String>,
    /// The stored key.
    key: Option<&'a str>,
    problems: &'a mut Vec<Problem>,
}

impl Builder<'_> {
    fn entry(mut self) -> Result<ProviderEntry, String> {
        let id = self.id;
        let vendor = VENDORS.iter().find(|vendor| vendor.id == id);
        self.check_wire(self.config.npm.as_deref())?;
        let base_url = self.base_url(vendor)?;
        let variables = match (&self.config.env, vendor) {
            (Some(names), _) => names.clone(),
            (None, vendor) => {
                vendor.map_or(&[][..], |vendor| vendor.env).iter().map(|name| (*name).to_owned()).collect()
            }
        };
        let option = |name: &str| self.config.options.get(name);
        let api_key = option("apiKey").and_then(Json::as_str).filter(|key| !key.is_empty());
        let api_key = api_key.or(self.key).or_else(|| variables.iter().find_map(|name| set(self.env, name)));
        let own_address = vendor.is_some_and(|vendor| vendor.url == base_url);
        if let (None, true, Some(name)) = (api_key, own_address, vendor.and_then(|vendor| vendor.env.first())) {
            return Err(no_key(id, name));
        }
        let headers = option("headers").and_then(Json::as_object).into_iter().flatten();
        let headers = headers.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        let mut options = self.config.options.clone();
        options.retain(|name, _| !matches!(name.as_str(), "apiKey" | "headers"));
        let timeouts = Timeouts {
            total: option("timeout").and_then(timeout),
            header: option("headerTimeout").and_then(timeout),
            chunk: option("chunkTimeout").and_then(timeout),
        };
        let api_key = api_key.map(str::to_owned);
        let configured = !self.config.options.is_empty() || !self.config.models.is_empty();
        let provider = Provider {
            id: id.to_owned(),
            name: self.config.name.as_deref().or(vendor.map(|vendor| vendor.name)).unwrap_or(id).to_owned(),
            source: match (configured, self.key) {
                (true, _) => ProviderSource::Config,
                (false, Some(_)) => ProviderSource::Api,
                (false, None) => ProviderSource::Env,
            },
            env: variables,
            key: None,
            options,
            models: self.models(&base_url, own_address).map(|model| (model.id.clone(), model)).collect(),
        };
        Ok(ProviderEntry { provider, base_url, api_key, headers, wire: Wire::OpenAiChat, timeouts })
    }

    fn check_wire(&self, npm: Option<&str>) -> Result<(), String> {
        let id = self.id;
        if let Some(wire) = vendor::unsupported_wire(id, npm) {
            return Err(unsupported_wire(id, wire));
        }
        match npm {
            Some(npm) if !vendor::speaks_chat(npm) => Err(format!(
                "provider.{id}: the package {npm} is not known: {SUPPORTED_WIRES}; servers that speak it use {COMPATIBLE}"
            )),
            _ => Ok(()),
        }
    }

    fn base_url(&self, vendor: Option<&Vendor>) -> Result<String, String> {
        let id = self.id;
        let written = self.config.options.get("baseURL").and_then(Json::as_str).or(self.config.api.as_deref());
        let from_env = || set(self.env, "OPENAI_BASE_URL").filter(|_| id == "openai");
        let url = written.or_else(from_env).or(vendor.map(|vendor| vendor.url));
        let url = url.ok_or_else(|| {
            format!("provider.{id} has no address: set provider.{id}.options.baseURL, or trust the file that sets it")
        })?;
        let url = url.trim().trim_end_matches('/');
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(format!("provider.{id}: the address must begin with http:// or https://"));
        }
        Ok(url.to_owned())
    }

    /// The vendor's models if it has its usual URL, with the configured changes applied.
    fn models(&mut self, base_url: &str, own_address: bool) -> impl Iterator<Item = Model> + use<> {
        let mut models: Vec<Model> = Vec::new();
        if self.id == "openai" {
            if own_address {
                models.extend(vendor::openai_models());
            }
            if let Some(id) = set(self.env, "OPENAI_MODEL")
                && models.iter().all(|model| model.id != id)
            {
                models.insert(0, Model { id: id.to_owned(), name: id.to_owned(), ..vendor::blank() });
            }
        }
        for (id, config) in &self.config.models {
            if let Err(message) = self.check_wire(config.provider.npm.as_deref().or(self.config.npm.as_deref())) {
                self.problems.push(Problem::warning(message).about(format!("provider.{}.models.{id}", self.id)));
                continue;
            }
            match models.iter_mut().find(|model| model.id == *id) {
                Some(model) => apply_config(model, config),
                None => {
                    let mut model = Model { id: id.clone(), name: id.clone(), ..vendor::blank() };
                    apply_config(&mut model, config);
                    models.push(model);
                }
            }
        }
        models.retain(|model| {
            self.config.whitelist.as_ref().is_none_or(|ids| ids.contains(&model.id))
                && !self.config.blacklist.contains(&model.id)
        });
        for model in &mut models {
            let config = self.config.models.get(&model.id);
            let own = config.map(|config| &config.provider);
            let npm = own.and_then(|own| own.npm.clone()).or_else(|| self.config.npm.clone());
            let url = own.and_then(|own| own.api.as_deref()).map(|url| url.trim_end_matches('/'));
            model.provider_id = self.id.to_owned();
            model.api = ModelApi {
                id: config.and_then(|config| config.id.clone()).unwrap_or_else(|| model.id.clone()),
                url: url.unwrap_or(base_url).to_owned(),
                npm: npm.unwrap_or_else(|| COMPATIBLE.to_owned()),
            };
        }
        models.into_iter()
    }
}

/// A timeout in milliseconds; `false` is the maximum.
fn timeout(value: &Json) -> Option<Duration> {
    match value {
        Json::Bool(false) => Some(MAX_TIMEOUT),
        value => value.as_u64().map(|millis| Duration::from_millis(millis).min(MAX_TIMEOUT)),
    }
}

fn apply_config(model: &mut Model, config: &ModelConfig) {
    fn put<T: Clone>(slot: &mut T, value: &Option<T>) {
        if let Some(value) = value {
            slot.clone_from(value);
        }
    }
    put(&mut model.name, &config.name);
    put(&mut model.release_date, &config.release_date);
    put(&mut model.status, &config.status);
    if config.family.is_some() {
        model.family.clone_from(&config.family);
    }
    let Capabilities { temperature, reasoning, attachment, toolcall, input, output, interleaved } =
        &mut model.capabilities;
    put(temperature, &config.temperature);
    put(reasoning, &config.reasoning);
    put(attachment, &config.attachment);
    put(toolcall, &config.tool_call);
    put(interleaved, &config.interleaved);
    let kinds = config.modalities.as_ref();
    match kinds.and_then(|kinds| kinds.input.as_deref()) {
        Some(kinds) => *input = modalities(kinds),
        // "Attachments" without saying which means images.
        None if config.attachment == Some(true) => input.image = true,
        None => {}
    }
    if let Some(kinds) = kinds.and_then(|kinds| kinds.output.as_deref()) {
        *output = modalities(kinds);
    }
    if let Some(price) = &config.cost {
        let cache = CostTier { read: Usd(price.cache_read), write: Usd(price.cache_write) };
        model.cost = Cost { input: Usd(price.input), output: Usd(price.output), cache };
    }
    if let Some(limit) = &config.limit {
        model.limit = Limit { context: limit.context, input: limit.input, output: limit.output };
    }
    model.options.extend(config.options.clone());
    model.headers.extend(config.headers.clone());
    for (name, options) in &config.variants {
        let variants = model.variants.get_or_insert_default();
        if options.get("disabled") == Some(&Json::Bool(true)) {
            variants.shift_remove(name);
        } else {
            let mut options = options.clone();
            options.shift_remove("disabled");
            variants.insert(name.clone(), options);
        }
    }
}

fn modalities(kinds: &[String]) -> Modalities {
    let has = |kind: &str| kinds.iter().any(|one| one == kind);
    Modalities { text: has("text"), audio: has("audio"), image: has("image"), video: has("video"), pdf: has("pdf") }
}
