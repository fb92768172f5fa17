//! Files, search, git, projects, worktrees, workspaces, and the sessions of every project.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::Rig;
use reqwest::Method;
use serde_json::{Value, json};
use testkit::TempProject;

async fn rig() -> Rig {
    let project = TempProject::without_git();
    project.git(&["init", "--quiet", "--initial-branch=main"]);
    project.write("hello.txt", "hello world\n");
    project.write("README.md", "# A project\n");
    project.write("src/main.rs", "fn main() {}\n");
    project.write(".gitignore", "*.log\n");
    project.commit("start");
    Rig::on(project).await
}

/// The same path in another directory.
fn at(directory: impl AsRef<Path>, path: &str) -> String {
    let directory = percent(&directory.as_ref().to_string_lossy());
    format!("{path}{}directory={directory}", if path.contains('?') { '&' } else { '?' })
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn message(answer: &Value) -> &str {
    answer["data"]["message"].as_str().unwrap_or_else(|| panic!("no message: {answer}"))
}

/// JSON with each scalar replaced by its type, and each list by its first element.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(list) => list.first().map(shape).into_iter().collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
    }
}

#[tokio::test]
async fn responses_have_the_recorded_shape() {
    let rig = rig().await;
    let recorded: Vec<Value> = serde_json::from_str(include_str!("../fixtures/project.json")).unwrap();
    for record in recorded {
        let (status, body) = rig.send(Method::GET, record["path"].as_str().unwrap(), None).await;
        assert_eq!(
            (json!(status), shape(&body)),
            (record["status"].clone(), shape(&record["body"])),
            "{record}\n{body}"
        );
    }
}

#[tokio::test]
async fn files_are_listed_and_read() {
    let rig = rig().await;
    rig.project.write("a.log", "ignored\n");
    rig.project.write("data.bin", b"\0\xff");
    let list = rig.get("/file?path=").await;
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|node| node["path"].as_str().unwrap()).collect();
    assert_eq!(names, [".git/", "src/", ".gitignore", "a.log", "data.bin", "hello.txt", "README.md"]);
    assert_eq!((&list[3]["ignored"], &list[5]["ignored"]), (&json!(true), &json!(false)));
    assert_eq!(rig.get("/file?path=src/").await[0]["path"], "src/main.rs");
    let inside = at(rig.project.path().join("src"), "/file?path=");
    assert_eq!(rig.get(&inside).await[0]["path"], "main.rs");
    assert_eq!(rig.get("/file/content?path=hello.txt").await, json!({ "type": "text", "content": "hello world\n" }));
    assert_eq!(rig.get("/file/content?path=data.bin").await["encoding"], "base64");
}

