use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use testkit::{A2aLine, A2aPeer, A2aRequest, event_stream, json_response};

use super::*;

mod calls;
mod cards;
mod follow;
mod hosts;
mod view;

/// Options with short waits.
fn options() -> ClientOptions {
    let wait = Duration::from_millis(10);
    let polling = Polling { initial_interval: wait, max_interval: wait, ..Polling::default() };
    ClientOptions { polling, ..ClientOptions::default() }
}

/// The peer at a URL that the user chose.
fn peer_with(url: &str, options: ClientOptions) -> Peer {
    A2AClient::new(options).peer(url, ChosenBy::User).unwrap()
}

fn peer(url: &str) -> Peer {
    peer_with(url, options())
}

fn hello() -> SendRequest {
    text_message("hello", None, None)
}

/// The operations of all requests, without those for cards.
fn operations(agent: &A2aPeer) -> Vec<String> {
    let requests = agent.requests_like(|request| !request.is_for_card());
    requests.iter().map(|request| request.operation().to_owned()).collect()
}
