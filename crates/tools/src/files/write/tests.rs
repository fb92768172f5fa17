use super::*;
use crate::tool::registry::testing::Workspace;
use api::Environment;
use futures::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;

#[tokio::test]
async fn output_matches_the_recording() {
    let ws = Workspace::new();
    let input = json!({"filePath": "new_dir/new.txt", "content": "fresh\ncontent\n"});
    let needs = ws.needs("write", input.clone()).await.unwrap();
    assert_eq!((needs[0].permission.as_str(), needs[0].patterns[0].as_str()), ("edit", "new_dir/new.txt"));
    assert!(needs[0].metadata["diff"].as_str().unwrap().ends_with("@@ -0,0 +1,2 @@\n+fresh\n+content\n"));
    assert!(!ws.path("new_dir").exists(), "determining the needs changes nothing");
    let output = ws.run("write", input.clone()).await.unwrap();
    assert_eq!((output.title.as_str(), output.output.as_str()), ("new_dir/new.txt", "Wrote file successfully."));
    let path = ws.path("new_dir/new.txt");
    let metadata = json!({"diagnostics": {}, "filepath": path, "exists": false, "truncated": false});
    assert_eq!(output.metadata, object(metadata));
    assert_eq!(output.changes[0], Change::File { path: path.clone(), kind: FileChange::Add });
    assert!(matches!(&output.changes[1], Change::KnownFile { path: known, .. } if *known == path));
    assert_eq!(ws.content("new_dir/new.txt"), "fresh\ncontent\n");
    let again = ws.run("write", input).await.unwrap();
    assert_eq!(again.metadata["exists"], true);
}

