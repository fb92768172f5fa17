//! The methods of extensions: `opencode.*`, which show and control sessions, catalogues and workspaces, `a2a.interrupt.*`,
//! which answer requests, and `trefoil.*`, which show subagents.
//!
//! Each method reads its parameters with [`Params`], passes `service::access`, calls the agent runtime, and writes a result
//! that says no more than its contract.

mod catalog;
mod control;
pub(crate) mod failure;
mod params;
mod replies;
mod results;
mod sessions;
mod tree;
mod workspaces;

use std::sync::Arc;

use api::{AgentRuntime, Json, JsonMap, Scope, SessionId};

use crate::service::Service;
use crate::service::access::{SessionGrant, Use};
use crate::{Error, ErrorKind, Line, Principal};
use failure::Upstream;
use params::Params;

/// The methods of extensions. Cheap to clone.
#[derive(Clone)]
pub struct Extensions {
    service: Service,
}

/// One call of a method.
struct Request<'a> {
    service: &'a Service,
    who: &'a Principal,
    line: Line,
    method: &'a str,
    params: Params<'a>,
}

impl Extensions {
    /// The methods on a service.
    pub fn new(service: Service) -> Self {
        Self { service }
    }

    /// Calls a method. Whether it is enabled and negotiated was checked when the request was parsed.
    pub async fn call(&self, who: &Principal, line: Line, method: &str, params: &JsonMap) -> Result<Json, Error> {
        let request = Request { service: &self.service, who, line, method, params: Params::new(params) };
        match method {
            "opencode.sessions.status" => sessions::status(&request).await,
            "opencode.sessions.list" => sessions::list(&request).await,
            "opencode.sessions.get" => sessions::get(&request).await,
            "opencode.sessions.children" => sessions::children(&request).await,
            "opencode.sessions.todo" => sessions::todo(&request).await,
            "opencode.sessions.diff" => sessions::diff(&request).await,
            "opencode.sessions.messages.list" => sessions::messages(&request).await,
            "opencode.sessions.messages.get" => sessions::message(&request).await,
            "opencode.sessions.prompt_async" => control::prompt_async(&request).await,
            "opencode.sessions.command" => control::command(&request).await,
            "opencode.sessions.shell" => control::shell(&request).await,
            "opencode.sessions.fork" => control::fork(&request).await,
            "opencode.sessions.share" => control::share(&request, true).await,
            "opencode.sessions.unshare" => control::share(&request, false).await,
            "opencode.sessions.summarize" => control::summarize(&request).await,
            "opencode.sessions.revert" => control::revert(&request).await,
            "opencode.sessions.unrevert" => control::unrevert(&request).await,
            "opencode.providers.list" => catalog::providers(&request).await,
            "opencode.models.list" => catalog::models(&request).await,
            "opencode.projects.list" => workspaces::projects(&request).await,
            "opencode.projects.current" => workspaces::current_project(&request).await,
            "opencode.workspaces.list" => workspaces::list(&request).await,
            "opencode.workspaces.create" => workspaces::create(&request).await,
            "opencode.workspaces.remove" => workspaces::remove(&request).await,
            "opencode.worktrees.list" => workspaces::worktrees(&request).await,
            "opencode.worktrees.create" => workspaces::create_worktree(&request).await,
            "opencode.worktrees.remove" => workspaces::remove_worktree(&request).await,
            "opencode.worktrees.reset" => workspaces::reset_worktree(&request).await,
            "opencode.permissions.list" => replies::permissions(&request),
            "opencode.questions.list" => replies::questions(&request),
            "a2a.interrupt.permission.reply" => replies::permission(&request).await,
            "a2a.interrupt.question.reply" => replies::question(&request, true).await,
            "a2a.interrupt.question.reject" => replies::question(&request, false).await,
            "trefoil.tasks.tree" => tree::tree(&request).await,
            _ => {
                Err(Error::new(ErrorKind::MethodNotFound, format!("Unsupported method: {method}"))
                    .with("method", method))
            }
        }
    }
}

impl Request<'_> {
    fn host(&self) -> &Arc<dyn AgentRuntime> {
        self.service.host()
    }

    /// Where the call works: the workspace or directory that it names, else the service's.
    async fn scope(&self) -> Result<Scope, Error> {
        let mut metadata = self.params.metadata()?;
        let mut is_parameter = false;
        if let Some(directory) = self.params.text("directory")? {
            let private = metadata.entry("opencode").or_insert_with(|| JsonMap::new().into());
            // The metadata is the newer place, and wins.
            if let Some(private) = private.as_object_mut().filter(|private| !private.contains_key("directory")) {
                private.insert("directory".to_owned(), directory.into());
                is_parameter = true;
            }
        }
        self.service.scope(&metadata).await.map_err(|mut error| {
            if let Some(field) = error.fields.get_mut("field").filter(|field| *field == "metadata.opencode.directory")
                && is_parameter
            {
                *field = "directory".into();
            }
            error
        })
    }

    /// The session that the call names, if the caller may use it. Checks the place that the call names, too.
    async fn session(&self, purpose: Use) -> Result<(SessionId, SessionGrant), Error> {
        let text = self.params.required_text("session_id")?;
        self.scope().await?;
        let id = SessionId::parse(text).map_err(|_| failure::session_not_found(text))?;
        let grant = self.service.access().session(self.who, &id, purpose).await?;
        Ok((id, grant))
    }

    /// What failures of the agent runtime are about.
    fn upstream<'a>(&'a self, session: Option<&'a SessionId>) -> Upstream<'a> {
        Upstream { method: Some(self.method), session }
    }
}
