//! What messages may contain, and what becomes of it: the parts of a prompt.
//!
//! An agent runtime reads every path and address that a prompt names, so none that was not checked here reaches it. Where its
//! files are here, they are read here, and their content is handed on: a file that was harmless when it was checked cannot
//! be replaced by a link before the runtime reads it.

mod command;
mod disk;
mod media;
mod reader;

use api::{HostError, Json, JsonMap, ModelRef, PromptInput, PromptPart, Scope, SessionId};
use web::{AddressGuard, is_local, is_public};

use super::access::Denied;
use super::scope::Named;
use super::translate::Failure;
use super::{Inner, Service, ServiceSettings};
use crate::model::{Content, Message, Part};
use crate::{Error, ErrorKind, Line, SendRequest};
use reader::{Problem, Reader};

/// The most parts of a message.
pub(crate) const MAX_PARTS: usize = 1000;
/// The parts of `metadata` that have a meaning here.
const NAMESPACES: [&str; 2] = ["opencode", "shared"];

/// Why a message is not taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Refusal {
    /// The call fails; nothing is stored.
    Call(Error),
    /// A task that has failed already answers the call, with this text.
    Task(String),
    /// The agent runtime has refused or failed: a task answers the call that has failed, or lacks credentials.
    Runtime(Failure),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

impl Refusal {
    /// An error of the agent runtime about a message.
    pub(super) fn of_host_error(error: &HostError) -> Self {
        Self::Runtime(Failure::of_host_error(error))
    }

    /// A session that the caller may not use, or that is not there.
    pub(super) fn of_session(id: &SessionId, denied: Denied) -> Self {
        match denied {
            Denied::Refused(error) if error.kind == ErrorKind::SessionForbidden => {
                Self::Task(format!("Session {id} belongs to somebody else"))
            }
            Denied::Refused(error) => Self::Call(error),
            Denied::Runtime(error) => Self::of_host_error(&error),
        }
    }
}

/// Where the files of the agent runtime are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    /// Here, since it is this process.
    Here,
    /// Here, most likely: it is a server on this machine.
    Nearby,
    /// On another machine.
    Elsewhere,
}

/// What messages may contain.
pub(super) struct Inputs {
    accept_data: bool,
    files: Files,
    guard: AddressGuard,
    agent: Option<String>,
    system: Option<String>,
    variant: Option<String>,
}

impl Inputs {
    /// The rules of a service.
    pub(super) fn new(settings: &ServiceSettings) -> Self {
        let files = match settings.upstream_url.as_deref().map(url::Url::parse) {
            None => Files::Here,
            Some(Ok(url)) if is_local(&url) => Files::Nearby,
            Some(_) => Files::Elsewhere,
        };
        Self {
            accept_data: settings.accept_data_parts,
            files,
            guard: AddressGuard::new(is_public),
            agent: settings.agent.clone(),
            system: settings.system.clone(),
            variant: settings.variant.clone(),
        }
    }

    /// Refuses a message by its parts alone, before anything is read for it.
    fn check(&self, line: Line, parts: &[Part]) -> Result<(), Refusal> {
        if parts.len() > MAX_PARTS {
            let message = format!("A message has at most {MAX_PARTS} parts, this one has {}", parts.len());
            return Err(Error::invalid("message.parts", message).with("max", MAX_PARTS).into());
        }
        if !self.accept_data
            && let Some(index) = parts.iter().position(|part| matches!(part.content, Content::Data(_)))
        {
            let message = format!("Part {index} of the message is structured data; send text or a file instead");
            return Err(match line {
                Line::V03 => Refusal::Task(message),
                Line::V10 => Refusal::Call(Error::new(ErrorKind::ContentTypeNotSupported, message)),
            });
        }
        let says_something = |part: &Part| match &part.content {
            Content::Text(text) => !text.trim().is_empty(),
            Content::Raw(_) | Content::Url(_) | Content::Data(_) => true,
        };
        if !parts.iter().any(says_something) {
            let message = "The message says nothing; send a text or a file".to_owned();
            return Err(match line {
                Line::V03 => Refusal::Task(message),
                Line::V10 => Refusal::Call(Error::invalid("message.parts", message)),
            });
        }
        Ok(())
    }
}

/// The metadata of a request: what the request and its message say, of which the request wins.
pub(super) fn metadata_of(request: &SendRequest) -> JsonMap {
    let mut metadata = request.message.metadata.clone();
    for (key, value) in &request.metadata {
        match (metadata.get_mut(key), value) {
            (Some(Json::Object(known)), Json::Object(value)) if NAMESPACES.contains(&key.as_str()) => {
                known.extend(value.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            _ => drop(metadata.insert(key.clone(), value.clone())),
        }
    }
    metadata
}

/// The texts of a message, each on lines of its own.
pub(super) fn text_of(message: &Message) -> String {
    let text = |part: &'_ Part| match &part.content {
        Content::Text(text) => Some(text.clone()),
        Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
    };
    message.parts.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

/// The session that a request wants to go on with: `metadata.shared.session.id`.
pub(super) fn session_of(metadata: &JsonMap) -> Result<Option<SessionId>, Refusal> {
    match shared(metadata, "session")?.and_then(|session| session.get("id")) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(id)) => {
            let unknown = |_| Refusal::of_host_error(&HostError::not_found("session", id.as_str()));
            SessionId::parse(id).map(Some).map_err(unknown)
        }
        Some(_) => Err(wrong("metadata.shared.session.id", "must be a string").into()),
    }
}

