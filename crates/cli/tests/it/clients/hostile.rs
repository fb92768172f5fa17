//! Repositories whose configuration, attributes and hooks name programs: git starts none of them, wherever the server runs it, until
//! the repository is trusted.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{TempProject, WAIT, until};

use super::harness::{TestServer, finish, succeeded};

/// Hooks that git commands run.
const HOOKS: [&str; 14] = [
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-rewrite",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "reference-transaction",
];

/// Settings whose value is a program. `MARK` becomes a command that leaves a mark.
const SETTINGS: [(&str, &str); 40] = [
    ("filter.one.clean", "MARK; cat"),
    ("filter.one.smudge", "MARK; cat"),
    ("filter.one.required", "true"),
    ("filter.two.process", "MARK"),
    ("filter.a=b.clean", "MARK; cat"),
    ("filter.Three.Dots.clean", "MARK; cat"),
    ("merge.one.driver", "MARK; false"),
    ("merge.default", "one"),
    ("diff.one.textconv", "MARK; cat"),
    ("diff.one.command", "MARK"),
    ("diff.external", "MARK"),
    ("core.fsmonitor", "MARK"),
    ("core.sshCommand", "MARK"),
    ("core.editor", "MARK"),
    ("core.pager", "MARK"),
    ("core.askPass", "MARK"),
    ("core.gitProxy", "MARK"),
    ("core.alternateRefsCommand", "MARK"),
    ("pager.diff", "MARK"),
    ("pager.status", "MARK"),
    ("sequence.editor", "MARK"),
    ("interactive.diffFilter", "MARK"),
    ("gpg.program", "MARK"),
    ("gpg.ssh.defaultKeyCommand", "MARK"),
    ("commit.gpgSign", "true"),
    ("credential.helper", "!MARK"),
    ("alias.status", "!MARK"),
    ("alias.diff", "!MARK"),
    ("alias.rev-parse", "!MARK"),
    ("alias.worktree", "!MARK"),
    ("hook.one.command", "MARK"),
    ("hook.one.event", "reference-transaction"),
    ("submodule.nested.update", "!MARK"),
    ("submodule.nested.ignore", "none"),
    ("submodule.recurse", "true"),
    ("diff.ignoreSubmodules", "none"),
    ("status.submoduleSummary", "true"),
    ("trailer.x.command", "MARK"),
    ("remote.origin.uploadpack", "MARK"),
    ("remote.origin.url", "ext::sh -c MARK"),
];

struct Hostile {
    project: TempProject,
    marks: PathBuf,
    count: std::cell::Cell<usize>,
}

impl Hostile {
    /// A repository with all of these.
    fn new() -> Self {
        let project = TempProject::new();
        let marks = project.root().join("marks");
        std::fs::create_dir(&marks).unwrap();
        let hostile = Self { project, marks, count: std::cell::Cell::new(0) };
        let (project, tree) = (&hostile.project, hostile.project.path());
        for name in ["a.txt", "b.two", "c.three", "d.four", "e.five", "f.six"] {
            project.write(name, "one\ntwo\nthree\n");
        }
        project.write("nested/x.txt", "one\n");
        hostile.git_in(&tree.join("nested"), &["init", "--quiet"]);
        project.write("nested/.gitattributes", "*.txt filter=deep\n");
        hostile.git_in(&tree.join("nested"), &["add", "--all"]);
        hostile.git_in(&tree.join("nested"), &["commit", "--quiet", "-m", "nested"]);
        // A folder that looks like a repository, with settings of its own.
        hostile.git_in(tree, &["init", "--quiet", "--bare", "folder"]);
        project.commit("files");
        let attributes = "*.txt filter=one diff=one merge=one\n*.two filter=two\n*.three filter=a=b\n*.four filter=Three.Dots\n\
                          *.five filter=included\n*.six filter=worktree\n";
        project.write(".gitattributes", attributes);
        project.commit("attributes");
        for (key, value) in SETTINGS {
            project.git(&["config", key, &hostile.program(key, value)]);
        }
        let included = hostile.program("included", "MARK; cat");
        project.write(".git/more", format!("[filter \"included\"]\n\tclean = \"{included}\"\n"));
        project.git(&["config", "include.path", "more"]);
        project.git(&["config", "extensions.worktreeConfig", "true"]);
        project.git(&["config", "--worktree", "filter.worktree.clean", &hostile.program("worktree", "MARK; cat")]);
        let hooks = project.root().join("hooks");
        for folder in [&hooks, &tree.join(".git/hooks")] {
            for hook in HOOKS {
                hostile.hook(folder, hook);
            }
        }
        project.git(&["config", "core.hooksPath", hooks.to_str().unwrap()]);
        for (folder, key) in
            [("nested", "filter.deep.clean"), ("folder", "core.fsmonitor"), ("nested", "core.fsmonitor")]
        {
            let program = hostile.program(&format!("{folder}-{key}"), "MARK; cat");
            let config = if folder == "nested" { "nested/.git/config" } else { "folder/config" };
            project.git(&["config", "--file", config, key, &program]);
        }
        project.git(&["config", "--file", "folder/config", "core.worktree", "."]);
        project.git(&["config", "--file", "folder/config", "core.bare", "false"]);
        for name in ["a.txt", "b.two", "c.three", "d.four", "e.five", "f.six", "nested/x.txt"] {
            project.write(name, "one\nother\nthree\n");
        }
        hostile.forget();
        hostile
    }

