use super::*;
use crate::tool::registry::testing::Workspace;
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;

fn wrap(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch")
}

async fn run(ws: &Workspace, body: &str) -> Result<Output, String> {
    ws.run("apply_patch", json!({"patchText": wrap(body)})).await.map_err(|error| error.to_string())
}

/// Applies the hunks of one update to a text.
fn update(content: &str, hunks: &str) -> Result<String, String> {
    let sections = parse::parse(&wrap(&format!("*** Update File: f\n{hunks}")))?;
    let [Section::Update { hunks, .. }] = sections.as_slice() else { panic!("{sections:?}") };
    check_hunks(content, hunks);
    apply::apply(content, hunks)
}

#[tokio::test]
async fn output_matches_the_recording() {
    let ws = Workspace::new();
    ws.file("extra.md", "OLD\n");
    let body = "*** Add File: added.txt\n+one\n+two\n*** Update File: extra.md\n@@\n-OLD\n+NEW";
    let needs = ws.needs("apply_patch", json!({"patchText": wrap(body)})).await.unwrap();
    assert_eq!((needs.len(), needs[0].permission.as_str()), (1, "edit"));
    assert_eq!(needs[0].patterns, ["added.txt", "extra.md"]);
    assert_eq!(needs[0].metadata["filepath"], "added.txt, extra.md");
    let output = run(&ws, body).await.unwrap();
    let text = "Success. Updated the following files:\nA added.txt\nM extra.md";
    assert_eq!((output.title.as_str(), output.output.as_str()), (text, text));
    let added = ws.path("added.txt").to_str().unwrap().to_owned();
    let file = &output.metadata["files"][0];
    let patch = format!(
        "Index: {added}\n===================================================================\n--- {added}\n+++ {added}\n\
         @@ -0,0 +1,2 @@\n+one\n+two\n"
    );
    let want = json!({"filePath": added, "relativePath": "added.txt", "type": "add", "patch": patch, "additions": 2, "deletions": 0});
    assert_eq!(file, &want);
    assert!(output.metadata["diff"].as_str().unwrap().starts_with(&format!("{patch}\nIndex: ")));
    assert_eq!((ws.content("added.txt").as_str(), ws.content("extra.md").as_str()), ("one\ntwo\n", "NEW\n"));
    let deleted = run(&ws, "*** Delete File: added.txt").await.unwrap();
    assert_eq!(deleted.output, "Success. Updated the following files:\nD added.txt");
    assert_eq!(deleted.changes[0], Change::File { path: ws.path("added.txt"), kind: FileChange::Unlink });
    assert!(!ws.path("added.txt").exists());
}

#[tokio::test]
async fn shown_diffs_of_a_large_patch_are_bounded() {
    let ws = Workspace::new();
    for number in 0..8 {
        ws.file(&format!("{number}.txt"), "a line of text\n".repeat(20_000));
    }
    let deletes: Vec<String> = (0..8).map(|number| format!("*** Delete File: {number}.txt")).collect();
    let output = run(&ws, &deletes.join("\n")).await.unwrap();
    assert!(output.metadata["diff"].as_str().unwrap().len() < MAX_SHOWN + 10_000);
    assert!(api::json_size(&output.metadata) < 2 * MAX_SHOWN + 100_000);
    let last = output.metadata["files"][7]["patch"].as_str().unwrap();
    assert!(last.contains("left out") && last.contains("7.txt"), "{last}");
    assert_eq!(output.metadata["files"][7]["deletions"], 20_000);
}

#[tokio::test]
async fn a_file_moves() {
    let ws = Workspace::new();
    ws.file("a.txt", "one\ntwo\n");
    let output = run(&ws, "*** Update File: a.txt\n*** Move to: sub/b.txt\n@@\n one\n-two\n+2").await.unwrap();
    assert_eq!(output.output, "Success. Updated the following files:\nM sub/b.txt");
    assert_eq!(output.metadata["files"][0]["type"], "move");
    assert_eq!(output.metadata["files"][0]["movePath"], ws.path("sub/b.txt").to_str().unwrap());
    assert_eq!(ws.content("sub/b.txt"), "one\n2\n");
    assert!(!ws.path("a.txt").exists());
    ws.file("c.txt", "x");
    assert!(run(&ws, "*** Update File: sub/b.txt\n*** Move to: c.txt").await.unwrap_err().contains("exists already"));
}

