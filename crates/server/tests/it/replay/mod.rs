//! Every recorded scenario is replayed against the server: the same status codes, shapes of answers and headers that matter,
//! and per session the same order of parts with their states, deltas, statuses, questions and errors. What differs stands in
//! `differences.txt`, with its reason; a line there that no longer occurs fails as well.
//!
//! `REPLAY=05_tool_bash` replays only the scenarios whose names begin so, and shows all their differences.

mod exchange;
mod model;
mod player;
mod shape;
mod stage;

use crate::accepted::Accepted;
use exchange::Recording;
use futures::StreamExt as _;

/// How many scenarios run at once. Most of their time they wait.
const AT_ONCE: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_scenario_is_answered_alike() {
    let only = std::env::var("REPLAY").ok();
    let wanted = |name: &String| {
        only.as_ref().is_none_or(|only| name.starts_with(only.as_str())) && !Recording::load(name).exchanges.is_empty()
    };
    // From the end: those that wait longest are there.
    let scenarios = testkit::recordings().into_iter().rev().filter(wanted);
    let played = futures::stream::iter(scenarios).map(|scenario| async move {
        let differences = tokio::spawn({
            let scenario = scenario.clone();
            async move { player::play(&scenario).await }
        });
        let differences = differences.await.unwrap_or_else(|error| panic!("{scenario}: {error}"));
        differences.into_iter().map(|difference| format!("{scenario} {difference}")).collect::<Vec<_>>()
    });
    let mut differences: Vec<String> = played.buffer_unordered(AT_ONCE).concat().await;
    differences.sort();
    assert!(only.is_none() || differences.is_empty(), "all differences:\n{}", differences.join("\n"));
    let (unknown, stale) = Accepted::parse(include_str!("differences.txt")).check(&differences);
    assert!(unknown.is_empty(), "nobody accepted these differences:\n{}", unknown.join("\n"));
    assert!(stale.is_empty(), "these accepted differences no longer occur:\n{}", stale.join("\n"));
}
