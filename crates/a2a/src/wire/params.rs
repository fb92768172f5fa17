//! The parameters of each operation, out of a JSON-RPC request or out of path, query and body of REST.

use api::{Json, JsonMap};

use super::dialect::Syntax;
use super::enums::parse_state;
use super::fields::{MAX_ID, Object, Path};
use super::head::{event_number, pairs};
use super::methods::Operation;
use super::read;
use super::route::RestCall;
use crate::call::{Call, ListRequest, PushConfig, SendOptions, SendRequest};
use crate::error::{Error, ErrorKind};

/// The largest page.
pub const MAX_PAGE: u32 = 100;
/// What replies need.
const TEXT: &str = "text/plain";
/// What replies may have.
pub const OUTPUT_MODES: [&str; 2] = [TEXT, "application/json"];

/// Reads the parameters of a JSON-RPC request.
pub(super) fn rpc(operation: Operation, params: Json, syntax: Syntax) -> Result<Call, Error> {
    let params = if params.is_null() { Json::Object(JsonMap::new()) } else { params };
    let mut params = Object::new(params, Path::Root("params"))?;
    let task_field = if syntax == Syntax::Proto10 { "taskId" } else { "id" };
    let push_field = if syntax == Syntax::Proto10 { "id" } else { "pushNotificationConfigId" };
    Ok(match operation {
        Operation::Send => Call::Send(Box::new(send(&mut params, syntax)?)),
        Operation::Stream => Call::Stream(Box::new(send(&mut params, syntax)?)),
        Operation::Get => Call::Get { id: params.required_id("id")?, history_length: params.count("historyLength")? },
        Operation::List => Call::List(list(&mut params, syntax)?),
        Operation::Cancel => Call::Cancel { id: params.required_id("id")? },
        Operation::Subscribe => {
            Call::Subscribe { id: params.required_id("id")?, after: after(&params.metadata("metadata")?) }
        }
        Operation::PutPush if syntax == Syntax::Proto10 => {
            let config = read::push_config(Json::Object(params.into_map()), Path::Root("params"), syntax)?;
            if config.task_id.is_empty() {
                return Err(
                    Error::invalid("params.taskId", "Missing required params.taskId").with("type", "MISSING_FIELD")
                );
            }
            Call::PutPush(config)
        }
        Operation::PutPush => {
            let task_id = params.required_id("taskId")?;
            let config = params.needed("pushNotificationConfig")?;
            let config = read::push_config(config, params.at("pushNotificationConfig"), syntax)?;
            Call::PutPush(PushConfig { task_id, ..config })
        }
        Operation::GetPush => Call::GetPush { task: params.required_id(task_field)?, id: params.id(push_field)? },
        Operation::ListPush => Call::ListPush {
            task: params.required_id(task_field)?,
            page_size: page_size(&mut params, true)?,
            page_token: params.filled("pageToken")?,
        },
        Operation::DeletePush => Call::DeletePush { task: params.required_id(task_field)?, id: params.id(push_field)? },
        Operation::ExtendedCard => Call::ExtendedCard,
    })
}

/// Reads an operation of REST. The path wins over the body.
pub(super) fn rest(call: &RestCall, query: &str, body: Json, syntax: Syntax) -> Result<Call, Error> {
    for (name, id) in [("id", &call.task), ("push_id", &call.push)] {
        if id.as_ref().is_some_and(|id| id.len() > MAX_ID) {
            return Err(Path::Root(name).wrong(&format!("at most {MAX_ID} bytes long")));
        }
    }
    let task = || call.task.clone().unwrap_or_default();
    let mut query = Object::new(Json::Object(query_object(query)), Path::Root(""))?;
    Ok(match call.operation {
        Operation::Send => Call::Send(Box::new(send(&mut Object::new(body, Path::Root(""))?, syntax)?)),
        Operation::Stream => Call::Stream(Box::new(send(&mut Object::new(body, Path::Root(""))?, syntax)?)),
        Operation::Get => Call::Get { id: task(), history_length: query.count("historyLength")? },
        Operation::List => Call::List(list(&mut query, syntax)?),
        Operation::Cancel => Call::Cancel { id: task() },
        Operation::Subscribe => Call::Subscribe { id: task(), after: None },
        Operation::PutPush => {
            let config = rest_push(Object::new(body, Path::Root(""))?, syntax)?;
            Call::PutPush(PushConfig { task_id: task(), ..config })
        }
        Operation::GetPush => Call::GetPush { task: task(), id: call.push.clone() },
        Operation::ListPush => Call::ListPush {
            task: task(),
            page_size: page_size(&mut query, true)?,
            page_token: query.filled("pageToken")?,
        },
        Operation::DeletePush => Call::DeletePush { task: task(), id: call.push.clone() },
        Operation::ExtendedCard => Call::ExtendedCard,
    })
}

