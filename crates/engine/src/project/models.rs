//! Which model a prompt gets, the error if there is none, and how to reach a model.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{
    Capabilities, HostError, Limit, Modalities, Model, ModelApi, ModelRef, Provider, ProviderCatalog, ProviderSource,
    Tokens, Usd,
};
use config::{LoadedConfig, ProviderEntry, Wire};
use indexmap::IndexMap;
use llm::{ChatDialect, Endpoint, Llm, OpenAiChat, Timeouts, Usage};
use store::Store;

use crate::Inner;
use crate::project::instance::Instance;
use crate::spending::ledger::DEFAULT_OUTPUT_TOKENS;

/// The provider of scripted models.
pub(crate) const SCRIPT: &str = "script";
/// The script the user passed; it wins over every configured model.
const SCRIPT_FILE: &str = "file";
/// The script that always exists.
const SCRIPT_DEMO: &str = "demo";
/// The variable that names the model for prompts when nothing else does.
const FALLBACK: &str = "TREFOIL_FALLBACK_MODEL";
/// The record of the last used model.
const STATE: &str = "state";
const LAST_MODEL: &str = "last-model";
/// How many models an error lists.
const LISTED_MAX: usize = 12;
/// How long a server may take to list its models.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// How soon to ask again a server that did not answer or did not have the model.
const LIST_RETRY_AFTER: Duration = Duration::from_secs(5);
/// The advice for users who have no model.
const CONNECT: &str = "Set OPENAI_API_KEY, or OPENAI_BASE_URL for another server, or store a key with `trefoil auth \
                       login`; `trefoil demo` shows the agent at work without a model";

/// A model and how to reach it.
#[derive(Clone)]
pub(crate) struct ModelTarget {
    pub(crate) model: Model,
    pub(crate) endpoint: Endpoint,
}

/// The models of one directory: configured ones, those that servers list, and scripts. The one place that decides which
/// of them is used, and says what is missing if there is none.
pub struct Catalog {
    loaded: Arc<LoadedConfig>,
    script: Provider,
    /// The model for prompts when nothing else names one.
    fallback: Option<String>,
    /// How long an answer may be as the environment says it.
    max_output: Option<u64>,
    /// The models listed by servers without configured models, by provider.
    listings: Mutex<HashMap<String, Listing>>,
    /// Held while servers are asked, so that parallel callers ask once.
    asking: tokio::sync::Mutex<()>,
}

/// A server's answer to the request for its models.
struct Listing {
    answer: Result<IndexMap<String, Model>, String>,
    asked: Instant,
}

