//! What an agent asks of its client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Desk;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::events::{Event, Heard, Permission};
use super::files::{Root, text};
use super::form::Form;
use super::terminals::{Terminals, Wanted};
use crate::rpc::{Error, Handler, Request};

/// Answers the agent.
pub(super) struct Server {
    heard: mpsc::Sender<Heard>,
    root: Root,
    terminals: Arc<Terminals>,
    desk: Option<Arc<dyn Desk>>,
    /// The desks of subagents, by their sessions.
    seats: Mutex<HashMap<String, Arc<dyn Desk>>>,
    /// How many requests are being answered.
    busy: AtomicUsize,
}

impl Server {
    pub fn new(heard: mpsc::Sender<Heard>, root: Root, terminals: Arc<Terminals>, desk: Option<Arc<dyn Desk>>) -> Self {
        Self { heard, root, terminals, desk, seats: Mutex::default(), busy: AtomicUsize::new(0) }
    }

    /// Who decides about a subagent's files and commands; without a desk its parent's does.
    pub fn seat(&self, session: &str, desk: Option<Arc<dyn Desk>>) {
        let mut seats = self.seats();
        match desk {
            Some(desk) => seats.insert(session.to_owned(), desk),
            None => seats.remove(session),
        };
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn Desk>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The desk for a request.
    fn desk(&self, params: &Value) -> Option<Arc<dyn Desk>> {
        let seat = params["sessionId"].as_str().and_then(|session| self.seats().get(session).cloned());
        seat.or_else(|| self.desk.clone())
    }

    /// Whether a request of the agent is being answered.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody is here to fill in forms. Work that is done for a session asks for permissions alone.
    pub fn fills_in_forms(&self) -> bool {
        self.desk.is_none()
    }

    /// Hands on what was heard; there is room, because nothing is read before there is.
    fn hand_on(&self, heard: Heard) {
        if self.heard.try_send(heard).is_err() {
            tracing::debug!("nobody listens to the agent any more");
        }
    }

    async fn answer(self: Arc<Self>, request: Request) {
        let params = &request.params;
        self.busy.fetch_add(1, Ordering::Relaxed);
        let result = match request.method.as_str() {
            "fs/read_text_file" => match self.desk(params) {
                Some(desk) => self.read(desk.as_ref(), params).await,
                None => self.file(params, Root::read).await,
            },
            "fs/write_text_file" => match self.desk(params) {
                Some(desk) => self.write(desk.as_ref(), params).await,
                None => match self.write_is_allowed(&request).await {
                    Ok(()) => self.file(params, Root::write).await,
                    Err(error) => Err(error),
                },
            },
            "terminal/create" => match self.command_is_allowed(&request).await {
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

    async fn read(&self, desk: &dyn Desk, params: &Value) -> Result<Value, Error> {
        let bytes = desk.read(&self.root.file(params)?).await.map_err(Error::internal)?;
        Root::shown(params, bytes)
    }

    async fn write(&self, desk: &dyn Desk, params: &Value) -> Result<Value, Error> {
        let content = text(params, "content")?;
        desk.write(&self.root.file(params)?, content.as_bytes()).await.map_err(Error::internal)?;
        Ok(json!({}))
    }

    /// Whether the command of `terminal/create` may run.
    async fn command_is_allowed(&self, request: &Request) -> Result<(), Error> {
        let Wanted { line, script, directory } = self.terminals.wanted(&request.params)?;
        if let Some(desk) = self.desk(&request.params) {
            return desk.execute(&line, &directory).await.map_err(Error::internal);
        }
        let input = json!({"command": line, "script": script, "cwd": directory});
        self.allowed(request, json!({"title": line, "kind": "execute", "rawInput": input})).await
    }

    /// Whether the file of `fs/write_text_file` may be written.
    async fn write_is_allowed(&self, request: &Request) -> Result<(), Error> {
        let (path, content) = (self.root.file(&request.params)?, text(&request.params, "content")?);
        let change = json!({"type": "diff", "path": path, "oldText": self.root.before(&path), "newText": content});
        let call = json!({"title": format!("write {}", path.display()), "kind": "edit", "content": [change]});
        self.allowed(request, call).await
    }

    /// Asks whoever listens whether the agent may have something done here. Nobody there means no.
    async fn allowed(&self, request: &Request, call: Value) -> Result<(), Error> {
        let (permission, answer) = Permission::here(&request.params["sessionId"], call);
        self.hand_on(Heard::Event(Event::Permission(Box::new(permission))));
        let allowed = tokio::select! {
            answer = answer => answer.unwrap_or(false),
            () = request.cancel.cancelled() => return Err(Error::cancelled()),
        };
        if allowed { Ok(()) } else { Err(Error::internal("Permission denied")) }
    }

    async fn file(&self, params: &Value, work: fn(&Root, &Value) -> Result<Value, Error>) -> Result<Value, Error> {
        let (root, params) = (self.root.clone(), params.clone());
        let done = tokio::task::spawn_blocking(move || work(&root, &params)).await;
        done.unwrap_or_else(|_| Err(Error::internal("The file could not be looked at; the log says why")))
    }
}

impl Handler for Server {
    fn request(self: &Arc<Self>, request: Request) -> BoxFuture<'static, ()> {
        // In their order among the updates: the call that they are about was told before.
        match request.method.as_str() {
            "session/request_permission" => {
                self.hand_on(Heard::Event(Event::Permission(Box::new(Permission::new(request)))))
            }
            "elicitation/create" if request.params["mode"] == "form" => {
                self.hand_on(Heard::Event(Event::Form(Box::new(Form::new(request)))));
            }
            _ => return Box::pin(self.clone().answer(request)),
        }
        Box::pin(std::future::ready(()))
    }

    fn notification(self: &Arc<Self>, method: &str, mut params: Value) {
        match method.trim_start_matches('_') {
            "session/update" => {
                let session = params["sessionId"].as_str().map(str::to_owned);
                if let (Some(session), true) = (session, params["update"].is_object()) {
                    self.hand_on(Heard::Event(Event::Update { session, update: params["update"].take() }));
                }
            }
            "opencode/session/child_update" => self.hand_on(Heard::Child(params)),
            _ => {}
        }
    }
}
