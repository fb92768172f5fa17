//! Handles what an agent asks of its client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::RunnerContext;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::events::{AgentMessage, Event, Permission};
use super::files::{Root, string};
use super::form::Form;
use super::terminals::{CommandRequest, Terminals};
use crate::rpc::{Error, Handler, Request};

/// Handles the agent's requests and notifications.
pub(super) struct ClientHandler {
    messages: mpsc::Sender<AgentMessage>,
    root: Root,
    terminals: Arc<Terminals>,
    context: Option<Arc<dyn RunnerContext>>,
    /// The contexts of subagents, by session.
    child_contexts: Mutex<HashMap<String, Arc<dyn RunnerContext>>>,
    /// How many requests are running.
    busy: AtomicUsize,
}

impl ClientHandler {
    pub fn new(
        messages: mpsc::Sender<AgentMessage>,
        root: Root,
        terminals: Arc<Terminals>,
        context: Option<Arc<dyn RunnerContext>>,
    ) -> Self {
        Self { messages, root, terminals, context, child_contexts: Mutex::default(), busy: AtomicUsize::new(0) }
    }

    /// Sets the context of a subagent; `None` falls back to the session's.
    pub fn set_child_context(&self, session: &str, context: Option<Arc<dyn RunnerContext>>) {
        let mut child_contexts = self.child_contexts();
        match context {
            Some(context) => child_contexts.insert(session.to_owned(), context),
            None => child_contexts.remove(session),
        };
    }

    fn child_contexts(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn RunnerContext>>> {
        self.child_contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context for a request.
    fn context_for(&self, params: &Value) -> Option<Arc<dyn RunnerContext>> {
        let child_context =
            params["sessionId"].as_str().and_then(|session| self.child_contexts().get(session).cloned());
        child_context.or_else(|| self.context.clone())
    }

    /// Whether a request of the agent is running.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Whether a user can fill in forms. A runner context answers permissions only.
    pub fn has_user(&self) -> bool {
        self.context.is_none()
    }

    /// Queues a message. There is room, because the source is not read without it.
    fn queue(&self, message: AgentMessage) {
        if self.messages.try_send(message).is_err() {
            tracing::debug!("nobody reads the agent's events any more");
        }
    }

    async fn handle(self: Arc<Self>, request: Request) {
        let params = &request.params;
        self.busy.fetch_add(1, Ordering::Relaxed);
        let result = match request.method.as_str() {
            "fs/read_text_file" => match self.context_for(params) {
                Some(context) => self.read(context.as_ref(), params).await,
                None => self.on_disk(params, Root::read).await,
            },
            "fs/write_text_file" => match self.context_for(params) {
                Some(context) => self.write(context.as_ref(), params).await,
                None => match self.check_write(&request).await {
                    Ok(()) => self.on_disk(params, Root::write).await,
                    Err(error) => Err(error),
                },
            },
            "terminal/create" => match self.check_command(&request).await {
                Ok(()) => self.terminals.create(params),
                Err(error) => Err(error),
            },
            "terminal/output" => self.terminals.output(params),
            "terminal/wait_for_exit" => tokio::select! {
                ended = self.terminals.wait(params) => ended,
                () = request.cancel.cancelled() => Err(Error::cancelled()),
            },
            "terminal/kill" => self.terminals.kill(params),
            "terminal/release" => self.terminals.release(params),
            "elicitation/create" => Err(Error::invalid_params("Only forms can be filled in here")),
            other => Err(Error::method_not_found(other)),
        };
        self.busy.fetch_sub(1, Ordering::Relaxed);
        request.reply(result);
    }

    async fn read(&self, context: &dyn RunnerContext, params: &Value) -> Result<Value, Error> {
        let bytes = context.read(&self.root.file_path(params)?).await.map_err(Error::internal)?;
        Root::read_response(params, bytes)
    }

    async fn write(&self, context: &dyn RunnerContext, params: &Value) -> Result<Value, Error> {
        let content = string(params, "content")?;
        context.write(&self.root.file_path(params)?, content.as_bytes()).await.map_err(Error::internal)?;
        Ok(json!({}))
    }

    /// Checks whether the command of `terminal/create` may run.
    async fn check_command(&self, request: &Request) -> Result<(), Error> {
        let CommandRequest { line, script, directory } = self.terminals.command_request(&request.params)?;
        if let Some(context) = self.context_for(&request.params) {
            return context.execute(&line, &directory).await.map_err(Error::internal);
        }
        let input = json!({"command": line, "script": script, "cwd": directory});
        self.ask_permission(request, json!({"title": line, "kind": "execute", "rawInput": input})).await
    }

    /// Checks whether the file of `fs/write_text_file` may be written.
    async fn check_write(&self, request: &Request) -> Result<(), Error> {
        let (path, content) = (self.root.file_path(&request.params)?, string(&request.params, "content")?);
        let change =
            json!({"type": "diff", "path": path, "oldText": self.root.current_text(&path), "newText": content});
        let call = json!({"title": format!("write {}", path.display()), "kind": "edit", "content": [change]});
        self.ask_permission(request, call).await
    }

    /// Asks the user whether the agent may have something done here. No listener means no.
    async fn ask_permission(&self, request: &Request, call: Value) -> Result<(), Error> {
        let (permission, answer) = Permission::local(&request.params["sessionId"], call);
        self.queue(AgentMessage::Event(Event::Permission(Box::new(permission))));
        let allowed = tokio::select! {
            answer = answer => answer.unwrap_or(false),
            () = request.cancel.cancelled() => return Err(Error::cancelled()),
        };
        if allowed { Ok(()) } else { Err(Error::internal("Permission denied")) }
    }

    async fn on_disk(&self, params: &Value, work: fn(&Root, &Value) -> Result<Value, Error>) -> Result<Value, Error> {
        let (root, params) = (self.root.clone(), params.clone());
        let done = tokio::task::spawn_blocking(move || work(&root, &params)).await;
        done.unwrap_or_else(|_| Err(Error::internal("The file could not be accessed; the log says why")))
    }
}

impl Handler for ClientHandler {
    fn request(self: &Arc<Self>, request: Request) -> BoxFuture<'static, ()> {
        // Queued in order with the updates: the call that they are about was reported before.
        match request.method.as_str() {
            "session/request_permission" => {
                self.queue(AgentMessage::Event(Event::Permission(Box::new(Permission::new(request)))))
            }
            "elicitation/create" if request.params["mode"] == "form" => {
                self.queue(AgentMessage::Event(Event::Form(Box::new(Form::new(request)))));
            }
            _ => return Box::pin(self.clone().handle(request)),
        }
        Box::pin(std::future::ready(()))
    }

    fn notification(self: &Arc<Self>, method: &str, mut params: Value) {
        match method.trim_start_matches('_') {
            "session/update" => {
                let session = params["sessionId"].as_str().map(str::to_owned);
                if let (Some(session), true) = (session, params["update"].is_object()) {
                    self.queue(AgentMessage::Event(Event::Update { session, update: params["update"].take() }));
                }
            }
            "opencode/session/child_update" => self.queue(AgentMessage::ChildUpdate(params)),
            _ => {}
        }
    }
}
