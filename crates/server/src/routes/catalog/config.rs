//! Configuration.

use std::borrow::Cow;

use api::{Json, JsonMap};
use axum::http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::State;
use crate::error::Error;
use crate::operation::request::{JsonBody, NoParams, Request};
use crate::operation::{JsonReply, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const GLOBAL: &str = "/global/config";
    vec![
        operation(Method::GET, "/config", "config.get", "The configuration of a directory.", get),
        operation(Method::PATCH, "/config", "config.update", "Change the configuration of a directory.", update),
        operation(Method::GET, GLOBAL, "global.config.get", "The user's own configuration.", get_global).global(),
        operation(Method::PATCH, GLOBAL, "global.config.update", "Change the user's own configuration.", update_global)
            .global(),
    ]
}

/// A configuration, as in a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Config(JsonMap);

impl JsonSchema for Config {
    fn schema_name() -> Cow<'static, str> {
        "Config".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(config::config_schema()).unwrap_or_default()
    }
}

impl From<Json> for Config {
    fn from(json: Json) -> Self {
        match json {
            Json::Object(map) => Self(map),
            _ => Self(JsonMap::new()),
        }
    }
}

async fn get(request: Request) -> Result<JsonReply<Config>, Error> {
    effective_config(&request.state, &request.scope).await
}

/// The configuration in effect, with the sections that clients read without checking that they exist.
async fn effective_config(state: &State, scope: &api::Scope) -> Result<JsonReply<Config>, Error> {
    let mut config = Config::from(state.host.config(scope).await?);
    let user = state.engine.user().unwrap_or("unknown");
    let defaults = [
        ("command", json!({})),
        ("plugin", json!([])),
        ("username", json!(user)),
        ("mode", json!({})),
        ("agent", json!({})),
    ];
    for (key, value) in defaults {
        config.0.entry(key).or_insert(value);
    }
    Ok(JsonReply(config))
}

async fn update(request: Request<NoParams, NoParams, JsonBody<Config>>) -> Result<JsonReply<Config>, Error> {
    // Loads the directory, so that it is among the places where the change is announced.
    request.engine.loaded(&request.scope);
    let places = request.engine.change_config(&request.scope, request.body.0.0).await?;
    request.state.announce_reload(&places);
    effective_config(&request.state, &request.scope).await
}

async fn get_global(request: Request) -> Result<JsonReply<Config>, Error> {
    Ok(JsonReply(request.engine.global_config().await?.into()))
}

async fn update_global(request: Request<NoParams, NoParams, JsonBody<Config>>) -> Result<JsonReply<Config>, Error> {
    let places = request.engine.change_global_config(request.body.0.0).await?;
    request.state.announce_global_reload(&places);
    Ok(JsonReply(request.engine.global_config().await?.into()))
}
