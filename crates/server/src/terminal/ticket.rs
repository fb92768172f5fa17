//! A browser cannot send a password with a WebSocket. So a client that knows the password first gets a ticket, which
//! opens one connection to one terminal.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::PtyId;
use indexmap::IndexMap;
use transport::secret;

use crate::error::Error;

/// How long a ticket is valid.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(60);

/// The most unused tickets; beyond that the oldest is dropped.
const MAX_TICKETS: usize = 1024;

/// Unused tickets, oldest first.
#[derive(Default)]
pub struct Tickets(Mutex<IndexMap<String, Ticket>>);

struct Ticket {
    pty: PtyId,
    expires: Instant,
}

impl Tickets {
    /// Issues a ticket.
    pub fn issue(&self, pty: &PtyId) -> Result<String, Error> {
        let ticket = secret::generate().map_err(Error::internal)?;
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        tickets.retain(|_, ticket| ticket.expires > now);
        if tickets.len() >= MAX_TICKETS {
            tickets.shift_remove_index(0);
        }
        tickets.insert(ticket.clone(), Ticket { pty: pty.clone(), expires: now + TICKET_LIFETIME });
        Ok(ticket)
    }

    /// Whether a ticket is valid for a terminal. That uses it up, unless it belongs to another terminal.
    pub fn redeem(&self, ticket: &str, pty: &PtyId) -> bool {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_valid = tickets.get(ticket).is_some_and(|found| found.pty == *pty && found.expires > Instant::now());
        is_valid && tickets.shift_remove(ticket).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_one_terminal_once() {
        let (tickets, one, other) = (Tickets::default(), PtyId::new(), PtyId::new());
        let ticket = tickets.issue(&one).unwrap();
        assert!(!tickets.redeem(&ticket, &other) && !tickets.redeem("", &one));
        assert!(tickets.redeem(&ticket, &one));
        assert!(!tickets.redeem(&ticket, &one), "used up");
    }

    #[test]
    fn the_number_of_tickets_is_bounded() {
        let (tickets, pty) = (Tickets::default(), PtyId::new());
        let first = tickets.issue(&pty).unwrap();
        for _ in 0..MAX_TICKETS {
            tickets.issue(&pty).unwrap();
        }
        assert!(!tickets.redeem(&first, &pty));
        assert_eq!(tickets.0.lock().unwrap().len(), MAX_TICKETS);
    }
}