fn query_object(query: &str) -> JsonMap {
    let value = |key: &str, text: String| match (key, text.as_str()) {
        ("includeArtifacts" | "include_artifacts", "true") => Json::Bool(true),
        ("includeArtifacts" | "include_artifacts", "false") => Json::Bool(false),
        _ => Json::String(text),
    };
    pairs(query).map(|(key, text)| (key.clone(), value(&key, text))).collect()
}

fn send(params: &mut Object<'_>, syntax: Syntax) -> Result<SendRequest, Error> {
    // The protocol buffers of 0.3 call the field `request`, their JSON `message`.
    let field = if syntax == Syntax::Proto03 && !params.has("message") && params.has("request") {
        "request"
    } else {
        "message"
    };
    let message = params.needed(field)?;
    let message = read::message(message, params.at(field), syntax)?;
    // In 0.3 such a message becomes a task that fails.
    if message.parts.is_empty() && syntax == Syntax::Proto10 {
        return Err(Path::Field(&params.at(field), "parts").wrong("a list of at least one part"));
    }
    let options = match params.take("configuration") {
        Some(value) => options(Object::new(value, params.at("configuration"))?, syntax)?,
        None => SendOptions { return_immediately: syntax == Syntax::Proto03, ..SendOptions::default() },
    };
    check_output_modes(&options.accepted_output_modes)?;
    Ok(SendRequest { message, options, metadata: params.metadata("metadata")?, traceparent: None })
}

fn options(mut object: Object<'_>, syntax: Syntax) -> Result<SendOptions, Error> {
    let push_field = match syntax {
        Syntax::Kinds => "pushNotificationConfig",
        Syntax::Proto03 => "pushNotification",
        Syntax::Proto10 => "taskPushNotificationConfig",
    };
    let push = match object.take(push_field) {
        None => None,
        Some(value) => Some(read::push_config(value, object.at(push_field), syntax)?),
    };
    let return_immediately = match syntax {
        Syntax::Kinds => !object.boolean("blocking")?.unwrap_or(true),
        // Protocol buffers have no other default for a flag than false.
        Syntax::Proto03 => !object.boolean("blocking")?.unwrap_or(false),
        Syntax::Proto10 => object.boolean("returnImmediately")?.unwrap_or(false),
    };
    Ok(SendOptions {
        accepted_output_modes: object.texts("acceptedOutputModes")?,
        history_length: object.count("historyLength")?,
        return_immediately,
        push,
    })
}

/// Whether a media type or range of the client covers another.
fn covers(accepted: &str, mode: &str) -> bool {
    let accepted = accepted.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let (group, _) = mode.split_once('/').unwrap_or((mode, ""));
    accepted == mode || accepted == "*/*" || accepted == "*" || accepted.strip_suffix("/*") == Some(group)
}

/// Replies are text, so a request that takes none is refused before anything runs.
fn check_output_modes(accepted: &[String]) -> Result<(), Error> {
    if accepted.is_empty() || accepted.iter().any(|mode| covers(mode, TEXT)) {
        return Ok(());
    }
    let message = format!("Replies are {TEXT}, which acceptedOutputModes does not have; add it, or send none.");
    Err(Error::new(ErrorKind::UnsupportedOperation, message)
        .with("accepted_output_modes", accepted)
        .with("required_output_modes", vec![TEXT])
        .with("supported_output_modes", OUTPUT_MODES.to_vec()))
}

