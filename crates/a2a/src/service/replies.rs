//! Answers to the requests of tasks, given by method or by plain text.

use api::{HostError, PermissionId, PermissionReply, QuestionId};

use super::access::interrupt_not_found;
use super::interrupts::Answer;
use super::{Inner, Service, store_error};
use crate::extension::failure::Upstream;
use crate::records::{Change, Interrupt, InterruptKind};
use crate::{Error, Principal};

impl Inner {
    /// Gives the answer to a request whose task is the caller's, and forgets it. The event of the agent runtime about the
    /// answer is still to come. A request that the agent runtime does not know any more is forgotten as well.
    pub(super) async fn answer(&self, interrupt: &Interrupt, answer: Answer) -> Result<(), Error> {
        let id = &interrupt.request_id;
        let missing = || interrupt_not_found(id);
        let (method, sent) = match answer {
            Answer::Permission(reply) => {
                let request = PermissionId::parse(id).map_err(|_| missing())?;
                ("a2a.interrupt.permission.reply", self.host.reply_permission(&request, reply).await)
            }
            Answer::Question(answers) => {
                let request = QuestionId::parse(id).map_err(|_| missing())?;
                let method =
                    if answers.is_some() { "a2a.interrupt.question.reply" } else { "a2a.interrupt.question.reject" };
                (method, self.host.reply_question(&request, answers).await)
            }
        };
        match sent {
            Ok(()) => self.forget(interrupt).await,
            // Somebody else has answered it, or its turn has ended.
            Err(HostError::NotFound { .. }) => {
                self.forget(interrupt).await?;
                Err(missing())
            }
            Err(error) => {
                let upstream = Upstream { method: Some(method), session: None };
                Err(upstream.error(error).with("request_id", id.as_str()))
            }
        }
    }

    async fn forget(&self, interrupt: &Interrupt) -> Result<(), Error> {
        let mut change = Change::of(&interrupt.task_id);
        change.resolve(&interrupt.request_id);
        self.records.commit(change).await.map(drop).map_err(|error| store_error(&error))
    }
}

impl Service {
    /// Answers a permission request.
    pub async fn reply_permission(&self, who: &Principal, id: &str, reply: PermissionReply) -> Result<(), Error> {
        let interrupt = self.inner.access.interrupt(who, id, InterruptKind::Permission)?;
        self.inner.answer(&interrupt, Answer::Permission(reply)).await
    }

    /// Answers a question; `None` declines to.
    pub async fn reply_question(
        &self,
        who: &Principal,
        id: &str,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), Error> {
        let interrupt = self.inner.access.interrupt(who, id, InterruptKind::Question)?;
        self.inner.answer(&interrupt, Answer::Question(answers)).await
    }
}
