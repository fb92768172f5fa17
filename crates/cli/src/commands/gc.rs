//! `trefoil gc`: frees the space of data that nothing needs any more.

use api::SessionId;
use engine::TidyOptions;
use serde::Serialize;
use store::{CompactOutcome, Store};

use crate::exit::{Exit, Failure};
use crate::terminal::amounts::megabytes;
use crate::terminal::{self, plural, print_json};
use crate::wiring::{Invocation, LocalEngine};

/// What was or would be freed.
#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    /// Sessions older than the configuration allows.
    sessions: Vec<SessionId>,
    /// Deleted sessions that left something behind, and its bytes.
    leftovers: usize,
    leftover_bytes: u64,
    /// Outputs of tools.
    outputs: usize,
    output_bytes: u64,
    /// Unused bytes of the database.
    free_bytes: u64,
    /// The size of the database with its write-ahead log.
    bytes_before: u64,
    bytes_after: u64,
    /// Why the database was not rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    problems: Vec<String>,
}

/// `trefoil gc`.
pub async fn command(local: &LocalEngine, invocation: &Invocation, dry_run: bool, json: bool) -> anyhow::Result<()> {
    let path = invocation.database_path();
    let before = Store::disk_usage(&path)?;
    let tidied = local.engine.tidy(TidyOptions { dry_run, thorough: true }).await?;
    let mut note = None;
    if !dry_run {
        note = match local.store.compact().await? {
            CompactOutcome::Rewritten => None,
            CompactOutcome::PagesFreed(why) => {
                Some(format!("free pages were returned, but the file was not rewritten: {why}"))
            }
            CompactOutcome::Unchanged(why) => Some(format!("the file keeps its size: {why}")),
        };
    }
    let after = Store::disk_usage(&path)?;
    let report = Report {
        dry_run,
        sessions: tidied.sessions,
        leftovers: tidied.leftovers,
        leftover_bytes: before.orphan_bytes,
        outputs: tidied.outputs,
        output_bytes: tidied.output_bytes,
        free_bytes: before.free,
        bytes_before: before.database + before.wal,
        bytes_after: after.database + after.wal,
        note,
        problems: tidied.problems,
    };
    if json {
        print_json(&report)?;
    } else {
        terminal::print(&text(&report))?;
    }
    match report.problems.len() {
        0 => Ok(()),
        problems => {
            let failure = Failure::new(Exit::Failed, format!("{} could not be removed", plural(problems, "thing")));
            Err(failure.hint(report.problems.join("; ")).into())
        }
    }
}

fn text(report: &Report) -> String {
    let row = |what: &str, number: String, bytes: Option<u64>| {
        vec![what.to_owned(), number, bytes.map(megabytes).unwrap_or_default()]
    };
    let rows = [
        row("expired sessions", report.sessions.len().to_string(), None),
        row("leftovers of deleted sessions", report.leftovers.to_string(), Some(report.leftover_bytes)),
        row("old tool outputs", report.outputs.to_string(), Some(report.output_bytes)),
        row("unused space in the database", String::new(), Some(report.free_bytes)),
    ];
    let mut text = terminal::table(&rows);
    text += &match report.dry_run {
        true => format!("the database has {}; nothing was removed\n", megabytes(report.bytes_before)),
        false => {
            format!("the database had {} and has {}\n", megabytes(report.bytes_before), megabytes(report.bytes_after))
        }
    };
    if let Some(note) = &report.note {
        text += &format!("{note}\n");
    }
    text
}