/// Whether the client takes text alone, and no structured data.
pub fn is_text_only(accepted: &[String]) -> bool {
    !accepted.is_empty() && !accepted.iter().any(|mode| covers(mode, OUTPUT_MODES[1]))
}

fn list(params: &mut Object<'_>, syntax: Syntax) -> Result<ListRequest, Error> {
    let is_set = |text: &str| text != "TASK_STATE_UNSPECIFIED";
    let state = match params.filled("status")?.filter(|text| is_set(text)) {
        None => None,
        Some(text) => Some(parse_state(&text, syntax).ok_or_else(|| params.at("status").wrong("a known state"))?),
    };
    // 0.3 calls the same filter by another name.
    let since = match params.timestamp("statusTimestampAfter")? {
        None => params.timestamp("lastUpdatedAfter")?,
        since => since,
    };
    Ok(ListRequest {
        context_id: params.id("contextId")?,
        state,
        changed_since: since,
        page_size: page_size(params, false)?,
        page_token: params.filled("pageToken")?,
        history_length: params.count("historyLength")?,
        include_artifacts: params.boolean("includeArtifacts")?.unwrap_or(false),
    })
}

/// The size of a page. Where protocol buffers have a plain number, zero is the default.
fn page_size(params: &mut Object<'_>, zero_is_default: bool) -> Result<Option<u32>, Error> {
    let wrong = |params: &Object<'_>| {
        let field = params.at("pageSize").to_string();
        Error::invalid(&field, format!("{field} must be between 1 and {MAX_PAGE}."))
    };
    match params.count("pageSize") {
        Ok(None) => Ok(None),
        Ok(Some(0)) if zero_is_default => Ok(None),
        Ok(Some(size @ 1..=MAX_PAGE)) => Ok(Some(size)),
        Ok(Some(_)) | Err(_) => Err(wrong(params)),
    }
}

/// A push configuration of REST. In 0.3 the SDKs send it wrapped once or twice.
fn rest_push(mut body: Object<'_>, syntax: Syntax) -> Result<PushConfig, Error> {
    if syntax == Syntax::Proto10 {
        return read::push_config(Json::Object(body.into_map()), Path::Root(""), syntax);
    }
    let id = body.id("configId")?;
    let mut config = match body.take("config") {
        Some(value) => wrapped_push(Object::new(value, body.at("config"))?)?,
        None => wrapped_push(body)?,
    };
    config.id = config.id.or(id);
    Ok(config)
}

fn wrapped_push(mut object: Object<'_>) -> Result<PushConfig, Error> {
    let name = object.filled("name")?;
    let mut config = match object.take("pushNotificationConfig") {
        Some(value) => read::push_config(value, object.at("pushNotificationConfig"), Syntax::Proto03)?,
        None => {
            let path = object.path();
            read::push_config(Json::Object(object.into_map()), path, Syntax::Proto03)?
        }
    };
    // A resource name: `tasks/<task>/pushNotificationConfigs/<id>`. Clients that chose no id end it with `None` or nothing.
    let from_name = name.as_deref().and_then(|name| name.rsplit_once("/pushNotificationConfigs/")).map(|(_, id)| id);
    config.id =
        config.id.or_else(|| from_name.filter(|id| !matches!(*id, "" | "None" | "undefined")).map(str::to_owned));
    Ok(config)
}

/// The last event that a client says it has, in the metadata of its request.
fn after(metadata: &JsonMap) -> Option<u64> {
    let stream = metadata.get("shared")?.get("stream")?;
    let sequence = stream.get("sequence").and_then(super::fields::whole).and_then(|number| u64::try_from(number).ok());
    sequence.or_else(|| event_number(stream.get("event_id")?.as_str()?))
}
