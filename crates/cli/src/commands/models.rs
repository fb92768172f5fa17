//! `trefoil models`: lists the models that can be used.

use api::{CatalogHost, Model, Provider, Scope};

use crate::exit::Failure;
use crate::terminal::{self, amounts, one_line, print_json};

/// Lists the models, with the default one marked.
pub async fn list(host: &dyn CatalogHost, scope: &Scope, provider: Option<&str>, json: bool) -> anyhow::Result<()> {
    let mut providers = host.providers(scope).await?;
    if let Some(wanted) = provider {
        let known: Vec<String> = providers.iter().map(|provider| provider.id.clone()).collect();
        providers.retain(|provider| provider.id == wanted);
        if providers.is_empty() {
            return Err(Failure::unknown("provider", wanted, &known).into());
        }
    }
    if json {
        return print_json(&providers.into_iter().map(without_key).collect::<Vec<_>>());
    }
    let default = host.default_model(scope).await;
    let missing = default.as_ref().err().map(ToString::to_string);
    let default = default.ok();
    let mut rows = Vec::new();
    for model in providers.iter().flat_map(|provider| provider.models.values()) {
        let is_default = default
            .as_ref()
            .is_some_and(|default| default.provider_id == model.provider_id && default.model_id == model.id);
        rows.push(row(model, is_default));
    }
    terminal::print(&terminal::table(&rows))?;
    if let Some(missing) = missing {
        terminal::say(&format!("{}\n", one_line(&missing, 1000)));
    }
    Ok(())
}

fn row(model: &Model, is_default: bool) -> Vec<String> {
    let context = if model.limit.context > 0 {
        format!("{} context", amounts::thousands(model.limit.context))
    } else {
        String::new()
    };
    let price = if model.cost.input.0 > 0.0 || model.cost.output.0 > 0.0 {
        format!("${} in, ${} out", model.cost.input.0, model.cost.output.0)
    } else {
        String::new()
    };
    vec![
        one_line(&format!("{}/{}", model.provider_id, model.id), 80),
        one_line(&model.name, 40),
        context,
        price,
        if is_default { "default".into() } else { String::new() },
    ]
}

/// The provider without its key, and without options and headers that may contain one.
fn without_key(mut provider: Provider) -> Provider {
    provider.key = None;
    provider.options.retain(|name, _| name == "baseURL");
    for model in provider.models.values_mut() {
        model.headers.clear();
    }
    provider
}
