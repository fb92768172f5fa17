//! The commands that an agent has run for it. They end with the connection.

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

use super::files::{Root, text};
use crate::lock;
use crate::rpc::{Error, code};

/// Terminals that are open at once.
const MAX_OPEN: usize = 64;
/// Terminals that are remembered after their release.
const MAX_RELEASED: usize = 16;
/// What is kept of the output at most, in bytes, and if the agent does not say how much it wants.
const MAX_OUTPUT: usize = 1 << 20;
/// What the runner itself keeps of it; the rest is ours.
const RUNNER_KEEPS: usize = 4 << 10;
/// How long commands may take to be gone when the connection ends.
const LEAVE: Duration = Duration::from_secs(GRACE.as_secs() + KILL_WAIT.as_secs() + 1);
/// The shell for command lines, if it is there.
const BASH: &str = "/bin/bash";
/// What shells answer for a command that cannot be started.
const NOT_STARTED: i32 = 127;

/// The terminals of a connection.
pub(super) struct Terminals {
    exec: Exec,
    root: Root,
    open: Mutex<HashMap<String, Arc<Terminal>>>,
    /// What was released last: agents show a terminal in a call and release it before the call ends.
    released: Mutex<VecDeque<(String, Arc<Terminal>)>>,
    next: AtomicU64,
    tasks: TaskTracker,
    /// Ends them all.
    stop: CancellationToken,
}

/// A command that an agent asks for.
pub(super) struct Wanted {
    /// The command line as bash would read it. Its environment stands in front of it: that can change what a command does as
    /// much as its arguments.
    pub line: String,
    /// What a shell would be given, if that is all there is to it.
    pub script: Option<String>,
    /// Where it would run.
    pub directory: PathBuf,
}

struct Terminal {
    output: Mutex<Kept>,
    end: watch::Sender<Option<Value>>,
    kill: CancellationToken,
}

/// The end of an output.
struct Kept {
    text: String,
    limit: usize,
    truncated: bool,
}

