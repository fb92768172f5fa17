//! The help: commands in groups, examples for each command, and lines that fit the terminal.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use crate::args::Cli;
use crate::exit;
use crate::terminal::wrap;

/// The longest line: longer ones are hard to read.
const MAX_WIDTH: usize = 100;
/// A narrower terminal wraps lines itself.
const MIN_WIDTH: usize = 40;

/// The commands, in the order in which people need them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Get started", &["run", "demo", "auth", "doctor"]),
    ("Sessions", &["session", "tree", "steer", "pause", "resume", "cancel", "budget", "worktree"]),
    ("Servers and editors", &["serve", "a2a", "acp", "acp-client"]),
    ("Models, agents and tools", &["models", "agent", "mcp"]),
    ("Settings and upkeep", &["config", "trust", "permission", "gc", "completion", "help"]),
];

/// A command line, and what it does.
type Example = (&'static str, &'static str);

/// The examples of each command.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            ("trefoil demo", "See it work, without a model or a key"),
            ("trefoil auth login openai", "Store the key of a model provider"),
            ("trefoil run \"explain this repository\"", "Give it a first task"),
        ],
    ),
    (
        "run",
        &[
            ("trefoil run \"fix the failing test\"", "Start a session with a task"),
            ("trefoil run -c \"now add a test for it\"", "Continue the last session"),
            ("trefoil run -m openai/gpt-5 -f shot.png \"why?\"", "Choose a model and attach an image"),
            ("git diff | trefoil run \"review this\"", "Add piped text to the task"),
            ("trefoil run -y --format json \"bump the deps\"", "Run unattended and read events as JSON"),
        ],
    ),
    ("demo", &[("trefoil demo", "Play it offline"), ("trefoil demo -m openai/gpt-5-mini", "Let a real model do it")]),
    (
        "auth",
        &[
            ("trefoil auth login openrouter", "Type a key, which is not shown"),
            ("trefoil auth login openai < key.txt", "Read a key from a file"),
            ("trefoil auth list", "See which providers have a key"),
        ],
    ),
    ("auth login", &[("trefoil auth login openai", "Store the key of OpenAI")]),
    ("auth list", &[("trefoil auth list", "See which providers have a key")]),
    ("auth logout", &[("trefoil auth logout openai", "Remove the stored key of OpenAI")]),
    ("doctor", &[("trefoil doctor", "Find out what is missing"), ("trefoil doctor --json", "The same for a program")]),
    (
        "session",
        &[
            ("trefoil session list", "See this project's sessions"),
            ("trefoil session show last", "Read the last conversation"),
            ("trefoil session export last > session.json", "Save it to a file"),
        ],
    ),
    ("session list", &[("trefoil session list --all -n 50", "See the newest sessions of all projects")]),
    ("session show", &[("trefoil session show last", "Read the last conversation")]),
    ("session export", &[("trefoil session export last > session.json", "Save the last session to a file")]),
    ("session import", &[("trefoil session import session.json", "Read a session from a file")]),
    ("session delete", &[("trefoil session delete last", "Delete the last session")]),
    (
        "tree",
        &[
            ("trefoil tree last", "See what the last session spent"),
            ("trefoil tree last --watch", "Watch it work"),
            ("trefoil tree last -w --attach http://127.0.0.1:4096", "On a server, Trefoil or OpenCode"),
        ],
    ),
    ("steer", &[("trefoil steer last \"use the v2 API\"", "Correct the agent while it works")]),
    ("pause", &[("trefoil pause last", "Hold the last session")]),
    ("resume", &[("trefoil resume last", "Let it continue")]),
    ("cancel", &[("trefoil cancel last", "Stop the last session")]),
    (
        "budget",
        &[
            ("trefoil budget last", "See the limits and what is used"),
            ("trefoil budget last --cost 2 --steps 100", "Allow two dollars and 100 model calls"),
        ],
    ),
    (
        "worktree",
        &[
            ("trefoil worktree list", "See which subagents have a worktree"),
            ("trefoil worktree merge ses_1a2b", "Take over what one of them changed"),
        ],
    ),
    ("worktree list", &[("trefoil worktree list", "See which subagents have a worktree")]),
    ("worktree diff", &[("trefoil worktree diff ses_1a2b --stat", "See which files a subagent changed")]),
    ("worktree merge", &[("trefoil worktree merge ses_1a2b", "Take over what a subagent changed")]),
    ("worktree discard", &[("trefoil worktree discard ses_1a2b", "Throw away what a subagent changed")]),
    ("worktree clean", &[("trefoil worktree clean", "Remove worktrees that nobody needs")]),
    (
        "serve",
        &[
            ("trefoil serve", "Serve on http://127.0.0.1:4096"),
            ("A2A_BEARER_TOKEN=secret trefoil serve --a2a", "Serve A2A on the same port, below /a2a"),
            ("opencode attach http://127.0.0.1:4096", "Connect OpenCode's terminal client"),
            ("trefoil run --attach http://127.0.0.1:4096 hi", "Work on that server"),
        ],
    ),
    (
        "a2a",
        &[
            ("A2A_BEARER_TOKEN=secret trefoil a2a", "Serve on http://127.0.0.1:8000"),
            ("trefoil a2a --no-auth --port 0", "Try it on a free port, without credentials"),
            ("OPENCODE_BASE_URL=http://127.0.0.1:4096 trefoil a2a", "In front of an `opencode serve`"),
            ("trefoil a2a call http://127.0.0.1:8000 hi", "Send a message to another agent"),
        ],
    ),
    (
        "a2a call",
        &[
            ("trefoil a2a call http://127.0.0.1:8000 \"what changed?\"", "Send it a message"),
            ("trefoil a2a call http://127.0.0.1:8000 --task ID yes", "Answer what it asks"),
        ],
    ),
    ("a2a card", &[("trefoil a2a card http://127.0.0.1:8000", "See what it is and offers")]),
    (
        "acp",
        &[("trefoil acp", "What an editor starts"), ("trefoil acp --attach http://127.0.0.1:4096", "Work on a server")],
    ),
    (
        "acp-client",
        &[
            ("trefoil acp-client --agent \"opencode acp\"", "See what an agent offers"),
            ("trefoil acp-client --agent \"opencode acp\" hi", "Send it a message"),
        ],
    ),
    ("models", &[("trefoil models", "List all models"), ("trefoil models openai", "List the models of a provider")]),
    (
        "agent",
        &[("trefoil agent list", "See which agents there are"), ("trefoil agent show build", "See what one may do")],
    ),
    ("agent list", &[("trefoil agent list", "See which agents there are")]),
    ("agent show", &[("trefoil agent show build", "See what an agent may do")]),
    ("agent add", &[("trefoil agent add codebase-locator", "Install an agent for this project")]),
    (
        "agent create",
        &[(
            "trefoil agent create --name tester \\\n    --description \"Writes tests\" \\\n    --prompt \"You write tests.\"",
            "Create an agent for this project",
        )],
    ),
    (
        "mcp",
        &[
            ("trefoil mcp list", "See the status of each server"),
            ("trefoil mcp add docs --url https://example.com/mcp", "Add a remote server"),
            ("trefoil mcp add fs -- npx my-mcp-server .", "Add a local server"),
        ],
    ),
    ("mcp list", &[("trefoil mcp list", "See the status of each server")]),
    (
        "mcp add",
        &[
            ("trefoil mcp add docs --url https://example.com/mcp", "Add a remote server"),
            ("trefoil mcp add fs -- npx my-mcp-server .", "Add a local server"),
        ],
    ),
    ("mcp remove", &[("trefoil mcp remove docs", "Remove a server from your configuration")]),
    ("mcp auth", &[("trefoil mcp auth docs", "Sign in to a server")]),
    ("mcp logout", &[("trefoil mcp logout docs", "Sign out of a server")]),
    (
        "config",
        &[
            ("trefoil config show", "See the settings in effect"),
            ("trefoil config check", "Find mistakes in configuration files"),
        ],
    ),
    ("config show", &[("trefoil config show --json", "Print the settings in effect as JSON")]),
    ("config path", &[("trefoil config path", "See where files are")]),
    ("config check", &[("trefoil config check", "Find mistakes in configuration files")]),
    ("trust", &[("trefoil trust", "Review and trust this repository"), ("trefoil trust --list", "See what you trust")]),
    (
        "permission",
        &[
            ("trefoil permission list", "See what you allowed for good"),
            ("trefoil permission revoke --all", "Be asked again for everything"),
        ],
    ),
    ("permission list", &[("trefoil permission list", "See what you allowed for good")]),
    ("permission revoke", &[("trefoil permission revoke --all", "Be asked again for everything")]),
    ("gc", &[("trefoil gc --dry-run", "See what would be freed")]),
    ("completion", &[("trefoil completion bash > trefoil.bash", "Write a script for bash to source")]),
];

