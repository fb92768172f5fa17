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
    /// Show a session and the subagents below it: what each does, since when, and what it has cost.
    Tree {
        /// Where it is.
        #[command(flatten)]
        remote: Remote,
        /// The session.
        id: String,
        /// Show it anew as it changes, until none of them works any more.
        #[arg(long, short)]
        watch: bool,
        /// As JSON; with --watch one line per change.
        #[arg(long)]
        json: bool,
    },
    /// Tell a session that works something, without waiting for its turn to end: it is taken in at the next step.
    Steer {
        /// Where it is.
        #[command(flatten)]
        remote: Remote,
        /// The session.
        id: String,
        /// What to tell it.
        #[arg(required = true, value_name = "TEXT")]
        text: Vec<String>,
    },
    /// Hold a session and all below it before their next step.
    Pause {
        /// Where it is.
        #[command(flatten)]
        remote: Remote,
        /// The session.
        id: String,
    },
    /// Let a session that is paused go on.
    Resume {
        /// Where it is.
        #[command(flatten)]
        remote: Remote,
        /// The session.
        id: String,
    },
    /// Stop a session and all below it; returns when they have stopped.
    Cancel {
        /// Where it is.
        #[command(flatten)]
        remote: Remote,
        /// The session.
        id: String,
    },
    /// Show or set what a session and all below it may use; what is not named stays as it is.
    Budget {
        /// Where it is.
        #[command(flatten)]
        remote: Remote,
        /// The session.
        id: String,
        /// The bounds.
        #[command(flatten)]
        bounds: Bounds,
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
    /// List, show, install or create agents.
    Agent {
        /// Where they are.
        #[command(flatten)]
        remote: Remote,
        /// What to do with them.
        #[command(subcommand)]
        command: Agent,
    },
    /// List or revoke what you have allowed for always.
    #[command(subcommand)]
    Permission(Permission),
    /// Look at, merge or throw away what subagents changed in git worktrees of their own.
    Worktree {
        /// Where they are.
        #[command(flatten)]
        remote: Remote,
        /// What to do with them.
        #[command(subcommand)]
        command: Worktree,
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
    /// List or add MCP servers, or sign in at them.
    Mcp {
        /// Where they are.
        #[command(flatten)]
        remote: Remote,
        /// What to do with them.
        #[command(subcommand)]
        command: Mcp,
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
    /// Give back space: what deleted sessions left, old outputs of tools, sessions over `session.max_age_days`, free pages.
    Gc {
        /// Only say what would be freed.
        #[arg(long)]
        dry_run: bool,
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

/// The bounds of a budget.
#[derive(Debug, Clone, Default, Args)]
pub struct Bounds {
    /// Money, in US dollars.
    #[arg(long, value_name = "DOLLARS")]
    pub cost: Option<f64>,
    /// Tokens of every kind.
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
    /// Calls of a model.
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Seconds on the clock.
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Take all bounds away.
    #[arg(long, conflicts_with_all = ["cost", "tokens", "steps", "seconds"])]
    pub lift: bool,
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
    /// Who answers when it asks whether it may, and who fills in its forms.
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

/// What to do with MCP servers.
#[derive(Debug, Subcommand)]
pub enum Mcp {
    /// Connect to the MCP servers of this directory, and say how it is with each.
    #[command(visible_alias = "ls")]
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add an MCP server to your configuration.
    Add(AddServer),
    /// Sign in at an MCP server with a browser.
    Auth {
        /// The server.
        name: String,
    },
    /// Forget how to sign in at an MCP server.
    Logout {
        /// The server.
        name: String,
    },
}

/// An MCP server.
#[derive(Debug, Args)]
pub struct AddServer {
    /// Its name: its tools begin with it.
    pub name: String,
    /// The address of a remote one.
    #[arg(long, conflicts_with = "command")]
    pub url: Option<String>,
    /// A header for a remote one; can be given several times.
    #[arg(long, value_name = "NAME=VALUE", requires = "url")]
    pub header: Vec<String>,
    /// A variable for a local one; can be given several times.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "url")]
    pub env: Vec<String>,
    /// Add it to the configuration of this repository instead.
    #[arg(long)]
    pub project: bool,
    /// The command of a local one, behind `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// What to do with agents.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// List the agents, and those that can be added.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show an agent: its settings, rules and prompt.
    Show {
        /// The agent.
        name: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Install an agent that ships with Trefoil.
    Add {
        /// The agent.
        name: String,
        /// Where to.
        #[command(flatten)]
        place: Where,
    },
    /// Write a new agent as a markdown file.
    Create(CreateAgent),
}

/// Where an agent's file goes.
#[derive(Debug, Clone, Default, Args)]
pub struct Where {
    /// Into your own configuration, for every project.
    #[arg(long)]
    pub global: bool,
    /// Into this project's `.trefoil/agent`; so it is without this option.
    #[arg(long, conflicts_with = "global")]
    pub project: bool,
    /// Into this folder.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["global", "project"])]
    pub path: Option<PathBuf>,
}

/// Who uses an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// You and other agents.
    All,
    /// You.
    Primary,
    /// Other agents.
    Subagent,
}

impl From<Mode> for api::AgentMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::All => Self::All,
            Mode::Primary => Self::Primary,
            Mode::Subagent => Self::Subagent,
        }
    }
}

/// A new agent.
#[derive(Debug, Clone, Args)]
pub struct CreateAgent {
    /// Its name: lower case letters, digits, dashes and underscores.
    #[arg(long)]
    pub name: String,
    /// When to use it.
    #[arg(long)]
    pub description: String,
    /// How to work: its system prompt; `-` reads it from standard input.
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,
    /// Who uses it.
    #[arg(long, value_enum, default_value = "all")]
    pub mode: Mode,
    /// Its model; that of its caller without this option.
    #[arg(long, short, value_name = "PROVIDER/MODEL")]
    pub model: Option<String>,
    /// The only tools that it may use, with commas between them; all without this option.
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub tools: Option<Vec<String>>,
    /// The temperature of its model.
    #[arg(long, value_name = "N")]
    pub temperature: Option<f64>,
    /// The most steps of one turn.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: Option<u32>,
    /// As a subagent it works in a git worktree of its own.
    #[arg(long)]
    pub isolated: bool,
    /// Where to.
    #[command(flatten)]
    pub place: Where,
}

/// What to do with worktrees.
#[derive(Debug, Subcommand)]
pub enum Worktree {
    /// List the worktrees of subagents.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print what a subagent changed and nobody merged, as a patch.
    Diff {
        /// The subagent's session.
        id: String,
        /// Only the names of the files.
        #[arg(long)]
        stat: bool,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Bring a subagent's changes into the tree that it was made from, uncommitted: all of them, or none if they conflict.
    Merge {
        /// The subagent's session.
        id: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Throw a subagent's worktree away, with its branch and its changes.
    Discard {
        /// The subagent's session.
        id: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove worktrees that hold nothing unmerged, and those that a crash left behind.
    Clean {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// What to do with answers `always`.
#[derive(Debug, Subcommand)]
pub enum Permission {
    /// List what is allowed for always, and in which directory.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Be asked again: end some of what is allowed for always, or all of it. It counts at the next request, in every process.
    Revoke {
        /// The ids that `list` shows.
        #[arg(required_unless_present = "all", value_name = "ID")]
        ids: Vec<String>,
        /// All of it, in every directory.
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// As JSON.
        #[arg(long)]
        json: bool,
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
    fn sessions_are_led_by_their_id() {
        let cli = Cli::parse_from(["trefoil", "steer", "ses_1", "look", "here", "--attach", "http://x"]);
        let Command::Steer { id, text, remote } = cli.command else { panic!("not steer") };
        assert_eq!((id.as_str(), text.join(" ").as_str()), ("ses_1", "look here"));
        assert_eq!(remote.attach.as_deref(), Some("http://x"));
        let cli = Cli::parse_from(["trefoil", "budget", "ses_1", "--cost", "1.5", "--steps", "9"]);
        let Command::Budget { bounds, .. } = cli.command else { panic!("not budget") };
        assert_eq!((bounds.cost, bounds.steps, bounds.lift), (Some(1.5), Some(9), false));
        assert!(Cli::try_parse_from(["trefoil", "budget", "ses_1", "--lift", "--steps", "9"]).is_err());
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
