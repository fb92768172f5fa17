//! What runs in a session, whoever began it.

use api::{Host, HostError, ListTurns, Scope, SessionId, SessionStatus, TurnId, TurnState};

/// The most turns that are looked at: those of a session that have not ended.
const MAX_TURNS: usize = 100;

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
    let query = ListTurns { ended: Some(false), before: None, limit: Some(MAX_TURNS) };
    // The newest comes first.
    let open = host.turns(session, query).await?.turns;
    let current = open.iter().find(|turn| turn.state != TurnState::Queued).or(open.last());
    Ok(current.map(|turn| Running::Turn(turn.id.clone())))
}
