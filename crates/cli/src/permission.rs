//! `trefoil permission list|revoke`: answers `always` that still count.

use api::{Approval, ApprovalId};
use engine::Engine;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::session::print_json;
use crate::term::{self, one_line, plural};

/// Lists what is allowed for always, and where.
pub fn list(engine: &Engine, json: bool) -> anyhow::Result<()> {
    let approvals = engine.approvals(None)?;
    if json {
        return print_json(&approvals);
    }
    if approvals.is_empty() {
        term::eprint("nothing is allowed for always; an answer `always` to a request makes such an entry\n");
        return Ok(());
    }
    let row = |approval: &Approval| {
        let pattern = match approval.pattern.as_str() {
            "*" => "* (every one)".to_owned(),
            pattern => one_line(pattern, 80),
        };
        let directory = one_line(&approval.directory, 200);
        vec![approval.id.to_string(), one_line(&approval.permission, 40), pattern, format!("in {directory}")]
    };
    Ok(term::print(&term::table(&approvals.iter().map(row).collect::<Vec<_>>()))?)
}

/// Ends some of them, or all.
pub async fn revoke(engine: &Engine, ids: &[String], all: bool, json: bool) -> anyhow::Result<()> {
    let approvals = engine.approvals(None)?;
    let known = |id: &String| approvals.iter().find(|approval| approval.id.as_str() == id);
    if let Some(unknown) = ids.iter().find(|id| known(id).is_none()) {
        let ids: Vec<String> = approvals.iter().map(|approval| approval.id.to_string()).collect();
        let failure = Failure::new(Exit::Failed, format!("there is no approval {}", one_line(unknown, 100)));
        let hint = match ids.is_empty() {
            true => "nothing is allowed for always",
            false => "`trefoil permission list` names those that count; nothing was revoked",
        };
        return Err(failure.hint(hint).into());
    }
    let ended: Vec<&Approval> = match all {
        true => approvals.iter().collect(),
        false => ids.iter().filter_map(known).collect(),
    };
    if all {
        engine.revoke(None).await?;
    }
    let one_by_one: &[&Approval] = if all { &[] } else { &ended };
    for approval in one_by_one {
        engine.revoke(Some::<&ApprovalId>(&approval.id)).await?;
    }
    if json {
        return print_json(&json!({ "revoked": ended }));
    }
    term::eprint(&format!(
        "revoked {}: from the next request on you are asked again\n",
        plural(ended.len(), "approval")
    ));
    Ok(())
}
