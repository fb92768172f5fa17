//! The terminals of an agent: commands that the client runs for it. They end with the connection.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exec::{End, Exec, GRACE, KILL_WAIT, Spec};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::files::{Root, string};
use crate::lock;
use crate::rpc::{Error, code};

/// Terminals that may be open at the same time.
const MAX_OPEN_TERMINALS: usize = 64;
/// Released terminals that are remembered.
const MAX_RELEASED_TERMINALS: usize = 16;
/// The most output kept, in bytes; also the default.
const MAX_OUTPUT: usize = 1 << 20;
/// What `exec` itself keeps of the output; we keep the rest.
const EXEC_KEEP_BYTES: usize = 4 << 10;
/// How long commands may take to end when the connection closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(GRACE.as_secs() + KILL_WAIT.as_secs() + 1);
/// The shell for command lines, if it exists.
const BASH: &str = "/bin/bash";
/// The exit code that shells use for a command that cannot be started.
const EXIT_NOT_STARTED: i32 = 127;

/// The terminals of a connection.
pub(super) struct Terminals {
    exec: Exec,
    root: Root,
    open: Mutex<HashMap<String, Arc<Terminal>>>,
    /// The last released terminals: agents show a terminal in a call and release it before the call ends.
    released: Mutex<VecDeque<(String, Arc<Terminal>)>>,
    next_id: AtomicU64,
    tasks: TaskTracker,
    /// Ends all commands.
    stop: CancellationToken,
}

/// A command that an agent wants to run.
pub(super) struct CommandRequest {
    /// The command line as bash would read it, prefixed with its environment variables: these can change what a command
    /// does as much as its arguments.
    pub line: String,
    /// The script, if the command is just a shell with a script.
    pub script: Option<String>,
    /// Where it would run.
    pub directory: PathBuf,
}

struct Terminal {
    output: Mutex<OutputTail>,
    end: watch::Sender<Option<Value>>,
    kill: CancellationToken,
}

/// The end of a command's output.
struct OutputTail {
    text: String,
    limit: usize,
    truncated: bool,
}

impl OutputTail {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        // Not for every chunk: cutting moves the kept text.
        if self.text.len() > 2 * self.limit {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.text.len() > self.limit {
            let start = self.text.ceil_char_boundary(self.text.len() - self.limit);
            self.text.drain(..start);
            self.truncated = true;
        }
    }
}

impl Terminals {
    pub fn new(exec: Exec, root: Root, stop: CancellationToken) -> Self {
        Self {
            stop,
            exec,
            root,
            open: Mutex::default(),
            released: Mutex::default(),
            next_id: AtomicU64::new(1),
            tasks: TaskTracker::new(),
        }
    }

