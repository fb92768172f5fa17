//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A coding agent in your terminal: one binary, a durable session log, any OpenAI-compatible model or none at all.
#[derive(Debug, Parser)]
#[command(name = "trefoil", version, disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// What is written to the log: error, warn, info, debug, trace, or target=level pairs.
    #[arg(long, global = true, value_name = "LEVEL", env = "TREFOIL_LOG", help_heading = "Logging")]
    pub log_level: Option<String>,

    /// Print the log to standard error instead of the log file.
    #[arg(long, global = true, help_heading = "Logging")]
    pub print_logs: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give the agent a task and watch it work.
    #[command(after_help = crate::exit::HELP)]
    Run(Box<Run>),
    /// Make a small repository with a bug, and let the agent fix it.
    Demo {
        /// Where to make it; a folder that does not exist yet.
        folder: Option<PathBuf>,
    },
    /// Serve OpenCode's API over HTTP: for its SDK, its terminal client and everything else that speaks it.
    Serve(Serve),
    /// Be the agent of an editor: speak the Agent Client Protocol on standard input and output.
    Acp(Acp),
    /// Speak to another agent as an editor does: start it, send it a message, watch it work.
    #[command(after_help = crate::exit::HELP)]
    AcpClient(Box<AcpClient>),
    /// List, show, export, import or delete sessions.
    Session {
        /// Where they are.
        #[command(flatten)]
        remote: Remote,
        /// What to do with them.
        #[command(subcommand)]
        command: Session,
    },
    /// List the models that can be used.
    Models {
        /// Where they are.
        #[command(flatten)]
        remote: Remote,
        /// Only those of this provider.
        provider: Option<String>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the agents.
    Agents {
        /// Where they are.
        #[command(flatten)]
        remote: Remote,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show, locate or check the configuration.
    #[command(subcommand)]
    Config(Config),
    /// Let a repository's own configuration take full effect, or no longer.
    Trust(Trust),
    /// Look at keys, local model servers, tools, database and configuration, and say what to do about each.
    Doctor {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// How `run` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For humans.
    Default,
    /// One event per line.
    Json,
}

/// A server that does the work.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server")]
pub struct Remote {
    /// Work on this server instead: a Trefoil or an `opencode serve`. OPENCODE_SERVER_PASSWORD has its password.
    #[arg(long, global = true, value_name = "URL")]
    pub attach: Option<String>,
    /// The directory on that server; the one you are in without it.
    #[arg(long, global = true, value_name = "PATH", requires = "attach")]
    pub dir: Option<String>,
}

/// A task.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// Where it is done.
    #[command(flatten)]
    pub remote: Remote,
    /// The task; what standard input has is added to it, unless that is a terminal.
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
    /// How to print.
    #[arg(long, value_enum, default_value = "default")]
    pub format: Format,
    /// Go on with the last session of this directory; without a message, with its turn that a crash cut off.
    #[arg(long = "continue", short = 'c', conflicts_with = "session")]
    pub last: bool,
    /// Go on with this session; without a message, with its turn that a crash cut off.
    #[arg(long, short, value_name = "ID")]
    pub session: Option<String>,
    /// The agent that does it.
    #[arg(long)]
    pub agent: Option<String>,
    /// The model that is asked.
    #[arg(long, short, value_name = "PROVIDER/MODEL")]
    pub model: Option<String>,
    /// The variant of the model, for example its reasoning effort.
    #[arg(long)]
    pub variant: Option<String>,
    /// A file, directory or image to attach; can be given several times.
    #[arg(long = "file", short, value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// The title of the session.
    #[arg(long)]
    pub title: Option<String>,
    /// Run this command; the message is its arguments.
    #[arg(long, value_name = "NAME")]
    pub command: Option<String>,
    /// Allow whatever would be asked. What a rule denies stays denied.
    #[arg(long, short)]
    pub yes: bool,
    /// Play this script instead of asking a model; TREFOIL_SCRIPT can name it too.
    #[arg(long, value_name = "FILE", conflicts_with = "attach")]
    pub script: Option<PathBuf>,
}

/// A server.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// The port; 0 is any that is free. Without it 4096, or any if that is taken.
    #[arg(long)]
    pub port: Option<u16>,
    /// The address or name to listen on; only this machine by default.
    #[arg(long, visible_alias = "host", value_name = "HOST")]
    pub hostname: Option<String>,
    /// Listen on this unix socket instead.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["port", "hostname"])]
    pub socket: Option<PathBuf>,
    /// A further origin whose pages may call the server; can be given several times.
    #[arg(long, value_name = "ORIGIN")]
    pub cors: Vec<String>,
    /// A further name under which the server may be reached; can be given several times.
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,
    /// The password that clients must know; better given as OPENCODE_SERVER_PASSWORD, as others see command lines.
    #[arg(long, value_name = "TEXT")]
    pub password: Option<String>,
    /// Play this script instead of asking a model; TREFOIL_SCRIPT can name it too.
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
}

