//! Subagents with their own git worktree: their changes, the merge, and cleanup.

use std::path::{Path, PathBuf};

use crate::common::{Lab, prompt, script, text};
use api::{EventBody, Host, HostError, Session, SessionId, ToolPart, ToolState, WatchScope};
use serde_json::{Value, json};
use testkit::Recorder;

/// A lab with two agents, one of them with worktrees.
fn lab() -> Lab {
    Lab::with(json!({"subagent_depth": 2, "agent": {
        "smith": {"mode": "subagent", "description": "s", "isolation": "worktree", "permission": {"task": "allow"}},
    }}))
}

fn bash(command: &str) -> Value {
    json!(["bash", { "command": command }])
}

/// A call whose subagent runs a command in its worktree.
fn smith(command: &str) -> Value {
    let steps = json!([{"tools": [bash(command)]}, {"text": "done"}]);
    json!(["task", {"description": "Forge", "prompt": script(steps), "subagent_type": "smith"}])
}

/// Makes these calls in a new session. Returns the session, its children and its calls.
async fn delegate(lab: &Lab, calls: Vec<Value>) -> (SessionId, Vec<Session>, Vec<ToolPart>) {
    let session = lab.session().await;
    lab.say(&session, &script(json!([{ "tools": calls }, {"text": "."}]))).await;
    let children = lab.engine.children(&session).await.unwrap();
    let tools = lab.tools(&session).await;
    (session, children, tools)
}

fn output(tool: &ToolPart) -> (&str, Value) {
    match &tool.state {
        ToolState::Completed(done) => (&done.output, json!(done.metadata)),
        other => panic!("{other:#?}"),
    }
}

fn error(tool: &ToolPart) -> &str {
    match &tool.state {
        ToolState::Error(error) => &error.error,
        other => panic!("{other:#?}"),
    }
}

/// All branches, and the number of linked worktrees.
fn state(lab: &Lab) -> (String, usize) {
    let branches = lab.project.git(&["branch", "--format=%(refname:short)"]);
    (branches.replace('\n', " "), lab.project.git(&["worktree", "list"]).lines().count() - 1)
}

fn data(lab: &Lab) -> PathBuf {
    lab.project.home().join(".local/share/trefoil")
}

#[tokio::test]
async fn a_child_works_in_parallel_and_its_changes_are_merged_on_request() {
    let lab = lab();
    lab.project.write("notes.txt", "not committed\n");
    let command = "pwd; ls; printf 'a\\nb\\n' > new.txt; echo more >> README.md";
    let (session, children, tools) = delegate(&lab, vec![smith(command)]).await;
    let child = &children[0];
    assert!(child.directory.starts_with(data(&lab).join("isolated").to_str().unwrap()), "{}", child.directory);
    let seen = lab.tools(&child.id).await;
    assert_eq!(output(&seen[0]).0.lines().collect::<Vec<_>>(), [child.directory.as_str(), "README.md"]);
    // None of it is in the caller's tree.
    assert_eq!(lab.project.git(&["status", "--porcelain"]), "?? notes.txt");

    let (result, metadata) = output(&tools[0]);
    let (branch, base) = (format!("trefoil/{}", child.id), lab.project.git(&["rev-parse", "HEAD"]));
    let named = format!("<task_worktree>\ndirectory: {}\nbranch: {branch}\nbase: {base}\n", child.directory);
    assert!(result.contains(&named), "{result}");
    assert!(result.contains("- new.txt (added, +2 -0)\n") && result.contains("- README.md (modified, +1 -0)\n"));
    assert!(result.contains("without the 1 files") && result.contains("\n\ndone\n"), "{result}");
    let files = json!([
        {"path": "new.txt", "added": 2, "removed": 0, "status": "added"},
        {"path": "README.md", "added": 1, "removed": 0, "status": "modified"},
    ]);
    assert_eq!((&metadata["worktree"]["branch"], &metadata["worktree"]["files"]), (&json!(branch), &files));
    // The instructions for the model work.
    let patch = lab.project.git(&["diff", "--binary", &base, &branch]);
    assert!(patch.contains("+more"), "{patch}");

    // Our own edit to another part of a file that the child changed.
    lab.project.write("README.md", "# Another title\n");
    let refused = lab.engine.worktree_merge(&child.id).await.unwrap_err();
    assert!(matches!(&refused, HostError::Conflict(why) if why.contains("README.md") && why.contains(&branch)));
    assert_eq!(lab.project.git(&["status", "--porcelain"]), " M README.md\n?? notes.txt", "nothing changed");
    assert_eq!(lab.project.read("README.md"), "# Another title\n");

    lab.project.git(&["checkout", "--quiet", "README.md"]);
    let diff = lab.engine.worktree_diff(&child.id).await.unwrap();
    assert_eq!((json!(diff.worktree.files), diff.patch.contains("+more")), (files.clone(), true));
    let merged = lab.engine.worktree_merge(&child.id).await.unwrap();
    assert_eq!(json!(merged.files), files);
    assert_eq!(lab.project.git(&["status", "--porcelain"]), " M README.md\n?? new.txt\n?? notes.txt");
    assert_eq!(lab.project.read("README.md"), "# A project\nmore\n");
    assert_eq!(lab.engine.worktree_merge(&child.id).await.unwrap().files, [], "it was merged");

    // It continues where it was, and only new changes count.
    let mut again = smith("echo again >> new.txt");
    again[1]["task_id"] = json!(child.id);
    lab.say(&session, &script(json!([{ "tools": [again] }, {"text": "."}]))).await;
    let diff = lab.engine.worktree_diff(&child.id).await.unwrap();
    assert_eq!(
        json!(diff.worktree.files),
        json!([{"path": "new.txt", "added": 1, "removed": 0, "status": "modified"}])
    );
    lab.engine.worktree_merge(&child.id).await.unwrap();
    assert_eq!(lab.project.read("new.txt"), "a\nb\nagain\n");
}

