//! The permissions and questions of tasks that wait for an answer: what clients see of them, and what their answers mean.
//!
//! The records hold them, in memory and durably, with tombstones of those that have expired. The runner of a task writes them
//! together with the events about them.

mod answer;
mod text;

use std::time::Duration;

use api::{Json, PermissionReply, PermissionReplyKind, PermissionRequest, Question, QuestionRequest};
use serde_json::json;

pub(super) use answer::parse_answer;
pub(super) use text::asked_text;

use super::ServiceSettings;
use super::access::kind_name;
use crate::records::{Interrupt, InterruptKind};

/// A request of the agent runtime.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked<'a> {
    /// A permission.
    Permission(&'a PermissionRequest),
    /// Questions.
    Question(&'a QuestionRequest),
}

/// The task that a request belongs to: its own session asks, or a subagent of it.
#[derive(Debug, Clone)]
pub(super) struct Asker<'a> {
    pub(super) task_id: &'a str,
    pub(super) context_id: &'a str,
    pub(super) identity: &'a str,
    pub(super) credential: Option<&'a str>,
}

/// How a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolution {
    /// It was answered.
    Replied,
    /// It was declined.
    Rejected,
}

/// An answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// To a permission request.
    Permission(PermissionReply),
    /// To questions; `None` declines to.
    Question(Option<Vec<Vec<String>>>),
}

impl Answer {
    /// Whether it declines what was asked.
    pub(super) fn is_rejection(&self) -> bool {
        match self {
            Self::Permission(reply) => reply.reply == PermissionReplyKind::Reject,
            Self::Question(answers) => answers.is_none(),
        }
    }
}

/// How long requests can be answered, and how long it is remembered that they have expired.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interrupts {
    ttl: Duration,
    pub(super) tombstone: Duration,
}

impl Interrupts {
    pub(super) fn new(settings: &ServiceSettings) -> Self {
        Self { ttl: settings.interrupt_ttl, tombstone: settings.interrupt_tombstone_ttl }
    }

    /// The row of a request that was asked now.
    pub(super) fn interrupt(self, asker: &Asker<'_>, asked: Asked<'_>) -> Interrupt {
        let ttl = i64::try_from(self.ttl.as_millis()).unwrap_or(i64::MAX);
        let (request_id, session_id, kind) = match asked {
            Asked::Permission(ask) => (ask.id.to_string(), &ask.session_id, InterruptKind::Permission),
            Asked::Question(ask) => (ask.id.to_string(), &ask.session_id, InterruptKind::Question),
        };
        Interrupt {
            request_id,
            session_id: session_id.clone(),
            kind,
            identity: asker.identity.to_owned(),
            credential: asker.credential.map(str::to_owned),
            task_id: asker.task_id.to_owned(),
            context_id: asker.context_id.to_owned(),
            details: details(asked),
            expires_at: api::now().saturating_add(ttl),
        }
    }
}

/// The details that are stored beyond those that are shown: what `always` would allow.
const ALWAYS: &str = "always";

/// What is asked, as it is stored.
fn details(asked: Asked<'_>) -> Json {
    match asked {
        Asked::Permission(ask) => {
            json!({ "permission": ask.permission, "patterns": ask.patterns, ALWAYS: ask.always })
        }
        Asked::Question(ask) => json!({ "questions": ask.questions.iter().map(question).collect::<Vec<_>>() }),
    }
}

fn question(question: &Question) -> Json {
    let option = |option: &api::QuestionOption| json!({ "label": option.label, "description": option.description });
    let mut fields = json!({
        "header": question.header,
        "question": question.question,
        "options": question.options.iter().map(option).collect::<Vec<_>>(),
    });
    // Only what is unusual, since the recorded releases show neither.
    if question.multiple == Some(true) {
        fields["multiple"] = true.into();
    }
    if question.custom == Some(false) {
        fields["custom"] = false.into();
    }
    fields
}

/// What is asked, as `metadata.shared.interrupt.details` and the recovery lists show it.
pub(crate) fn shown_details(interrupt: &Interrupt) -> Json {
    let mut details = interrupt.details.clone();
    if let Some(details) = details.as_object_mut() {
        details.remove(ALWAYS);
    }
    details
}

/// `metadata.shared.interrupt` of the event about a new request.
pub(super) fn asked_metadata(interrupt: &Interrupt) -> Json {
    json!({
        "request_id": interrupt.request_id,
        "type": kind_name(interrupt.kind),
        "phase": "asked",
        "details": shown_details(interrupt),
    })
}

/// `metadata.shared.interrupt` of the event about a request that was answered.
pub(super) fn resolved_metadata(request_id: &str, kind: InterruptKind, resolution: Resolution) -> Json {
    let resolution = match resolution {
        Resolution::Replied => "replied",
        Resolution::Rejected => "rejected",
    };
    json!({ "request_id": request_id, "type": kind_name(kind), "phase": "resolved", "resolution": resolution })
}

#[cfg(test)]
mod tests;
