//! Methods that change sessions and run something in them.

use api::{
    CommandInput, HostError, Json, JsonMap, MessageId, ModelRef, PartId, PromptInput, PromptPart, PromptTarget, Scope,
    Session, SessionId, ShellInput, SummarizeInput,
};
use serde_json::json;

use super::params::Params;
use super::{Request, results};
use crate::Error;
use crate::service::MAX_PARTS;
use crate::service::access::Use;

const PROMPT: [&str; 9] = ["parts", "messageID", "model", "agent", "noReply", "tools", "format", "system", "variant"];
const COMMAND: [&str; 7] = ["command", "arguments", "messageID", "agent", "model", "variant", "parts"];
const PART_TYPES: [&str; 4] = ["text", "file", "agent", "subtask"];

/// Why something was not done.
enum Failure {
    Ours(Error),
    Host(HostError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}

/// Runs something in a session that the caller may change, and settles the claim on it.
async fn change<T>(request: &Request<'_>, run: impl AsyncFnOnce(&SessionId) -> Result<T, Failure>) -> Result<T, Error> {
    let (id, grant) = request.session(Use::Change).await?;
    match run(&id).await {
        Ok(value) => {
            grant.confirm().await?;
            Ok(value)
        }
        Err(failure) => {
            grant.release().await?;
            Err(match failure {
                Failure::Ours(error) => error,
                Failure::Host(error) => request.upstream(Some(&id)).error(error),
            })
        }
    }
}

pub(super) async fn prompt_async(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["session_id", "request", "metadata"])?;
    let body = request.params.request()?;
    body.only(&PROMPT)?;
    let mut input = PromptInput {
        message_id: message_id(&body)?,
        model: model(&body)?,
        agent: text(&body, "agent")?,
        no_reply: body.flag("noReply")?.unwrap_or(false),
        system: text(&body, "system")?,
        variant: text(&body, "variant")?,
        ..PromptInput::default()
    };
    if let Some(tools) = body.get("tools") {
        let problem = |_| body.invalid("tools", "must be an object of booleans");
        input.tools = Some(serde_json::from_value(tools.clone()).map_err(problem)?);
    }
    if let Some(format) = body.get("format") {
        let problem = |_| body.invalid("format", "must have the type text, or json_schema with a schema");
        input.format = Some(serde_json::from_value(format.clone()).map_err(problem)?);
    }
    let parts = parts(&body)?;
    let id = change(request, async |id| {
        input.parts = checked(request, parts).await?;
        request.host().prompt_async(id, input).await?;
        Ok(id.clone())
    })
    .await?;
    Ok(json!({ "ok": true, "session_id": id }))
}

pub(super) async fn command(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["session_id", "request", "metadata"])?;
    let body = request.params.request()?;
    body.only(&COMMAND)?;
    let name = body.required_text("command")?;
    let arguments = body.any_text("arguments").map_err(|_| body.invalid("arguments", "must be a non-empty string"))?;
    let parts = match body.get("parts") {
        Some(_) => parts(&body)?,
        None => Vec::new(),
    };
    let mut input = CommandInput {
        // People write it with the slash that starts it in a prompt.
        command: name.strip_prefix('/').unwrap_or(name).to_owned(),
        arguments: arguments.to_owned(),
        target: target(&body)?,
        parts: Vec::new(),
    };
    let message = change(request, async |id| {
        let scope = request.scope().await?;
        request.service.check_command(&scope, &input.command, &input.arguments).await?;
        input.parts = checked(request, parts).await?;
        Ok(request.host().command(id, input).await?)
    })
    .await?;
    Ok(json!({ "item": results::message(&message, request.line) }))
}

pub(super) async fn shell(request: &Request<'_>) -> Result<Json, Error> {
    request.service.access().session_shell(request.who, request.method)?;
    request.params.only(&["session_id", "request", "metadata"])?;
    let body = request.params.request()?;
    body.only(&["agent", "command", "model"])?;
    body.required_text("agent")?;
    let input = ShellInput { command: body.required_text("command")?.to_owned(), target: target(&body)? };
    let message = change(request, async |id| Ok(request.host().shell(id, input).await?)).await?;
    Ok(json!({ "item": results::message(&message, request.line) }))
}

pub(super) async fn fork(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["session_id", "request", "directory", "metadata"])?;
    let empty = JsonMap::new();
    let body = request.params.optional_request(&empty)?;
    body.only(&["messageID"])?;
    let before = message_id(&body)?;
    let fork: Session = change(request, async |id| {
        let host = request.service.host_of_owner(request.who, id).await?;
        Ok(host.fork_session(id, before).await?)
    })
    .await?;
    request.service.access().own_session(request.who, &fork.id).await?;
    Ok(json!({ "item": results::summary(&fork) }))
}