#[tokio::test]
async fn a_change_too_large_to_show_is_still_merged() {
    let lab = lab();
    let command =
        "echo small > a.txt; head -c 17000000 /dev/zero | tr '\\0' x | fold -w 1000 > big.txt; echo last > z.txt";
    let (_, children, tools) = delegate(&lab, vec![smith(command)]).await;
    assert!(output(&tools[0]).0.contains("- big.txt (added, +17000 -0)"), "{}", output(&tools[0]).0);
    let child = &children[0];
    let diff = lab.engine.worktree_diff(&child.id).await.unwrap();
    let patched: Vec<&str> = diff.patch.lines().filter(|line| line.starts_with("diff --git")).collect();
    assert_eq!((diff.cut, patched), (true, vec!["diff --git a/a.txt b/a.txt"]));
    assert_eq!((diff.worktree.files.len(), diff.worktree.more), (3, false));
    let theirs = std::fs::read(Path::new(&child.directory).join("big.txt")).unwrap();
    lab.engine.worktree_merge(&child.id).await.unwrap();
    assert!(std::fs::read(lab.project.path().join("big.txt")).unwrap() == theirs, "another content");
    assert_eq!(lab.project.read("z.txt"), "last\n");
}

#[tokio::test]
async fn parallel_children_change_the_same_file() {
    let lab = lab();
    let lines = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n{last}\n");
    lab.project.write("list.txt", lines("1", "9"));
    lab.project.commit("list");
    let calls = ["s/^1/one/", "s/^9/nine/", "s/^1/uno/"];
    let (_, children, _) =
        delegate(&lab, calls.iter().map(|edit| smith(&format!("sed -i {edit} list.txt"))).collect()).await;
    let of = |edit: &str| {
        let tree =
            |child: &&Session| std::fs::read_to_string(format!("{}/list.txt", child.directory)).unwrap().contains(edit);
        children.iter().find(tree).unwrap().id.clone()
    };
    let (one, nine, uno) = (of("one"), of("nine"), of("uno"));
    assert_eq!(lab.project.read("list.txt"), lines("1", "9"));
    for child in [&one, &nine] {
        lab.engine.worktree_merge(child).await.unwrap();
    }
    assert_eq!(lab.project.read("list.txt"), lines("one", "nine"));
    let refused = lab.engine.worktree_merge(&uno).await.unwrap_err().to_string();
    assert!(refused.contains("list.txt"), "{refused}");
    assert_eq!(lab.project.read("list.txt"), lines("one", "nine"), "nothing changed");
    let thrown = lab.engine.worktree_discard(&uno).await.unwrap();
    assert_eq!(thrown.files[0].path, "list.txt");
    assert_eq!(state(&lab).1, 2);
    assert!(!state(&lab).0.contains(uno.as_str()));
    let gone = lab.engine.worktree_diff(&uno).await.unwrap_err();
    assert!(matches!(gone, HostError::NotFound { what: "worktree", .. }), "{gone}");
}