#[tokio::test]
async fn a_git_directory_needs_its_own_permission() {
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
        // Without permission nothing changes.
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
async fn folders_and_outside_files() {
    let ws = Workspace::new();
    assert!(ws.fail("write", json!({"filePath": ".", "content": "x"})).await.contains("is a directory"));
    ws.file("plain", "x");
    let below_file = ws.fail("write", json!({"filePath": "plain/x", "content": "x"})).await;
    assert!(below_file.contains("Not a directory"), "{below_file}");
    let needs = ws.needs("write", json!({"filePath": "../up.txt", "content": "x"})).await.unwrap();
    assert_eq!(needs[0].permission, "external_directory");
    assert_eq!(needs[0].metadata["filepath"], ws.outside().join("up.txt").to_str().unwrap());
    assert_eq!(needs[1].patterns, ["../up.txt"]);
    // Without permission nothing is written.
    let tool = crate::tool::erase(Write { locks: FileLocks::default() });
    let error = tool.run(json!({"filePath": "../up.txt", "content": "x"}), ws.context()).await.unwrap_err();
    assert!(error.to_string().contains("not granted"));
    assert!(!ws.outside().join("up.txt").exists());
}

#[tokio::test]
async fn a_file_too_large_for_memory_is_replaced_without_a_diff() {
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

#[tokio::test]
async fn a_byte_order_mark_stays() {
    for (before, written, want) in [
        ("\u{feff}old\r\n", "new\n", "\u{feff}new\n"),
        ("\u{feff}old", "\u{feff}new", "\u{feff}new"),
        ("\u{feff}", "", "\u{feff}"),
        ("old", "new", "new"),
        ("old", "\u{feff}new", "\u{feff}new"),
    ] {
        let ws = Workspace::new();
        let input = json!({"filePath": ws.file("a.txt", before), "content": written});
        let diff = ws.needs("write", input.clone()).await.unwrap()[0].metadata["diff"].clone();
        assert_eq!(diff.as_str().unwrap().contains("+\u{feff}new"), want.starts_with("\u{feff}new"), "{diff}");
        ws.run("write", input).await.unwrap();
        assert_eq!(ws.content("a.txt"), want, "{before:?} {written:?}");
    }
}

/// What the agent did to the file before somebody else changed it, and whether it may then write the whole file.
#[tokio::test]
async fn changes_by_others_are_not_overwritten() {
    let read = |ws: &Workspace| ("read", json!({"filePath": ws.path("a.txt")}));
    let write = |text: &str| ("write", json!({"filePath": "a.txt", "content": text}));
    let edit = |old: &str, new: &str| ("edit", json!({"filePath": "a.txt", "oldString": old, "newString": new}));
    let patch = |body: &str| ("apply_patch", json!({"patchText": format!("*** Begin Patch\n{body}\n*** End Patch")}));
    let page = json!({"filePath": "a.txt", "offset": 2, "limit": 1});
    let ws = Workspace::new();
    // What the agent does, with `None` where somebody else writes `theirs`; then it writes.
    let theirs = "one\ntheirs\n";
    type Step<'a> = Option<(&'a str, Json)>;
    let cases: Vec<(&str, Vec<Step>, bool)> = vec![
        ("never seen", vec![None], true),
        ("read", vec![Some(read(&ws))], true),
        ("read, changed", vec![Some(read(&ws)), None], false),
        ("a page of it read, changed", vec![Some(("read", page)), None], false),
        ("read, changed, read", vec![Some(read(&ws)), None, Some(read(&ws))], true),
        ("written, changed", vec![Some(write("mine\n")), None], false),
        ("written twice", vec![Some(write("mine\n")), Some(write("again\n"))], true),
        ("edited, changed", vec![Some(edit("two", "2")), None], false),
        ("read, edited", vec![Some(read(&ws)), Some(edit("two", "2"))], true),
        ("read, changed, edited", vec![Some(read(&ws)), None, Some(edit("theirs", "2"))], false),
        ("patched, changed", vec![Some(patch("*** Update File: a.txt\n@@\n-two\n+2")), None], false),
        (
            "read, changed, patched",
            vec![Some(read(&ws)), None, Some(patch("*** Update File: a.txt\n@@\n-theirs\n+2"))],
            false,
        ),
        ("deleted, made again by others", vec![Some(patch("*** Delete File: a.txt")), None], false),
        ("deleted", vec![Some(patch("*** Delete File: a.txt"))], true),
        (
            "moved here, changed",
            vec![Some(patch("*** Update File: a.txt\n*** Move to: b.txt\n@@\n-two\n+2")), None],
            false,
        ),
    ];
    for (name, steps, may) in cases {
        let mut ctx = ws.context();
        ctx.options = Arc::new(crate::Options { known_files: crate::KnownFiles::default(), ..ws.options.clone() });
        let _ = std::fs::remove_file(ws.path("b.txt"));
        ws.file("a.txt", "one\ntwo\n");
        for step in steps {
            match step {
                None => drop(ws.file("a.txt", theirs)),
                Some((tool, input)) => drop(ws.run_in(ctx.clone(), tool, input).await.unwrap()),
            }
        }
        let (tool, input) = write("final\n");
        let before = std::fs::read(ws.path("a.txt")).ok();
        let result = ws.run_in(ctx.clone(), tool, input.clone()).await;
        assert_eq!(result.is_ok(), may, "{name}: {result:?}");
        if let Err(error) = result {
            assert_eq!(std::fs::read(ws.path("a.txt")).ok(), before, "{name}");
            let error = error.to_string();
            assert!(error.contains("changed by somebody else") && error.contains("Read it again"), "{name}: {error}");
            let seen = if before.as_deref() == Some(theirs.as_bytes()) { "+theirs" } else { "+2" };
            assert!(error.contains(seen), "{name}: {error}");
            // Once it was read again it may be written.
            let (tool, again) = read(&ws);
            ws.run_in(ctx.clone(), tool, again).await.unwrap();
            ws.run_in(ctx, "write", input).await.unwrap();
        }
        assert_eq!(ws.content("a.txt"), "final\n", "{name}");
    }
}

#[tokio::test]
async fn shown_changes_respect_bounds_and_rules() {
    let ws = Workspace::new();
    let cases: [(&str, Vec<u8>, Vec<u8>, bool); 5] = [
        ("a.txt", b"old\n".to_vec(), b"theirs\n".to_vec(), true),
        ("a.txt", b"old\n".to_vec(), b"theirs\n".repeat(10_000), true),
        ("large.txt", b"old\n".repeat(50_000), b"theirs\n".to_vec(), false),
        ("binary", b"\xff\0old".to_vec(), b"\xff\0theirs".to_vec(), false),
        // Reading it needs permission.
        ("keys.env", b"old\n".to_vec(), b"theirs\n".to_vec(), false),
    ];
    for (name, before, theirs, shown) in cases {
        let ctx = ws.context();
        ws.file(name, &before);
        let mut granted = ctx.clone();
        granted.granted = vec![Need::new("read", name)].into();
        let _ = ws.run_granted(granted, "read", json!({"filePath": name})).await;
        ws.file(name, &theirs);
        let mut ctx = ctx;
        ctx.granted = vec![Need::new("edit", name)].into();
        let error =
            ws.run_granted(ctx, "write", json!({"filePath": name, "content": "x"})).await.unwrap_err().to_string();
        assert!(error.contains("changed by somebody else") && error.len() < 6000, "{error}");
        assert_eq!(error.contains("theirs"), shown, "{name}: {error}");
        assert_eq!(std::fs::read(ws.path(name)).unwrap(), theirs);
        // Nobody is asked about a change that is refused anyway.
        let needs = ws.needs("write", json!({"filePath": name, "content": "x"})).await;
        assert!(needs.unwrap_err().to_string().contains("changed by somebody else"), "{name}");
    }
}

#[tokio::test]
async fn concurrent_writes_know_of_each_other() {
    let ws = Arc::new(Workspace::new());
    let ctx = ws.context();
    ws.file("a.txt", "one\n");
    ws.run_in(ctx.clone(), "read", json!({"filePath": "a.txt"})).await.unwrap();
    let calls = (0..10).map(|n| {
        let (ws, ctx) = (ws.clone(), ctx.clone());
        tokio::spawn(
            async move { ws.run_in(ctx, "write", json!({"filePath": "a.txt", "content": format!("{n}\n")})).await },
        )
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
}

/// A full disk.
struct FullDisk;

impl Environment for FullDisk {
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
async fn a_full_disk_is_reported() {
    let ws = Workspace::new();
    let mut ctx = ws.context();
    ctx.env = Arc::new(FullDisk);
    let error = ws.run_in(ctx, "write", json!({"filePath": "a.txt", "content": "x"})).await.unwrap_err();
    assert!(error.to_string().contains("Could not write") && error.to_string().contains("no storage space"), "{error}");
}
