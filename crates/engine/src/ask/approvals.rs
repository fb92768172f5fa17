//! `always` replies: where they apply, what they settle, and how to revoke them.
//!
//! An approval applies to one directory: the root of a git worktree, otherwise the session's directory. A worktree made
//! for a subagent counts as the directory it was made from. Approvals are read each time the user would be asked, so a
//! revocation by any process takes effect at the next decision.

use std::sync::{Arc, OnceLock};

use api::{Action, Approval, ApprovalId, HostError, Ruleset};
use store::{Batch, Location, StoreError};
use tools::{Need, ReadPolicy};

use crate::Engine;
use crate::ask::rules::Rules;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::turn::Turn;

impl Instance {
    /// The directory in which an `always` reply applies, with symbolic links resolved, because a link can be changed to
    /// point elsewhere.
    pub(crate) fn approval_directory(&self) -> String {
        let root = &self.source.project.worktree;
        root.canonicalize().unwrap_or_else(|_| root.clone()).to_string_lossy().into_owned()
    }
}

impl Turn {
    fn approved(&self) -> Result<Ruleset, StoreError> {
        self.store().approved_rules(&self.instance.approval_directory())
    }

    /// What the rules and approvals say about a need. Approvals only settle what would be asked, so they are read only
    /// then.
    pub(crate) fn judge(&self, rules: &Rules, need: &Need) -> Result<Action, StoreError> {
        match rules.judge(&[], need) {
            Action::Ask => Ok(rules.judge(&self.approved()?, need)),
            decided => Ok(decided),
        }
    }

    /// Which files may be read without asking. Reads the approvals on first use.
    pub(crate) fn readable_files(self: &Arc<Self>, rules: &Rules) -> ReadPolicy {
        let (turn, rules, readable) = (self.clone(), rules.clone(), OnceLock::new());
        ReadPolicy::new(move |pattern| {
            let readable = readable.get_or_init(|| {
                let approved = turn.approved().unwrap_or_else(|error| {
                    tracing::warn!(%error, "cannot read approvals; ignoring them");
                    Ruleset::new()
                });
                rules.readable_files(&approved)
            });
            readable.without_asking(pattern)
        })
    }
}

impl Engine {
    /// The approvals in effect, of one project or of all, oldest first.
    pub fn approvals(&self, project: Option<&str>) -> Result<Vec<Approval>, HostError> {
        self.inner.store.approvals(project).map_err(store_error)
    }

    /// Revokes one approval, or all of them.
    pub async fn revoke(&self, approval: Option<&ApprovalId>) -> Result<(), HostError> {
        let mut batch = Batch::new(&Location::new("", "")).durable();
        batch.revoke(approval);
        self.inner.store.commit(batch).await.map(drop).map_err(store_error)
    }
}
