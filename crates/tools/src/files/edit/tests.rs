use super::*;
use crate::tool::registry::testing::Workspace;
use proptest::prelude::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

#[tokio::test]
async fn output_matches_the_recording() {
    let ws = Workspace::new();
    let file = ws.file("edit_me.txt", "line one\nline two\nline three\n");
    let input = json!({"filePath": file, "oldString": "line two", "newString": "LINE 2"});
    let needs = ws.needs("edit", input.clone()).await.unwrap();
    assert_eq!(needs.len(), 1);
    assert_eq!(
        (needs[0].permission.as_str(), &needs[0].patterns[..], &needs[0].always[..]),
        ("edit", &["edit_me.txt".to_owned()][..], &["*".to_owned()][..])
    );
    let output = ws.run("edit", input).await.unwrap();
    let shown = file.to_str().unwrap();
    let diff = format!(
        "Index: {shown}\n===================================================================\n--- {shown}\n+++ {shown}\n\
         @@ -1,3 +1,3 @@\n line one\n-line two\n+LINE 2\n line three\n"
    );
    assert_eq!(needs[0].metadata, object(json!({"filepath": shown, "diff": diff})));
    assert_eq!((output.title.as_str(), output.output.as_str()), ("edit_me.txt", "Edit applied successfully."));
    let filediff = json!({"file": shown, "patch": diff, "additions": 1, "deletions": 1});
    let metadata = json!({"diagnostics": {}, "diff": diff, "filediff": filediff, "truncated": false});
    assert_eq!(output.metadata, object(metadata));
    assert_eq!(output.changes[0], Change::File { path: file, kind: FileChange::Change });
    assert_eq!(ws.content("edit_me.txt"), "line one\nLINE 2\nline three\n");
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let ws = Workspace::new();
    ws.file("a.txt", "x\nx\n");
    let edit = |old: &str, new: &str| json!({"filePath": "a.txt", "oldString": old, "newString": new});
    assert!(ws.fail("edit", edit("y", "z")).await.contains("was not found"));
    assert!(ws.fail("edit", edit("x", "z")).await.contains("more than one place"));
    assert!(ws.fail("edit", edit("x", "x")).await.contains("the same"));
    assert!(ws.fail("edit", edit("", "z")).await.contains("exists already"));
    let missing = ws.fail("edit", json!({"filePath": "a.tx", "oldString": "x", "newString": "y"})).await;
    assert!(missing.starts_with("File not found:") && missing.contains("a.txt"), "{missing}");
    let folder = ws.fail("edit", json!({"filePath": ".", "oldString": "x", "newString": "y"})).await;
    assert!(folder.contains("is a directory"), "{folder}");
    assert!(ws.fail("edit", json!({"filePath": "a.txt"})).await.contains("Missing key\n  at [\"oldString\"]"));
    assert!(ws.fail("edit", json!("not an object")).await.contains("Expected object"));
    assert_eq!(ws.content("a.txt"), "x\nx\n");
}

#[tokio::test]
async fn an_empty_old_string_creates_a_file_and_its_folders() {
    let ws = Workspace::new();
    let output = ws.run("edit", json!({"filePath": "a/b/c.txt", "oldString": "", "newString": "new\n"})).await.unwrap();
    assert_eq!(ws.content("a/b/c.txt"), "new\n");
    assert!(matches!(output.changes[0], Change::File { kind: FileChange::Add, .. }));
}

#[tokio::test]
async fn files_that_are_not_text_are_refused() {
    let ws = Workspace::new();
    for (content, why) in [
        (&b"caf\xe9 one"[..], "is not UTF-8 text (byte 3)"),
        (b"\x7fELF one\0", "is a binary file with NUL bytes (byte 8)"),
    ] {
        let file = ws.file("data", content);
        let edit = ws.fail("edit", json!({"filePath": "data", "oldString": "one", "newString": "two"})).await;
        assert!(edit.contains(why) && edit.contains("bash"), "{edit}");
        let patch = "*** Begin Patch\n*** Update File: data\n@@\n-one\n+two\n*** End Patch";
        let patch = ws.fail("apply_patch", json!({"patchText": patch})).await;
        assert!(patch.contains(why), "{patch}");
        assert_eq!(std::fs::read(file).unwrap(), content);
    }
}