/// The model that a request chooses for itself: `metadata.shared.model`.
fn model_of(metadata: &JsonMap) -> Result<Option<ModelRef>, Error> {
    let Some(model) = shared(metadata, "model")? else { return Ok(None) };
    let text = |key: &str| match model.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(wrong(&format!("metadata.shared.model.{key}"), "must be a non-empty string")),
    };
    match (text("providerID")?, text("modelID")?) {
        (Some(provider_id), Some(model_id)) => Ok(Some(ModelRef { provider_id, model_id, variant: None })),
        (None, None) => Ok(None),
        _ => Err(wrong("metadata.shared.model", "needs both providerID and modelID, or neither")),
    }
}

/// An object in `metadata.shared`.
fn shared<'a>(metadata: &'a JsonMap, key: &str) -> Result<Option<&'a JsonMap>, Error> {
    let object = |value: Option<&'a Json>, field: &str| match value {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Object(map)) => Ok(Some(map)),
        Some(_) => Err(wrong(field, "must be an object")),
    };
    match object(metadata.get("shared"), "metadata.shared")? {
        Some(shared) => object(shared.get(key), &format!("metadata.shared.{key}")),
        None => Ok(None),
    }
}

fn wrong(field: &str, problem: &str) -> Error {
    Error::invalid(field, format!("{field} {problem}"))
}

impl Inner {
    /// Where a message is to work. A directory that may not be used fails the task.
    pub(super) async fn scope_of(&self, metadata: &JsonMap) -> Result<Scope, Refusal> {
        let scope = self.places.scope(&Named::read_leniently(metadata)).await;
        scope.map_err(|error| Refusal::Task(error.to_string()))
    }

    /// A message as a prompt: its parts, its model, and the agent of the service. Reads and fetches the files that it
    /// names, so call it after everything that refuses cheaply.
    pub(super) async fn prompt_of(
        &self,
        line: Line,
        message: &Message,
        metadata: &JsonMap,
        scope: &Scope,
    ) -> Result<PromptInput, Refusal> {
        let inputs = &self.inputs;
        inputs.check(line, &message.parts)?;
        let model = model_of(metadata)?;
        let mut reader =
            self.reader(scope, |part: &Part| matches!(&part.content, Content::Url(_)), &message.parts).await;
        let mut parts = Vec::with_capacity(message.parts.len());
        for (index, part) in message.parts.iter().enumerate() {
            let read = reader.read(part).await;
            parts.push(read.map_err(|problem| match problem {
                Problem::Malformed(text) => {
                    let field = format!("message.parts[{index}]");
                    Refusal::Call(Error::invalid(&field, format!("{field}: {text}")))
                }
                Problem::Refused(text) => Refusal::Task(text),
            })?);
        }
        let (agent, system, variant) = (inputs.agent.clone(), inputs.system.clone(), inputs.variant.clone());
        Ok(PromptInput { parts, model, agent, system, variant, ..PromptInput::default() })
    }

    /// A reader of the files that parts name. Where they may be is only looked up if there are any.
    async fn reader<P>(&self, scope: &Scope, names_file: impl Fn(&P) -> bool, parts: &[P]) -> Reader<'_> {
        let roots = match parts.iter().any(names_file) {
            true => self.places.file_roots(&*self.host, scope).await,
            false => Vec::new(),
        };
        Reader::new(self.inputs.files, &self.inputs.guard, roots)
    }
}

impl Service {
    /// The parts of a prompt of `prompt_async` or `command`, under the rules for files of messages. `field` is where they
    /// are.
    pub(crate) async fn check_prompt_parts(
        &self,
        scope: &Scope,
        parts: Vec<PromptPart>,
        field: &str,
    ) -> Result<Vec<PromptPart>, Error> {
        let is_file = |part: &PromptPart| matches!(part, PromptPart::File { .. });
        let mut reader = self.inner.reader(scope, is_file, &parts).await;
        let mut checked = Vec::with_capacity(parts.len());
        for (index, part) in parts.into_iter().enumerate() {
            checked.push(match part {
                PromptPart::File { id, mime, filename, url, source } => {
                    let invalid = |name: &str, text: &str| {
                        let field = format!("{field}[{index}].{name}");
                        Error::invalid(&field, format!("{field}: {text}"))
                    };
                    // It names a resource of an MCP server, which the runtime would read whatever the address says.
                    if source.as_ref().is_some_and(|source| source["type"] == "resource") {
                        return Err(invalid("source", "resources of MCP servers cannot be named here"));
                    }
                    let mut file = Part::new(Content::Url(url));
                    file.media_type = Some(mime);
                    file.filename = filename;
                    let read = reader.read(&file).await.map_err(Problem::into_text);
                    match read.map_err(|text| invalid("url", &text))? {
                        PromptPart::File { mime, filename, url, .. } => {
                            PromptPart::File { id, mime, filename, url, source }
                        }
                        other => other,
                    }
                }
                // They name no files.
                PromptPart::Text { .. } | PromptPart::Agent { .. } | PromptPart::Subtask { .. } => part,
            });
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests;
