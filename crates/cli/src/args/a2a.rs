//! The arguments of `trefoil a2a`.

use std::path::PathBuf;

use clap::Args;

use super::{ACCESS, MODEL};

/// `trefoil a2a`.
#[derive(Debug, Clone, Args)]
pub struct A2a {
    /// How to serve.
    #[command(flatten)]
    pub serve: A2aServe,
}

/// How `trefoil a2a` serves.
#[derive(Debug, Clone, Args)]
pub struct A2aServe {
    /// The port; 0 picks a free one. A2A_PORT can name it too; by default 8000
    #[arg(long)]
    pub port: Option<u16>,
    /// The address or name to listen on; A2A_HOST can name it too. By default only this machine can connect
    #[arg(long, visible_alias = "host", value_name = "HOST")]
    pub hostname: Option<String>,
    /// Answer with the script that conformance kits drive by message id, not with the agent
    #[arg(long)]
    pub conformance: bool,
    /// Ask callers for no credentials; only your own user on this machine can connect then
    #[arg(long, help_heading = ACCESS)]
    pub no_auth: bool,
    /// Play this script instead of calling a model; TREFOIL_SCRIPT can name it too
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub script: Option<PathBuf>,
}
