//! Validates the agent's messages against the official schema.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};

struct Schemas {
    stable: Value,
    unstable: Value,
    /// Type names by method.
    requests: HashMap<String, String>,
    responses: HashMap<String, String>,
    made: Mutex<HashMap<(bool, String), &'static Validator>>,
}

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let unstable = read(include_str!("../schema/schema.unstable.json"));
    let (mut requests, mut responses) = (HashMap::new(), HashMap::new());
    for (name, def) in unstable["$defs"].as_object().unwrap() {
        let (Some(method), Some(side)) = (def["x-method"].as_str(), def["x-side"].as_str()) else { continue };
        if side == "client" && name.ends_with("Request") {
            requests.insert(method.to_owned(), name.clone());
        }
        if side == "agent" && name.ends_with("Response") {
            responses.insert(method.to_owned(), name.clone());
        }
    }
    Schemas {
        stable: read(include_str!("../schema/schema.json")),
        unstable,
        requests,
        responses,
        made: Mutex::default(),
    }
});

fn validator(unstable: bool, name: &str) -> &'static Validator {
    let mut made = SCHEMAS.made.lock().unwrap();
    made.entry((unstable, name.to_owned())).or_insert_with(|| {
        let defs = if unstable { &SCHEMAS.unstable["$defs"] } else { &SCHEMAS.stable["$defs"] };
        let schema = json!({"$ref": format!("#/$defs/{name}"), "$defs": defs});
        Box::leak(Box::new(jsonschema::validator_for(&schema).unwrap()))
    })
}

type Checked = Result<(), String>;

fn check_with(unstable: bool, name: &str, value: &Value) -> Checked {
    let errors: Vec<String> = validator(unstable, name).iter_errors(value).map(|error| error.to_string()).collect();
    if errors.is_empty() { Ok(()) } else { Err(format!("{name} does not allow {value}: {errors:#?}")) }
}

/// Checks that a value has the named type of the schema.
pub fn check(name: &str, value: &Value) -> Checked {
    check_with(true, name, value)
}

/// Checks a notification of the agent. A client that announced nothing unstable must get nothing unstable.
pub fn notification(method: &str, params: &Value, unstable: bool) -> Checked {
    match method {
        "session/update" => check_with(unstable, "SessionNotification", params),
        "$/cancel_request" => check("CancelRequestNotification", params),
        other => Err(format!("the agent tells {other}, which is not in the schema")),
    }
}

/// Checks a request of the agent.
pub fn request(method: &str, params: &Value) -> Checked {
    match SCHEMAS.requests.get(method) {
        Some(name) => check(name, params),
        None => Err(format!("the agent asks for {method}, which is not in the schema")),
    }
}

/// Checks a response of the agent, by method. Older method names and extensions have no schema.
pub fn response(method: &str, result: &Value) -> Checked {
    SCHEMAS.responses.get(method).map_or(Ok(()), |name| check(name, result))
}
