//! Command lines that try to get around the rules. Each is run for real first, since one that does not work in bash
//! proves nothing. Then the real tool states its needs and the real rules decide.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use api::{Action, MessageId, Rule, SessionId};
use serde_json::json;
use tools::{Context, LocalEnvironment, Progress, Registry, RegistryOptions};

use super::decide;

/// The timeout of one command line, in seconds.
const TIMEOUT_SECONDS: &str = "20";

/// Stands for a newline in the lists.
const LINE_END: char = '⏎';

/// A folder with a workspace and a place outside it.
struct Scratch {
    folder: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["work/.git/objects", "work/.git/refs", "work/h", "work/x/git", "work/b", "out"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let evil = "[core]\nfsmonitor=touch pwned;false\n";
        let program = "#!/bin/sh\ntouch pwned\n";
        for (name, content) in [
            ("work/victim", "x\n"),
            ("work/a", "a\n"),
            ("work/.git/HEAD", "ref: refs/heads/main\n"),
            ("work/.git/config", "[user]\nname=a\nemail=a\n[protocol \"ext\"]\nallow=always\n"),
            ("work/c", evil),
            ("work/h/.gitconfig", evil),
            ("work/x/git/config", evil),
            ("work/b/git", program),
            ("out/s", "TOP SECRET\n"),
            ("out/l", &format!("{}/out/s\n", folder.path().display())),
            ("out/p", "TOP\n"),
            ("out/z", &format!("{}/out/s\0", folder.path().display())),
            ("out/Makefile", "x:;@cat s\n"),
        ] {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path().join("work/b/git"), mode).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command line and returns its output.
    fn run(&self, form: &str) -> String {
        let mut command = Command::new("timeout");
        command.args(["-k", "1", TIMEOUT_SECONDS, "bash", "-c", form]).current_dir(self.path("work")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.path("work"));
        command.env("LANG", "C").env("SHELL", "/bin/bash").env("OUTSIDE", self.path("out"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn files_outside(&self) -> usize {
        std::fs::read_dir(self.path("out")).unwrap().count()
    }
}

/// The entries of a list that can run here, and the number of those that cannot.
fn entries(list: &str) -> (Vec<String>, usize) {
    let (mut usable, mut left_out) = (Vec::new(), 0);
    let mut here = true;
    for line in list.lines() {
        if let Some(class) = line.strip_prefix("#:") {
            here = class.split_whitespace().nth(1).is_none_or(is_installed);
        } else if !line.starts_with('#') {
            if here {
                usable.push(line.replace(LINE_END, "\n"));
            } else {
                left_out += 1;
            }
        }
    }
    (usable, left_out)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    program == "ld.so" || path.split(':').any(|folder| Path::new(folder).join(program).exists())
}

/// Returns the entries that `keep` accepts, checked on a few threads.
fn filter(forms: Vec<String>, keep: impl Fn(&str) -> bool + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let kept = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(form) = forms.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if keep(form) {
                        kept.lock().unwrap().push(form.clone());
                    }
                }
            });
        }
    });
    kept.into_inner().unwrap()
}

/// The tool and its context, shared by all entries.
struct Judge {
    runtime: tokio::runtime::Runtime,
    registry: Registry,
    context: Context,
}

impl Judge {
    fn new(directory: &Path) -> Self {
        let options = tools::Options { shell: "/bin/bash".into(), ..tools::Options::default() };
        let context = Context {
            session: SessionId::new(),
            message: MessageId::new(),
            call_id: String::new(),
            agent: String::new(),
            directory: directory.to_owned(),
            worktree: directory.to_owned(),
            env: Arc::new(LocalEnvironment),
            exec: exec::Exec::direct(),
            cancel: tokio_util::sync::CancellationToken::new(),
            progress: Progress::none(),
            options: Arc::new(options),
            answers: None,
            granted: Arc::from([]),
            readable: tools::ReadPolicy::nothing(),
            traceparent: None,
        };
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            registry: Registry::builtin(&RegistryOptions { list: false, apply_patch: false, question: false }),
            context,
        }
    }

    /// What the rules say about a command line.
    fn judge(&self, rules: &[Rule], form: &str) -> Action {
        let tool = self.registry.get("bash").unwrap();
        let needs = self.runtime.block_on(tool.needs(&json!({"command": form}), &self.context)).unwrap();
        needs.iter().map(|need| decide(rules, &[], &[], need)).max().unwrap()
    }
}

fn rules(bash: &[(&str, Action)]) -> Vec<Rule> {
    let all = Rule::new("*", "*", Action::Allow);
    std::iter::once(all).chain(bash.iter().map(|(pattern, action)| Rule::new("bash", *pattern, *action))).collect()
}

/// Fills in the place outside the workspace.
fn outside(form: &str, place: &str) -> String {
    form.replace("$OUTSIDE", "$\0").replace("OUT", place).replace("$\0", "$OUTSIDE")
}

/// Runs all entries of a list, and fails if the rules allow one that works.
fn none_is_allowed(list: &str, rules: &[Rule], at_least: usize, works: impl Fn(&Scratch, &str) -> bool + Sync) {
    let (forms, left_out) = entries(list);
    let tried = forms.len();
    let working = filter(forms, |form| works(&Scratch::new(), form));
    assert!(working.len() * 10 >= tried * 9, "only {} of {tried} work in this bash", working.len());
    assert!(working.len() + left_out >= at_least, "{} of {tried} work, {left_out} were left out", working.len());
    let scratch = Scratch::new();
    let out = scratch.path("out").display().to_string();
    let judge = Judge::new(&scratch.path("work"));
    let allowed: Vec<String> =
        working.into_iter().filter(|form| judge.judge(rules, &outside(form, &out)) == Action::Allow).collect();
    assert!(allowed.is_empty(), "{} are allowed:\n{}", allowed.len(), allowed.join("\n"));
}

#[test]
fn no_detour_to_a_denied_command_is_allowed() {
    let rules = rules(&[("*", Action::Allow), ("rm *", Action::Deny)]);
    none_is_allowed(include_str!("rm.txt"), &rules, 1000, |scratch, form| {
        scratch.run(form);
        !scratch.path("work/victim").exists()
    });
}

#[test]
fn nothing_runs_beside_an_allowed_command() {
    let rules = rules(&[("*", Action::Ask), ("git status *", Action::Allow), ("rm *", Action::Deny)]);
    none_is_allowed(include_str!("git-status.txt"), &rules, 200, |scratch, form| {
        scratch.run(form);
        scratch.path("work/pwned").exists()
    });
}

#[test]
fn no_way_out_of_the_workspace_is_allowed() {
    let rules = [Rule::new("*", "*", Action::Allow), Rule::new("external_directory", "*", Action::Ask)];
    none_is_allowed(include_str!("outside.txt"), &rules, 120, |scratch, form| {
        let before = scratch.files_outside();
        let out = scratch.path("out").display().to_string();
        let printed = scratch.run(&outside(form, &out));
        printed.contains("TOP SECRET") || scratch.files_outside() != before
    });
}

#[test]
fn everyday_commands_are_allowed() {
    let mut rules = rules(&[("*", Action::Allow), ("rm *", Action::Deny)]);
    rules.push(Rule::new("external_directory", "*", Action::Ask));
    let (forms, _) = entries(include_str!("harmless.txt"));
    assert!(forms.len() >= 150);
    let scratch = Scratch::new();
    let judge = Judge::new(&scratch.path("work"));
    let held: Vec<&String> = forms.iter().filter(|form| judge.judge(&rules, form) != Action::Allow).collect();
    assert!(held.is_empty(), "{} are held back:\n{held:#?}", held.len());
}
