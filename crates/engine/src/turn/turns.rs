//! Turns as objects: reading, waiting and cancelling.

use std::sync::Arc;

use api::{HostError, ListTurns, SessionId, Turn, TurnId, TurnPage, TurnState, TurnTime};
use store::{Batch, StoreError, TurnRow};

use crate::Inner;
use crate::error::store_error;

impl Inner {
    /// A turn.
    pub(crate) async fn turn(&self, id: &TurnId) -> Result<Turn, HostError> {
        let row = self.store.turn(id).map_err(store_error)?;
        let row = row.ok_or_else(|| HostError::not_found("turn", id.to_string()))?;
        let mut turns = self.describe(&id.session, vec![row]).await?;
        turns.pop().ok_or_else(|| HostError::not_found("turn", id.to_string()))
    }

    /// A page of a session's turns, newest first.
    pub(crate) async fn turns(&self, session: &SessionId, query: &ListTurns) -> Result<TurnPage, HostError> {
        self.session(session)?;
        if let Some(before) = query.before.as_ref().filter(|before| before.session != *session) {
            return Err(HostError::Invalid(format!("The turn {before} belongs to another session")));
        }
        let (rows, has_older) = self.store.turns(session, query).map_err(store_error)?;
        let turns = self.describe(session, rows).await?;
        let older = turns.last().map(|turn| turn.id.clone()).filter(|_| has_older);
        Ok(TurnPage { turns, older })
    }

    /// Rows as turns. For the running one this also finds out what it waits for.
    async fn describe(&self, session: &SessionId, rows: Vec<TurnRow>) -> Result<Vec<Turn>, HostError> {
        let mut turns: Vec<Turn> = rows.into_iter().map(turn_of_row).collect();
        let Some(running) = turns.iter_mut().find(|turn| turn.state == TurnState::Running) else { return Ok(turns) };
        if !self.is_running(session).map_err(store_error)? {
            // Its process died; the process that resumes it continues where it stopped.
            running.state = TurnState::Queued;
            return Ok(turns);
        }
        if let Some(root) = self.tree(session).await?.sessions.into_iter().next() {
            (running.asks, running.blocked) = (root.asks, root.blocked);
        }
        if !running.asks.is_empty() || running.blocked.is_some() {
            running.state = TurnState::Waiting;
        }
        Ok(turns)
    }

    /// Cancels one turn and returns once it has ended. Cancelling a queued turn does not touch the running one.
    pub(crate) async fn cancel_turn(self: &Arc<Self>, id: &TurnId) -> Result<Turn, HostError> {
        let found = self.turn(id).await?;
        if found.state.is_ended() {
            return Ok(found);
        }
        if self.cancel_queued(id).await? {
            return self.turn(id).await;
        }
        let current = self.store.current_turn(&id.session).map_err(store_error)?;
        if current.is_some_and(|current| current.number == id.number) {
            self.stop_running_tree(&id.session).await?;
        }
        self.wait_for_turn(id).await?;
        self.turn(id).await
    }

    /// Cancels a turn whose prompt is queued. Returns false if it is not, or not any more.
    pub(crate) async fn cancel_queued(&self, id: &TurnId) -> Result<bool, HostError> {
        let Some(session) = self.store.session(&id.session).map_err(store_error)? else { return Ok(false) };
        let mut batch = Batch::new(&self.place(&session)).durable();
        batch.cancel_queued(id);
        batch.turn_event(&id.session, TurnState::Cancelled);
        match self.store.commit(batch).await {
            Ok(_) => Ok(true),
            Err(StoreError::NotQueued { .. }) => Ok(false),
            Err(error) => Err(store_error(error)),
        }
    }
}

fn turn_of_row(row: TurnRow) -> Turn {
    Turn {
        session_id: row.id.session.clone(),
        id: row.id,
        state: row.state,
        prompts: row.prompts,
        caller: row.caller,
        answer: row.answer,
        error: row.error,
        cost: row.cost,
        asks: Vec::new(),
        blocked: None,
        time: TurnTime { created: row.created, started: row.started, ended: row.ended },
    }
}