    fn git_in(&self, directory: &Path, arguments: &[&str]) {
        let mut git = self.project.command("git");
        git.current_dir(directory).args(arguments);
        succeeded(&finish(git, WAIT));
    }

    /// A setting whose program leaves a mark of that name.
    fn program(&self, name: &str, value: &str) -> String {
        let number = self.count.replace(self.count.get() + 1);
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        value.replace("MARK", &format!("touch {}/{number}-{name}", self.marks.display()))
    }

    fn hook(&self, folder: &Path, hook: &str) {
        std::fs::create_dir_all(folder).unwrap();
        let file = folder.join(hook);
        std::fs::write(&file, format!("#!/bin/sh\n{}\n", self.program(&format!("hook-{hook}"), "MARK"))).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn marks(&self) -> Vec<String> {
        let mut found: Vec<String> = std::fs::read_dir(&self.marks)
            .unwrap()
            .flatten()
            .map(|mark| mark.file_name().into_string().unwrap())
            .collect();
        found.sort();
        found
    }

    fn forget(&self) {
        std::fs::remove_dir_all(&self.marks).unwrap();
        std::fs::create_dir(&self.marks).unwrap();
    }
}

fn ok(served: &TestServer, method: &str, path: &str, body: Option<Value>) -> Value {
    let (status, answer) = served.send(method, path, body.as_ref());
    assert_eq!(status, 200, "{method} {path}: {answer}");
    answer
}

/// Everything that runs git; checks the marks after each.
fn everything(served: &TestServer, looked: &dyn Fn(&str)) {
    for path in [
        "/vcs",
        "/vcs/status",
        "/vcs/diff?mode=git",
        "/vcs/diff?mode=branch",
        "/vcs/diff/raw",
        "/file/status",
        "/project/current",
        "/project",
    ] {
        ok(served, "GET", path, None);
        looked(path);
    }
    let below = format!("?directory={}/folder", served.project.directory());
    for path in ["/vcs", "/vcs/status", "/file/status", "/project/current"] {
        served.send("GET", &format!("{path}{below}"), None);
        looked(&format!("{path} below"));
    }
    let patch = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,4 @@\n one\n other\n three\n+four\n";
    ok(served, "POST", "/vcs/apply", Some(json!({"patch": patch})));
    looked("/vcs/apply");
    let tree = ok(served, "POST", "/experimental/worktree", Some(json!({"name": "x"})));
    let directory = tree["directory"].as_str().unwrap().to_owned();
    until("the worktree has its files", || Path::new(&directory).join("f.six").exists());
    looked("worktree create");
    ok(served, "POST", "/experimental/worktree/reset", Some(json!({"directory": directory})));
    looked("worktree reset");
    ok(served, "DELETE", "/experimental/worktree", Some(json!({"directory": directory})));
    looked("worktree remove");
    // A subagent in a worktree of its own, which is created, filled, changed, committed, compared, merged and removed.
    let session = ok(served, "POST", "/session", Some(json!({})));
    let session = session["id"].as_str().unwrap();
    let write = json!([{"tools": [["write", {"filePath": "b.two", "content": "one\nfrom the subagent\nthree\n"}]]}, {"text": "done"}]);
    let task = json!({"subagent_type": "apart", "description": "x", "prompt": format!("SCRIPT: {write}")});
    let steps = json!([{"tools": [["task", task]]}, {"text": "done"}]);
    let prompt = json!({"model": {"providerID": "script", "modelID": "demo"},
        "parts": [{"type": "text", "text": format!("SCRIPT: {steps}")}]});
    ok(served, "POST", &format!("/session/{session}/message"), Some(prompt));
    looked("isolation");
    let children = ok(served, "GET", &format!("/session/{session}/children"), None);
    let child = children[0]["id"].as_str().unwrap_or_else(|| panic!("no subagent: {children}"));
    let diff = ok(served, "GET", &format!("/session/{child}/worktree"), None);
    assert!(diff["patch"].as_str().unwrap().contains("+from the subagent"), "{diff}");
    looked("isolation diff");
    // Both sides changed the line, so the merge may be refused; it is tried nevertheless.
    served.send("POST", &format!("/session/{child}/worktree"), None);
    looked("isolation merge");
    ok(served, "DELETE", &format!("/session/{child}/worktree"), None);
    looked("isolation discard");
}

const APART: &str = r#"{"agent": {"apart": {"description": "x", "mode": "subagent", "isolation": "worktree"}}}"#;

#[test]
fn a_repository_starts_nothing_wherever_git_runs() {
    let hostile = Hostile::new();
    // The repository is really hostile: git run by hand there starts programs.
    for file in ["a.txt", "c.three", "d.four", "e.five", "f.six", "nested"] {
        for command in [&["status"][..], &["diff", "--ext-diff"]] {
            let mut git = hostile.project.command("git");
            git.args(command).args(["--", file]);
            finish(git, WAIT);
        }
    }
    let by_hand = hostile.marks();
    for name in
        ["filter-one-clean", "filter-a-b-clean", "diff-external", "core-fsmonitor", "included", "worktree", "nested-"]
    {
        assert!(by_hand.iter().any(|mark| mark.contains(name)), "{name}: {by_hand:?}");
    }
    hostile.forget();
    hostile.project.write_home(".config/trefoil/trefoil.json", APART);
    let Hostile { project, marks, count } = hostile;
    let served = TestServer::with(project, |_| {});
    let looked = |place: &str| {
        let found: Vec<_> = std::fs::read_dir(&marks).unwrap().flatten().map(|mark| mark.file_name()).collect();
        assert!(found.is_empty(), "{place} started {found:?}");
    };
    looked("the start");
    everything(&served, &looked);
    assert!(count.get() > 0);
}

#[test]
fn a_setting_that_moves_the_work_tree_has_no_effect() {
    let project = TempProject::new();
    let elsewhere = project.root().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("precious"), "x").unwrap();
    project.write("kept", "one\n");
    project.commit("files");
    project.git(&["config", "core.worktree", elsewhere.to_str().unwrap()]);
    project.write("kept", "two\n");
    let served = TestServer::with(project, |_| {});
    let status = ok(&served, "GET", "/vcs/status", None);
    let files: Vec<_> = status.as_array().unwrap().iter().map(|file| file["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["kept"]);
    let patch = "diff --git a/kept b/kept\n--- a/kept\n+++ b/kept\n@@ -1 +1 @@\n-two\n+three\n";
    ok(&served, "POST", "/vcs/apply", Some(json!({"patch": patch})));
    assert_eq!(served.project.read("kept"), "three\n");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1);
}

/// A repository with a filter that turns `one` into `eno`, configured in one place or another.
fn filtered(global: bool) -> TempProject {
    let project = TempProject::new();
    let filter = "[filter \"back\"]\n\tclean = rev\n\tsmudge = rev\n\trequired = true\n";
    if global {
        project.write_home(".gitconfig", filter);
    } else {
        let config = project.read(".git/config");
        project.write(".git/config", config + filter);
    }
    project.write(".gitattributes", "*.txt filter=back\n");
    project.write("a.txt", "one\n");
    project.commit("files");
    assert_eq!(project.git(&["cat-file", "blob", "HEAD:a.txt"]), "eno");
    project.write("a.txt", "another\n");
    project
}

fn patch_of(served: &TestServer) -> String {
    let (status, patch) = served.raw("GET", "/vcs/diff/raw", &[], None);
    assert_eq!(status, 200, "{patch}");
    patch
}

#[test]
fn the_users_own_filters_and_those_that_are_trusted_work() {
    let served = TestServer::with(filtered(true), |_| {});
    assert!(patch_of(&served).contains("-eno\n+rehtona\n"), "the user's own filter runs");
    let served = TestServer::with(filtered(false), |_| {});
    assert!(patch_of(&served).contains("-eno\n+another\n"), "that of a repository does not");
    let mut trust = served.project.command(env!("CARGO_BIN_EXE_trefoil"));
    trust.args(["trust", "--yes"]);
    let output = finish(trust, WAIT);
    succeeded(&output);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("filter.back.clean has git run `rev`"), "{told}");
    assert!(patch_of(&served).contains("-eno\n+rehtona\n"), "until it is trusted");
    let tree = ok(&served, "POST", "/experimental/worktree", Some(json!({"name": "x"})));
    let file = Path::new(tree["directory"].as_str().unwrap()).join("a.txt");
    until("the worktree has its files", || std::fs::read_to_string(&file).is_ok_and(|text| text == "one\n"));
    // Trust covers this program, not another one of the same name.
    served.project.git(&["config", "filter.back.clean", "tac"]);
    assert!(patch_of(&served).contains("-eno\n+another\n"));
    // A repository cannot replace the user's program by its own.
    let project = filtered(true);
    project.git(&["config", "filter.back.clean", "tac"]);
    let served = TestServer::with(project, |_| {});
    assert!(patch_of(&served).contains("-eno\n+rehtona\n"));
}
