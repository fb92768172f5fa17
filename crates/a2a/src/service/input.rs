//! What messages may contain, and what becomes of it: the parts of a prompt.

use std::path::Path;

use api::{JsonMap, PromptInput, PromptPart, Scope, SessionId};
use web::{AddressGuard, is_public};

use super::scope::Named;
use super::{Inner, Service, ServiceSettings};
use crate::model::{Content, Message};
use crate::{Error, Line, SendRequest};

/// Why a message is not taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Refusal {
    /// The call fails; nothing is stored.
    Call(Error),
    /// A task that has failed already answers the call, with this text.
    Task(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

/// What messages may contain.
pub(super) struct Inputs {
    accept_data: bool,
    guard: AddressGuard,
    agent: Option<String>,
    system: Option<String>,
    variant: Option<String>,
}

impl Inputs {
    /// The rules of a service.
    pub(super) fn new(settings: &ServiceSettings) -> Self {
        Self {
            accept_data: settings.accept_data_parts,
            guard: AddressGuard::new(is_public),
            agent: settings.agent.clone(),
            system: settings.system.clone(),
            variant: settings.variant.clone(),
        }
    }
}

/// The metadata of a request: what the request and its message say, of which the request wins.
pub(super) fn metadata_of(request: &SendRequest) -> JsonMap {
    let _ = request;
    unimplemented!()
}

/// The texts of a message, a line for each.
pub(super) fn text_of(message: &Message) -> String {
    let _ = message;
    unimplemented!()
}

/// The session that a request wants to go on with: `metadata.shared.session.id`.
pub(super) fn session_of(metadata: &JsonMap) -> Result<Option<SessionId>, Refusal> {
    let _ = metadata;
    unimplemented!()
}

impl Inner {
    /// Where a message is to work.
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
        let _ = (line, message, metadata, scope);
        unimplemented!()
    }
}

impl Service {
    /// A part of a prompt of `prompt_async` or `command`, under the rules for files of messages.
    pub async fn check_prompt_part(&self, part: PromptPart) -> Result<PromptPart, Error> {
        let _ = part;
        unimplemented!()
    }
}
