//! Configuration.

use std::borrow::Cow;

use api::{Host as _, Json, JsonMap};
use axum::http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::State;
use crate::error::Error;
use crate::operation::request::{Call, JsonBody, Nothing};
use crate::operation::{Data, Operation, operation};

pub fn operations() -> Vec<Operation> {
    const GLOBAL: &str = "/global/config";
    vec![
        operation(Method::GET, "/config", "config.get", "The configuration of a directory.", get),
        operation(Method::PATCH, "/config", "config.update", "Change the configuration of a directory.", update),
        operation(Method::GET, GLOBAL, "global.config.get", "The user's own configuration.", global).global(),
        operation(Method::PATCH, GLOBAL, "global.config.update", "Change the user's own configuration.", change)
            .global(),
    ]
}

/// Configuration, as a file has it.
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

async fn get(call: Call) -> Result<Data<Config>, Error> {
    shown(&call.state, &call.scope).await
}

/// The configuration in effect, with the sections that clients read without looking whether they are there.
async fn shown(state: &State, scope: &api::Scope) -> Result<Data<Config>, Error> {
    let mut config = Config::from(state.engine.config(scope).await?);
    let user = state.engine.user().unwrap_or("unknown");
    let usual = [
        ("command", json!({})),
        ("plugin", json!([])),
        ("username", json!(user)),
        ("mode", json!({})),
        ("agent", json!({})),
    ];
    for (key, value) in usual {
        config.0.entry(key).or_insert(value);
    }
    Ok(Data(config))
}

async fn update(call: Call<Nothing, Nothing, JsonBody<Config>>) -> Result<Data<Config>, Error> {
    // So that it is among the places that are told.
    call.state.engine.loaded(&call.scope);
    let places = call.state.engine.change_config(&call.scope, call.body.0.0).await?;
    call.state.reloaded(&places);
    shown(&call.state, &call.scope).await
}

async fn global(call: Call) -> Result<Data<Config>, Error> {
    Ok(Data(call.state.engine.global_config().await?.into()))
}

async fn change(call: Call<Nothing, Nothing, JsonBody<Config>>) -> Result<Data<Config>, Error> {
    let places = call.state.engine.change_global_config(call.body.0.0).await?;
    call.state.reloaded_all(&places);
    Ok(Data(call.state.engine.global_config().await?.into()))
}
