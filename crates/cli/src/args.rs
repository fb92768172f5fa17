//! The command line, as `clap` parses it. Doc comments of commands and options are their help.

mod a2a;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use a2a::{A2a, A2aCall, A2aCard, A2aCommand, A2aServe, RemoteAgent};

/// A coding agent that reads your repository, edits files, runs commands and checks its work.
#[derive(Debug, Parser)]
#[command(name = "trefoil", version)]
pub struct Cli {
    /// The command; without one, Trefoil says what to try first.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// What to log: error, warn, info, debug, trace, or target=level pairs
    #[arg(long, global = true, value_name = "LEVEL", env = "TREFOIL_LOG", hide_env = true, help_heading = GLOBAL)]
    pub log_level: Option<String>,

    /// Log to standard error instead of the log file
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub print_logs: bool,
}

/// The heading of the options of every command.
pub const GLOBAL: &str = "Global options";
/// The heading of the options about the server that a command works on.
pub const SERVER: &str = "Server options";
/// The heading of the options that choose a session.
pub const SESSION: &str = "Session options";
/// The heading of the options about who may connect.
pub const ACCESS: &str = "Access options";
/// The heading of the options that choose the model and the agent.
pub const MODEL: &str = "Model options";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Give the agent a task and watch it work
    Run(Box<Run>),
    /// Watch the agent fix a bug in a sample repository, without a model or a key
    Demo {
        /// The folder to create; a temporary one by default
        folder: Option<PathBuf>,
        /// Let this model do the work instead of the offline script
        #[arg(long, short, value_name = "PROVIDER/MODEL")]
        model: Option<String>,
    },
    /// Serve OpenCode's HTTP API for its clients and SDKs
    Serve(Serve),
    /// Serve the agent to other agents over the A2A protocol, or call them
    A2a(A2a),
    /// Run as the agent of an editor, over the Agent Client Protocol
    Acp(Acp),
    /// Talk to another ACP agent, as an editor would
    AcpClient(Box<AcpClient>),
    /// List, show, export, import or delete sessions
    Session {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// What to do with them.
        #[command(subcommand)]
        command: Session,
    },
    /// Show a session and its subagents: what each does, and what it cost
    Tree {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// The session: an id, the part of one that is unique, or `last`
        id: String,
        /// Keep showing changes until none of them works; one line per change if the output is no terminal
        #[arg(long, short)]
        watch: bool,
        /// Print JSON; with --watch, the whole tree on one line per change
        #[arg(long)]
        json: bool,
    },
    /// Send a message to a session that is working; it reads it before its next step
    Steer {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// The session: an id, the part of one that is unique, or `last`
        id: String,
        /// The message
        #[arg(required = true, value_name = "TEXT")]
        text: Vec<String>,
    },
    /// Hold a session and its subagents before their next step
    Pause {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// The session: an id, the part of one that is unique, or `last`
        id: String,
    },
    /// Let a paused session continue
    Resume {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// The session: an id, the part of one that is unique, or `last`
        id: String,
    },
    /// Stop a session and its subagents, and wait until they have stopped
    Cancel {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// The session: an id, the part of one that is unique, or `last`
        id: String,
    },
    /// Show or set what a session and its subagents may spend
    Budget {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// The session: an id, the part of one that is unique, or `last`
        id: String,
        /// The limits.
        #[command(flatten)]
        bounds: Bounds,
    },
    /// List the models that you can use
    Models {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// List only this provider's models
        provider: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Store, list or remove the keys of model providers
    #[command(subcommand)]
    Auth(Auth),
    /// List, show, install or create agents
    Agent {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// What to do with them.
        #[command(subcommand)]
        command: Agent,
    },
    /// List, add or remove MCP servers, or sign in to them
    Mcp {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// What to do with them.
        #[command(subcommand)]
        command: Mcp,
    },
    /// List or revoke permissions that you granted for good
    #[command(subcommand)]
    Permission(Permission),
    /// Review, merge or discard what subagents changed in their git worktrees
    Worktree {
        /// The server.
        #[command(flatten)]
        remote: Remote,
        /// What to do with them.
        #[command(subcommand)]
        command: Worktree,
    },
    /// Show, locate or check the configuration
    #[command(subcommand)]
    Config(Config),
    /// Trust a repository's own configuration, or stop trusting it
    Trust(Trust),
    /// Check keys, model servers, tools, database and configuration
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Free disk space: leftovers of deleted sessions, old outputs, expired sessions
    Gc {
        /// Only say what would be freed
        #[arg(long)]
        dry_run: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for your shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// How `run` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Default,
    /// One JSON event per line
    Json,
}

/// The server that a command works on.
#[derive(Debug, Clone, Default, Args)]
pub struct Remote {
    /// Work on this server: `trefoil serve` or `opencode serve`. Set OPENCODE_SERVER_PASSWORD if it has a password
    #[arg(long, global = true, value_name = "URL", help_heading = SERVER)]
    pub attach: Option<String>,
    /// The directory on that server; the current one by default
    #[arg(long, global = true, value_name = "PATH", requires = "attach", help_heading = SERVER)]
    pub dir: Option<String>,
}

/// The limits of a budget.
#[derive(Debug, Clone, Default, Args)]
pub struct Bounds {
    /// Money, in US dollars
    #[arg(long, value_name = "DOLLARS")]
    pub cost: Option<f64>,
    /// Tokens of every kind
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
    /// Model calls
    #[arg(long, value_name = "N")]
    pub steps: Option<u64>,
    /// Seconds of wall-clock time
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Remove all limits
    #[arg(long, conflicts_with_all = ["cost", "tokens", "steps", "seconds"])]
    pub lift: bool,
}

/// `trefoil run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// The task; piped standard input is added to it
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
    /// Attach a file, directory or image; repeatable
    #[arg(long = "file", short, value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Run this custom command; the message is its arguments
    #[arg(long, value_name = "NAME")]
    pub command: Option<String>,
    /// Allow everything that would be asked; what a rule denies stays denied
    #[arg(long, short)]
    pub yes: bool,
    /// How to print: `default` for people, `json` for one event per line
    #[arg(long, value_enum, default_value = "default", hide_possible_values = true)]
    pub format: Format,
    /// Continue the last session of this directory; without a message, resume its interrupted turn
    #[arg(long = "continue", short = 'c', conflicts_with = "session", help_heading = SESSION)]
    pub last: bool,
    /// Continue this session: an id, the part of one that is unique, or `last`
    #[arg(long, short, value_name = "ID", help_heading = SESSION)]
    pub session: Option<String>,
    /// The title of the session
    #[arg(long, help_heading = SESSION)]
    pub title: Option<String>,
    /// The model to use; `trefoil models` lists them
    #[arg(long, short, value_name = "PROVIDER/MODEL", help_heading = MODEL)]
    pub model: Option<String>,
    /// The variant of the model, for example its reasoning effort
    #[arg(long, help_heading = MODEL)]
    pub variant: Option<String>,
    /// The agent to use; `trefoil agent list` lists them
    #[arg(long, help_heading = MODEL)]
    pub agent: Option<String>,
    /// Play this script instead of calling a model; TREFOIL_SCRIPT can name it too
    #[arg(long, value_name = "FILE", conflicts_with = "attach", help_heading = MODEL)]
    pub script: Option<PathBuf>,
    /// The server.
    #[command(flatten)]
    pub remote: Remote,
}

