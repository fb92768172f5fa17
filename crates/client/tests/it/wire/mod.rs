//! The client against a server that answers as the test says: requests, answers and event streams as they stand on the wire.

mod calls;
mod fake;
mod monitor;
mod watch;
