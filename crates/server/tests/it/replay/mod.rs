//! Replays every recorded scenario against the server. It must give the same status codes, shapes of responses and
//! relevant headers, and per session the same order of parts with their states, deltas, statuses, questions and errors.
//! Differences are listed in `differences.txt`, with a reason; a line there that no longer occurs fails as well.
//!
//! `REPLAY=05_tool_bash` replays only the scenarios whose names begin with that, and shows all their differences.

mod exchange;
mod model;
mod player;
mod setup;
mod shape;

use crate::accepted_differences::AcceptedDifferences;
use exchange::Recording;
use futures::StreamExt as _;

/// How many scenarios run at a time. Mostly they wait.
const MAX_CONCURRENT: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_scenario_is_answered_the_same() {
    let only = std::env::var("REPLAY").ok();
    let wanted = |name: &String| {
        only.as_ref().is_none_or(|only| name.starts_with(only.as_str())) && !Recording::load(name).exchanges.is_empty()
    };
    // From the end: the ones that wait longest are there.
    let scenarios = testkit::recordings().into_iter().rev().filter(wanted);
    let played = futures::stream::iter(scenarios).map(|scenario| async move {
        let differences = tokio::spawn({
            let scenario = scenario.clone();
            async move { player::play(&scenario).await }
        });
        let differences = differences.await.unwrap_or_else(|error| panic!("{scenario}: {error}"));
        differences.into_iter().map(|difference| format!("{scenario} {difference}")).collect::<Vec<_>>()
    });
    let mut differences: Vec<String> = played.buffer_unordered(MAX_CONCURRENT).concat().await;
    differences.sort();
    assert!(only.is_none() || differences.is_empty(), "all differences:\n{}", differences.join("\n"));
    let (unknown, stale) = AcceptedDifferences::parse(include_str!("differences.txt")).check(&differences);
    assert!(unknown.is_empty(), "these differences are not accepted:\n{}", unknown.join("\n"));
    assert!(stale.is_empty(), "these accepted differences no longer occur:\n{}", stale.join("\n"));
}
