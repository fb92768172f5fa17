//! Which model a prompt gets, and how it is reached.

use api::{
    Capabilities, HostError, Limit, Modalities, Model, ModelApi, ModelRef, Provider, ProviderSource, Tokens, Usd,
};
use config::Wire;
use indexmap::IndexMap;
use llm::{Endpoint, OpenAiChat, Usage};
use store::Store;

use crate::Inner;
use crate::instance::Instance;

/// The provider of scripted models.
pub(crate) const SCRIPT: &str = "script";
/// The script that a user gave; it wins over every configured model.
const SCRIPT_FILE: &str = "file";
/// The script that is always there.
const SCRIPT_DEMO: &str = "demo";
/// Where the last used model is remembered.
const STATE: &str = "state";
const LAST_MODEL: &str = "last-model";
/// How many models an error lists.
const LISTED: usize = 12;

/// A model and how it is reached.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) model: Model,
    pub(crate) endpoint: Endpoint,
}

/// The provider of scripted models, as clients see it.
pub(crate) fn script_provider(inner: &Inner) -> Provider {
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
        models: inner.scripts.keys().map(|id| (id.clone(), model(id))).collect(),
    }
}

impl Inner {
    /// A model by name.
    pub(crate) fn resolve(&self, instance: &Instance, wanted: &ModelRef) -> Result<Target, HostError> {
        if wanted.provider_id == SCRIPT
            && let Some(script) = self.scripts.get(&wanted.model_id)
            && let Some(model) = instance.script.models.get(&wanted.model_id)
        {
            return Ok(Target { model: model.clone(), endpoint: Endpoint::Script(script.clone()) });
        }
        let entry = instance.loaded.providers.iter().find(|p| p.provider.id == wanted.provider_id);
        let found = entry.and_then(|e| Some((e, e.provider.models.get(&wanted.model_id)?)));
        let Some((entry, model)) = found else {
            return Err(HostError::NotFound {
                what: "model",
                id: wanted.to_string(),
                known: nearest(instance, wanted),
            });
        };
        let Wire::OpenAiChat = entry.wire;
        let headers = entry.headers.iter().cloned().chain(model.headers.clone()).collect();
        let endpoint = Endpoint::OpenAiChat(OpenAiChat {
            base_url: if model.api.url.is_empty() { entry.base_url.clone() } else { model.api.url.clone() },
            api_key: entry.api_key.clone(),
            headers,
            model: model.api.id.clone(),
            timeouts: instance.timeouts(entry),
        });
        Ok(Target { model: model.clone(), endpoint })
    }

    /// The model of a prompt that names none: a given script, `model`, the last used, the first provider, the demo.
    /// A configured model that does not exist is an error: another one in its place would surprise.
    pub(crate) fn default_model(&self, instance: &Instance) -> Result<ModelRef, HostError> {
        if self.scripts.contains_key(SCRIPT_FILE) {
            return Ok(ModelRef::new(SCRIPT, SCRIPT_FILE));
        }
        if let Some(configured) = &instance.loaded.config.model {
            let model = ModelRef::parse(configured).ok_or_else(|| {
                HostError::Invalid(format!("The configured model is {configured:?}; it must be provider/model"))
            })?;
            self.resolve(instance, &model)?;
            return Ok(model);
        }
        let first = || {
            let entry = instance.loaded.providers.iter().find(|e| !e.provider.models.is_empty())?;
            Some(ModelRef::new(&entry.provider.id, entry.provider.models.keys().next()?))
        };
        let last = last_used(&self.store).filter(|model| self.resolve(instance, model).is_ok());
        Ok(last.or_else(first).unwrap_or_else(|| ModelRef::new(SCRIPT, SCRIPT_DEMO)))
    }

    /// The model for titles and summaries: `small_model`, else the one that the turn uses.
    pub(crate) fn small_model(&self, instance: &Instance, used: &ModelRef) -> ModelRef {
        let small = instance.loaded.config.small_model.as_deref().and_then(ModelRef::parse);
        match small {
            Some(small) if used.provider_id != SCRIPT && self.resolve(instance, &small).is_ok() => small,
            _ => used.clone(),
        }
    }
}

/// Remembers a model as the last used.
pub(crate) fn remember(batch: &mut store::Batch, model: &ModelRef) {
    if model.provider_id != SCRIPT {
        batch.remember(STATE, LAST_MODEL, &serde_json::json!(model));
    }
}

fn last_used(store: &Store) -> Option<ModelRef> {
    let record = store.record(STATE, LAST_MODEL).ok()??;
    serde_json::from_value(record.value).ok()
}

/// The models that exist, those that look like the wanted one first.
fn nearest(instance: &Instance, wanted: &ModelRef) -> Vec<String> {
    let configured = instance.loaded.providers.iter().map(|e| &e.provider);
    let all = configured.chain(std::iter::once(&instance.script));
    let mut names: Vec<String> = all.flat_map(|p| p.models.keys().map(move |id| format!("{}/{id}", p.id))).collect();
    let prefix = |name: &str| name.chars().zip(wanted.to_string().chars()).take_while(|(a, b)| a == b).count();
    names.sort_by_key(|name| (!name.contains(&wanted.model_id), usize::MAX - prefix(name)));
    names.truncate(LISTED);
    names
}

/// What a step cost.
pub(crate) fn cost(model: &Model, usage: &Usage) -> Usd {
    let price = |tokens: u64, per_million: Usd| tokens as f64 * per_million.0;
    let sum = price(usage.input, model.cost.input)
        + price(usage.output + usage.reasoning, model.cost.output)
        + price(usage.cache_read, model.cost.cache.read)
        + price(usage.cache_write, model.cost.cache.write);
    // Prices per million make long fractions; nobody is billed below a billionth of a dollar.
    Usd((sum * 1e3).round() / 1e9)
}

/// Usage in the words of a message.
pub(crate) fn tokens(usage: &Usage) -> Tokens {
    Tokens {
        total: usage.total,
        input: usage.input,
        output: usage.output,
        reasoning: usage.reasoning,
        cache: api::TokensCache { read: usage.cache_read, write: usage.cache_write },
    }
}

/// All providers as clients see them: configured ones, then the scripts. Secrets are left out.
pub(crate) fn providers(instance: &Instance) -> Vec<Provider> {
    let loaded = &instance.loaded;
    let configured = loaded.providers.iter().map(|e| config::presentable(&e.provider, &loaded.redactor));
    configured.chain(std::iter::once(instance.script.clone())).collect()
}

/// Options of a model for a variant (reasoning effort), if it has that variant.
pub(crate) fn variant_options(model: &Model, variant: Option<&str>) -> api::JsonMap {
    let variants: Option<&IndexMap<String, api::JsonMap>> = model.variants.as_ref();
    variant.and_then(|v| variants?.get(v)).cloned().unwrap_or_default()
}