#[tokio::test]
async fn every_kind_of_change_is_merged_and_obstacles_are_kept() {
    let lab = lab();
    lab.project.write("gone.txt", "x\n");
    lab.project.write("run.sh", "#!/bin/sh\n");
    lab.project.write(".gitignore", "ignored\n");
    lab.project.commit("files");
    let command = "rm gone.txt; chmod +x run.sh; printf '\\0\\1' > 'a b.bin'; ln -s run.sh link; mkdir d; echo x > d/f; \
        echo x > ignored; git add d; git -c user.name=t -c user.email=t@example.org commit -qm own; git checkout -qb elsewhere";
    let (_, children, tools) = delegate(&lab, vec![smith(command)]).await;
    assert_eq!(output(&tools[0]).1["worktree"]["files"].as_array().unwrap().len(), 5, "{tools:#?}");
    // Our file where the child has a folder.
    lab.project.write("d", "ours\n");
    let refused = lab.engine.worktree_merge(&children[0].id).await.unwrap_err().to_string();
    assert!(refused.contains("/d is in the way of d/f"), "{refused}");
    assert_eq!(lab.project.git(&["status", "--porcelain"]), "?? d");
    std::fs::remove_file(lab.project.path().join("d")).unwrap();
    lab.engine.worktree_merge(&children[0].id).await.unwrap();
    let status = lab.project.git(&["status", "--porcelain", "--untracked-files=all"]);
    assert_eq!(status, " D gone.txt\n M run.sh\n?? \"a b.bin\"\n?? d/f\n?? link");
    assert_eq!(std::fs::read(lab.project.path().join("a b.bin")).unwrap(), [0, 1]);
}

#[tokio::test]
async fn without_a_repository_or_a_commit_the_model_is_told() {
    for with_git in [false, true] {
        let lab = lab();
        std::fs::remove_dir_all(lab.project.path().join(".git")).unwrap();
        if with_git {
            lab.project.git(&["init", "--quiet"]);
        }
        let (_, children, tools) = delegate(&lab, vec![smith("true")]).await;
        let why = if with_git { "has no commit yet" } else { "is not in a git repository" };
        assert!(error(&tools[0]).contains("The agent smith works in a git worktree") && error(&tools[0]).contains(why));
        assert!(children.is_empty());
        assert_eq!(lab.engine.worktrees().await.unwrap().len(), 0);
    }
}

#[tokio::test]
async fn a_worktree_uses_the_configuration_and_event_stream_of_its_caller() {
    let lab = lab();
    // Neither is committed.
    lab.project.write("AGENTS.md", "Never say please.\n");
    lab.project.write("trefoil.json", json!({"permission": {"bash": {"touch *": "ask"}}}).to_string());
    lab.engine.reload(&lab.scope);
    let session = lab.session().await;
    let here = WatchScope::Directory(lab.project.directory());
    let mut events = Recorder::scoped(lab.host(), here).await;
    let steps = script(json!([{"tools": [smith("touch x")]}, {"text": "."}]));
    lab.engine.prompt_async(&session, prompt(&steps)).await.unwrap();
    let event = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    let child = ask.session_id.clone();
    assert_ne!(child, session);
    // While it works it can be inspected, but neither merged nor discarded.
    assert!(matches!(lab.engine.worktree_merge(&child).await, Err(HostError::Busy(_))));
    assert!(matches!(lab.engine.worktree_discard(&child).await, Err(HostError::Busy(_))));
    assert_eq!(lab.engine.worktree_diff(&child).await.unwrap().worktree.files, []);
    let reply = api::PermissionReply { reply: api::PermissionReplyKind::Once, message: None };
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    // Whoever saw the question sees that it was answered.
    events.wait_for(|body| matches!(body, EventBody::PermissionReplied { .. })).await;
    events.wait_idle(&child).await;
    events.wait_idle(&session).await;
    assert_eq!(lab.engine.worktree_diff(&child).await.unwrap().worktree.files[0].path, "x");
}