#[tokio::test]
async fn nothing_is_written_unless_every_hunk_matches() {
    let ws = Workspace::new();
    ws.file("a.txt", "one\n");
    let parts = ["*** Update File: a.txt\n@@\n-one\n+1", "*** Add File: new.txt\n+x"].join("\n");
    let failing = [
        "*** Update File: a.txt\n@@\n-absent\n+y",
        "*** Delete File: missing.txt",
        "*** Add File: a.txt\n+x",
        "*** Update File: missing.txt\n@@\n-a\n+b",
    ];
    for broken in failing {
        assert!(run(&ws, &format!("{parts}\n{broken}")).await.is_err(), "{broken}");
        assert_eq!(ws.content("a.txt"), "one\n", "{broken}");
        assert!(!ws.path("new.txt").exists(), "{broken}");
    }
}

#[tokio::test]
async fn written_files_are_restored_when_a_write_fails() {
    let ws = Workspace::new();
    ws.file("a.txt", "one\n");
    let locked = ws.file("z.txt", "one\n");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o444)).unwrap();
    let error =
        run(&ws, "*** Update File: a.txt\n@@\n-one\n+1\n*** Add File: b.txt\n+x\n*** Update File: z.txt\n@@\n-one\n+1")
            .await;
    assert!(error.unwrap_err().contains("read-only"));
    assert_eq!(ws.content("a.txt"), "one\n");
    assert!(!ws.path("b.txt").exists());
}

#[tokio::test]
async fn sections_of_one_file_build_on_each_other() {
    let ws = Workspace::new();
    ws.file("a.txt", "one\n");
    run(&ws, "*** Update File: a.txt\n@@\n-one\n+two\n*** Update File: a.txt\n@@\n-two\n+three").await.unwrap();
    assert_eq!(ws.content("a.txt"), "three\n");
}

#[tokio::test]
async fn outside_folders_need_permission() {
    let ws = Workspace::new();
    let needs = ws.needs("apply_patch", json!({"patchText": wrap("*** Add File: ../x.txt\n+x")})).await.unwrap();
    assert_eq!((needs[0].permission.as_str(), needs[1].permission.as_str()), ("external_directory", "edit"));
}

#[test]
fn hunks_find_their_place() {
    let code = "fn a() {\n    x();\n}\n\nfn b() {\n    x();\n}\n";
    assert_eq!(
        update(code, "@@ fn b() {\n-    x();\n+    y();").unwrap(),
        "fn a() {\n    x();\n}\n\nfn b() {\n    y();\n}\n"
    );
    assert_eq!(update(code, "-    x();\n+    y();").unwrap(), "fn a() {\n    y();\n}\n\nfn b() {\n    x();\n}\n");
    let at_end = update(code, "@@\n-    x();\n+    y();\n }\n*** End of File").unwrap();
    assert_eq!(at_end, "fn a() {\n    x();\n}\n\nfn b() {\n    y();\n}\n");
    assert_eq!(update("a\nb\n", "@@\n+c").unwrap(), "a\nb\nc\n");
    assert_eq!(update("a\nb\n", "@@ a\n+c").unwrap(), "a\nc\nb\n");
    assert_eq!(update("a\nb\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c").unwrap(), "a\nB\nc\n");
    assert_eq!(update("a\nb\n", "@@\n-b\n+c\n \n").unwrap(), "a\nc\n", "an empty line that stands for the end");
    assert!(update("a\n", "@@ nowhere\n+c").unwrap_err().contains("no line \"nowhere\""));
    assert!(update("a\nb\n", "@@\n-x\n+y").unwrap_err().contains("no lines like these"));
}

#[test]
fn context_lines_keep_their_bytes() {
    assert_eq!(update("a\r\nb\r\nc\r\n", "@@\n a\n-b\n+x\n c").unwrap(), "a\r\nx\r\nc\r\n");
    assert_eq!(update("  keep  \nb\n", "@@\n keep\n-b\n+x").unwrap(), "  keep  \nx\n");
    assert_eq!(update("a\nb", "@@\n-b\n+c").unwrap(), "a\nc\n", "the last line gets its line ending");
    assert_eq!(update("a\nb", "@@\n a\n-b").unwrap(), "a\n");
    assert_eq!(update("a\nb", "@@\n b\n+c").unwrap(), "a\nb\nc\n");
    assert_eq!(update("\u{201c}q\u{201d}\nb\n", "@@\n \"q\"\n-b\n+c").unwrap(), "\u{201c}q\u{201d}\nc\n");
}

