//! Asks, that is permission requests and questions, and the approvals that answers may leave: changes of a batch.

use std::sync::Arc;

use api::{Approval, ApprovalId, Event, EventBody, Json, PermissionRequest, QuestionRequest, SessionId};
use bytes::Bytes;

use crate::batch::{Batch, Op};

/// The kind of an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskKind {
    /// A permission request.
    Permission,
    /// A question from the agent.
    Question,
}

impl AskKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Question => "question",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Permission, Self::Question].into_iter().find(|kind| kind.name() == name)
    }
}

/// A change of an ask or an approval.
#[derive(Debug)]
pub(crate) enum AskOp {
    Open {
        id: String,
        session: SessionId,
        kind: AskKind,
        /// The tool call that asks.
        call: Option<String>,
        json: String,
    },
    Answer {
        id: String,
        reply: String,
    },
    AnswerIfOpen {
        id: String,
        reply: String,
        event: Arc<Event>,
        json: Bytes,
    },
    Approve(Approval),
    Revoke(Option<ApprovalId>),
}

impl Batch {
    /// Writes a permission request that is waiting for a reply.
    pub fn permission(&mut self, ask: &PermissionRequest) {
        if let Some(json) = self.json(ask) {
            let (id, session) = (ask.id.to_string(), ask.session_id.clone());
            let call = ask.tool.as_ref().map(|tool| tool.call_id.clone());
            self.ask_op(AskOp::Open { id, session, kind: AskKind::Permission, call, json });
        }
    }

    /// Writes a question that is waiting for a reply.
    pub fn question(&mut self, ask: &QuestionRequest) {
        if let Some(json) = self.json(ask) {
            let (id, session) = (ask.id.to_string(), ask.session_id.clone());
            let call = ask.tool.as_ref().map(|tool| tool.call_id.clone());
            self.ask_op(AskOp::Open { id, session, kind: AskKind::Question, call, json });
        }
    }

    /// Answers an ask. The whole batch fails with [`StoreError::NotOpen`](crate::StoreError::NotOpen) if it is not
    /// open.
    pub fn answer(&mut self, id: &str, reply: &Json) {
        self.ask_op(AskOp::Answer { id: id.to_owned(), reply: reply.to_string() });
    }

    /// Answers an ask if it is still open, and only then appends the event. For asks resolved as a side effect, where
    /// another reply may have come first.
    pub fn answer_if_open(&mut self, id: &str, reply: &Json, event: EventBody) {
        let event = Arc::new(Event::new(event));
        if let Some(json) = self.json(&event) {
            let (id, reply) = (id.to_owned(), reply.to_string());
            self.ask_op(AskOp::AnswerIfOpen { id, reply, event, json: Bytes::from(json) });
        }
    }

    /// Allows a permission for a pattern in a directory from now on.
    pub fn approve(&mut self, directory: &str, permission: &str, pattern: &str) {
        self.ask_op(AskOp::Approve(Approval {
            id: ApprovalId::new(),
            project_id: self.location.project.as_ref().to_owned(),
            directory: directory.to_owned(),
            permission: permission.to_owned(),
            pattern: pattern.to_owned(),
            created: api::now(),
        }));
    }

    /// Revokes an approval, or all of them. Succeeds even if it does not exist.
    pub fn revoke(&mut self, approval: Option<&ApprovalId>) {
        self.ask_op(AskOp::Revoke(approval.cloned()));
    }

    fn ask_op(&mut self, op: AskOp) {
        self.ops.push(Op::Ask(Box::new(op)));
    }
}
