//! The permissions and questions of tasks that wait for an answer.

use api::{Json, PermissionReply, PermissionRequest, QuestionRequest};

use super::ServiceSettings;
use crate::records::{Interrupt, InterruptKind, Records};
use crate::{Error, Principal};

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
pub(super) struct Asker {
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) identity: String,
    pub(super) credential: Option<String>,
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

/// The requests that wait for an answer, in memory and in the records. Cheap to clone.
#[derive(Clone)]
pub(super) struct Interrupts {
    records: Records,
}

impl Interrupts {
    /// Takes up the requests of an earlier run.
    pub(super) async fn open(records: Records, settings: &ServiceSettings) -> Result<Self, Error> {
        let _ = settings;
        Ok(Self { records })
    }

    /// Remembers a request, durably. `None` if it was known already.
    pub(super) async fn add(&self, asker: &Asker, asked: Asked<'_>) -> Result<Option<Interrupt>, Error> {
        let _ = (&self.records, asker, asked);
        unimplemented!()
    }

    /// Forgets a request that was answered, by whoever it was. `None` if it is not known (any more).
    pub(super) async fn remove(&self, request_id: &str) -> Result<Option<Interrupt>, Error> {
        let _ = request_id;
        unimplemented!()
    }

    /// Forgets the requests of a task that has ended.
    pub(super) async fn remove_task(&self, task: &str) -> Result<(), Error> {
        let _ = task;
        unimplemented!()
    }

    /// The open requests of a task, oldest first. A plain text answers the first.
    pub(super) fn of_task(&self, task: &str) -> Vec<Interrupt> {
        let _ = task;
        unimplemented!()
    }

    /// The open requests of a kind that a caller may answer, oldest first.
    pub(super) fn of_caller(&self, who: &Principal, kind: InterruptKind) -> Vec<Interrupt> {
        let _ = (who, kind);
        unimplemented!()
    }
}

/// `metadata.shared.interrupt` of the event about a new request.
pub(super) fn asked_metadata(interrupt: &Interrupt) -> Json {
    let _ = interrupt;
    unimplemented!()
}

/// `metadata.shared.interrupt` of the event about an answered request.
pub(super) fn resolved_metadata(interrupt: &Interrupt, resolution: Resolution) -> Json {
    let _ = (interrupt, resolution);
    unimplemented!()
}

/// What the status message says about a request: what is asked, and which answers count.
pub(super) fn question_text(interrupt: &Interrupt) -> String {
    let _ = interrupt;
    unimplemented!()
}

/// The answer that a text means. The error explains which texts count.
pub(super) fn parse_answer(interrupt: &Interrupt, text: &str) -> Result<Answer, String> {
    let _ = (interrupt, text);
    unimplemented!()
}
