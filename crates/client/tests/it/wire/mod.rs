//! The client against a scripted server: requests, responses and event streams as they appear on the wire.

mod calls;
mod directories;
mod fake;
mod monitor;
mod watch;