impl Kept {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        // Not at every piece: what is kept is moved each time.
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
            next: AtomicU64::new(1),
            tasks: TaskTracker::new(),
        }
    }

    /// Answers `terminal/create`.
    pub fn create(&self, params: &Value) -> Result<Value, Error> {
        let spec = self.spec(params)?;
        let limit = params["outputByteLimit"].as_u64().and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(MAX_OUTPUT).min(MAX_OUTPUT);
        let terminal = Arc::new(Terminal {
            output: Mutex::new(Kept { text: String::new(), limit, truncated: false }),
            end: watch::Sender::new(None),
            kill: self.stop.child_token(),
        });
        let id = format!("term_{}", self.next.fetch_add(1, Ordering::Relaxed));
        {
            let mut open = lock(&self.open);
            if open.len() >= MAX_OPEN {
                return Err(Error::internal(format!("{MAX_OPEN} terminals are open already; release some of them")));
            }
            open.insert(id.clone(), terminal.clone());
        }
        let exec = self.exec.clone();
        self.tasks.spawn(async move {
            let mut push = |text: &str| lock(&terminal.output).push(text);
            let ended = exec.run(spec, terminal.kill.clone(), &mut push).await;
            let status = match ended.map(|outcome| outcome.end) {
                Ok(end) => status(end),
                Err(error) => {
                    push(&format!("{error}\n"));
                    json!({"exitCode": NOT_STARTED, "signal": null})
                }
            };
            terminal.end.send_replace(Some(status));
        });
        Ok(json!({ "terminalId": id }))
    }

    fn spec(&self, params: &Value) -> Result<Spec, Error> {
        let command = text(params, "command")?;
        let texts = |list: &Value| -> Vec<OsString> {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).map(OsString::from).collect()
        };
        let cwd = self.root.folder(params["cwd"].as_str())?;
        let args = texts(&params["args"]);
        // Agents of others give a whole command line too. Command lines are judged as bash reads them.
        let mut spec = if args.is_empty() && command.contains(char::is_whitespace) {
            let shell = [BASH, "/bin/sh"].map(Path::new).into_iter().find(|shell| shell.exists());
            Spec::shell(shell.unwrap_or(Path::new("/bin/sh")), command, &cwd)
        } else {
            Spec::new(command, args, cwd)
        };
        spec.keep_bytes = RUNNER_KEEPS;
        for variable in params["env"].as_array().into_iter().flatten() {
            if let (Some(name), Some(value)) = (variable["name"].as_str(), variable["value"].as_str()) {
                // Another name could not be written in front of a command, so it could not be judged there.
                if !is_name(name) {
                    return Err(Error::invalid_params(format!("{name:?} is no name of an environment variable")));
                }
                spec.env.push((name.into(), value.into()));
            }
        }
        Ok(spec)
    }

    fn find(&self, params: &Value) -> Result<Arc<Terminal>, Error> {
        let id = text(params, "terminalId")?;
        let found = lock(&self.open).get(id).cloned();
        found.ok_or_else(|| Error::new(code::NOT_FOUND, format!("There is no terminal {id}")))
    }

    /// Answers `terminal/output`.
    pub fn output(&self, params: &Value) -> Result<Value, Error> {
        let terminal = self.find(params)?;
        let status = terminal.end.borrow().clone();
        let mut output = lock(&terminal.output);
        output.cut();
        Ok(json!({"output": output.text, "truncated": output.truncated, "exitStatus": status}))
    }

    /// Answers `terminal/wait_for_exit`.
    pub async fn wait(&self, params: &Value) -> Result<Value, Error> {
        let mut end = self.find(params)?.end.subscribe();
        let ended = end.wait_for(Option::is_some).await;
        let status = ended.ok().and_then(|status| status.clone());
        status.ok_or_else(|| Error::internal("The terminal broke down"))
    }

    /// Answers `terminal/kill`.
    pub fn kill(&self, params: &Value) -> Result<Value, Error> {
        self.find(params)?.kill.cancel();
        Ok(json!({}))
    }

    /// Answers `terminal/release`.
    pub fn release(&self, params: &Value) -> Result<Value, Error> {
        self.find(params)?.kill.cancel();
        let id = text(params, "terminalId")?;
        let found = lock(&self.open).remove(id);
        let mut released = lock(&self.released);
        released.extend(found.map(|terminal| (id.to_owned(), terminal)));
        if released.len() > MAX_RELEASED {
            released.pop_front();
        }
        Ok(json!({}))
    }

    /// Whether a command runs.
    pub fn is_running(&self) -> bool {
        lock(&self.open).values().any(|terminal| terminal.end.borrow().is_none())
    }

    /// What a terminal shows, or showed when it was released.
    pub fn text(&self, id: &str) -> Option<String> {
        let open = lock(&self.open).get(id).cloned();
        let released = || lock(&self.released).iter().find(|(known, _)| known == id).map(|(_, found)| found.clone());
        let terminal = open.or_else(released)?;
        let mut output = lock(&terminal.output);
        output.cut();
        Some(output.text.clone())
    }

    /// What `terminal/create` asks for.
    pub fn wanted(&self, params: &Value) -> Result<Wanted, Error> {
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
        // What another shell is given reads as bash only in part: its name stays.
        let line = match &script {
            Some(script) if bash => script.clone(),
            _ => words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
        };
        let variable = |(name, value): &(OsString, OsString)| {
            format!("{}={} ", name.to_string_lossy(), quote(&value.to_string_lossy()))
        };
        let line = spec.env.iter().map(variable).collect::<String>() + &line;
        Ok(Wanted { line, script, directory: spec.cwd })
    }

    /// Ends them all.
    pub async fn close(&self) {
        self.stop.cancel();
        lock(&self.open).clear();
        self.tasks.close();
        if tokio::time::timeout(LEAVE, self.tasks.wait()).await.is_err() {
            tracing::warn!("a command of the agent does not end");
        }
    }
}

/// Whether a shell takes a text for the name of a variable.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A word as a shell would read it.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./=:,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn status(end: End) -> Value {
    match end {
        End::Exited(code) => json!({"exitCode": code, "signal": null}),
        End::Signalled(signal) => json!({"exitCode": null, "signal": name(signal)}),
        End::TimedOut | End::Cancelled => json!({"exitCode": null, "signal": "SIGTERM"}),
    }
}

/// The name of a signal that ends programs now and then, the number of others.
fn name(signal: i32) -> String {
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
    async fn a_command_runs_in_the_root_and_its_end_is_kept() {
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
    fn what_is_judged_is_what_would_run() {
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
            assert_eq!(terminals.wanted(&params).unwrap().line, want, "{params}");
        }
        for name in ["", "a.b", "1X", "A B", "BASH_FUNC_ls%%", "A=B"] {
            assert!(terminals.wanted(&json!({"command": "ls", "env": variable(name, "x")})).is_err(), "{name}");
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
    async fn they_end_when_they_are_killed_and_with_the_connection() {
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