#[tokio::test]
async fn deleting_a_session_removes_its_worktree_and_keeps_unmerged_changes() {
    let lab = lab();
    let (session, children, _) = delegate(&lab, vec![smith("echo x > x.txt"), smith("true")]).await;
    assert_eq!(state(&lab).1, 2);
    let changed = |child: &&Session| Path::new(&child.directory).join("x.txt").exists();
    let kept = format!("trefoil/{}", children.iter().find(changed).unwrap().id);
    lab.engine.delete_session(&session).await.unwrap();
    assert_eq!(state(&lab), (format!("main {kept}"), 0));
    assert_eq!(lab.project.git(&["show", &format!("{kept}:x.txt")]), "x");
    assert_eq!(lab.engine.worktrees().await.unwrap().len(), 0);
    assert!(children.iter().all(|child| !Path::new(&child.directory).exists()));
}

#[tokio::test]
async fn a_task_whose_worktree_is_gone_cannot_continue() {
    let lab = lab();
    let (session, children, _) = delegate(&lab, vec![smith("echo x > x.txt")]).await;
    lab.engine.worktree_discard(&children[0].id).await.unwrap();
    let mut again = smith("true");
    again[1]["task_id"] = json!(children[0].id);
    lab.say(&session, &script(json!([{ "tools": [again] }, {"text": "."}]))).await;
    let refused = error(lab.tools(&session).await.last().unwrap()).to_owned();
    assert!(refused.contains("is gone: it was discarded or cleaned up"), "{refused}");
}

#[tokio::test]
async fn a_child_of_an_isolated_child_merges_into_its_tree() {
    let lab = lab();
    let inner = script(json!([{"tools": [bash("echo deep > deep.txt")]}, {"text": "deep"}]));
    let call = json!(["task", {"description": "Inner", "prompt": inner, "subagent_type": "smith"}]);
    let outer = script(
        json!([{"tools": [bash("git init -q sub; echo up > up.txt; git add up.txt; git -c user.name=t -c user.email=t@example.org commit -qm up")]},
        {"tools": [call]}, {"text": "up"}]),
    );
    let call = json!(["task", {"description": "Outer", "prompt": outer, "subagent_type": "smith"}]);
    let (_, children, _) = delegate(&lab, vec![call]).await;
    let outer = &children[0];
    let inner = &lab.engine.children(&outer.id).await.unwrap()[0];
    assert!(Path::new(&inner.directory).join("up.txt").exists(), "it starts from the caller's last commit");
    let merged = lab.engine.worktree_merge(&inner.id).await.unwrap();
    assert_eq!(merged.target, outer.directory);
    assert!(Path::new(&outer.directory).join("deep.txt").exists());
    assert!(!lab.project.path().join("deep.txt").exists());
}

#[tokio::test]
async fn leftovers_are_found_and_cleaned() {
    let lab = lab();
    let (_, children, _) = delegate(&lab, vec![smith("echo x > x.txt"), smith("true"), smith("echo y > y.txt")]).await;
    let of = |file: &str| children.iter().find(|child| Path::new(&child.directory).join(file).exists()).unwrap();
    let (kept, merged) = (of("x.txt"), of("y.txt"));
    lab.engine.worktree_merge(&merged.id).await.unwrap();
    // The cleanup at server start removes nothing that belongs to a session.
    assert_eq!(lab.engine.clean_worktrees(false).await.unwrap(), Default::default());
    let cleaned = lab.engine.clean_worktrees(true).await.unwrap();
    assert_eq!((cleaned.removed.len(), cleaned.kept, cleaned.problems), (2, vec![], vec![]));
    assert_eq!(state(&lab), (format!("main trefoil/{}", kept.id), 1));
    let listed = lab.engine.worktrees().await.unwrap();
    assert_eq!((listed.len(), &listed[0].worktree.session_id, listed[0].running), (1, &kept.id, false));
    assert_eq!((listed[0].title.as_deref(), listed[0].worktree.files.len()), (Some("Forge (@smith subagent)"), 1));
    // Its folder is deleted by hand; the changes on its branch still count.
    std::fs::remove_dir_all(&kept.directory).unwrap();
    assert_eq!(lab.engine.worktrees().await.unwrap()[0].worktree.files.len(), 1);
    lab.engine.worktree_merge(&kept.id).await.unwrap();
    assert_eq!(lab.project.read("x.txt"), "x\n");
    assert_eq!(lab.engine.clean_worktrees(true).await.unwrap().removed, std::slice::from_ref(&kept.directory));
    assert_eq!(state(&lab), ("main".to_owned(), 0));
}

