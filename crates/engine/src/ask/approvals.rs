//! Answers `always`: where they count, what they settle, and how they end.
//!
//! An approval counts in one directory: the root of a git worktree, else the directory of the session. A worktree that was made
//! for a subagent counts as the directory that it was made from. They are read whenever somebody would be asked, so one that
//! is revoked, by whatever process, counts no more at the next decision.

use std::sync::{Arc, OnceLock};

use api::{Action, Approval, ApprovalId, HostError, Ruleset};
use store::{Batch, Place, StoreError};
use tools::{Need, Readable};

use crate::Engine;
use crate::ask::rules::Rules;
use crate::error::store_error;
use crate::project::instance::Instance;
use crate::turn::Turn;

impl Instance {
    /// The directory in which an answer `always` counts. Without symbolic links, as these can be made to lead elsewhere.
    pub(crate) fn approval_directory(&self) -> String {
        let root = &self.source.project.worktree;
        root.canonicalize().unwrap_or_else(|_| root.clone()).to_string_lossy().into_owned()
    }
}

impl Turn {
    fn approved(&self) -> Result<Ruleset, StoreError> {
        self.store().approved(&self.instance.approval_directory())
    }

    /// What the rules and the approvals say to a need. Approvals settle only what would be asked, so only then are they
    /// looked at.
    pub(crate) fn judge(&self, rules: &Rules, need: &Need) -> Result<Action, StoreError> {
        match rules.judge(&[], need) {
            Action::Ask => Ok(rules.judge(&self.approved()?, need)),
            decided => Ok(decided),
        }
    }

    /// Which files may be read without asking, with the approvals of when that is first wanted.
    pub(crate) fn readable_files(self: &Arc<Self>, rules: &Rules) -> Readable {
        let (turn, rules, readable) = (self.clone(), rules.clone(), OnceLock::new());
        Readable::new(move |pattern| {
            let readable = readable.get_or_init(|| {
                let approved = turn.approved().unwrap_or_else(|error| {
                    tracing::warn!(%error, "approvals cannot be read, so they do not count");
                    Ruleset::new()
                });
                rules.readable_files(&approved)
            });
            readable.without_asking(pattern)
        })
    }
}

impl Engine {
    /// The approvals that count, of all projects or of one, oldest first.
    pub fn approvals(&self, project: Option<&str>) -> Result<Vec<Approval>, HostError> {
        self.inner.store.approvals(project).map_err(store_error)
    }

    /// Ends approvals: one of them, or all.
    pub async fn revoke(&self, approval: Option<&ApprovalId>) -> Result<(), HostError> {
        let mut batch = Batch::new(&Place::new("", "")).durable();
        batch.revoke(approval);
        self.inner.store.commit(batch).await.map(drop).map_err(store_error)
    }
}