/// An editor's agent.
#[derive(Debug, Clone, Args)]
pub struct Acp {
    /// Where the work is done.
    #[command(flatten)]
    pub remote: Remote,
    /// Play this script instead of asking a model; TREFOIL_SCRIPT can name it too.
    #[arg(long, value_name = "FILE", conflicts_with = "attach")]
    pub script: Option<PathBuf>,
    /// Ask for the key of a model provider in this terminal and store it, instead of being an agent. Editors do this.
    #[arg(long, conflicts_with = "attach")]
    pub login: bool,
}

/// Who answers when an agent asks whether it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// You, at the terminal; without one, it is rejected.
    Ask,
    /// Everything is allowed, once.
    Allow,
    /// Everything is rejected.
    Reject,
}

/// A client of another agent.
#[derive(Debug, Clone, Args)]
pub struct AcpClient {
    /// The command that starts the agent, for a shell: for example "opencode acp".
    #[arg(long, value_name = "CMD")]
    pub agent: String,
    /// What to tell it. Without that, who it is and what can be chosen is printed.
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
    /// Go on with this session of the agent.
    #[arg(long, short, value_name = "ID")]
    pub session: Option<String>,
    /// The model, by its id or its name.
    #[arg(long, short)]
    pub model: Option<String>,
    /// The mode, by its id or its name.
    #[arg(long)]
    pub mode: Option<String>,
    /// Who answers when it asks whether it may.
    #[arg(long, value_enum, default_value = "ask")]
    pub permission: Policy,
    /// The folder it works in; it gets no file and no terminal outside. The one you are in without it.
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// One JSON object per line: everything that it says.
    #[arg(long)]
    pub json: bool,
    /// How long it may say nothing, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub enum Session {
    /// List the sessions of this project, newest first.
    List {
        /// Those of every project.
        #[arg(long)]
        all: bool,
        /// The most.
        #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
        limit: usize,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a conversation.
    Show {
        /// The session.
        id: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a session as JSON to standard output.
    Export {
        /// The session.
        id: String,
    },
    /// Read a session from a file that `export` wrote; it becomes one of this directory.
    Import {
        /// The file; `-` is standard input.
        file: PathBuf,
    },
    /// Delete sessions and what they spawned.
    Delete {
        /// The sessions.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print the configuration in effect, with the files it comes from.
    Show {
        /// As plain JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the files and directories that are read and written.
    Path,
    /// Check every file: broken syntax, unknown keys, wrong types, what is not trusted, what has no effect yet.
    Check,
}

/// Whom to trust.
#[derive(Debug, Args)]
pub struct Trust {
    /// The repository; this one without it.
    pub path: Option<PathBuf>,
    /// List what is trusted.
    #[arg(long, conflicts_with_all = ["path", "revoke", "yes"])]
    pub list: bool,
    /// Trust it no longer.
    #[arg(long, conflicts_with = "yes")]
    pub revoke: bool,
    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_takes_words_and_options_mixed() {
        let cli = Cli::parse_from(["trefoil", "run", "fix", "--agent", "plan", "the", "bug", "-f", "a", "-f", "b"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.message, ["fix", "the", "bug"]);
        assert_eq!(run.agent.as_deref(), Some("plan"));
        assert_eq!(run.files.len(), 2);
    }
}