/// What `trefoil` prints without arguments.
pub fn welcome() -> String {
    format!(
        "Trefoil {}: a coding agent for terminals, editors and OpenCode's clients.\n\
         It reads your repository, edits files, runs commands and checks its work.\n\
         \n\
         Try next:\n  \
           trefoil demo                            watch it fix a bug; it needs no key\n  \
           trefoil auth login openai               store the key of a model provider\n  \
           trefoil run \"explain this repository\"   give it a task in this directory\n\
         \n\
         `trefoil doctor` says what is missing, `trefoil --help` lists all commands.\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// The command line with its complete help, for a terminal of that width.
pub fn command(columns: usize) -> Command {
    let width = columns.clamp(MIN_WIDTH, MAX_WIDTH);
    let mut command = Cli::command().term_width(width);
    // Gives every command its full name, which its usage shows.
    command.build();
    let groups = groups(&command, width);
    let command = decorate(command, "", width);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// Adds usage, examples and exit codes to a command and all its subcommands.
fn decorate(command: Command, path: &str, width: usize) -> Command {
    let mut after = examples(path, width);
    if matches!(path, "run" | "acp-client" | "a2a call") {
        after += &format!("\n{}", exit_codes(width));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim_end().to_owned();
    let command = command.override_usage(wrap(&usage, "Usage: ".len(), width)).after_help(after.trim_end().to_owned());
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    names.into_iter().filter(|name| name != "help").fold(command, |command, name| {
        let path = format!("{path} {name}").trim_start().to_owned();
        command.mut_subcommand(name, |below| decorate(below, &path, width))
    })
}

fn groups(command: &Command, width: usize) -> String {
    let about = |name: &str| {
        let found = command.get_subcommands().find(|below| below.get_name() == name);
        found.and_then(Command::get_about).map(ToString::to_string).unwrap_or_default()
    };
    let column = GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for name in names {
            let _ = writeln!(text, "  {name:column$}  {}", wrap(&about(name), column + 4, width));
        }
        text.push('\n');
    }
    text
}

fn examples(path: &str, width: usize) -> String {
    let Some((_, examples)) = EXAMPLES.iter().find(|(of, _)| *of == path) else { return String::new() };
    let mut text = "Examples:\n".to_owned();
    for (line, what) in *examples {
        let _ = writeln!(text, "  # {}\n  {line}", wrap(what, 4, width));
    }
    text
}

fn exit_codes(width: usize) -> String {
    let codes = exit::EXIT_CODES.iter().map(|(code, what)| format!("  {code:>3}  {}\n", wrap(what, 7, width)));
    format!("Exit codes:\n{}", codes.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    /// Every command with its path, the program itself included.
    fn all(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
        found.push((path.to_owned(), command.clone()));
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            all(below, format!("{path} {}", below.get_name()).trim(), found);
        }
    }

    fn commands(width: usize) -> Vec<(String, Command)> {
        let mut found = Vec::new();
        all(&command(width), "", &mut found);
        assert!(found.len() > 40, "{}", found.len());
        found
    }

    fn text(command: &Command) -> String {
        command.clone().render_help().to_string()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [60, 80, 120] {
            for (path, command) in commands(width) {
                for help in [text(&command), command.clone().render_long_help().to_string()] {
                    for line in help.lines() {
                        assert!(line.chars().count() <= width, "{width}, trefoil {path}:\n{line}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_command_says_what_it_does_and_shows_an_example() {
        for (path, command) in commands(80) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && about.chars().count() <= 100, "trefoil {path}: {about:?}");
            assert!(path.is_empty() || !about.ends_with('.'), "trefoil {path}: {about:?}");
            assert!(text(&command).contains("Examples:\n"), "trefoil {path} has no example");
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty() && !help.ends_with('.'), "trefoil {path} {}: {help:?}", argument.get_id());
            }
        }
    }

    #[test]
    fn every_command_is_in_one_group_and_the_help_lists_it() {
        let help = text(&command(80));
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = command(80);
        let mut known: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        for name in &known {
            assert!(help.lines().any(|line| line.trim_start().split(' ').next() == Some(name)), "{name}:\n{help}");
        }
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn options_have_the_right_heading() {
        use crate::args::{ACCESS, GLOBAL, MODEL, SERVER, SESSION};
        for (path, command) in commands(80) {
            for argument in command.get_arguments() {
                let want = match argument.get_id().as_str() {
                    "log_level" | "print_logs" => Some(GLOBAL),
                    "attach" | "dir" => Some(SERVER),
                    "cors" | "allow_host" | "password" | "no_auth" => Some(ACCESS),
                    "last" | "session" | "title" if path == "run" => Some(SESSION),
                    "model" | "variant" | "agent" | "script" if matches!(&*path, "run" | "serve" | "a2a" | "acp") => {
                        Some(MODEL)
                    }
                    _ => None,
                };
                assert_eq!(argument.get_help_heading(), want, "trefoil {path} {}", argument.get_id());
            }
        }
    }

    #[test]
    fn examples_are_valid_command_lines() {
        let paths: Vec<String> = commands(80).into_iter().map(|(path, _)| path).collect();
        for (path, examples) in EXAMPLES {
            assert!(paths.iter().any(|known| known == path), "there is no command {path:?}");
            for (line, what) in *examples {
                let line = line.replace("\\\n", " ");
                // Without what the shell does.
                let line = line.split(" > ").next().unwrap().split(" < ").next().unwrap();
                let line = line.rsplit(" | ").next().unwrap();
                assert!(!what.is_empty(), "{line}");
                if line.starts_with("trefoil") {
                    let parsed = Cli::try_parse_from(words(line));
                    assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                }
            }
        }
    }

    /// The words of a command line that has no shell syntax but quotes.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                c => words.last_mut().unwrap().push(c),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn the_welcome_is_short_and_its_commands_exist() {
        let welcome = welcome();
        assert!(welcome.lines().count() <= 10, "{welcome}");
        assert!(welcome.lines().all(|line| line.chars().count() <= 80), "{welcome}");
        let tried: Vec<&str> = welcome.lines().filter(|line| line.starts_with("  trefoil")).collect();
        assert_eq!(tried.len(), 3);
        for line in tried {
            let line = line.trim().split("   ").next().unwrap();
            assert!(Cli::try_parse_from(words(line)).is_ok(), "{line}");
        }
    }
}
