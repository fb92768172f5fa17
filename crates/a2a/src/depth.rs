//! How many agents have called each other over A2A to get here, so that agents that call each other in a circle come to an end.
//!
//! A message to another agent names its depth: one more than that of the message whose work it is part of. The trace context
//! leads from one to the other, since it goes with a prompt to everything that the prompt causes, and its span is the request's
//! own. Agents that know nothing of this leave the header out, and the count begins anew behind them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::{Call, Error, ErrorKind};

/// The most agents that may have called each other.
pub(crate) const MAX_DEPTH: u32 = 8;
/// The most messages whose depth is known; the oldest is forgotten.
const MAX_KNOWN: usize = 4096;
/// The header of a message.
const HEADER: HeaderName = HeaderName::from_static("trefoil-agent-depth");

/// The depths of messages that came from other agents, by their spans.
#[derive(Default)]
struct Known {
    depths: HashMap<String, u32>,
    oldest_first: VecDeque<String>,
}

/// One for the process: the service and the client are made in different places, and spans are unique.
static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Takes in a message that came with these headers: its trace, and how many agents are above this one.
///
/// # Errors
/// There are too many.
pub(crate) fn arrive(call: &mut Call, headers: &HeaderMap, traceparent: String) -> Result<(), Error> {
    let (Call::Send(send) | Call::Stream(send)) = call else { return Ok(()) };
    let depth = headers.get(HEADER).and_then(|depth| depth.to_str().ok()?.parse().ok()).unwrap_or(0);
    if depth > MAX_DEPTH {
        let message = format!(
            "{depth} agents have called each other to get here, and {MAX_DEPTH} may; they may be calling each other in a circle"
        );
        return Err(Error::new(ErrorKind::UnsupportedOperation, message).with("max", MAX_DEPTH));
    }
    if depth > 0
        && let Some(span) = span(&traceparent)
    {
        lock().get_or_insert_default().note(span, depth);
    }
    send.traceparent = Some(traceparent);
    Ok(())
}

/// The header of a message to another agent.
pub(crate) fn header(call: &Call) -> Option<(HeaderName, HeaderValue)> {
    let (Call::Send(send) | Call::Stream(send)) = call else { return None };
    let span = send.traceparent.as_deref().and_then(span);
    let depth = span.and_then(|span| lock().as_ref()?.depths.get(span).copied()).unwrap_or(0);
    Some((HEADER, HeaderValue::from(depth.saturating_add(1))))
}

impl Known {
    fn note(&mut self, span: &str, depth: u32) {
        if self.depths.insert(span.to_owned(), depth).is_some() {
            return;
        }
        self.oldest_first.push_back(span.to_owned());
        if self.oldest_first.len() > MAX_KNOWN
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.depths.remove(&oldest);
        }
    }
}

/// The span of a trace context.
fn span(traceparent: &str) -> Option<&str> {
    traceparent.split('-').nth(2)
}

fn lock() -> MutexGuard<'static, Option<Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::text_message;

    fn message(traceparent: Option<&str>) -> Call {
        let mut send = text_message("hello", None, None);
        send.traceparent = traceparent.map(str::to_owned);
        Call::Send(Box::new(send))
    }

    fn trace(span: u64) -> String {
        format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span:016x}-01")
    }

    fn arrives(depth: &str, traceparent: &str) -> Result<Call, Error> {
        let headers = HeaderMap::from_iter([(HEADER, HeaderValue::from_str(depth).unwrap())]);
        let mut call = message(None);
        arrive(&mut call, &headers, traceparent.to_owned()).map(|()| call)
    }

    fn next(traceparent: Option<&str>) -> String {
        header(&message(traceparent)).unwrap().1.to_str().unwrap().to_owned()
    }

    #[test]
    fn each_message_is_one_deeper_than_the_one_that_it_is_part_of() {
        assert_eq!(next(None), "1");
        assert_eq!(next(Some(&trace(1))), "1");
        let Ok(Call::Send(send)) = arrives("3", &trace(2)) else { panic!("a message") };
        assert_eq!(send.traceparent.as_deref(), Some(trace(2).as_str()));
        assert_eq!((next(Some(&trace(2))), next(Some(&trace(3)))), ("4".to_owned(), "1".to_owned()));
        for nothing in ["", "x", "-1", "1.5", "99999999999999"] {
            assert!(arrives(nothing, &trace(4)).is_ok());
            assert_eq!(next(Some(&trace(4))), "1", "{nothing:?}");
        }
        assert!(header(&Call::ExtendedCard).is_none());
    }

    #[test]
    fn a_circle_ends() {
        assert!(arrives(&MAX_DEPTH.to_string(), &trace(5)).is_ok());
        let error = arrives(&next(Some(&trace(5))), &trace(6)).unwrap_err();
        assert_eq!((error.kind, &error.fields["max"]), (ErrorKind::UnsupportedOperation, &MAX_DEPTH.into()));
        assert!(error.message.starts_with("9 agents"), "{error}");
    }

    #[test]
    fn what_is_known_is_bounded() {
        let mut known = Known::default();
        for span in 0..MAX_KNOWN + 10 {
            known.note(&span.to_string(), 1);
            known.note(&span.to_string(), 2);
        }
        assert_eq!((known.depths.len(), known.oldest_first.len()), (MAX_KNOWN, MAX_KNOWN));
        assert!(!known.depths.contains_key("9") && known.depths.contains_key("10"));
    }
}
