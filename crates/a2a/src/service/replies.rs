//! Answers to the requests of tasks.

use api::PermissionReply;

use super::interrupts::Answer;
use super::{Inner, Service};
use crate::records::Interrupt;
use crate::{Error, Principal};

impl Inner {
    /// Gives the answer to a request that the caller may answer. The request is forgotten; the event of the agent runtime
    /// about the answer is still to come.
    pub(super) async fn answer(&self, interrupt: &Interrupt, answer: Answer) -> Result<(), Error> {
        let _ = (interrupt, answer);
        unimplemented!()
    }
}

impl Service {
    /// Answers a permission request.
    pub async fn reply_permission(&self, who: &Principal, id: &str, reply: PermissionReply) -> Result<(), Error> {
        let _ = (who, id, reply);
        unimplemented!()
    }

    /// Answers a question; `None` declines to.
    pub async fn reply_question(
        &self,
        who: &Principal,
        id: &str,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), Error> {
        let _ = (who, id, answers);
        unimplemented!()
    }
}