/// `trefoil serve`.
#[derive(Debug, Clone, Args)]
pub struct Serve {
    /// The port; 0 picks a free one. By default 4096, or a free one if that is taken
    #[arg(long)]
    pub port: Option<u16>,
    /// The address or name to listen on; by default only this machine can connect
    #[arg(long, visible_alias = "host", value_name = "HOST")]
    pub hostname: Option<String>,
    /// Listen on this unix socket instead
    #[arg(long, value_name = "PATH", conflicts_with_all = ["port", "hostname"])]
    pub socket: Option<PathBuf>,
    /// Serve A2A below `/a2a` too, with the credentials of A2A_BEARER_TOKEN
    #[arg(long)]
    pub a2a: bool,
    /// Let pages of this origin call the server; repeatable
    #[arg(long, value_name = "ORIGIN", help_heading = ACCESS)]
    pub cors: Vec<String>,
    /// Accept requests for this host name too; repeatable
    #[arg(long, value_name = "HOST", help_heading = ACCESS)]
    pub allow_host: Vec<String>,
    /// The password for clients; prefer OPENCODE_SERVER_PASSWORD, as others can see command lines
    #[arg(long, value_name = "TEXT", help_heading = ACCESS)]
    pub password: Option<String>,
    /// Play this script instead of calling a model; TREFOIL_SCRIPT can name it too
    #[arg(long, value_name = "FILE", help_heading = MODEL)]
    pub script: Option<PathBuf>,
}

