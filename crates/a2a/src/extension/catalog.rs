//! Methods about providers and models.

use api::{Json, JsonMap, Model, Provider, ProviderCatalog};
use serde_json::json;

use super::Request;
use crate::Error;

async fn catalog(request: &Request<'_>) -> Result<ProviderCatalog, Error> {
    let scope = request.scope().await?;
    request.host().provider_catalog(&scope).await.map_err(|error| request.upstream(None).error(error))
}

pub(super) async fn providers(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["directory", "metadata"])?;
    let catalog = catalog(request).await?;
    let items: Vec<Json> = catalog.all.iter().map(|provider| provider_summary(provider, &catalog)).collect();
    Ok(result(items, &catalog))
}

pub(super) async fn models(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["provider_id", "directory", "metadata"])?;
    let only = request.params.text("provider_id")?;
    let catalog = catalog(request).await?;
    let wanted = catalog.all.iter().filter(|provider| only.is_none_or(|only| provider.id == only));
    let items = wanted.flat_map(|provider| {
        let catalog = &catalog;
        provider.models.values().map(move |model| model_summary(provider, model, catalog))
    });
    Ok(result(items.collect(), &catalog))
}

fn result(items: Vec<Json>, catalog: &ProviderCatalog) -> Json {
    json!({ "items": items, "default_by_provider": catalog.default, "connected": catalog.connected })
}

fn provider_summary(provider: &Provider, catalog: &ProviderCatalog) -> Json {
    let mut summary = JsonMap::new();
    let mut put = |key: &str, value: Json| summary.insert(key.to_owned(), value);
    put("provider_id", provider.id.as_str().into());
    put("name", provider.name.as_str().into());
    put("connected", catalog.connected.contains(&provider.id).into());
    put("model_count", provider.models.len().into());
    put("source", json!(provider.source));
    if let Some(model) = catalog.default.get(&provider.id) {
        put("default_model_id", model.as_str().into());
    }
    summary.into()
}

fn model_summary(provider: &Provider, model: &Model, catalog: &ProviderCatalog) -> Json {
    let mut summary = JsonMap::new();
    let mut put = |key: &str, value: Json| summary.insert(key.to_owned(), value);
    put("provider_id", provider.id.as_str().into());
    put("model_id", model.id.as_str().into());
    put("name", model.name.as_str().into());
    put("default", (catalog.default.get(&provider.id) == Some(&model.id)).into());
    put("connected", catalog.connected.contains(&provider.id).into());
    put("status", json!(model.status));
    // 0 means unknown.
    for (key, tokens) in [("context_window", model.limit.context), ("max_output_tokens", model.limit.output)] {
        if tokens > 0 {
            put(key, tokens.into());
        }
    }
    put("supports_reasoning", model.capabilities.reasoning.into());
    put("supports_tool_call", model.capabilities.toolcall.into());
    put("supports_attachments", model.capabilities.attachment.into());
    summary.into()
}