impl Catalog {
    /// The models that a configuration defines. `scripts` are the ids of scripted models.
    pub fn new<'a>(
        loaded: Arc<LoadedConfig>,
        scripts: impl IntoIterator<Item = &'a String>,
        env: &BTreeMap<String, String>,
    ) -> Self {
        Self {
            loaded,
            script: script_provider(scripts),
            fallback: env.get(FALLBACK).filter(|model| !model.is_empty()).cloned(),
            max_output: configured_max_output(env),
            listings: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Asks the relevant servers for their models: the server of the wanted model, or all of them.
    pub(crate) async fn prepare(&self, llm: &Llm, wanted: Option<&ModelRef>) {
        if self.providers_to_ask(wanted).next().is_none() {
            return;
        }
        let _asking = self.asking.lock().await;
        let requests = self.providers_to_ask(wanted).map(async |entry| {
            let answer = llm.models(&server(entry, ""), LIST_TIMEOUT).await.map_err(|error| error.message);
            self.set_listing(entry, answer);
        });
        futures::future::join_all(requests.collect::<Vec<_>>()).await;
    }

    /// The same for a prompt without a model. Asks no server if the configuration is enough.
    pub async fn prepare_default(&self, llm: &Llm) {
        let configured = || self.loaded.providers.iter().any(|entry| !entry.lists_models());
        match self.loaded.config.model.as_deref().and_then(ModelRef::parse) {
            Some(model) => self.prepare(llm, Some(&model)).await,
            None if configured() || self.has_script_file() => {}
            None => self.prepare(llm, None).await,
        }
    }

    /// The providers whose servers have not listed their models yet, or not the wanted one.
    fn providers_to_ask<'a>(&'a self, wanted: Option<&'a ModelRef>) -> impl Iterator<Item = &'a ProviderEntry> {
        let named = move |entry: &&ProviderEntry| wanted.is_none_or(|model| model.provider_id == entry.provider.id);
        self.loaded.providers.iter().filter(|entry| entry.lists_models()).filter(named).filter(move |entry| {
            let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
            listings.get(&entry.provider.id).is_none_or(|listing| {
                let complete = listing
                    .answer
                    .as_ref()
                    .is_ok_and(|models| wanted.is_none_or(|wanted| models.contains_key(&wanted.model_id)));
                !complete && listing.asked.elapsed() > LIST_RETRY_AFTER
            })
        })
    }

    /// Records the models that a server listed.
    pub fn set_listing(&self, entry: &ProviderEntry, answer: Result<Vec<String>, String>) {
        let config = self.loaded.config.provider.get(&entry.provider.id);
        let wanted = |id: &String| {
            config.is_none_or(|config| {
                config.whitelist.as_ref().is_none_or(|ids| ids.contains(id)) && !config.blacklist.contains(id)
            })
        };
        let models =
            |ids: Vec<String>| ids.into_iter().filter(wanted).map(|id| (id.clone(), entry.listed_model(&id))).collect();
        let listing = Listing { answer: answer.map(models), asked: Instant::now() };
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        listings.insert(entry.provider.id.clone(), listing);
    }

    /// A provider with the models its server listed, unless its models are configured.
    fn with_listed_models(&self, entry: &ProviderEntry) -> Provider {
        let mut provider = entry.provider.clone();
        if entry.lists_models() {
            let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Listing { answer: Ok(models), .. }) = listings.get(&provider.id) {
                provider.models.clone_from(models);
            }
        }
        provider
    }

    /// All providers as clients see them: configured ones, then the scripts. Secrets are left out.
    pub(crate) fn providers(&self) -> Vec<Provider> {
        let shown = |entry| config::presentable(&self.with_listed_models(entry), &self.loaded.redactor);
        self.loaded.providers.iter().map(shown).chain(std::iter::once(self.script.clone())).collect()
    }

    fn has_script_file(&self) -> bool {
        self.script.models.contains_key(SCRIPT_FILE)
    }

    /// A model by name, and its provider; scripts have none. If a server does not list its models, any model name is
    /// accepted: the server knows better.
    fn find(&self, wanted: &ModelRef) -> Result<(Model, Option<&ProviderEntry>), HostError> {
        if wanted.provider_id == SCRIPT
            && let Some(model) = self.script.models.get(&wanted.model_id)
        {
            return Ok((model.clone(), None));
        }
        let entry = self.loaded.providers.iter().find(|entry| entry.provider.id == wanted.provider_id);
        let Some(entry) = entry else { return Err(self.unusable_error(wanted)) };
        let model = if entry.lists_models() {
            let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
            let listed = listings.get(&entry.provider.id).and_then(|listing| listing.answer.as_ref().ok());
            match listed.filter(|models| !models.is_empty()) {
                Some(models) => models.get(&wanted.model_id).cloned(),
                None => Some(entry.listed_model(&wanted.model_id)),
            }
        } else {
            entry.provider.models.get(&wanted.model_id).cloned()
        };
        model.map(|model| (model, Some(entry))).ok_or_else(|| self.unknown(wanted))
    }

    /// How long an answer of a model may be, in tokens.
    pub(crate) fn max_output(&self, model: &Model, options: &api::JsonMap) -> Option<u64> {
        max_output(model, options, self.max_output)
    }

    /// Whether a model understands the data that another one's vendor gave with an answer: they are of one provider, and
    /// the same or of one family.
    pub(crate) fn is_same_family(&self, answered: &ModelRef, asked: &ModelRef) -> bool {
        let family = |model: &ModelRef| self.find(model).ok().and_then(|(model, _)| model.family);
        answered.provider_id == asked.provider_id
            && (answered.model_id == asked.model_id
                || family(asked).is_some_and(|asked| !asked.is_empty() && family(answered) == Some(asked)))
    }

    /// The error for a model whose provider is not connected.
    fn unusable_error(&self, wanted: &ModelRef) -> HostError {
        let Some(unusable) = self.loaded.unusable.get(&wanted.provider_id) else { return self.unknown(wanted) };
        let (why, advice) = unusable.why.split_once(": ").unwrap_or((&unusable.why, ""));
        HostError::NoModel {
            message: format!("The model {wanted} cannot be used: {why}"),
            advice: Some(capitalized(advice)).filter(|advice| !advice.is_empty()),
        }
    }

    fn unknown(&self, wanted: &ModelRef) -> HostError {
        HostError::NotFound { what: "model", id: wanted.to_string(), known: self.nearest(wanted) }
    }

    /// The existing models, most similar to the wanted one first.
    fn nearest(&self, wanted: &ModelRef) -> Vec<String> {
        let all = self.providers();
        let mut names: Vec<String> =
            all.iter().flat_map(|p| p.models.keys().map(move |id| format!("{}/{id}", p.id))).collect();
        let prefix = |name: &str| name.chars().zip(wanted.to_string().chars()).take_while(|(a, b)| a == b).count();
        names.sort_by_key(|name| (!name.contains(&wanted.model_id), usize::MAX - prefix(name)));
        names.truncate(LISTED_MAX);
        names
    }

    /// The model for a prompt that names none: the user's script, `model`, the last used, the first configured, the
    /// only one that servers list or the one that suits best, the fallback. A configured model that does not exist is an error: silently using
    /// another one would surprise.
    pub fn default_model(&self, last: Option<ModelRef>) -> Result<ModelRef, HostError> {
        if self.has_script_file() {
            return Ok(ModelRef::new(SCRIPT, SCRIPT_FILE));
        }
        let named = |text: &str| {
            let model = ModelRef::parse(text).ok_or_else(|| {
                HostError::Invalid(format!("The configured model is {text:?}; it must be provider/model"))
            })?;
            self.find(&model).map(|_| model)
        };
        if let Some(configured) = &self.loaded.config.model {
            return named(configured);
        }
        if let Some(last) = last.filter(|model| self.find(model).is_ok()) {
            return Ok(last);
        }
        let first = |provider: &Provider| Some(ModelRef::new(&provider.id, provider.models.keys().next()?));
        if let Some(model) = self.loaded.providers.iter().find_map(|entry| first(&entry.provider)) {
            return Ok(model);
        }
        let listed: Vec<Provider> = self.loaded.providers.iter().map(|entry| self.with_listed_models(entry)).collect();
        match listed.iter().map(|provider| provider.models.len()).sum() {
            0 if listed.is_empty() => match &self.fallback {
                Some(fallback) => named(fallback),
                None => Err(self.no_model_error()),
            },
            0 => Err(self.nothing_listed_error()),
            1 => listed.iter().find_map(first).ok_or_else(|| self.no_model_error()),
            _ => self.preferred_model(&listed).ok_or_else(|| several_models_error(&listed)),
        }
    }

    /// The model of a known vendor that suits an agent, if its server lists one: then a key alone is enough to begin.
    fn preferred_model(&self, listed: &[Provider]) -> Option<ModelRef> {
        self.loaded.providers.iter().zip(listed).find_map(|(entry, listed)| {
            let id = entry.preferred_models().iter().find(|id| listed.models.contains_key(**id))?;
            Some(ModelRef::new(&listed.id, *id))
        })
    }

    /// The error when no provider is connected.
    fn no_model_error(&self) -> HostError {
        let meant: Vec<&str> =
            self.loaded.unusable.values().filter(|it| it.meant).map(|unusable| unusable.why.as_str()).collect();
        let meant = if meant.is_empty() { String::new() } else { format!(": {}", meant.join("; ")) };
        HostError::NoModel { message: format!("No model is configured{meant}"), advice: Some(CONNECT.to_owned()) }
    }

    /// The error when no configured server listed a model.
    fn nothing_listed_error(&self) -> HostError {
        let listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let why = self.loaded.providers.iter().map(|entry| {
            let id = &entry.provider.id;
            let at = self.loaded.redactor.text(&bare_address(&entry.base_url));
            match listings.get(id).map(|listing| &listing.answer) {
                Some(Err(why)) => format!("{id} at {at}: {why}"),
                _ => format!("{id} at {at} lists no models"),
            }
        });
        HostError::NoModel {
            message: format!("No model is known. {}", why.collect::<Vec<_>>().join("; ")),
            advice: Some(
                "Start the server or correct its address; name a model with --model, OPENAI_MODEL or `model` in \
                 trefoil.json"
                    .to_owned(),
            ),
        }
    }
}

