//! `trefoil permission list|revoke`: the answers `always` that are in effect.

use api::{Approval, ApprovalId};
use engine::Engine;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::terminal::{self, one_line, plural, print_json};

/// Lists what is always allowed, and where.
pub fn list(engine: &Engine, json: bool) -> anyhow::Result<()> {
    let approvals = engine.approvals(None)?;
    if json {
        return print_json(&approvals);
    }
    if approvals.is_empty() {
        terminal::say("nothing is always allowed yet; answering a request with `always` adds an entry\n");
        return Ok(());
    }
    let row = |approval: &Approval| {
        let pattern = match approval.pattern.as_str() {
            "*" => "* (everything)".to_owned(),
            pattern => one_line(pattern, 80),
        };
        let directory = one_line(&approval.directory, 200);
        vec![approval.id.to_string(), one_line(&approval.permission, 40), pattern, format!("in {directory}")]
    };
    Ok(terminal::print(&terminal::table(&approvals.iter().map(row).collect::<Vec<_>>()))?)
}

/// Revokes some approvals, or all.
pub async fn revoke(engine: &Engine, ids: &[String], all: bool, json: bool) -> anyhow::Result<()> {
    let approvals = engine.approvals(None)?;
    let known = |id: &String| approvals.iter().find(|approval| approval.id.as_str() == id);
    if let Some(unknown) = ids.iter().find(|id| known(id).is_none()) {
        let ids: Vec<String> = approvals.iter().map(|approval| approval.id.to_string()).collect();
        let failure = Failure::new(Exit::Failed, format!("there is no approval {}", one_line(unknown, 100)));
        let hint = match ids.is_empty() {
            true => "nothing is always allowed",
            false => "`trefoil permission list` shows the approvals; nothing was revoked",
        };
        return Err(failure.hint(hint).into());
    }
    let revoked: Vec<&Approval> = match all {
        true => approvals.iter().collect(),
        false => ids.iter().filter_map(known).collect(),
    };
    if all {
        engine.revoke(None).await?;
    }
    let one_by_one: &[&Approval] = if all { &[] } else { &revoked };
    for approval in one_by_one {
        engine.revoke(Some::<&ApprovalId>(&approval.id)).await?;
    }
    if json {
        return print_json(&json!({ "revoked": revoked }));
    }
    terminal::say(&format!(
        "revoked {}; you will be asked again from the next request on\n",
        plural(revoked.len(), "approval")
    ));
    Ok(())
}
