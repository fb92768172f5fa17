//! Answers to what an agent asks its client, by the extension for interactive interrupts.

use std::sync::Arc;

use api::{Json, JsonMap};
use serde_json::json;

use super::{ClientError, Peer, Route};
use crate::call::{Call, Reply};
use crate::wire;

/// The answer to a request of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterruptReply {
    /// To a permission: whether it may, and what to do instead.
    Permission {
        /// Whether it may, this once.
        allow: bool,
        /// What to do instead.
        message: Option<String>,
    },
    /// To questions: the chosen labels or own words, per question.
    Answers(Vec<Vec<String>>),
    /// No answer to questions.
    Dismissed,
}

impl InterruptReply {
    fn call(self, request: &str) -> Call {
        let mut params = JsonMap::from_iter([("request_id".to_owned(), Json::from(request))]);
        let method = match self {
            Self::Permission { allow, message } => {
                params.insert("reply".to_owned(), if allow { "once" } else { "reject" }.into());
                params.extend(message.map(|message| ("message".to_owned(), Json::from(message))));
                "a2a.interrupt.permission.reply"
            }
            Self::Answers(answers) => {
                params.insert("answers".to_owned(), json!(answers));
                "a2a.interrupt.question.reply"
            }
            Self::Dismissed => "a2a.interrupt.question.reject",
        };
        Call::Extension { method: method.to_owned(), params }
    }
}

impl Peer {
    /// Answers a request of the agent. `false` if the agent lacks the extension for that; a message to the task answers
    /// then.
    pub async fn reply_interrupt(&self, request: &str, reply: InterruptReply) -> Result<bool, ClientError> {
        let route = self.route().await?;
        if !route.card.has(wire::Extension::InteractiveInterrupt) {
            return Ok(false);
        }
        match self.extension(route, &reply.call(request)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_unsupported() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Calls a method of an extension. `is_unsupported` if the agent has no interface for it.
    async fn extension(&self, route: Route, call: &Call) -> Result<Json, ClientError> {
        let Some(choice) = route.card.choose_rpc(&route.choice) else {
            let error = crate::Error::new(crate::ErrorKind::MethodNotFound, "methods of extensions need JSON-RPC");
            return Err(ClientError::of_peer(&route.choice.url, error));
        };
        let route = self.route_to(Arc::clone(&route.card), &route.card_url, choice)?;
        match self.call(&route, call).await? {
            Reply::Json(result) => Ok(result),
            _ => Err(self.malformed("its reply is no result")),
        }
    }
}