pub(super) async fn share(request: &Request<'_>, shared: bool) -> Result<Json, Error> {
    request.params.only(&["session_id", "directory", "metadata"])?;
    let session = change(request, async |id| match shared {
        true => Ok(request.host().share(id).await?),
        false => Ok(request.host().unshare(id).await?),
    });
    Ok(json!({ "item": results::summary(&session.await?) }))
}

pub(super) async fn summarize(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["session_id", "request", "directory", "metadata"])?;
    let empty = JsonMap::new();
    let body = request.params.optional_request(&empty)?;
    body.only(&["providerID", "modelID", "auto"])?;
    let auto = body.flag("auto")?.unwrap_or(false);
    let named = match (text(&body, "providerID")?, text(&body, "modelID")?) {
        (Some(provider_id), Some(model_id)) => Some(ModelRef { provider_id, model_id, variant: None }),
        (None, None) => None,
        _ => return Err(Error::invalid("request", "request.providerID and request.modelID belong together")),
    };
    let id = change(request, async |id| {
        let model = match named {
            Some(model) => model,
            None => {
                let session = request.host().session(id).await?;
                request.host().default_model(&Scope::new(session.directory)).await?
            }
        };
        request.host().summarize(id, SummarizeInput { model, auto }).await?;
        Ok(id.clone())
    })
    .await?;
    Ok(json!({ "ok": true, "session_id": id }))
}

pub(super) async fn revert(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["session_id", "request", "directory", "metadata"])?;
    let body = request.params.request()?;
    body.only(&["messageID", "partID"])?;
    body.required_text("messageID")?;
    let message = message_id(&body)?.ok_or_else(|| body.invalid("messageID", "must be a non-empty string"))?;
    let part = text(&body, "partID")?.map(|id| PartId::parse(&id)).transpose();
    let part = part.map_err(|_| body.invalid("partID", "is not the id of a part"))?;
    let session = change(request, async |id| Ok(request.host().revert(id, message, part).await?)).await?;
    Ok(json!({ "item": results::summary(&session) }))
}

pub(super) async fn unrevert(request: &Request<'_>) -> Result<Json, Error> {
    request.params.only(&["session_id", "directory", "metadata"])?;
    let session = change(request, async |id| Ok(request.host().unrevert(id).await?)).await?;
    Ok(json!({ "item": results::summary(&session) }))
}

fn text(body: &Params<'_>, key: &str) -> Result<Option<String>, Error> {
    Ok(body.text(key)?.map(str::to_owned))
}

fn message_id(body: &Params<'_>) -> Result<Option<MessageId>, Error> {
    let parse = |id| MessageId::parse(id).map_err(|_| body.invalid("messageID", "must start with \"msg\""));
    body.text("messageID")?.map(parse).transpose()
}

fn model(body: &Params<'_>) -> Result<Option<ModelRef>, Error> {
    let Some(model) = body.object("model", "request.model.")? else { return Ok(None) };
    model.only(&["providerID", "modelID"])?;
    Ok(Some(ModelRef {
        provider_id: model.required_text("providerID")?.to_owned(),
        model_id: model.required_text("modelID")?.to_owned(),
        variant: None,
    }))
}

fn target(body: &Params<'_>) -> Result<PromptTarget, Error> {
    Ok(PromptTarget {
        agent: text(body, "agent")?,
        model: model(body)?,
        variant: text(body, "variant")?,
        message_id: message_id(body)?,
    })
}

/// The parts of a prompt, as they were sent.
fn parts(body: &Params<'_>) -> Result<Vec<PromptPart>, Error> {
    let Some(Json::Array(given)) = body.get("parts") else {
        return Err(body.invalid("parts", "must be a list of parts"));
    };
    if given.is_empty() || given.len() > MAX_PARTS {
        return Err(body.invalid("parts", &format!("must have 1 to {MAX_PARTS} parts")));
    }
    let part = |(index, part): (usize, &Json)| {
        let field = format!("request.parts[{index}]");
        let kind = part.get("type").and_then(Json::as_str);
        if !kind.is_some_and(|kind| PART_TYPES.contains(&kind)) {
            let message = format!("{field}.type must be one of: {}", PART_TYPES.join(", "));
            return Err(Error::invalid(&format!("{field}.type"), message));
        }
        serde_json::from_value(part.clone())
            .map_err(|error| Error::invalid(&field, format!("{field} is malformed: {error}")))
    };
    given.iter().enumerate().map(part).collect()
}

/// The parts of a prompt, under the same rules for files as those of messages.
async fn checked(request: &Request<'_>, parts: Vec<PromptPart>) -> Result<Vec<PromptPart>, Error> {
    let scope = request.scope().await?;
    request.service.check_prompt_parts(&scope, parts, "request.parts").await
}
