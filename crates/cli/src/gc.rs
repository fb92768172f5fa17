//! `trefoil gc`: gives back the space of what nobody needs any more.

use api::SessionId;
use engine::TidyOptions;
use serde::Serialize;
use store::{CompactOutcome, Store};

use crate::exit::{Exit, Failure};
use crate::session::print_json;
use crate::term::{self, plural};
use crate::wire::{Local, World};

/// What was freed, or would be.
#[derive(Debug, Serialize)]
struct Report {
    dry_run: bool,
    /// Sessions over the age of the configuration.
    sessions: Vec<SessionId>,
    /// Deleted sessions of which something was left, and how many bytes.
    leftovers: usize,
    leftover_bytes: u64,
    /// Outputs of tools.
    outputs: usize,
    output_bytes: u64,
    /// Bytes of the database that nothing used.
    free_bytes: u64,
    /// The bytes of the database with its write-ahead log.
    bytes_before: u64,
    bytes_after: u64,
    /// Why the database was not rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    problems: Vec<String>,
}

/// `trefoil gc`.
pub async fn gc(local: &Local, world: &World, dry_run: bool, json: bool) -> anyhow::Result<()> {
    let path = world.database();
    let before = Store::disk_usage(&path)?;
    let tidied = local.engine.tidy(TidyOptions { dry_run, thorough: true }).await?;
    let mut note = None;
    if !dry_run {
        note = match local.store.compact().await? {
            CompactOutcome::Rewritten => None,
            CompactOutcome::PagesFreed(why) => {
                Some(format!("free pages were given back, the file was not rewritten: {why}"))
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
        term::print(&text(&report))?;
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
        vec![what.to_owned(), number, bytes.map(mb).unwrap_or_default()]
    };
    let rows = [
        row("sessions over their age", report.sessions.len().to_string(), None),
        row("deleted sessions with remains", report.leftovers.to_string(), Some(report.leftover_bytes)),
        row("old outputs of tools", report.outputs.to_string(), Some(report.output_bytes)),
        row("unused in the database", String::new(), Some(report.free_bytes)),
    ];
    let mut text = term::table(&rows);
    text += &match report.dry_run {
        true => format!("the database has {}; nothing was removed\n", mb(report.bytes_before)),
        false => format!("the database had {} and has {}\n", mb(report.bytes_before), mb(report.bytes_after)),
    };
    if let Some(note) = &report.note {
        text += &format!("{note}\n");
    }
    text
}

/// Bytes for people.
pub fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
