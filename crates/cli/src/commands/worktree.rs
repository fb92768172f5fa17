//! `trefoil worktree list|diff|merge|discard|clean`: the changes of subagents in worktrees of their own.

use api::{FileStatus, Host, Scope, Worktree};
use engine::{Engine, ListedWorktree};
use serde_json::json;

use super::session::find_session;
use crate::exit::{Exit, Failure};
use crate::terminal::{self, one_line, plural, print_json};

/// Lists the worktrees.
pub async fn list(engine: &Engine, json: bool) -> anyhow::Result<()> {
    let listed = engine.worktrees().await?;
    if json {
        let entry = |listed: &ListedWorktree| {
            json!({ "worktree": listed.worktree, "title": listed.title, "running": listed.running,
                "problem": listed.problem })
        };
        return print_json(&listed.iter().map(entry).collect::<Vec<_>>());
    }
    if listed.is_empty() {
        terminal::say("no subagent has a worktree; an agent with \"isolation\": \"worktree\" gets one\n");
        return Ok(());
    }
    let row = |listed: &ListedWorktree| {
        let state = match (&listed.title, listed.running) {
            (None, _) => "left over",
            (_, true) => "running",
            (_, false) => "idle",
        };
        let files = match &listed.problem {
            Some(problem) => one_line(problem, 60),
            None => counted(&listed.worktree, "changed file"),
        };
        let title = listed.title.as_deref().unwrap_or_default();
        let directory = one_line(&listed.worktree.directory, 200);
        vec![listed.worktree.session_id.to_string(), state.to_owned(), files, one_line(title, 50), directory]
    };
    Ok(terminal::print(&terminal::table(&listed.iter().map(row).collect::<Vec<_>>()))?)
}

/// Prints the unmerged changes of a worktree.
pub async fn diff(host: &dyn Host, scope: &Scope, id: &str, stat: bool, json: bool) -> anyhow::Result<()> {
    let session = find_session(host, scope, id).await?;
    let diff = host.worktree_diff(&session.id).await?;
    if json {
        return print_json(&diff);
    }
    if stat {
        terminal::print(&files(&diff.worktree.files))?;
        if diff.worktree.more {
            terminal::say("there are more changed files than are listed here\n");
        }
        return Ok(());
    }
    terminal::print(&diff.patch)?;
    if diff.cut {
        let Worktree { base, branch, target, .. } = &diff.worktree;
        return Err(Failure::new(Exit::Failed, "the patch is too long: only its first files are printed")
            .hint(format!("git -C {target} diff --binary {base} {branch} prints all that is committed on its branch"))
            .into());
    }
    Ok(())
}

/// Merges the changes of a worktree.
pub async fn merge(host: &dyn Host, scope: &Scope, id: &str, json: bool) -> anyhow::Result<()> {
    let session = find_session(host, scope, id).await?;
    let merged = host.worktree_merge(&session.id).await?;
    if json {
        return print_json(&merged);
    }
    if merged.files.is_empty() {
        terminal::say("there is nothing to merge\n");
        return Ok(());
    }
    terminal::print(&files(&merged.files))?;
    let count = counted(&merged, "file");
    terminal::say(&format!("merged {count} into {}, not committed\n", one_line(&merged.target, 200)));
    Ok(())
}

/// Discards a worktree with its changes.
pub async fn discard(host: &dyn Host, scope: &Scope, id: &str, json: bool) -> anyhow::Result<()> {
    let session = find_session(host, scope, id).await?;
    let discarded = host.worktree_discard(&session.id).await?;
    if json {
        return print_json(&discarded);
    }
    let count = counted(&discarded, "changed file");
    terminal::say(&format!("discarded {} with {count}\n", one_line(&discarded.branch, 100)));
    Ok(())
}

/// Removes worktrees without unmerged changes, and leftovers of a crash.
pub async fn clean(engine: &Engine, json: bool) -> anyhow::Result<()> {
    let cleaned = engine.clean_worktrees(true).await?;
    if json {
        return print_json(&json!({ "removed": cleaned.removed, "kept": cleaned.kept, "problems": cleaned.problems }));
    }
    for directory in &cleaned.removed {
        terminal::print(&format!("removed {}\n", one_line(directory, 300)))?;
    }
    for branch in &cleaned.kept {
        terminal::say(&format!("kept the branch {}: it has unmerged changes\n", one_line(branch, 100)));
    }
    for problem in &cleaned.problems {
        terminal::say(&format!("not removed: {}\n", one_line(problem, 500)));
    }
    if cleaned.removed.is_empty() && cleaned.problems.is_empty() {
        terminal::say("there is nothing to clean\n");
    }
    Ok(())
}

/// The number of changed files, as far as it is known.
fn counted(worktree: &Worktree, what: &str) -> String {
    let count = plural(worktree.files.len(), what);
    if worktree.more { format!("more than {count}") } else { count }
}

fn files(files: &[FileStatus]) -> String {
    let row = |file: &FileStatus| {
        let status = match file.status {
            api::FileDiffStatus::Added => "A",
            api::FileDiffStatus::Deleted => "D",
            api::FileDiffStatus::Modified => "M",
        };
        let lines = format!("+{} -{}", file.added, file.removed);
        vec![status.to_owned(), one_line(&file.path, 200), lines]
    };
    terminal::table(&files.iter().map(row).collect::<Vec<_>>())
}
