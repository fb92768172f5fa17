//! The operations, by area. Each area has its list beside its handlers.

mod acp;
mod ask;
mod catalog;
mod config;
mod event;
mod file;
mod global;
mod history;
mod home;
mod hosted;
mod instance;
mod log;
mod mcp;
mod message;
mod metrics;
mod project;
mod provider;
mod pty;
mod session;
mod tool;
mod tree;
mod tui;
mod turn;
mod v2;
mod vcs;
mod workspace;
mod worktree;

use crate::operation::Operation;

/// All operations.
pub fn operations() -> Vec<Operation> {
    [
        home::operations(),
        global::operations(),
        event::operations(),
        session::operations(),
        message::operations(),
        turn::operations(),
        tree::operations(),
        ask::operations(),
        file::operations(),
        vcs::operations(),
        project::operations(),
        worktree::operations(),
        workspace::operations(),
        history::operations(),
        instance::operations(),
        config::operations(),
        provider::operations(),
        catalog::operations(),
        v2::operations(),
        pty::operations(),
        tui::operations(),
        tool::operations(),
        mcp::operations(),
        hosted::operations(),
        log::operations(),
        metrics::operations(),
        acp::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
