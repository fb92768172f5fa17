//! What holds up a session's turn: a person who paused it, or a budget that is used up.

use api::{Blocked, SessionId, Timestamp};

use crate::batch::{Batch, Op};

/// A change of what holds up a session.
#[derive(Debug)]
pub(crate) enum HoldOp {
    Pause { session: SessionId, since: Timestamp },
    Resume(SessionId),
    Block { session: SessionId, by: Blocked },
    Unblock(SessionId),
}

impl Batch {
    /// Pauses a session and everything below it. The whole batch fails with
    /// [`StoreError::Changed`](crate::StoreError::Changed) if it is paused already, or gone.
    pub fn pause(&mut self, session: &SessionId, since: Timestamp) {
        self.ops.push(Op::Hold(Box::new(HoldOp::Pause { session: session.clone(), since })));
    }

    /// Ends the pause of a session. The whole batch fails with [`StoreError::Changed`](crate::StoreError::Changed) if
    /// it is not paused.
    pub fn resume(&mut self, session: &SessionId) {
        self.ops.push(Op::Hold(Box::new(HoldOp::Resume(session.clone()))));
    }

    /// Stores which budget a session's turn waits for. Does nothing if the session is gone.
    pub fn block(&mut self, session: &SessionId, by: &Blocked) {
        self.ops.push(Op::Hold(Box::new(HoldOp::Block { session: session.clone(), by: by.clone() })));
    }

    /// A session's turn waits for no budget any more.
    pub fn unblock(&mut self, session: &SessionId) {
        self.ops.push(Op::Hold(Box::new(HoldOp::Unblock(session.clone()))));
    }
}