#[tokio::test]
async fn nothing_outside_is_shown() {
    let rig = rig().await;
    std::fs::write(rig.project.root().join("secret"), "s").unwrap();
    std::os::unix::fs::symlink("../secret", rig.project.path().join("link")).unwrap();
    std::os::unix::fs::symlink("..", rig.project.path().join("up")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, rig.project.path().join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    for path in
        ["../secret", "/etc/passwd", "link", "up/secret", "src/../../secret", "../nope", "pipe", "src", "%00", ""]
    {
        let (status, body) = rig.send(Method::GET, &format!("/file/content?path={path}"), None).await;
        assert_eq!((status, &body["data"]["kind"]), (400, &json!("Query")), "{path}: {body}");
    }
    for path in ["..", "/", "up", "hello.txt", "hello.txt/x"] {
        let (status, body) = rig.send(Method::GET, &format!("/file?path={path}"), None).await;
        assert_eq!(status, 400, "{path}: {body}");
    }
    let (status, body) = rig.send(Method::GET, "/file?path=nope", None).await;
    assert_eq!((status, message(&body)), (404, "File not found: nope"));
    let missing = rig.get("/file/content?path=nope.txt").await;
    assert_eq!(missing, json!({ "type": "text", "content": "" }), "as in OpenCode");
    assert_eq!(rig.send(Method::GET, "/file", None).await.0, 400);
}

#[tokio::test]
async fn lines_and_paths_are_found() {
    let rig = rig().await;
    rig.project.write(".github/main.yml", "x\n");
    rig.project.write("main.log", "main\n");
    let found = rig.get("/find?pattern=ma(in)").await;
    let line = json!({
        "path": { "text": "src/main.rs" }, "lines": { "text": "fn main() {}\n" }, "line_number": 1,
        "absolute_offset": 0, "submatches": [{ "match": { "text": "main" }, "start": 3, "end": 7 }],
    });
    assert_eq!(found, json!([line]));
    assert_eq!(rig.get("/find/file?query=main").await, json!(["src/main.rs", ".github/main.yml"]));
    assert_eq!(rig.get("/find/file?query=s&type=directory").await, json!(["src/"]));
    assert_eq!(rig.get("/find/file?query=&limit=1").await.as_array().unwrap().len(), 1);
    let files = rig.get("/find/file?query=&dirs=false&limit=200").await;
    assert!(files.as_array().unwrap().iter().all(|path| !path.as_str().unwrap().ends_with('/')), "{files}");
    for bad in [
        "/find?pattern=(",
        "/find",
        "/find/file?query=a&limit=0",
        "/find/file?query=a&limit=201",
        "/find/file?query=a&limit=x",
        "/find/file?query=a&type=x",
    ] {
        let (status, body) = rig.send(Method::GET, bad, None).await;
        assert_eq!((status, &body["data"]["kind"]), (400, &json!("Query")), "{bad}: {body}");
    }
    let long = format!("/find/file?query={}", "a".repeat(5000));
    assert_eq!(rig.send(Method::GET, &long, None).await.0, 400);
}

#[tokio::test]
async fn changes_are_reported_and_applied() {
    let rig = rig().await;
    rig.project.write("hello.txt", "hello there\n");
    rig.project.write("src/new.rs", "new\n");
    let changed = json!([
        { "file": "hello.txt", "additions": 1, "deletions": 1, "status": "modified" },
        { "file": "src/new.rs", "additions": 1, "deletions": 0, "status": "added" },
    ]);
    assert_eq!(rig.get("/vcs/status").await, changed);
    let first = json!({ "path": "hello.txt", "added": 1, "removed": 1, "status": "modified" });
    assert_eq!(rig.get("/file/status").await[0], first);
    let below = rig.get(&at(rig.project.path().join("src"), "/vcs/diff?mode=git&context=1")).await;
    assert_eq!(below.as_array().unwrap().len(), 1, "{below}");
    assert!(below[0]["patch"].as_str().unwrap().ends_with("+++ b/src/new.rs\n@@ -0,0 +1 @@\n+new\n"), "{below}");
    let branch = "/vcs/diff?mode=branch&context=9007199254740991";
    assert_eq!(rig.get(branch).await, json!([]), "the default branch does not differ from itself");
    rig.project.git(&["checkout", "--quiet", "-b", "topic"]);
    let huge = rig.get(branch).await;
    assert_eq!(huge.as_array().unwrap().len(), 2, "{huge}");

    let raw = rig.http.get(format!("{}/vcs/diff/raw", rig.url)).send().await.unwrap();
    assert_eq!(raw.headers()["content-type"], "text/x-diff; charset=utf-8");
    let patch = json!({ "patch": raw.text().await.unwrap() });
    rig.project.git(&["checkout", "--quiet", "--", "."]);
    std::fs::remove_file(rig.project.path().join("src/new.rs")).unwrap();
    // From a subfolder, too: the patch starts at the root.
    let below = at(rig.project.path().join("src"), "/vcs/apply");
    assert_eq!(rig.send(Method::POST, &below, Some(patch.clone())).await, (200, json!({ "applied": true })));
    assert_eq!(rig.get("/vcs/status").await, changed);
    let (status, body) = rig.send(Method::POST, "/vcs/apply", Some(patch)).await;
    assert_eq!((status, &body["name"], &body["data"]["reason"]), (400, &json!("VcsApplyError"), &json!("not-clean")));
}

#[tokio::test]
async fn everything_works_outside_a_repository() {
    let rig = Rig::on(TempProject::without_git()).await;
    for (path, answer) in [
        ("/vcs", json!({ "branch": null, "default_branch": null })),
        ("/vcs/status", json!([])),
        ("/vcs/diff?mode=branch", json!([])),
        ("/file/status", json!([])),
        ("/experimental/worktree", json!([])),
        ("/experimental/workspace", json!([])),
        ("/project/global/directories", json!([])),
        ("/project/nope/directories", json!([])),
    ] {
        assert_eq!(rig.get(path).await, answer, "{path}");
    }
    let (_, session) = rig.send(Method::POST, "/session", None).await;
    assert_eq!(format!("/{}", session["path"].as_str().unwrap()), rig.project.directory());
    let project = rig.get("/project/current").await;
    assert_eq!((&project["id"], &project["worktree"], project.get("vcs")), (&json!("global"), &json!("/"), None));
    assert_eq!(rig.get("/path").await["worktree"], "/");
    let refused = rig.send(Method::POST, "/vcs/apply", Some(json!({ "patch": "x" }))).await.1;
    assert_eq!(refused["data"]["reason"], "non-git");
    let refused = rig.send(Method::POST, "/experimental/worktree", None).await.1;
    assert_eq!(refused["name"], "WorktreeNotGitError");
    let refused = rig.send(Method::POST, "/experimental/workspace", Some(json!({ "type": "worktree" }))).await.1;
    assert_eq!(refused["name"], "WorkspaceCreateError");
    // A missing directory is answered as well.
    assert_eq!(rig.get(&at("/no/where", "/vcs")).await["branch"], Value::Null);
    assert_eq!(rig.send(Method::GET, &at("/no/where", "/file?path="), None).await.0, 404);
    assert_eq!(rig.send(Method::POST, &at("/no/where", "/project/git/init"), None).await.0, 400);

    let mut events = rig.events("/global/event").await;
    let (status, made) = rig.send(Method::POST, "/project/git/init", None).await;
    assert_eq!((status, &made["vcs"], &made["worktree"]), (200, &json!("git"), &json!(rig.project.directory())));
    // One event comes from this server, the other from the journal: either may come first.
    let mut events_by_type: BTreeMap<String, Value> = BTreeMap::new();
    while !["server.instance.disposed", "project.updated"].iter().all(|kind| events_by_type.contains_key(*kind)) {
        let payload = events.next().await.unwrap()["payload"].clone();
        events_by_type.insert(payload["type"].as_str().unwrap().to_owned(), payload["properties"].clone());
    }
    assert_eq!(events_by_type["project.updated"], made);
    assert_eq!(rig.get("/path").await["worktree"], rig.project.directory());
}

#[tokio::test]
async fn projects_are_listed_and_changed() {
    let rig = rig().await;
    let current = rig.get("/project/current").await;
    assert_eq!(rig.get("/project").await.as_array().unwrap().len(), 1);
    let path = format!("/project/{}", current["id"].as_str().unwrap());
    let change = json!({ "name": "N", "icon": { "color": "red" }, "commands": { "start": "true" } });
    let (status, changed) = rig.send(Method::PATCH, &path, Some(change.clone())).await;
    assert_eq!((status, &changed["name"], &changed["icon"]), (200, &change["name"], &change["icon"]));
    // Fields that are not named stay.
    let (_, changed) = rig.send(Method::PATCH, &path, Some(json!({ "name": "M" }))).await;
    assert_eq!((&changed["name"], &changed["commands"]), (&json!("M"), &change["commands"]));
    let (_, changed) = rig.send(Method::PATCH, &path, Some(json!({ "icon": { "url": "data:," } }))).await;
    assert_eq!(changed["icon"], json!({ "url": "data:,", "color": "red" }));
    assert_eq!(rig.get("/project/current").await, changed);
    let (status, body) = rig.send(Method::PATCH, "/project/nope", Some(change)).await;
    assert_eq!((status, &body["_tag"]), (404, &json!("ProjectNotFoundError")));
    let directories = rig.get(&format!("{path}/directories")).await;
    assert_eq!(directories, json!([{ "directory": rig.project.directory() }]));
}

/// Git refuses to write in a worktree while another git does: the files of a new one are checked out after the response.
#[tokio::test]
async fn a_new_worktree_can_be_reset_and_removed_at_once() {
    let rig = rig().await;
    // Enough for a checkout to take longer than a request.
    for number in 0..300 {
        rig.project.write(format!("many/{number}.txt"), "text\n".repeat(500));
    }
    rig.project.git(&["add", "--all"]);
    rig.project.git(&["commit", "--quiet", "-m", "many"]);
    for round in 0..6 {
        let (status, tree) =
            rig.send(Method::POST, "/experimental/worktree", Some(json!({ "name": format!("t{round}") }))).await;
        assert_eq!(status, 200, "{tree}");
        let target = Some(json!({ "directory": tree["directory"] }));
        if round % 2 == 0 {
            let reset = rig.send(Method::POST, "/experimental/worktree/reset", target.clone()).await;
            assert_eq!(reset, (200, json!(true)), "round {round}");
        }
        let removed = rig.send(Method::DELETE, "/experimental/worktree", target).await;
        assert_eq!(removed, (200, json!(true)), "round {round}");
    }
}

#[tokio::test]
async fn worktrees_come_and_go() {
    let rig = rig().await;
    let mut events = rig.events("/global/event").await;
    let body = json!({ "name": "My Feature!", "startCommand": "pwd > started" });
    let (status, tree) = rig.send(Method::POST, "/experimental/worktree", Some(body.clone())).await;
    assert_eq!((status, &tree["name"], &tree["branch"]), (200, &json!("my-feature"), &json!("opencode/my-feature")));
    let directory = tree["directory"].as_str().unwrap().to_owned();
    let project = rig.get("/project/current").await["id"].as_str().unwrap().to_owned();
    let place = format!(".local/share/trefoil/worktree/{project}/my-feature");
    assert_eq!(Path::new(&directory), rig.project.home().join(place));
    let ready = events.wait_for("worktree.ready").await;
    assert_eq!((&ready["directory"], &ready["project"]), (&tree["directory"], &json!(project)));
    assert_eq!(std::fs::read_to_string(format!("{directory}/started")).unwrap().trim(), directory);

    // It is the same project with another root.
    assert_eq!(rig.get("/experimental/worktree").await, json!([directory]));
    let seen = rig.get(&at(&directory, "/project/current")).await;
    assert_eq!((&seen["worktree"], &seen["sandboxes"]), (&json!(rig.project.directory()), &json!([directory])));
    assert_eq!(rig.get(&at(&directory, "/path")).await["worktree"], json!(directory));
    assert_eq!(rig.get(&at(&directory, "/vcs")).await["branch"], "opencode/my-feature");
    let known = rig.get(&format!("/project/{project}/directories")).await;
    let linked = json!({ "directory": directory, "strategy": "git_worktree" });
    assert_eq!(known, json!([linked, { "directory": rig.project.directory() }]));

    // A taken name gets a suffix; a failing start command is reported.
    let body = json!({ "name": "My Feature!", "startCommand": "echo why; exit 3" });
    let (_, second) = rig.send(Method::POST, "/experimental/worktree", Some(body)).await;
    assert!(second["name"].as_str().unwrap().starts_with("my-feature-"), "{second}");
    let failed = events.wait_for("worktree.failed").await;
    let why = failed["payload"]["properties"]["message"].as_str().unwrap();
    assert_eq!(why, "The start command ended with exit code 3: why");

    // A reset restores the original state.
    std::fs::write(format!("{directory}/hello.txt"), "changed").unwrap();
    let target = json!({ "directory": directory });
    assert_eq!(rig.send(Method::POST, "/experimental/worktree/reset", Some(target.clone())).await, (200, json!(true)));
    assert_eq!(std::fs::read_to_string(format!("{directory}/hello.txt")).unwrap(), "hello world\n");
    assert!(!Path::new(&directory).join("started").exists());

    // Only linked worktrees are reset or removed.
    let outside = rig.project.root().join("outside");
    std::fs::create_dir(&outside).unwrap();
    for other in [outside.to_str().unwrap(), &rig.project.directory(), "/", "", "relative", "/no/where"] {
        let body = Some(json!({ "directory": other }));
        let (status, refused) = rig.send(Method::DELETE, "/experimental/worktree", body.clone()).await;
        assert_eq!((status, &refused["name"]), (400, &json!("WorktreeRemoveFailedError")), "{other}: {refused}");
        let (status, refused) = rig.send(Method::POST, "/experimental/worktree/reset", body).await;
        assert_eq!((status, &refused["name"]), (400, &json!("WorktreeResetFailedError")), "{other}: {refused}");
    }
    assert!(outside.exists() && rig.project.path().join("hello.txt").exists());
    assert_eq!(rig.send(Method::DELETE, "/experimental/worktree", Some(target)).await, (200, json!(true)));
    assert!(!Path::new(&directory).exists());
    assert!(!rig.project.git(&["branch", "--list"]).contains("opencode/my-feature\n"));
    assert_eq!(rig.get("/experimental/worktree").await, json!([second["directory"]]));
}

#[tokio::test]
async fn projects_are_copied() {
    let rig = rig().await;
    let id = rig.get("/project/current").await["id"].as_str().unwrap().to_owned();
    let copy = format!("/experimental/project/{id}/copy");
    let name =
        rig.send(Method::POST, &format!("{copy}/generate-name"), Some(json!({ "context": "Fix: the login" }))).await;
    assert_eq!(name, (200, json!({ "name": "fix-the-login" })));
    let name = rig.send(Method::POST, &format!("{copy}/generate-name"), None).await.1;
    assert!(name["name"].as_str().unwrap().contains('-'), "{name}");
    let parent = rig.project.root().join("copies");
    let body = json!({ "strategy": "git_worktree", "directory": parent, "name": "one" });
    let made = json!({ "directory": parent.join("one") });
    assert_eq!(rig.send(Method::POST, &copy, Some(body.clone())).await, (200, made.clone()));
    assert!(parent.join("one/hello.txt").exists());
    let wrong = json!({ "strategy": "nope", "directory": parent });
    for (path, body) in [(&*copy, body.clone()), (&copy, wrong), ("/experimental/project/nope/copy", body)] {
        let (status, refused) = rig.send(Method::POST, path, Some(body)).await;
        assert_eq!((status, &refused["name"]), (400, &json!("ProjectCopyError")), "{path}: {refused}");
    }
    std::fs::write(parent.join("one/new.txt"), "new").unwrap();
    let mut body = json!({ "directory": made["directory"], "force": false });
    let (_, refused) = rig.send(Method::DELETE, &copy, Some(body.clone())).await;
    assert_eq!(refused["data"]["forceRequired"], true, "{refused}");
    body["force"] = true.into();
    assert_eq!(rig.send(Method::DELETE, &copy, Some(body)).await, (204, Value::Null));
    assert!(!parent.join("one").exists());
    assert_eq!(rig.send(Method::POST, &format!("{copy}/refresh"), None).await, (204, Value::Null));
}

#[tokio::test]
async fn sessions_move_to_workspaces_and_back() {
    let rig = rig().await;
    let spaces = "/experimental/workspace";
    let body = json!({ "type": "worktree", "branch": "feature/x", "id": "wrk_mine", "extra": { "a": 1 } });
    let mut events = rig.events("/global/event").await;
    let (status, space) = rig.send(Method::POST, spaces, Some(body.clone())).await;
    assert_eq!((status, &space["id"], &space["branch"]), (200, &json!("wrk_mine"), &json!("feature/x")), "{space}");
    events.wait_for("worktree.ready").await;
    assert_eq!(rig.get(spaces).await, json!([space]));
    let status = json!([{ "workspaceID": "wrk_mine", "status": "connected" }]);
    assert_eq!(rig.get("/experimental/workspace/status").await, status);
    for bad in [body, json!({ "type": "cloud" }), json!({ "type": "worktree", "id": "x" }), json!({})] {
        assert_eq!(rig.send(Method::POST, spaces, Some(bad.clone())).await.0, 400, "{bad}");
    }

    let session = rig.send(Method::POST, "/session", Some(json!({}))).await.1["id"].as_str().unwrap().to_owned();
    let path = format!("/session/{session}");
    rig.project.write("hello.txt", "changed\n");
    let warp = |id: Value| json!({ "id": id, "sessionID": session, "copyChanges": true });
    let there = rig.send(Method::POST, "/experimental/workspace/warp", Some(warp(json!("wrk_mine")))).await;
    assert_eq!(there, (204, Value::Null));
    let moved = rig.get(&path).await;
    assert_eq!((&moved["directory"], &moved["workspaceID"]), (&space["directory"], &json!("wrk_mine")));
    let copied = Path::new(space["directory"].as_str().unwrap()).join("hello.txt");
    assert_eq!(std::fs::read_to_string(copied).unwrap(), "changed\n");
    let unknown = rig.send(Method::POST, "/experimental/workspace/warp", Some(warp(json!("wrk_none")))).await;
    assert_eq!((unknown.0, message(&unknown.1)), (404, "Workspace not found: wrk_none"));
    let back = json!({ "id": null, "sessionID": session });
    assert_eq!(rig.send(Method::POST, "/experimental/workspace/warp", Some(back)).await.0, 204);
    let moved = rig.get(&path).await;
    assert_eq!((&moved["directory"], moved.get("workspaceID")), (&json!(rig.project.directory()), None));
    let silent = json!({ "sessionID": session });
    assert_eq!(rig.send(Method::POST, "/experimental/workspace/warp", Some(silent)).await.0, 400);

    let to =
        |session: &str, directory: &Path| json!({ "sessionID": session, "destination": { "directory": directory } });
    let inside = to(&session, &rig.project.path().join("src"));
    assert_eq!(rig.send(Method::POST, "/experimental/control-plane/move-session", Some(inside)).await.0, 204);
    assert_eq!(rig.get(&path).await["path"], "src");
    for bad in
        [to(&session, rig.project.root()), to("ses_none", rig.project.path()), to(&session, Path::new("/no/where"))]
    {
        let (status, refused) = rig.send(Method::POST, "/experimental/control-plane/move-session", Some(bad)).await;
        assert_eq!((status, &refused["name"]), (400, &json!("MoveSessionError")), "{refused}");
    }

    assert_eq!(rig.send(Method::DELETE, "/experimental/workspace/wrk_mine", None).await, (200, space));
    assert_eq!(rig.send(Method::DELETE, "/experimental/workspace/wrk_mine", None).await.0, 404);
    assert_eq!(rig.get(spaces).await, json!([]));
    assert_eq!(rig.send(Method::POST, "/experimental/workspace/sync-list", None).await.0, 204);
}

#[tokio::test]
async fn sessions_of_every_project_come_in_pages() {
    let rig = rig().await;
    let elsewhere = TempProject::new();
    let mut made = Vec::new();
    for directory in [rig.project.path(), elsewhere.path(), rig.project.path()] {
        made.push(rig.send(Method::POST, &at(directory, "/session"), None).await.1["id"].clone());
    }
    let archive = json!({ "time": { "archived": 1 } });
    rig.send(Method::PATCH, &format!("/session/{}", made[2].as_str().unwrap()), Some(archive)).await;
    let ids = |list: &Value| -> Vec<Value> { list.as_array().unwrap().iter().map(|s| s["id"].clone()).collect() };
    let all = rig.get("/experimental/session").await;
    assert_eq!(ids(&all), [made[1].clone(), made[0].clone()]);
    let project = json!({ "id": all[0]["projectID"], "worktree": elsewhere.directory() });
    assert_eq!(all[0]["project"], project);
    assert_eq!(rig.get("/experimental/session?archived=true").await.as_array().unwrap().len(), 3);
    assert_eq!(ids(&rig.get(&at(elsewhere.path(), "/experimental/session")).await), [made[1].clone()]);
    let page = rig.http.get(format!("{}/experimental/session?limit=1", rig.url)).send().await.unwrap();
    let cursor = page.headers()["x-next-cursor"].to_str().unwrap().to_owned();
    assert_eq!(cursor, all[0]["time"]["updated"].to_string());
    let next = rig.http.get(format!("{}/experimental/session?limit=1&cursor={cursor}", rig.url)).send().await.unwrap();
    assert!(next.headers().get("x-next-cursor").is_none());
    let path = format!("/experimental/session/{}/background", made[0].as_str().unwrap());
    assert_eq!(rig.send(Method::POST, &path, None).await, (200, json!(false)));
    assert_eq!(rig.send(Method::POST, "/experimental/session/ses_none/background", None).await.0, 404);
}

#[tokio::test]
async fn the_log_is_read_from_the_last_known_event() {
    let rig = rig().await;
    let session = rig.send(Method::POST, "/session", None).await.1;
    let id = session["id"].as_str().unwrap();
    rig.send(Method::PATCH, &format!("/session/{id}"), Some(json!({ "title": "new" }))).await;
    let (status, log) = rig.send(Method::POST, "/sync/history", Some(json!({}))).await;
    let kinds: Vec<&Value> = log.as_array().unwrap().iter().map(|event| &event["type"]).collect();
    assert_eq!((status, kinds), (200, vec![&json!("session.created.1"), &json!("session.updated.1")]), "{log}");
    assert_eq!((&log[0]["aggregate_id"], &log[0]["data"]["info"]), (&session["id"], &session));
    let rest = rig.send(Method::POST, "/sync/history", Some(json!({ id: log[0]["seq"] }))).await.1;
    assert_eq!(rest, json!([log[1]]));
    assert_eq!(rig.send(Method::POST, "/sync/history", Some(json!({ "x": -1 }))).await.0, 400);
    for path in ["/sync/start", "/sync/steal", "/sync/replay"] {
        let event = json!({ "id": "evt_1", "aggregateID": id, "seq": 0, "type": "session.created.1", "data": {} });
        let body = json!({ "sessionID": id, "directory": "/", "events": [event] });
        let (status, refused) = rig.send(Method::POST, path, Some(body)).await;
        assert!(status == 400 && message(&refused).contains("not replicated"), "{path}: {refused}");
    }
}

#[tokio::test]
async fn disposing_reads_the_configuration_again() {
    let rig = rig().await;
    rig.get("/path").await;
    let mut own = rig.events("/event").await;
    let mut all = rig.events("/global/event").await;
    assert_eq!(rig.send(Method::POST, "/instance/dispose", None).await, (200, json!(true)));
    let disposed = own.wait_for("server.instance.disposed").await;
    assert_eq!(disposed["properties"], json!({ "directory": rig.project.directory() }));
    assert!(own.next().await.is_none(), "the stream of a directory ends with it");
    rig.get("/path").await;
    assert_eq!(rig.send(Method::POST, "/global/dispose", None).await, (200, json!(true)));
    all.wait_for("server.instance.disposed").await;
    all.wait_for("global.disposed").await;
}