    /// Handles `terminal/create`.
    pub fn create(&self, params: &Value) -> Result<Value, Error> {
        let spec = self.spec(params)?;
        let limit = params["outputByteLimit"].as_u64().and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT);
        let terminal = Arc::new(Terminal {
            output: Mutex::new(OutputTail { text: String::new(), limit, truncated: false }),
            end: watch::Sender::new(None),
            kill: self.stop.child_token(),
        });
        let id = format!("term_{}", self.next_id.fetch_add(1, Ordering::Relaxed));
        {
            let mut open = lock(&self.open);
            if open.len() >= MAX_OPEN_TERMINALS {
                return Err(Error::internal(format!(
                    "{MAX_OPEN_TERMINALS} terminals are open already; release some of them"
                )));
            }
            open.insert(id.clone(), terminal.clone());
        }
        let exec = self.exec.clone();
        self.tasks.spawn(async move {
            let mut push = |text: &str| lock(&terminal.output).push(text);
            let ended = exec.run(spec, terminal.kill.clone(), &mut push).await;
            let status = match ended.map(|outcome| outcome.end) {
                Ok(end) => exit_status(end),
                Err(error) => {
                    push(&format!("{error}\n"));
                    json!({"exitCode": EXIT_NOT_STARTED, "signal": null})
                }
            };
            terminal.end.send_replace(Some(status));
        });
        Ok(json!({ "terminalId": id }))
    }

    fn spec(&self, params: &Value) -> Result<Spec, Error> {
        let command = string(params, "command")?;
        let texts = |list: &Value| -> Vec<OsString> {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).map(OsString::from).collect()
        };
        let cwd = self.root.working_directory(params["cwd"].as_str())?;
        let args = texts(&params["args"]);
        // Some agents send a whole command line. Permission rules read command lines as bash does.
        let mut spec = if args.is_empty() && command.contains(char::is_whitespace) {
            let shell = [BASH, "/bin/sh"].map(Path::new).into_iter().find(|shell| shell.exists());
            Spec::shell(shell.unwrap_or(Path::new("/bin/sh")), command, &cwd)
        } else {
            Spec::new(command, args, cwd)
        };
        spec.keep_bytes = EXEC_KEEP_BYTES;
        for variable in params["env"].as_array().into_iter().flatten() {
            if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
                // A name that cannot be written before a command could not be judged there.
                if !is_variable_name(name) {
                    return Err(Error::invalid_params(format!(
                        "{name:?} is not a valid name of an environment variable"
                    )));
                }
                spec.env.push((name.into(), value.into()));
            }
        }
        Ok(spec)
    }

    fn find(&self, params: &Value) -> Result<Arc<Terminal>, Error> {
        let id = string(params, "terminalId")?;
        let found = lock(&self.open).get(id).cloned();
        found.ok_or_else(|| Error::new(code::NOT_FOUND, format!("There is no terminal {id}")))
    }

    /// Handles `terminal/output`.
    pub fn output(&self, params: &Value) -> Result<Value, Error> {
        let terminal = self.find(params)?;
        let status = terminal.end.borrow().clone();
        let mut output = lock(&terminal.output);
        output.cut();
        Ok(json!({"output": output.text, "truncated": output.truncated, "exitStatus": status}))
    }

    /// Handles `terminal/wait_for_exit`.
    pub async fn wait(&self, params: &Value) -> Result<Value, Error> {
        let mut end = self.find(params)?.end.subscribe();
        let ended = end.wait_for(Option::is_some).await;
        let status = ended.ok().and_then(|status| status.clone());
        status.ok_or_else(|| Error::internal("The terminal failed unexpectedly"))
    }

    /// Handles `terminal/kill`.
    pub fn kill(&self, params: &Value) -> Result<Value, Error> {
        self.find(params)?.kill.cancel();
        Ok(json!({}))
    }

    /// Handles `terminal/release`.
    pub fn release(&self, params: &Value) -> Result<Value, Error> {
        self.find(params)?.kill.cancel();
        let id = string(params, "terminalId")?;
        let found = lock(&self.open).remove(id);
        let mut released = lock(&self.released);
        released.extend(found.map(|terminal| (id.to_owned(), terminal)));
        if released.len() > MAX_RELEASED_TERMINALS {
            released.pop_front();
        }
        Ok(json!({}))
    }

    /// Whether a command is running.
    pub fn is_running(&self) -> bool {
        lock(&self.open).values().any(|terminal| terminal.end.borrow().is_none())
    }

    /// The output of a terminal, open or recently released.
    pub fn text(&self, id: &str) -> Option<String> {
        let open = lock(&self.open).get(id).cloned();
        let released = || lock(&self.released).iter().find(|(known, _)| known == id).map(|(_, found)| found.clone());
        let terminal = open.or_else(released)?;
        let mut output = lock(&terminal.output);
        output.cut();
        Some(output.text.clone())
    }

    /// The command that `terminal/create` asks for.
    pub fn command_request(&self, params: &Value) -> Result<CommandRequest, Error> {
        let spec = self.spec(params)?;
        let words: Vec<_> =
            std::iter::once(&spec.program).chain(&spec.args).map(|word| word.to_string_lossy()).collect();
        let (mut script, mut bash) = (None, false);
        if let [shell, flag, line] = &words[..]
            && matches!(flag.as_ref(), "-c" | "-lc")
            && spec.env.is_empty()
        {
            let shells = ["bash", BASH, "/usr/bin/bash", "sh", "/bin/sh", "zsh", "/bin/zsh", "/usr/bin/zsh"];
            let known = shells.iter().position(|known| *known == shell.as_ref());
            script = known.map(|_| line.to_string());
            bash = known.is_some_and(|place| place < 3);
        }
        // A script for another shell reads as bash only in part, so the shell's name stays.
        let line = match &script {
            Some(script) if bash => script.clone(),
            _ => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
        };
        let variable = |(name, value): &(OsString, OsString)| {
            format!("{}={} ", name.to_string_lossy(), quote(&value.to_string_lossy()))
        };
        let line = spec.env.iter().map(variable).collect::<String>() + &line;
        Ok(CommandRequest { line, script, directory: spec.cwd })
    }

    /// Ends all commands and waits for them.
    pub async fn close(&self) {
        self.stop.cancel();
        lock(&self.open).clear();
        self.tasks.close();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.tasks.wait()).await.is_err() {
            tracing::warn!("a command of the agent did not end");
        }
    }
}

/// Whether a text is a valid name of a shell variable.
fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Quotes a word for a shell.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./=:,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn exit_status(end: End) -> Value {
    match end {
        End::Exited(code) => json!({"exitCode": code, "signal": null}),
        End::Signalled(signal) => json!({"exitCode": null, "signal": signal_name(signal)}),
        End::TimedOut | End::Cancelled => json!({"exitCode": null, "signal": "SIGTERM"}),
    }
}