#[test]
fn line_endings_are_those_of_the_file() {
    for (content, hunks, want) in [
        ("a\r\nb", "@@\n-b\n+c", "a\r\nc\r\n"),
        ("a\r\nb", "@@\n a\n+x\n b", "a\r\nx\r\nb\r\n"),
        ("a\r\nb", "@@\n b\n+c", "a\r\nb\r\nc\r\n"),
        ("\u{feff}a\r\nb\r\n", "@@\n-a\n+x", "\u{feff}x\r\nb\r\n"),
        // Each line of a mixed file keeps its ending, and so does its replacement.
        ("a\r\nb\nc\r\n", "@@\n a\n-b\n+x\n c", "a\r\nx\nc\r\n"),
        ("a\nb\r\nc\n", "@@\n-b\n+x\n+y", "a\nx\r\ny\r\nc\n"),
        ("a\r\nb\nc", "@@\n-a\n+x", "x\r\nb\nc\n"),
    ] {
        assert_eq!(update(content, hunks).unwrap(), want, "{content:?} {hunks:?}");
    }
}

#[test]
fn inserted_lines_are_indented_as_the_match_shows() {
    let python = "class A:\n    def f(self):\n        return 1\n";
    for (hunks, want) in [
        ("@@\n def f(self):\n-    return 1\n+    return 2\n+    # two", Some("        return 2\n        # two\n")),
        ("@@\n-return 1\n+return 2", Some("        return 2\n")),
        ("@@\n-return 1\n+        return 2", Some("        return 2\n")),
        ("@@\n \tdef f(self):\n-\t\treturn 1\n+\t\treturn 2", Some("        return 2\n")),
        // One line is a slip; the others have the indentation of the file.
        ("@@\n     def f(self):\n-return 1\n+        return 2", Some("        return 2\n")),
        // A flat copy.
        ("@@\n def f(self):\n-return 1\n+return 2", None),
    ] {
        let want = want.map(|body| format!("class A:\n    def f(self):\n{body}"));
        assert_eq!(update(python, hunks).ok(), want, "{hunks}");
    }
}

#[test]
fn end_of_file_matches_only_at_the_end() {
    let twice = "a\nx\nb\nx\n";
    assert_eq!(update(twice, "@@\n-x\n+y\n*** End of File").unwrap(), "a\nx\nb\ny\n");
    assert!(update(twice, "@@\n-b\n+y\n*** End of File").unwrap_err().contains("no lines like these"));
    assert!(update("a\n", "@@\n-a\n+x\n@@\n-a\n+y\n*** End of File").is_err(), "not what an earlier hunk has taken");
    assert_eq!(update(twice, "@@ b\n+y\n*** End of File").unwrap(), "a\nx\nb\nx\ny\n");
}

#[test]
fn hunks_that_only_add_may_come_before_others() {
    assert_eq!(update("a\nb\nc\n", "@@\n+z\n@@\n-a\n+x\n@@\n c\n+y").unwrap(), "x\nb\nc\nz\ny\n");
    assert_eq!(update("a\nb\n", "@@ a\n+x\n@@\n-b\n+y").unwrap(), "a\nx\ny\n");
    let code = "class A\n  def f\n    x\nclass B\n  def f\n    x\n";
    let want = "class A\n  def f\n    x\nclass B\n  def f\n    y\n";
    assert_eq!(update(code, "@@ class B\n@@   def f\n-    x\n+    y").unwrap(), want, "one line below another");
}