/// The error when several models are possible.
fn several_models_error(providers: &[Provider]) -> HostError {
    let names = providers.iter().flat_map(|p| p.models.keys().map(move |id| format!("{}/{id}", p.id)));
    let names: Vec<String> = names.collect();
    let more = names.len().saturating_sub(LISTED_MAX);
    let more = if more > 0 { format!(" and {more} more (`trefoil models` lists them all)") } else { String::new() };
    let shown = names.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    HostError::NoModel {
        message: format!("No model is chosen, and there are {}: {shown}{more}", names.len()),
        advice: Some(format!(
            "Choose one with --model {}, with OPENAI_MODEL, or with `model` in trefoil.json",
            names.first().map(String::as_str).unwrap_or_default()
        )),
    }
}

/// An address without user, password and query.
fn bare_address(address: &str) -> String {
    let rest = address.split(['?', '#']).next().unwrap_or_default();
    match (rest.split_once("://"), rest.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => rest.to_owned(),
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// How to reach a provider's server for one of its models.
pub fn server(entry: &ProviderEntry, model: &str) -> OpenAiChat {
    let Wire::OpenAiChat = entry.wire;
    let defaults = Timeouts::default();
    OpenAiChat {
        base_url: entry.base_url.clone(),
        api_key: entry.api_key.clone(),
        headers: entry.headers.clone(),
        model: model.to_owned(),
        dialect: Arc::default(),
        timeouts: Timeouts {
            header: entry.timeouts.header.unwrap_or(defaults.header),
            idle: entry.timeouts.chunk.unwrap_or(defaults.idle),
            ..defaults
        },
    }
}

/// The provider of scripted models, as clients see it.
fn script_provider<'a>(scripts: impl IntoIterator<Item = &'a String>) -> Provider {
    let model = |id: &String| {
        let name = match id.as_str() {
            SCRIPT_DEMO => "Offline demo (not a language model)".to_owned(),
            SCRIPT_FILE => "Script file".to_owned(),
            other => other.to_owned(),
        };
        let text = Modalities { text: true, image: true, ..Modalities::default() };
        Model {
            id: id.clone(),
            provider_id: SCRIPT.to_owned(),
            api: ModelApi { id: id.clone(), url: String::new(), npm: String::new() },
            name,
            capabilities: Capabilities {
                temperature: true,
                reasoning: true,
                attachment: true,
                toolcall: true,
                input: text.clone(),
                output: Modalities { image: false, ..text },
                interleaved: api::Json::Bool(false),
            },
            limit: Limit { context: 200_000, input: None, output: 32_000 },
            ..Model::default()
        }
    };
    Provider {
        id: SCRIPT.to_owned(),
        name: "Offline script".to_owned(),
        source: ProviderSource::Custom,
        env: Vec::new(),
        key: None,
        options: api::JsonMap::new(),
        models: scripts.into_iter().map(|id| (id.clone(), model(id))).collect(),
    }
}

impl Inner {
    /// A model by name.
    pub(crate) fn resolve(&self, instance: &Instance, wanted: &ModelRef) -> Result<ModelTarget, HostError> {
        let (model, entry) = instance.catalog.find(wanted)?;
        let Some(entry) = entry else {
            let script = self.settings.scripts.get(&wanted.model_id);
            let script = script.ok_or_else(|| HostError::not_found("model", wanted.to_string()))?;
            return Ok(ModelTarget { model, endpoint: Endpoint::Script(script.clone()) });
        };
        let mut server = server(entry, &model.api.id);
        server.headers.extend(model.headers.clone());
        let interleaved = &model.capabilities.interleaved;
        let mut dialect = ChatDialect::of(&entry.provider.id, &model.api.npm, &model.api.id, interleaved);
        if let Some(wanted) = entry.provider.options.get("setCacheKey").and_then(api::Json::as_bool) {
            dialect.has_cache_key = wanted;
        }
        server.dialect = Arc::new(dialect);
        if !model.api.url.is_empty() {
            server.base_url.clone_from(&model.api.url);
        }
        Ok(ModelTarget { model, endpoint: Endpoint::OpenAiChat(server) })
    }

    /// Checks that a model exists, after asking its server for models that are not configured.
    pub(crate) async fn check_model(&self, instance: &Instance, wanted: &ModelRef) -> Result<(), HostError> {
        instance.catalog.prepare(&self.llm, Some(wanted)).await;
        instance.catalog.find(wanted).map(|_| ())
    }

    /// The model for a prompt that names none.
    pub(crate) async fn default_model(&self, instance: &Instance) -> Result<ModelRef, HostError> {
        instance.catalog.prepare_default(&self.llm).await;
        instance.catalog.default_model(last_used(&self.store))
    }

    /// All providers as clients see them, with the models their servers list.
    pub(crate) async fn providers(&self, instance: &Instance) -> Vec<Provider> {
        instance.catalog.prepare(&self.llm, None).await;
        instance.catalog.providers()
    }

    /// All known providers, the usable ones first. The default model of a provider is the configured one, else its first.
    pub(crate) async fn provider_catalog(&self, instance: &Instance) -> ProviderCatalog {
        let mut all = self.providers(instance).await;
        let connected = all.iter().map(|provider| provider.id.clone()).collect();
        all.extend(instance.loaded.connectable.iter().cloned());
        // A configured model that does not exist is reported when it is used.
        let chosen = self.default_model(instance).await.ok();
        let default_of = |provider: &Provider| match &chosen {
            Some(chosen) if chosen.provider_id == provider.id => Some(chosen.model_id.clone()),
            _ => provider.models.keys().next().cloned(),
        };
        let default = all.iter().filter_map(|provider| Some((provider.id.clone(), default_of(provider)?))).collect();
        ProviderCatalog { all, default, connected }
    }

    /// The model for titles and summaries: `small_model`, otherwise the turn's own.
    pub(crate) fn small_model(&self, instance: &Instance, used: &ModelRef) -> ModelRef {
        let small = instance.loaded.config.small_model.as_deref().and_then(ModelRef::parse);
        match small {
            Some(small) if used.provider_id != SCRIPT && self.resolve(instance, &small).is_ok() => small,
            _ => used.clone(),
        }
    }
}

/// Stores a model as the last used.
pub(crate) fn remember_last_used(batch: &mut store::Batch, model: &ModelRef) {
    if model.provider_id != SCRIPT {
        batch.record_if_changed(STATE, LAST_MODEL, &serde_json::json!(model));
    }
}

fn last_used(store: &Store) -> Option<ModelRef> {
    let record = store.record(STATE, LAST_MODEL).ok()??;
    serde_json::from_value(record.value).ok()
}

/// The cost of a step.
pub(crate) fn cost(model: &Model, usage: &Usage) -> Usd {
    let price = |tokens: u64, per_million: Usd| tokens as f64 * per_million.0;
    let sum = price(usage.input, model.cost.input)
        + price(usage.output + usage.reasoning, model.cost.output)
        + price(usage.cache_read, model.cost.cache.read)
        + price(usage.cache_write, model.cost.cache.write);
    // Prices per million produce long fractions; nobody is billed below a billionth of a dollar.
    Usd((sum * 1e3).round() / 1e9)
}

/// Converts usage to the tokens of a message.
pub(crate) fn tokens(usage: &Usage) -> Tokens {
    Tokens {
        total: usage.total,
        input: usage.input,
        output: usage.output,
        reasoning: usage.reasoning,
        cache: api::TokensCache { read: usage.cache_read, write: usage.cache_write },
    }
}

/// The variable that sets how long an answer may be.
const OUTPUT_TOKEN_MAX: &str = "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX";

/// How long an answer may be as the environment says it, in tokens.
fn configured_max_output(env: &BTreeMap<String, String>) -> Option<u64> {
    env.get(OUTPUT_TOKEN_MAX)?.trim().parse().ok().filter(|tokens| *tokens > 0)
}

/// How long an answer may be, in tokens: as configured, or 32,000, and the thinking that the options grant beside it; at
/// most the model's own limit. `None` leaves it to a server of which nothing is known: many refuse a limit beyond what
/// they can do.
fn max_output(model: &Model, options: &api::JsonMap, configured: Option<u64>) -> Option<u64> {
    let own = [model.limit.output, model.limit.context].into_iter().find(|limit| *limit > 0);
    if own.is_none() && configured.is_none() {
        return None;
    }
    let own = own.unwrap_or(u64::MAX);
    let answer = configured.unwrap_or(DEFAULT_OUTPUT_TOKENS).min(own);
    let thinking = llm::options::thinking_budget(options).unwrap_or(0);
    Some(answer.saturating_add(thinking).min(own))
}

/// The options of a model's variant (reasoning effort), if it has that variant.
pub(crate) fn variant_options(model: &Model, variant: Option<&str>) -> api::JsonMap {
    let variants: Option<&IndexMap<String, api::JsonMap>> = model.variants.as_ref();
    variant.and_then(|v| variants?.get(v)).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_bounded_by_the_configuration_and_by_the_model() {
        let model = |context, output| Model { limit: Limit { context, input: None, output }, ..Model::default() };
        let thinking = |budget: u64| json!({"thinking": {"budgetTokens": budget}}).as_object().unwrap().clone();
        for (model, budget, configured, most) in [
            (model(200_000, 64_000), 0, None, Some(32_000)),
            (model(200_000, 64_000), 16_000, None, Some(48_000)),
            (model(200_000, 40_000), 16_000, None, Some(40_000)),
            (model(200_000, 8_000), 0, None, Some(8_000)),
            (model(200_000, 8_000), 0, Some(50_000), Some(8_000)),
            (model(200_000, 128_000), 0, Some(50_000), Some(50_000)),
            (model(200_000, 0), 0, None, Some(32_000)),
            (model(4_096, 0), 0, None, Some(4_096)),
            (model(0, 0), 16_000, None, None),
            (model(0, 0), 0, Some(9), Some(9)),
            (model(0, 0), u64::MAX, Some(9), Some(u64::MAX)),
        ] {
            assert_eq!(
                max_output(&model, &thinking(budget), configured),
                most,
                "{:?} {budget} {configured:?}",
                model.limit
            );
        }
        let set =
            |value: &str| configured_max_output(&BTreeMap::from([(OUTPUT_TOKEN_MAX.to_owned(), value.to_owned())]));
        assert_eq!(
            [set("64000"), set(" 7 "), set("0"), set("-1"), set("many"), set("")],
            [Some(64_000), Some(7), None, None, None, None]
        );
    }
}
