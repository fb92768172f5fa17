//! Push configurations of tasks. What sends the notifications is in [`push`](crate::push).

use std::sync::Arc;

use super::{Inner, Service};
use crate::records::PushRow;
use crate::{Error, Line, Principal, PushConfig};

/// Starts to send notifications, unless they are switched off. Once, when the service is opened; it ends with it.
pub(super) fn start(inner: &Arc<Inner>) {
    let _ = inner;
    unimplemented!()
}

/// Checks the configuration of a message that creates a task.
pub(super) async fn inline(
    inner: &Inner,
    who: &Principal,
    line: Line,
    task: &str,
    config: PushConfig,
) -> Result<PushRow, Error> {
    let _ = (inner, who, line, task, config);
    unimplemented!()
}

#[allow(unused_variables, clippy::missing_errors_doc)]
impl Service {
    /// Creates or replaces a push configuration.
    pub async fn put_push(&self, who: &Principal, line: Line, config: PushConfig) -> Result<PushConfig, Error> {
        unimplemented!()
    }

    /// A push configuration.
    pub async fn get_push(&self, who: &Principal, task: &str, id: Option<&str>) -> Result<PushConfig, Error> {
        unimplemented!()
    }

    /// A page of the push configurations of a task, and the cursor of the next one.
    pub async fn list_push(
        &self,
        who: &Principal,
        task: &str,
        page_size: Option<u32>,
        page_token: Option<&str>,
    ) -> Result<(Vec<PushConfig>, String), Error> {
        unimplemented!()
    }

    /// Deletes a push configuration.
    pub async fn delete_push(&self, who: &Principal, task: &str, id: Option<&str>) -> Result<(), Error> {
        unimplemented!()
    }
}
