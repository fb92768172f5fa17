//! Tickets: a browser cannot send a password with a WebSocket, so a client that knows it gets a ticket first, which opens
//! one connection to one terminal.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::PtyId;
use indexmap::IndexMap;

use crate::error::Error;
use crate::transport::secret;

/// How long a ticket is good.
pub const GOOD_FOR: Duration = Duration::from_secs(60);

/// The most tickets that wait to be used; the oldest gives way.
const MAX: usize = 1024;

/// Tickets that were not used yet, oldest first.
#[derive(Default)]
pub struct Tickets(Mutex<IndexMap<String, Ticket>>);

struct Ticket {
    pty: PtyId,
    until: Instant,
}

impl Tickets {
    /// A new ticket.
    pub fn issue(&self, pty: &PtyId) -> Result<String, Error> {
        let ticket = secret::new()?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        known.retain(|_, ticket| ticket.until > now);
        if known.len() >= MAX {
            known.shift_remove_index(0);
        }
        known.insert(ticket.clone(), Ticket { pty: pty.clone(), until: now + GOOD_FOR });
        Ok(ticket)
    }

    /// Whether a ticket is good for a terminal. It is used up, unless it is one of another terminal.
    pub fn take(&self, ticket: &str, pty: &PtyId) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let good = known.get(ticket).is_some_and(|found| found.pty == *pty && found.until > Instant::now());
        good && known.shift_remove(ticket).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_one_terminal_once() {
        let (tickets, one, other) = (Tickets::default(), PtyId::new(), PtyId::new());
        let ticket = tickets.issue(&one).unwrap();
        assert!(!tickets.take(&ticket, &other) && !tickets.take("", &one));
        assert!(tickets.take(&ticket, &one));
        assert!(!tickets.take(&ticket, &one), "used up");
    }

    #[test]
    fn their_number_is_bounded() {
        let (tickets, pty) = (Tickets::default(), PtyId::new());
        let first = tickets.issue(&pty).unwrap();
        for _ in 0..MAX {
            tickets.issue(&pty).unwrap();
        }
        assert!(!tickets.take(&first, &pty));
        assert_eq!(tickets.0.lock().unwrap().len(), MAX);
    }
}