#[tokio::test]
async fn byte_order_marks_and_missing_final_newlines_are_kept() {
    let ws = Workspace::new();
    ws.file("w.txt", "\u{feff}a\r\nb\r\nc");
    ws.run("edit", json!({"filePath": "w.txt", "oldString": "b\nc", "newString": "d\ne"})).await.unwrap();
    assert_eq!(ws.content("w.txt"), "\u{feff}a\r\nd\r\ne");
}

#[tokio::test]
async fn a_long_single_line_is_edited() {
    let ws = Workspace::new();
    let big = "x".repeat(10_000_000);
    ws.file("big.txt", format!("{big}needle{big}"));
    ws.run("edit", json!({"filePath": "big.txt", "oldString": "needle", "newString": "pin"})).await.unwrap();
    assert_eq!(ws.content("big.txt").len(), 20_000_003);
}

#[tokio::test]
async fn permission_for_a_link_is_that_of_its_target() {
    let ws = Workspace::new();
    let secret = ws.outside().join("secret.txt");
    std::fs::write(&secret, "one").unwrap();
    symlink(&secret, ws.path("link.txt")).unwrap();
    let input = json!({"filePath": "link.txt", "oldString": "one", "newString": "two"});
    let needs = ws.needs("edit", input.clone()).await.unwrap();
    assert_eq!(needs[0].permission, "external_directory");
    assert_eq!(needs[0].patterns, [format!("{}/*", ws.outside().display())]);
    // If it is granted, the file behind the link is written, and the link stays.
    ws.run("edit", input.clone()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "two");
    assert!(ws.path("link.txt").is_symlink());
}

#[tokio::test]
async fn a_link_swapped_after_the_decision_is_refused() {
    let ws = Workspace::new();
    let secret = ws.outside().join("secret.txt");
    std::fs::write(&secret, "one").unwrap();
    let inside = ws.file("a.txt", "one");
    let input = json!({"filePath": "a.txt", "oldString": "one", "newString": "two"});
    let mut ctx = ws.context();
    ctx.granted = ws.needs("edit", input.clone()).await.unwrap().into();
    std::fs::remove_file(&inside).unwrap();
    symlink(&secret, &inside).unwrap();
    let tool = crate::tool::erase(Edit { locks: FileLocks::default() });
    let error = tool.run(input, ctx).await.unwrap_err();
    assert!(error.to_string().contains("not granted"), "{error}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "one");
}

#[tokio::test]
async fn a_read_only_file_is_refused() {
    let ws = Workspace::new();
    let file = ws.file("locked.txt", "one");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).unwrap();
    let error = ws.fail("edit", json!({"filePath": "locked.txt", "oldString": "one", "newString": "two"})).await;
    assert!(error.contains("read-only"), "{error}");
    assert_eq!(ws.content("locked.txt"), "one");
}

#[tokio::test]
async fn concurrent_edits_of_one_file_all_survive() {
    let ws = Arc::new(Workspace::new());
    let lines: String = (0..20).map(|n| format!("<{n}>\n")).collect();
    ws.file("a.txt", lines);
    let edits = (0..20).map(|n| {
        let ws = ws.clone();
        tokio::spawn(async move {
            ws.run("edit", json!({"filePath": "a.txt", "oldString": format!("<{n}>"), "newString": format!("[{n}]")}))
                .await
        })
    });
    for edit in edits.collect::<Vec<_>>() {
        edit.await.unwrap().unwrap();
    }
    assert!(!ws.content("a.txt").contains('<'));
}

proptest! {
    #[test]
    fn the_fuzz_target_holds(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_edit(&data);
    }

    #[test]
    fn the_fuzz_target_holds_for_likely_texts(
        flag: bool, content in "([ \t]{0,2}[ab\\\\\"n]{0,3}\r?\n?){0,8}", old in "([ \t]{0,2}[ab\\\\\"n]{0,3}\n?){0,4}", new in "[ab\n]{0,5}"
    ) {
        let mut data = vec![u8::from(flag)];
        data.extend(format!("{content}\u{1}{old}\u{1}{new}").into_bytes());
        fuzz_edit(&data);
    }
}
