//! What runs in a session, whoever began it.

use api::{Host, HostError, ListTurns, Scope, SessionId, SessionStatus, TurnId};

/// A turn that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Running {
    /// This one.
    Turn(TurnId),
    /// One that the host has no name for.
    Unnamed,
}

/// Returns the turn that runs in a session, or the next one that will; `None` if there is none.
pub async fn running(host: &dyn Host, scope: &Scope, session: &SessionId) -> Result<Option<Running>, HostError> {
    if !host.features().turns {
        let statuses = host.statuses(scope).await?;
        let is_busy = statuses.get(session).is_some_and(|status| *status != SessionStatus::Idle);
        return Ok(is_busy.then_some(Running::Unnamed));
    }
    let query = ListTurns { current: true, ended: Some(false), limit: Some(1), ..ListTurns::default() };
    let turns = host.turns(session, query).await?.turns;
    Ok(turns.into_iter().next().map(|turn| Running::Turn(turn.id)))
}