#[tokio::test]
async fn a_move_keeps_the_executable_bit_and_deletes_no_target() {
    let ws = Workspace::new();
    let script = ws.file("run.sh", "one\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    run(&ws, "*** Update File: run.sh\n*** Move to: bin/run.sh\n@@\n-one\n+two").await.unwrap();
    assert_eq!(ws.path("bin/run.sh").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    // A link that is moved or deleted is removed; its target stays.
    for body in ["*** Update File: link\n*** Move to: copy\n@@\n-two\n+three", "*** Delete File: link"] {
        std::os::unix::fs::symlink("bin/run.sh", ws.path("link")).unwrap();
        run(&ws, body).await.unwrap();
        assert!(!ws.path("link").is_symlink(), "{body}");
        assert_eq!(ws.content("bin/run.sh"), "two\n", "{body}");
    }
    assert_eq!(ws.content("copy"), "three\n");
    // An update goes through the link.
    std::os::unix::fs::symlink("bin/run.sh", ws.path("link")).unwrap();
    run(&ws, "*** Update File: link\n@@\n-two\n+four").await.unwrap();
    assert!(ws.path("link").is_symlink());
    assert_eq!(ws.content("bin/run.sh"), "four\n");
}

#[tokio::test]
async fn deleting_a_link_outside_needs_to_leave_the_workspace() {
    let ws = Workspace::new();
    let folder = ws.outside().join("other");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(ws.file("a.txt", "x"), folder.join("link")).unwrap();
    let needs = ws.needs("apply_patch", json!({"patchText": wrap("*** Delete File: ../other/link")})).await.unwrap();
    assert_eq!(needs[0].permission, "external_directory");
}

#[test]
fn headers_may_be_padded() {
    let body = "  *** Add File: a \n+x\n\t*** Delete File: b\t\n *** Update File:  c  \n@@\n-x\n+y\n*** Update File: d\n@@\n \
                *** Update File: e\n-x\n+y\n*** End of File ";
    let sections = parse::parse(&format!("  *** Begin Patch \n{body}\n\t*** End Patch  ")).unwrap();
    let paths: Vec<&str> = sections
        .iter()
        .map(|section| match section {
            Section::Add { path, .. } | Section::Delete { path } | Section::Update { path, .. } => path.as_str(),
        })
        .collect();
    assert_eq!(paths, ["a", "b", "c", "d"], "a header behind a space is a line of the file");
    let Section::Update { hunks, .. } = &sections[3] else { panic!("{sections:?}") };
    assert_eq!((hunks[0].lines.len(), hunks[0].at_end), (3, true));
}

#[test]
fn broken_patches_name_the_line() {
    let error = |text: &str| parse::parse(text).unwrap_err();
    assert!(error("").contains("no line \"*** Begin Patch\""));
    assert!(error("*** Begin Patch\n*** Add File: a\n+x").contains("incomplete"));
    assert!(error(&wrap("*** Rename File: a")).contains("Line 2"));
    assert!(error(&wrap("*** Add File: a\nno plus")).contains("starts with +"));
    assert!(error(&wrap("*** Update File: a\n@@\n?x")).contains("Line 4"));
    assert!(error(&wrap("*** Update File: a")).contains("changes nothing"));
    assert!(error(&wrap("*** Delete File: ")).contains("path is missing"));
    assert!(error(&wrap("")).contains("names no file"));
    let fenced = format!("```\n{}\n```", wrap("*** Delete File: a"));
    assert_eq!(parse::parse(&fenced).unwrap(), [Section::Delete { path: "a".into() }]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_fuzz_target_holds(data in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz_patch(&data);
    }

    #[test]
    fn the_fuzz_target_holds_for_likely_patches(
        content in "([ab]{0,2} ?\r?\n?){0,10}", hunks in "((@@( [ab])?|[ +-][ab]{0,2}|\\*\\*\\* End of File)\n){1,8}"
    ) {
        fuzz_patch(format!("{content}\u{1}{}", wrap(&format!("*** Update File: f\n{hunks}"))).as_bytes());
    }

    #[test]
    fn a_patch_of_a_crlf_file_is_the_patch_of_the_lf_file(
        content in "([ab]{0,2}\n){1,8}[ab]{0,2}",
        hunks in "((@@( [ab])?|[ +-][ab]{0,2}|\\*\\*\\* End of File)\n){1,8}"
    ) {
        let crlf = |text: &str| text.replace('\n', "\r\n");
        // A patch that cannot be parsed changes neither.
        prop_assume!(parse::parse(&wrap(&format!("*** Update File: f\n{hunks}"))).is_ok());
        let want = update(&content, &hunks).map(|text| crlf(&text));
        prop_assert_eq!(update(&crlf(&content), &hunks), want.clone());
        prop_assert_eq!(update(&crlf(&content), &crlf(&hunks)), want.clone());
        prop_assert!(want.is_err() || want.is_ok_and(|text| text.is_empty() || text.ends_with("\r\n")));
    }

    #[test]
    fn a_patch_made_from_a_change_makes_that_change(
        before in prop::collection::vec("[a-z]{1,4}", 0..6), old in "[A-Z]{1,6}", after in prop::collection::vec("[a-z]{1,4}", 0..6)
    ) {
        let text = |middle: &str| -> String {
            before.iter().map(String::as_str).chain([middle]).chain(after.iter().map(String::as_str)).map(|l| format!("{l}\n")).collect()
        };
        prop_assert_eq!(update(&text(&old), &format!("@@\n-{old}\n+new")).unwrap(), text("new"));
    }
}