/// `trefoil acp`.
#[derive(Debug, Clone, Args)]
pub struct Acp {
    /// The server.
    #[command(flatten)]
    pub remote: Remote,
    /// Play this script instead of calling a model; TREFOIL_SCRIPT can name it too
    #[arg(long, value_name = "FILE", conflicts_with = "attach", help_heading = MODEL)]
    pub script: Option<PathBuf>,
    /// Ask for a provider's key and store it, as `trefoil auth login` does; for editors
    #[arg(long, conflicts_with = "attach")]
    pub login: bool,
}

/// How to answer an agent that asks for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PermissionPolicy {
    /// Ask on the terminal; without one, reject
    Ask,
    /// Allow everything, once
    Allow,
    /// Reject everything
    Reject,
}

/// `trefoil acp-client`.
#[derive(Debug, Clone, Args)]
pub struct AcpClient {
    /// The shell command that starts the agent, for example "opencode acp"
    #[arg(long, value_name = "CMD")]
    pub agent: String,
    /// The message; without one, print what the agent is and offers
    #[arg(value_name = "MESSAGE")]
    pub message: Vec<String>,
    /// Continue this session of the agent
    #[arg(long, short, value_name = "ID")]
    pub session: Option<String>,
    /// The model, by id or name
    #[arg(long, short)]
    pub model: Option<String>,
    /// The mode, by id or name
    #[arg(long)]
    pub mode: Option<String>,
    /// How to answer the agent's permission requests and forms: `ask`, `allow` or `reject`
    #[arg(long, value_enum, default_value = "ask", hide_possible_values = true)]
    pub permission: PermissionPolicy,
    /// The folder to work in; the agent gets no file and no terminal outside of it
    #[arg(long, value_name = "PATH")]
    pub root: Option<PathBuf>,
    /// Print everything the agent says, one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// How many seconds the agent may stay silent
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
}

/// `trefoil auth`.
#[derive(Debug, Subcommand)]
pub enum Auth {
    /// Store a provider's key; it is asked for, or read from standard input
    Login {
        /// The provider, for example openai or openrouter
        provider: Option<String>,
    },
    /// List the providers whose keys are stored or set in the environment
    #[command(visible_alias = "ls")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a provider's stored key
    Logout {
        /// The provider
        provider: String,
    },
}

