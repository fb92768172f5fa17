//! What an agent asks of its client.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc;

use super::events::{Heard, Permission};
use super::files::Root;
use super::form::Form;
use super::terminals::Terminals;
use crate::rpc::{Error, Handler, Request};

/// Answers the agent.
pub(super) struct Server {
    heard: mpsc::Sender<Heard>,
    root: Root,
    terminals: Arc<Terminals>,
}

impl Server {
    pub fn new(heard: mpsc::Sender<Heard>, root: Root, terminals: Arc<Terminals>) -> Self {
        Self { heard, root, terminals }
    }

    /// Hands on what was heard; there is room, because nothing is read before there is.
    fn hand_on(&self, heard: Heard) {
        if self.heard.try_send(heard).is_err() {
            tracing::debug!("nobody listens to the agent any more");
        }
    }

    async fn answer(self: Arc<Self>, request: Request) {
        let params = &request.params;
        let result = match request.method.as_str() {
            "fs/read_text_file" => self.file(params, Root::read).await,
            "fs/write_text_file" => self.file(params, Root::write).await,
            "terminal/create" => self.terminals.create(params),
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
        request.reply(result);
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
            "session/request_permission" => self.hand_on(Heard::Permission(Box::new(Permission::new(request)))),
            "elicitation/create" if request.params["mode"] == "form" => {
                self.hand_on(Heard::Form(Box::new(Form::new(request))));
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
                    self.hand_on(Heard::Update { session, update: params["update"].take() });
                }
            }
            "opencode/session/child_update" => self.hand_on(Heard::Child(params)),
            _ => {}
        }
    }
}
