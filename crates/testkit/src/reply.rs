//! Answers that are prepared before the request arrives.

use serde_json::Value;

use crate::ModelCall;

enum Step {
    Text(String),
    Reasoning(String),
    Tool(String, String, Value),
    Usage(Value),
    Finish(String),
    Error(u16, Value),
    Drop,
    Silence,
    Raw(String),
}

/// A complete answer of the model, for [`ModelServer::enqueue`](crate::ModelServer::enqueue). Without an explicit end
/// it finishes with `stop`, or with `tool_calls` if there are any.
#[derive(Default)]
pub struct Reply {
    steps: Vec<Step>,
}

impl Reply {
    /// An answer with this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().then(Step::Text(text.into()))
    }

    /// An HTTP error.
    pub fn error(status: u16, body: Value) -> Self {
        Self::default().then(Step::Error(status, body))
    }

    /// More text.
    pub fn and_text(self, text: impl Into<String>) -> Self {
        self.then(Step::Text(text.into()))
    }

    /// Reasoning.
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.then(Step::Reasoning(text.into()))
    }

    /// A tool call.
    pub fn tool(self, id: impl Into<String>, name: impl Into<String>, arguments: Value) -> Self {
        self.then(Step::Tool(id.into(), name.into(), arguments))
    }

    /// The reported usage.
    pub fn usage(self, usage: Value) -> Self {
        self.then(Step::Usage(usage))
    }

    /// Ends with this reason.
    pub fn finish(self, reason: impl Into<String>) -> Self {
        self.then(Step::Finish(reason.into()))
    }

    /// Ends by breaking the connection.
    pub fn drop_connection(self) -> Self {
        self.then(Step::Drop)
    }

    /// Goes silent, and keeps the connection open.
    pub fn silence(self) -> Self {
        self.then(Step::Silence)
    }

    /// Raw bytes.
    pub fn raw(self, text: impl Into<String>) -> Self {
        self.then(Step::Raw(text.into()))
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    pub(crate) async fn play(self, mut call: ModelCall) {
        let mut reason = "stop";
        for step in self.steps {
            match step {
                Step::Text(text) => call.text(text).await,
                Step::Reasoning(text) => call.reasoning(text).await,
                Step::Tool(id, name, arguments) => {
                    reason = "tool_calls";
                    call.tool(&id, &name, arguments).await;
                }
                Step::Usage(usage) => call.usage(usage),
                Step::Raw(text) => call.raw(text).await,
                Step::Finish(reason) => return call.finish(&reason).await,
                Step::Error(status, body) => return call.error(status, body, &[]),
                Step::Drop => return call.drop_connection().await,
                Step::Silence => return call.silence(),
            }
        }
        call.finish(reason).await;
    }
}
