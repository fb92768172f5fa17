//! When to abort again.

use std::sync::Arc;

use api::{Event, Frame};

use super::*;

fn status(session: &SessionId, status: SessionStatus) -> WatchItem {
    let event = Event::new(EventBody::SessionStatus { session_id: session.clone(), status });
    WatchItem::Frame(Frame::live("/p".into(), "p".into(), Arc::new(event)))
}

#[test]
fn a_host_that_tells_whether_something_ran_is_believed() {
    let mut plan = AbortPlan::new(true);
    assert!(!plan.is_done(false, false), "it has not begun");
    assert!(!plan.is_done(false, true), "what follows it has not begun");
    assert!(plan.is_done(true, false));
}

#[test]
fn opencode_is_asked_until_the_turn_has_ended() {
    let mut plan = AbortPlan::new(false);
    assert!(!plan.is_done(true, false));
    assert!(plan.is_done(true, true));
}

#[test]
fn aborts_are_bounded() {
    let mut plan = AbortPlan::new(false);
    assert_eq!((0..).take_while(|_| !plan.is_done(true, false)).count() + 1, MAX_ABORTS as usize);
}

#[test]
fn the_next_abort_follows_the_beginning() {
    let (session, plan) = (SessionId::new(), AbortPlan::new(true));
    assert!(plan.is_beginning(&session, &status(&session, SessionStatus::Busy)));
    assert!(!plan.is_beginning(&session, &status(&session, SessionStatus::Idle)));
    assert!(!plan.is_beginning(&session, &status(&SessionId::new(), SessionStatus::Busy)));
    assert!(plan.is_beginning(&session, &WatchItem::Resync("a gap".to_owned())));
}
