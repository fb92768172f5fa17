//! Model servers: the configured ones, and the usual ones on this machine. Asking for the list of models costs nothing and shows
//! whether the server accepts the key.

use std::time::{Duration, Instant};

use config::{LoadedConfig, ProviderEntry};
use engine::Catalog;
use futures::future::join_all;
use llm::{ErrorClass, Llm, LlmError, OpenAiChat, Timeouts};

use super::{Finding, Level, without_secrets};
use crate::terminal::{one_line, plural};

/// How long a configured server may take to answer.
const WAIT: Duration = Duration::from_secs(2);
/// How long a server on this machine may take that is not configured.
const LOCAL_WAIT: Duration = Duration::from_millis(300);
/// The most models that are listed.
const MAX_MODELS: usize = 5;

/// The usual ports of model servers on this machine.
const LOCAL_SERVERS: [(&str, u16); 3] = [("Ollama", 11434), ("llama-server", 8080), ("LM Studio", 1234)];

/// Checks all servers at once. If a server has no configured models, its list goes into the catalog.
pub async fn probe(llm: &Llm, loaded: &LoadedConfig, catalog: &Catalog) -> Vec<Finding> {
    let configured = join_all(loaded.providers.iter().map(|entry| check(llm, entry, catalog)));
    let known: Vec<&str> = loaded.providers.iter().map(|entry| entry.base_url.as_str()).collect();
    let (mut findings, local) = futures::join!(configured, check_local(llm, &known));
    findings.extend(local);
    findings
}

async fn check(llm: &Llm, entry: &ProviderEntry, catalog: &Catalog) -> Finding {
    let server = engine::server(entry, "");
    let started = Instant::now();
    let key_check = async {
        match entry.key_check().filter(|_| entry.api_key.is_some()) {
            Some(path) => llm.check_key(&server, path, WAIT).await,
            None => Ok(()),
        }
    };
    let (models, key) = futures::join!(llm.models(&server, WAIT), key_check);
    // Only a refusal counts: another server under this name may lack that page.
    let answer = match key {
        Err(error) if error.class == ErrorClass::Auth => Err(error),
        _ => models,
    };
    if entry.lists_models() {
        catalog.set_listing(entry, answer.clone().map_err(|error| error.message));
    }
    finding(entry, &answer, started.elapsed())
}

fn finding(entry: &ProviderEntry, answer: &Result<Vec<String>, LlmError>, took: Duration) -> Finding {
    let id = &entry.provider.id;
    let server = format!("{id} at {}", without_secrets(&entry.base_url));
    let provider = |level, text: String| Finding::new("provider", level, format!("{server}: {text}"));
    match answer {
        Ok(listed) => {
            let key = if entry.api_key.is_some() { "the key is accepted" } else { "no key is needed" };
            let names = first_models(listed);
            let found = format!(
                "answered in {:.2} s, {key}, it lists {}{names}",
                took.as_secs_f64(),
                plural(listed.len(), "model")
            );
            let missing: Vec<&str> = entry
                .provider
                .models
                .values()
                .map(|model| model.api.id.as_str())
                .filter(|model| !listed.iter().any(|listed| listed == model))
                .collect();
            match missing.as_slice() {
                [] => provider(Level::Ok, found),
                missing => provider(Level::Note, found)
                    .advice(format!("not in its list: {}", one_line(&missing.join(", "), 200))),
            }
        }
        Err(error) if error.class == ErrorClass::Auth => {
            let variable =
                entry.provider.env.first().map(|name| format!("set {name} to a valid key, or ")).unwrap_or_default();
            provider(Level::Error, format!("it refuses the key: {}", error.message))
                .advice(format!("{variable}store one with `trefoil auth login {id}`"))
        }
        Err(error) => match error.status {
            Some(404 | 405) => {
                provider(Level::Note, "it answers, but lists no models, so the key was not checked".to_owned())
            }
            Some(status) => provider(Level::Warning, format!("it answered with status {status}: {}", error.message)),
            None => provider(Level::Warning, error.message.clone())
                .advice("check that the server runs, and that its address is right"),
        },
    }
}

async fn check_local(llm: &Llm, known: &[&str]) -> Vec<Finding> {
    let server = |(name, port): (&'static str, u16)| (name, format!("http://127.0.0.1:{port}/v1"));
    let servers: Vec<(&str, String)> =
        LOCAL_SERVERS.map(server).into_iter().filter(|(_, url)| !known.contains(&url.as_str())).collect();
    let found = join_all(servers.iter().map(async |(name, url)| probe_local(llm, name, url).await)).await;
    let found: Vec<Finding> = found.into_iter().flatten().collect();
    if !found.is_empty() || servers.is_empty() {
        return found;
    }
    let probed: Vec<String> = servers.iter().map(|(name, url)| format!("{name} ({url})")).collect();
    vec![Finding::new("local server", Level::Note, format!("none answers: {}", probed.join(", ")))]
}

async fn probe_local(llm: &Llm, name: &str, url: &str) -> Option<Finding> {
    let timeouts = Timeouts { connect: LOCAL_WAIT, ..Timeouts::default() };
    let server = OpenAiChat { base_url: url.to_owned(), timeouts, ..OpenAiChat::default() };
    let models = llm.models(&server, LOCAL_WAIT).await.ok()?;
    let found = format!("{name} at {url}: {}{}", plural(models.len(), "model"), first_models(&models));
    let finding = Finding::new("local server", Level::Ok, found);
    Some(match models.first() {
        Some(first) => {
            finding.advice(format!("use it with OPENAI_BASE_URL={url} OPENAI_MODEL={}", one_line(first, 60)))
        }
        None => finding.advice("load a model there first"),
    })
}

/// The first models of a list.
fn first_models(models: &[String]) -> String {
    if models.is_empty() {
        return String::new();
    }
    let shown = models.iter().take(MAX_MODELS).map(|id| one_line(id, 60)).collect::<Vec<_>>().join(", ");
    format!(": {shown}{}", if models.len() > MAX_MODELS { " …" } else { "" })
}
