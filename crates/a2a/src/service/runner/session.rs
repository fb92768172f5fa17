//! The session of a task that has none yet, since the agent runtime failed when it was needed first.

use api::SessionId;
use tokio::time::Instant;

use super::Runner;
use crate::service::apply;
use crate::service::binding::Bound;
use crate::service::input::Refusal;
use crate::service::live::Command;
use crate::service::metrics::AbortOutcome;

impl Runner {
    /// The session of the task. One that was refused tries again to find or create it. `None` if the task ended meanwhile, or
    /// if the service stops.
    pub(super) async fn session(&mut self) -> Option<Result<SessionId, Refusal>> {
        if let Some(refusal) = self.refused.take() {
            return Some(Err(refusal));
        }
        if let Some(session) = &self.row.session_id {
            return Some(Ok(session.clone()));
        }
        let (inner, row, work) = (self.inner.clone(), self.row.clone(), self.work.clone());
        let mut binding = std::pin::pin!(inner.bind_late(&row, &work));
        let bound = loop {
            tokio::select! {
                biased;
                () = inner.closing.cancelled() => return None,
                Some(command) = self.commands.recv() => match command {
                    Command::Cancel(done) => {
                        self.end_canceled(AbortOutcome::NotNeeded, Instant::now()).await;
                        let _ = done.send(());
                        return None;
                    }
                    Command::Message(message, done) => {
                        let _ = done.send(self.add_to_prompt(*message).await);
                    }
                },
                bound = &mut binding => break bound,
            }
        };
        match bound {
            Ok(bound) => self.take_session(bound).await.map(Ok),
            Err(refusal) => Some(Err(refusal)),
        }
    }

    /// The task has a session now. It is in the row before the prompt goes out.
    async fn take_session(&mut self, bound: Bound) -> Option<SessionId> {
        let Bound { session, scope, grant, title, is_new } = bound;
        self.row.session_id = Some(session.clone());
        (self.row.directory, self.row.workspace) = (scope.directory, scope.workspace);
        (self.grant, self.has_past) = (grant, !is_new);
        self.translator.bind(session.clone(), title);
        let shared = self.shared_session();
        self.live.change(|task| apply::merge(&mut task.metadata, &shared));
        self.work.prompt.id = self.inner.prompt_id(&session, is_new).await;
        self.translator.expect(self.work.prompt.id.clone());
        self.write(true).await.then_some(session)
    }
}
