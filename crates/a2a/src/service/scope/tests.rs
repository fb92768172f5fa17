use std::os::unix::fs::symlink;

use serde_json::json;
use testkit::TempProject;

use super::*;

fn metadata(value: Json) -> JsonMap {
    JsonMap::from_iter([("opencode".to_owned(), value)])
}

fn directory(path: impl Into<String>) -> Named {
    Named { directory: Some(path.into()), workspace: None }
}

/// A root with a folder, a file, and links into it and out of it.
fn project() -> (TempProject, PathBuf) {
    let project = TempProject::without_git();
    let root = resolve(project.path()).unwrap();
    for folder in ["ws/sub/deep", "out"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (target, link) in [
        ("../out", "ws/escape"),
        ("sub", "ws/inside"),
        ("../../out", "ws/sub/up"),
        ("loop-b", "ws/loop-a"),
        ("loop-a", "ws/loop-b"),
        ("/", "ws/everything"),
        ("../ws/sub", "out/back"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let ws = root.join("ws");
    (project, ws)
}

#[tokio::test]
async fn directories_stay_inside_of_the_root() {
    let (_project, root) = project();
    let places = Places::new(&root, true);
    let inside = |path: &str| root.join(path).to_str().unwrap().to_owned();
    for (asked, want) in [
        (inside("sub"), Some("sub")),
        ("sub".to_owned(), Some("sub")),
        ("./sub/deep/..".to_owned(), Some("sub")),
        (inside("inside"), Some("sub")),
        ("inside/deep".to_owned(), Some("sub/deep")),
        (".".to_owned(), Some("")),
        (inside(""), Some("")),
        ("escape/../ws/sub".to_owned(), Some("sub")),
        ("escape/back".to_owned(), Some("sub")),
        // It may be on another machine.
        ("missing/one".to_owned(), Some("missing/one")),
        ("missing/../sub".to_owned(), Some("sub")),
        ("..".to_owned(), None),
        ("../out".to_owned(), None),
        (inside("../out"), None),
        ("sub/../../out".to_owned(), None),
        ("missing/../../out".to_owned(), None),
        (inside("escape"), None),
        ("sub/up".to_owned(), None),
        ("inside/..".to_owned(), Some("")),
        ("everything/etc".to_owned(), None),
        ("loop-a".to_owned(), None),
        ("/etc".to_owned(), None),
        ("/".to_owned(), None),
        (format!("{}-other", root.display()), None),
        ("a\0b".to_owned(), None),
        ("x/".repeat(4000), None),
    ] {
        let scope = places.scope(&directory(asked.clone())).await;
        match want {
            Some(want) => {
                let path = if want.is_empty() { root.clone() } else { root.join(want) };
                assert_eq!(scope, Ok(Scope::new(path.to_str().unwrap())), "{asked}");
            }
            None => assert!(scope.is_err(), "{asked}: {scope:?}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_does_not_show_the_root() {
    let (_project, root) = project();
    let error = Places::new(&root, true).scope(&directory("escape")).await.unwrap_err().to_string();
    assert!(error.contains("escape") && !error.contains(root.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn the_root_itself_may_be_a_link() {
    let (_project, ws) = project();
    let link = ws.join("inside");
    let places = Places::new(&link, true);
    assert_eq!(places.scope(&Named::default()).await, Ok(Scope::new(link.to_str().unwrap())));
    // Both spellings of the root mean the root as it was configured.
    for root in [link.clone(), ws.join("sub")] {
        let scope = places.scope(&directory(root.to_str().unwrap())).await;
        assert_eq!(scope, Ok(Scope::new(link.to_str().unwrap())));
    }
    let deep = places.scope(&directory("deep")).await;
    assert_eq!(deep, Ok(Scope::new(ws.join("sub/deep").to_str().unwrap())));
    assert!(places.scope(&directory("..")).await.is_err());
}

#[tokio::test]
async fn without_override_only_the_default_is_accepted() {
    let (_project, root) = project();
    let places = Places::new(&root, false);
    assert!(places.scope(&directory(".")).await.is_ok());
    assert!(places.scope(&directory(root.to_str().unwrap())).await.is_ok());
    assert!(places.scope(&directory("sub")).await.is_err());
    assert!(places.scope(&directory("/etc")).await.is_err());
}

#[tokio::test]
async fn a_workspace_wins_and_the_directory_is_not_used() {
    let (_project, root) = project();
    let places = Places::new(&root, true);
    let named = Named::read(&metadata(json!({"workspace": {"id": "wrk_1"}, "directory": "/etc"}))).unwrap();
    let scope = places.scope(&named).await.unwrap();
    assert_eq!(scope, Scope { directory: root.to_str().unwrap().to_owned(), workspace: Some("wrk_1".to_owned()) });
    let bad = Named { workspace: Some("a\nb".to_owned()), directory: None };
    assert!(places.scope(&bad).await.is_err());
}

#[test]
fn metadata_of_a_wrong_type() {
    for (value, field) in [
        (json!(5), "metadata.opencode"),
        (json!({"directory": 5}), "metadata.opencode.directory"),
        (json!({"directory": ["a"]}), "metadata.opencode.directory"),
        (json!({"workspace": "wrk_1"}), "metadata.opencode.workspace"),
        (json!({"workspace": {"id": 1}}), "metadata.opencode.workspace.id"),
    ] {
        let metadata = metadata(value);
        assert_eq!(Named::read(&metadata).unwrap_err().fields["field"], field);
        // Messages ignore it, as recorded.
        assert_eq!(Named::read_leniently(&metadata), Named::default());
    }
    for empty in [json!(null), json!({}), json!({"directory": " ", "workspace": {"id": ""}}), json!({"workspace": {}})]
    {
        assert_eq!(Named::read(&metadata(empty)).unwrap(), Named::default());
    }
}