/// The name of a common signal, the number of any other.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        other => return other.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminals() -> (tempfile::TempDir, Terminals) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path()).unwrap();
        (folder, Terminals::new(Exec::direct(), root, CancellationToken::new()))
    }

    #[tokio::test]
    async fn a_command_runs_in_the_root_and_its_output_is_kept() {
        let (_folder, terminals) = terminals();
        let made = terminals.create(&json!({"command": "/bin/sh", "args": ["-c", "pwd; echo $GREETING; exit 3"],
            "env": [{"name": "GREETING", "value": "héllo"}]}));
        let made = made.unwrap();
        assert_eq!(terminals.wait(&made).await.unwrap()["exitCode"], 3);
        let output = terminals.output(&made).unwrap();
        assert_eq!(output["output"], format!("{}\nhéllo\n", terminals.root.path().display()));
        assert_eq!((&output["truncated"], &output["exitStatus"]["exitCode"]), (&json!(false), &json!(3)));
        terminals.release(&made).unwrap();
        assert_eq!(terminals.output(&made).unwrap_err().code, code::NOT_FOUND);
        assert!(terminals.create(&json!({"command": "pwd", "cwd": "/"})).is_err());
    }

    #[test]
    fn the_judged_command_line_is_what_would_run() {
        let (_folder, terminals) = terminals();
        let variable = |name: &str, value: &str| json!([{"name": name, "value": value}]);
        for (params, want) in [
            (json!({"command": "git", "args": ["status", "a b"]}), "git status 'a b'"),
            (json!({"command": "git status && ls"}), "git status && ls"),
            (json!({"command": "bash", "args": ["-lc", "git status"]}), "git status"),
            (json!({"command": "sh", "args": ["-c", "git status"]}), "sh -c 'git status'"),
            (json!({"command": "/usr/bin/zsh", "args": ["-c", "=rm x"]}), "/usr/bin/zsh -c '=rm x'"),
            (json!({"command": "./bash", "args": ["-c", "ls"]}), "./bash -c ls"),
            (
                json!({"command": "git", "args": ["status"], "env": variable("GIT_CONFIG_COUNT", "1")}),
                "GIT_CONFIG_COUNT=1 git status",
            ),
            (json!({"command": "ls", "env": variable("PATH", "/tmp/x y")}), "PATH='/tmp/x y' ls"),
            (
                json!({"command": "git status; ls", "env": variable("LD_PRELOAD", "x")}),
                "LD_PRELOAD=x /bin/bash -c 'git status; ls'",
            ),
        ] {
            assert_eq!(terminals.command_request(&params).unwrap().line, want, "{params}");
        }
        for name in ["", "a.b", "1X", "A B", "BASH_FUNC_ls%%", "A=B"] {
            assert!(
                terminals.command_request(&json!({"command": "ls", "env": variable(name, "x")})).is_err(),
                "{name}"
            );
        }
    }

    #[tokio::test]
    async fn only_the_end_of_the_output_is_kept() {
        let (_folder, terminals) = terminals();
        let made = terminals.create(&json!({"command": "printf 1234567890é", "outputByteLimit": 3})).unwrap();
        terminals.wait(&made).await.unwrap();
        let output = terminals.output(&made).unwrap();
        assert_eq!((&output["output"], &output["truncated"]), (&json!("0é"), &json!(true)));
    }

    #[tokio::test]
    async fn any_output_limit_is_accepted() {
        let (_folder, terminals) = terminals();
        for (limit, kept) in [
            (json!(0), ""),
            (json!(u64::MAX), "1234567890"),
            (json!(-1), "1234567890"),
            (json!(1e300), "1234567890"),
            (json!("3"), "1234567890"),
        ] {
            let made = terminals.create(&json!({"command": "printf 1234567890", "outputByteLimit": limit})).unwrap();
            terminals.wait(&made).await.unwrap();
            assert_eq!(terminals.output(&made).unwrap()["output"], kept, "{limit}");
        }
    }

    #[tokio::test]
    async fn commands_end_when_killed_and_with_the_connection() {
        let (_folder, terminals) = terminals();
        let made = terminals.create(&json!({"command": "sleep 100"})).unwrap();
        terminals.kill(&made).unwrap();
        assert_eq!(terminals.wait(&made).await.unwrap()["signal"], "SIGTERM");
        let other = terminals.create(&json!({"command": "sleep 100"})).unwrap();
        let wait = terminals.wait(&other);
        let (status, ()) = tokio::join!(wait, terminals.close());
        assert_eq!(status.unwrap()["signal"], "SIGTERM");
    }
}