/// A crash between the tree and its session: the record exists, the session does not.
#[tokio::test]
async fn the_next_start_cleans_up_after_a_crash_before_the_session() {
    let lab = lab();
    let session = lab.session().await;
    let (id, stray) = (SessionId::new(), SessionId::new());
    let folder = data(&lab).join("isolated/project");
    for id in [&id, &stray] {
        let branch = format!("trefoil/{id}");
        lab.project.git(&[
            "worktree",
            "add",
            "--no-checkout",
            "-q",
            "-b",
            &branch,
            folder.join(id.as_str()).to_str().unwrap(),
        ]);
    }
    let base = lab.project.git(&["rev-parse", "HEAD"]);
    let root = lab.project.directory();
    let row = store::WorktreeRow {
        parent: session,
        origin: root.clone(),
        target: root.clone(),
        main: root.clone(),
        directory: folder.join(id.as_str()).to_str().unwrap().to_owned(),
        branch: format!("trefoil/{id}"),
        base,
        missing: 0,
        filled: false,
    };
    let mut batch = store::Batch::new(&store::Location::new(root.as_str(), "p")).durable();
    batch.worktree(&id, Some(&row));
    lab.engine.store().commit(batch).await.unwrap();
    let cleaned = lab.engine.clean_worktrees(false).await.unwrap();
    assert_eq!((cleaned.removed.len(), cleaned.kept.len(), cleaned.problems), (1, 0, vec![]));
    assert_eq!(state(&lab), (format!("main trefoil/{stray}"), 1), "nothing is known of the other");
    assert_eq!(lab.engine.clean_worktrees(true).await.unwrap(), Default::default(), "another database may know it");
    let made = std::fs::File::options().append(true).open(folder.join(stray.as_str()).join(".git")).unwrap();
    made.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(25 * 3600)).unwrap();
    let cleaned = lab.engine.clean_worktrees(true).await.unwrap();
    assert_eq!((cleaned.removed.len(), cleaned.problems), (1, vec![]));
    assert_eq!(state(&lab), ("main".to_owned(), 0));
}

/// A restart in the middle: the child continues in its tree, and its earlier work is there.
#[tokio::test]
async fn a_restart_keeps_the_worktree() {
    let mut lab = Lab::with(json!({"permission": {"bash": {"touch *": "ask"}},
        "agent": {"smith": {"mode": "subagent", "description": "s", "isolation": "worktree"}}}));
    let session = lab.session().await;
    let mut events = lab.recorder().await;
    let steps =
        script(json!([{"tools": [bash("echo x > x.txt")]}, {"tools": [bash("touch y.txt")]}, {"text": "done"}]));
    let call = json!(["task", {"description": "Forge", "prompt": steps, "subagent_type": "smith"}]);
    let steps = script(json!([{"tools": [call]}, {"text": "end"}]));
    let id = lab.engine.prompt_async(&session, prompt(&steps)).await.unwrap();
    let event = events.wait_for(|body| matches!(body, EventBody::PermissionAsked(_))).await;
    let EventBody::PermissionAsked(ask) = &event.body else { unreachable!() };
    lab.restart().await;
    let reply = api::PermissionReply { reply: api::PermissionReplyKind::Once, message: None };
    lab.engine.recover(None).await.unwrap();
    lab.engine.reply_permission(&ask.id, reply).await.unwrap();
    let again = api::PromptInput { message_id: Some(id), ..prompt(&steps) };
    assert_eq!(text(&lab.engine.prompt(&session, again).await.unwrap()), "end");
    let merged = lab.engine.worktree_merge(&ask.session_id).await.unwrap();
    assert_eq!(merged.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["x.txt", "y.txt"]);
}