/// `trefoil session`.
#[derive(Debug, Subcommand)]
pub enum Session {
    /// List this project's sessions, newest first
    List {
        /// List the sessions of every project
        #[arg(long)]
        all: bool,
        /// The maximum number to list
        #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
        limit: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a conversation
    Show {
        /// The session: an id, the part of one that is unique, or `last`
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a session as JSON to standard output
    Export {
        /// The session: an id, the part of one that is unique, or `last`
        id: String,
    },
    /// Import a file written by `export` as a session of this directory
    Import {
        /// The file; `-` is standard input
        file: PathBuf,
    },
    /// Delete sessions and their subagents
    Delete {
        /// The sessions: ids, unique parts of ids, or `last`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// `trefoil mcp`.
#[derive(Debug, Subcommand)]
pub enum Mcp {
    /// Connect to this directory's MCP servers and show their status
    #[command(visible_alias = "ls")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add an MCP server to your configuration
    Add(AddServer),
    /// Remove an MCP server from your configuration
    #[command(visible_alias = "rm")]
    Remove {
        /// The server's name
        name: String,
        /// Change this repository's configuration instead
        #[arg(long)]
        project: bool,
    },
    /// Sign in to an MCP server in the browser
    Auth {
        /// The server's name
        name: String,
    },
    /// Sign out of an MCP server
    Logout {
        /// The server's name
        name: String,
    },
}

/// `trefoil mcp add`.
#[derive(Debug, Args)]
pub struct AddServer {
    /// Its name, which prefixes the names of its tools
    pub name: String,
    /// The address of a remote server
    #[arg(long, conflicts_with = "command")]
    pub url: Option<String>,
    /// A header for a remote server; repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "url")]
    pub header: Vec<String>,
    /// An environment variable for a local server; repeatable
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "url")]
    pub env: Vec<String>,
    /// Change this repository's configuration instead
    #[arg(long)]
    pub project: bool,
    /// The command of a local server, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `trefoil agent`.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// List the agents, and those that you can add
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an agent's settings, rules and prompt
    Show {
        /// The agent's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Install an agent that ships with Trefoil
    Add {
        /// The agent's name
        name: String,
        /// Where to put it.
        #[command(flatten)]
        location: AgentLocation,
    },
    /// Create an agent as a markdown file
    Create(CreateAgent),
}

/// Where an agent's file goes.
#[derive(Debug, Clone, Default, Args)]
pub struct AgentLocation {
    /// Put it into your own configuration, for every project
    #[arg(long)]
    pub global: bool,
    /// Put it into this project's `.trefoil/agent`; the default
    #[arg(long, conflicts_with = "global")]
    pub project: bool,
    /// Put it into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["global", "project"])]
    pub path: Option<PathBuf>,
}

/// Who uses an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// You and other agents
    All,
    /// You
    Primary,
    /// Other agents
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

/// `trefoil agent create`.
#[derive(Debug, Clone, Args)]
pub struct CreateAgent {
    /// Its name: lower case letters, digits, dashes and underscores
    #[arg(long)]
    pub name: String,
    /// When to use it
    #[arg(long)]
    pub description: String,
    /// Its system prompt; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,
    /// Who can use it: `primary` for you, `subagent` for other agents, or `all`
    #[arg(long, value_enum, default_value = "all", hide_possible_values = true)]
    pub mode: Mode,
    /// Its model; its caller's by default
    #[arg(long, short, value_name = "PROVIDER/MODEL")]
    pub model: Option<String>,
    /// The only tools it may use, separated by commas; all by default
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub tools: Option<Vec<String>>,
    /// The temperature of its model
    #[arg(long, value_name = "N")]
    pub temperature: Option<f64>,
    /// The maximum number of steps in one turn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: Option<u32>,
    /// As a subagent, give it a git worktree of its own
    #[arg(long)]
    pub isolated: bool,
    /// Where to put it.
    #[command(flatten)]
    pub location: AgentLocation,
}

/// `trefoil worktree`.
#[derive(Debug, Subcommand)]
pub enum Worktree {
    /// List the worktrees of subagents
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a subagent's unmerged changes as a patch
    Diff {
        /// The subagent's session: an id, or the part of one that is unique
        id: String,
        /// Print only the names of the files
        #[arg(long)]
        stat: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Apply a subagent's changes to the original tree, uncommitted; all of them, or none on conflict
    Merge {
        /// The subagent's session: an id, or the part of one that is unique
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a subagent's worktree with its branch and changes
    Discard {
        /// The subagent's session: an id, or the part of one that is unique
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove worktrees without unmerged changes, and those left by a crash
    Clean {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `trefoil permission`.
#[derive(Debug, Subcommand)]
pub enum Permission {
    /// List the permissions that you granted for good, with their directories
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke permissions, so that you are asked again; effective at the next request
    Revoke {
        /// The ids that `list` shows
        #[arg(required_unless_present = "all", value_name = "ID")]
        ids: Vec<String>,
        /// Revoke all of them, in every directory
        #[arg(long, conflicts_with = "ids")]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `trefoil config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Print the configuration in effect and the files that it comes from
    Show {
        /// Print plain JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the files and directories that Trefoil reads and writes
    Path,
    /// Check every file: syntax, unknown keys, types, trust, settings without effect
    Check,
}

/// `trefoil trust`.
#[derive(Debug, Args)]
pub struct Trust {
    /// The repository; the current one by default
    pub path: Option<PathBuf>,
    /// List what you trust
    #[arg(long, conflicts_with_all = ["path", "revoke", "yes"])]
    pub list: bool,
    /// Stop trusting it
    #[arg(long, conflicts_with = "yes")]
    pub revoke: bool,
    /// Do not ask for confirmation
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
    fn sessions_are_controlled_by_their_id() {
        let cli = Cli::parse_from(["trefoil", "steer", "ses_1", "look", "here", "--attach", "http://x"]);
        let Some(Command::Steer { id, text, remote }) = cli.command else { panic!("not steer") };
        assert_eq!((id.as_str(), text.join(" ").as_str()), ("ses_1", "look here"));
        assert_eq!(remote.attach.as_deref(), Some("http://x"));
        let cli = Cli::parse_from(["trefoil", "budget", "ses_1", "--cost", "1.5", "--steps", "9"]);
        let Some(Command::Budget { bounds, .. }) = cli.command else { panic!("not budget") };
        assert_eq!((bounds.cost, bounds.steps, bounds.lift), (Some(1.5), Some(9), false));
        assert!(Cli::try_parse_from(["trefoil", "budget", "ses_1", "--lift", "--steps", "9"]).is_err());
    }

    #[test]
    fn run_takes_words_and_options_mixed() {
        let cli = Cli::parse_from(["trefoil", "run", "fix", "--agent", "plan", "the", "bug", "-f", "a", "-f", "b"]);
        let Some(Command::Run(run)) = cli.command else { panic!("not run") };
        assert_eq!(run.message, ["fix", "the", "bug"]);
        assert_eq!(run.agent.as_deref(), Some("plan"));
        assert_eq!(run.files.len(), 2);
    }
}
