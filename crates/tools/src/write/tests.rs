use super::*;
use crate::registry::testing::Workspace;
use api::Environment;
use futures::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;

#[tokio::test]
async fn the_recorded_shape() {
    let ws = Workspace::new();
    let input = json!({"filePath": "new_dir/new.txt", "content": "fresh\ncontent\n"});
    let needs = ws.needs("write", input.clone()).await.unwrap();
    assert_eq!((needs[0].permission.as_str(), needs[0].patterns[0].as_str()), ("edit", "new_dir/new.txt"));
    assert!(needs[0].metadata["diff"].as_str().unwrap().ends_with("@@ -0,0 +1,2 @@\n+fresh\n+content\n"));
    assert!(!ws.path("new_dir").exists(), "judging changes nothing");
    let output = ws.run("write", input.clone()).await.unwrap();
    assert_eq!((output.title.as_str(), output.output.as_str()), ("new_dir/new.txt", "Wrote file successfully."));
    let path = ws.path("new_dir/new.txt");
    let metadata = json!({"diagnostics": {}, "filepath": path, "exists": false, "truncated": false});
    assert_eq!(output.metadata, object(metadata));
    assert_eq!(output.changes, [Change::File { path, kind: FileChange::Add }]);
    assert_eq!(ws.content("new_dir/new.txt"), "fresh\ncontent\n");
    let again = ws.run("write", input).await.unwrap();
    assert_eq!(again.metadata["exists"], true);
}

#[tokio::test]
async fn the_folder_of_a_repository_needs_a_permission_of_its_own() {
    let ws = Workspace::new();
    ws.file(".git/config", "[core]\n");
    ws.file("plain", "text\n");
    let patch = |body: &str| json!({"patchText": format!("*** Begin Patch\n{body}\n*** End Patch")});
    let cases = [
        ("write", json!({"filePath": ".git/hooks/post-checkout", "content": "x"}), ".git/hooks/post-checkout"),
        ("write", json!({"filePath": "sub/.git", "content": "gitdir: ../x"}), "sub/.git"),
        ("edit", json!({"filePath": ".git/config", "oldString": "core", "newString": "x"}), ".git/config"),
        ("edit", json!({"filePath": ".git/new", "oldString": "", "newString": "x"}), ".git/new"),
        ("apply_patch", patch("*** Add File: .git/hooks/x\n+x"), ".git/hooks/x"),
        ("apply_patch", patch("*** Update File: .git/config\n@@\n-[core]\n+[x]"), ".git/config"),
        ("apply_patch", patch("*** Delete File: .git/config"), ".git/config"),
        ("apply_patch", patch("*** Update File: plain\n*** Move to: .git/x\n@@\n-text\n+x"), ".git/x"),
        ("apply_patch", patch("*** Update File: .git/config\n*** Move to: x\n@@\n-[core]\n+x"), ".git/config"),
        ("bash", json!({"command": "echo x > .git/config"}), ".git/config"),
        ("bash", json!({"command": "cat plain >> .git/hooks/x", "workdir": "."}), ".git/hooks/x"),
    ];
    for (tool, input, pattern) in cases {
        let needs = ws.needs(tool, input.clone()).await.unwrap();
        let found =
            needs.iter().find(|need| need.permission == "git_directory").unwrap_or_else(|| panic!("{tool} {input}"));
        assert_eq!(found.patterns, [pattern], "{tool} {input}");
        assert!(needs.iter().any(|need| need.permission == "edit"), "{tool} {input}");
        // Where it was not granted, nothing is changed.
        if tool == "write" {
            let write = crate::tool::erase(Write { locks: FileLocks::default() });
            let error = write.run(input, ws.context()).await.unwrap_err();
            assert!(error.to_string().contains("git_directory"), "{error}");
        }
    }
    assert_eq!(ws.content(".git/config"), "[core]\n");
    let plain = ws.needs("write", json!({"filePath": ".gitignore", "content": "x"})).await.unwrap();
    assert!(plain.iter().all(|need| need.permission != "git_directory"));
    let read = ws.needs("bash", json!({"command": "cat < .git/config"})).await.unwrap();
    assert!(read.iter().all(|need| need.permission != "git_directory"));
}

#[tokio::test]
async fn a_folder_and_a_place_outside() {
    let ws = Workspace::new();
    assert!(ws.fail("write", json!({"filePath": ".", "content": "x"})).await.contains("is a directory"));
    ws.file("plain", "x");
    let below_file = ws.fail("write", json!({"filePath": "plain/x", "content": "x"})).await;
    assert!(below_file.contains("Not a directory"), "{below_file}");
    let needs = ws.needs("write", json!({"filePath": "../up.txt", "content": "x"})).await.unwrap();
    assert_eq!(needs[0].permission, "external_directory");
    assert_eq!(needs[0].metadata["filepath"], ws.outside().join("up.txt").to_str().unwrap());
    assert_eq!(needs[1].patterns, ["../up.txt"]);
    // Without the grant nothing is written.
    let tool = crate::tool::erase(Write { locks: FileLocks::default() });
    let error = tool.run(json!({"filePath": "../up.txt", "content": "x"}), ws.context()).await.unwrap_err();
    assert!(error.to_string().contains("not granted"));
    assert!(!ws.outside().join("up.txt").exists());
}

#[tokio::test]
async fn a_file_too_large_to_be_held_is_replaced_and_not_compared() {
    let ws = Workspace::new();
    let big = ws.path("big.log");
    std::fs::File::create(&big).unwrap().set_len(disk::MAX_FILE_BYTES + 1).unwrap();
    for (tool, input) in [
        ("edit", json!({"filePath": "big.log", "oldString": "a", "newString": "b"})),
        ("apply_patch", json!({"patchText": "*** Begin Patch\n*** Update File: big.log\n@@\n-a\n+b\n*** End Patch"})),
    ] {
        let refused = ws.fail(tool, input).await;
        assert!(refused.contains("67108865 bytes") && refused.contains("bash"), "{refused}");
    }
    let input = json!({"filePath": "big.log", "content": "small\n"});
    let needs = ws.needs("write", input.clone()).await.unwrap();
    let diff = needs[0].metadata["diff"].as_str().unwrap();
    assert!(diff.contains("67108865 bytes") && diff.ends_with("+small\n") && diff.len() < 1000, "{diff}");
    let output = ws.run("write", input).await.unwrap();
    assert_eq!((&output.metadata["exists"], ws.content("big.log").as_str()), (&json!(true), "small\n"));
}

/// A disk that is full.
struct Full;

impl Environment for Full {
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<Vec<u8>, EnvironmentError>> {
        let source = io::Error::from(io::ErrorKind::NotFound);
        Box::pin(async move { Err(EnvironmentError::Io { path: path.to_owned(), source }) })
    }

    fn write<'a>(&'a self, path: &'a Path, _: &'a [u8]) -> BoxFuture<'a, Result<(), EnvironmentError>> {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        Box::pin(async move { Err(EnvironmentError::Io { path: path.to_owned(), source }) })
    }
}

#[tokio::test]
async fn a_full_disk_is_told_as_it_is() {
    let ws = Workspace::new();
    let mut ctx = ws.context();
    ctx.env = Arc::new(Full);
    let error = ws.run_in(ctx, "write", json!({"filePath": "a.txt", "content": "x"})).await.unwrap_err();
    assert!(error.to_string().contains("Could not write") && error.to_string().contains("no storage space"), "{error}");
}
