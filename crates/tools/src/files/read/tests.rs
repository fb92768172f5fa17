use super::*;
use crate::tool::context::LoadedInstructions;
use crate::tool::registry::testing::Workspace;
use std::os::unix::fs::symlink;

#[tokio::test]
async fn output_matches_the_recordings() {
    let ws = Workspace::new();
    let hello = ws.file("hello.txt", "hello world\n");
    let main = ws.file("src/main.rs", "fn main() {\n    println!(\"hi\");\n}\n");
    let file = ws.run("read", json!({"filePath": hello})).await.unwrap();
    let shown = hello.to_str().unwrap();
    let want = format!(
        "<path>{shown}</path>\n<type>file</type>\n<content>\n1: hello world\n\n(End of file - total 1 lines)\n</content>"
    );
    assert_eq!((file.title.as_str(), file.output), ("hello.txt", want));
    let display = json!({"type": "file", "path": shown, "text": "hello world", "lineStart": 1, "lineEnd": 1, "totalLines": 1, "truncated": false});
    let metadata = json!({"preview": "hello world", "truncated": false, "loaded": [], "display": display});
    assert_eq!(file.metadata, object(metadata));

    let part = ws.run("read", json!({"filePath": main, "offset": 2, "limit": 1})).await.unwrap();
    assert!(
        part.output
            .ends_with("2:     println!(\"hi\");\n\n(Showing lines 2-2 of 3. Use offset=3 to continue.)\n</content>")
    );
    assert_eq!(part.metadata["truncated"], true);

    let folder = ws.run("read", json!({"filePath": "src"})).await.unwrap();
    let shown = ws.path("src").to_str().unwrap().to_owned();
    let want = format!("<path>{shown}</path>\n<type>directory</type>\n<entries>\nmain.rs\n\n(1 entries)\n</entries>");
    assert_eq!((folder.title.as_str(), folder.output), ("src", want));
    let display = json!({"type": "directory", "path": shown, "entries": ["main.rs"], "offset": 1, "totalEntries": 1, "truncated": false});
    assert_eq!(folder.metadata["display"], display);
}

#[tokio::test]
async fn needs_use_the_resolved_path() {
    let ws = Workspace::new();
    ws.file(".env", "secret");
    symlink(".env", ws.path("harmless.txt")).unwrap();
    let needs = ws.needs("read", json!({"filePath": "harmless.txt"})).await.unwrap();
    assert_eq!((needs[0].permission.as_str(), needs[0].patterns[0].as_str()), ("read", ".env"));
    let needs = ws.needs("read", json!({"filePath": "/etc/hostname"})).await.unwrap();
    assert_eq!(needs[0].permission, "external_directory");
    assert_eq!((&needs[0].patterns, &needs[0].always), (&vec!["/etc/*".to_owned()], &vec!["/etc/*".to_owned()]));
    assert_eq!(needs[0].metadata, object(json!({"filepath": "/etc/hostname", "parentDir": "/etc"})));
    assert_eq!(needs[1].permission, "read");
}

#[tokio::test]
async fn a_missing_file_suggests_similar_names() {
    let ws = Workspace::new();
    ws.file("settings.json", "");
    ws.file("other.txt", "");
    let error = ws.fail("read", json!({"filePath": "setings.json"})).await;
    assert!(error.starts_with(&format!("File not found: {}", ws.path("setings.json").display())));
    assert!(error.contains("settings.json") && !error.contains("other.txt"), "{error}");
}

#[tokio::test]
async fn loops_binaries_and_huge_lines() {
    let ws = Workspace::new();
    symlink("loop", ws.path("loop")).unwrap();
    assert!(ws.fail("read", json!({"filePath": "loop"})).await.contains("symbolic links"));
    ws.file("program", b"\x7fELF\0\0\0");
    assert!(ws.fail("read", json!({"filePath": "program"})).await.contains("binary file (7 bytes)"));
    ws.file("latin.txt", b"caf\xe9\n");
    assert!(ws.run("read", json!({"filePath": "latin.txt"})).await.unwrap().output.contains("1: caf\u{fffd}"));
    ws.file("line.txt", "x".repeat(10_000_000));
    let output = ws.run("read", json!({"filePath": "line.txt"})).await.unwrap();
    assert!(output.output.len() < 5000 && output.output.contains("line cut"));
    std::fs::File::create(ws.path("huge")).unwrap().set_len(1 << 30).unwrap();
    assert!(ws.fail("read", json!({"filePath": "huge"})).await.contains("binary file (1073741824 bytes)"));
}

#[tokio::test]
async fn a_file_too_large_for_memory_is_read_in_pages() {
    let ws = Workspace::new();
    let path = ws.file("big.log", "\u{feff}one\r\ntwo\nthree\n");
    // A sparse file: the rest is one endless line of NUL bytes.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(70 << 20).unwrap();
    let refused = ws.fail("read", json!({"filePath": "big.log", "limit": 2})).await;
    assert!(refused.contains("binary file"), "NUL bytes at its beginning: {refused}");
    let lines = format!("{}\n", "0123456789abcdef".repeat(64)).repeat(1 << 10);
    let mut file = std::fs::File::create(&path).unwrap();
    for _ in 0..70 {
        std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();
    }
    let part = ws.run("read", json!({"filePath": "big.log", "offset": 10_000, "limit": 2})).await.unwrap();
    let end = "abcdef\n\n(Showing lines 10000-10001 of a longer file. Use offset=10002 to continue.)\n</content>";
    assert!(part.output.contains("\n10000: 0123") && part.output.ends_with(end), "{}", part.output);
    assert_eq!((&part.metadata["truncated"], part.metadata["display"].get("totalLines")), (&json!(true), None));
    let last = ws.run("read", json!({"filePath": "big.log", "offset": 70 << 10})).await.unwrap();
    assert!(last.output.contains("(End of file - total 71680 lines)"), "{}", last.output);
    let behind = ws.fail("read", json!({"filePath": "big.log", "offset": (70 << 10) + 1})).await;
    assert!(behind.contains("has 71680 lines"), "{behind}");
    std::os::unix::fs::FileExt::write_at(&file, b"%PDF-", 0).unwrap();
    assert!(ws.fail("read", json!({"filePath": "big.log"})).await.contains("bytes; images and PDF"));
}

#[tokio::test]
async fn images_are_attached() {
    let ws = Workspace::new();
    ws.file("x.png", b"\x89PNG\r\n\x1a\nrest");
    let output = ws.run("read", json!({"filePath": "x.png"})).await.unwrap();
    assert_eq!(output.output, "Image read successfully");
    let attachment = &output.attachments[0];
    assert_eq!((attachment.mime.as_str(), attachment.filename.as_deref()), ("image/png", Some("x.png")));
    assert!(attachment.url.starts_with("data:image/png;base64,iVBORw0KGgp"));
    ws.file("big.png", [b"\x89PNG\r\n\x1a\n".as_slice(), &vec![0; attachment::MAX_ATTACHMENT_BYTES]].concat());
    assert!(ws.fail("read", json!({"filePath": "big.png"})).await.contains("up to 5 MB"));
}

#[tokio::test]
async fn nested_instructions_are_included_once() {
    let ws = Workspace::new();
    ws.file("AGENTS.md", "root");
    let nested = ws.file("sub/AGENTS.md", "MARKER\n");
    ws.file("sub/CLAUDE.md", "not this one");
    ws.file("sub/deep/x.txt", "hi");
    let ctx = ws.context();
    let read = |path: &'static str| ws.run_in(ctx.clone(), "read", json!({"filePath": path}));
    let first = read("sub/deep/x.txt").await.unwrap();
    let want = format!(
        "</content>\n\n<system-reminder>\nInstructions from: {}\nMARKER\n\n\n</system-reminder>",
        nested.display()
    );
    assert!(first.output.ends_with(&want), "{}", first.output);
    assert_eq!(first.metadata["loaded"], json!([nested]));
    let again = read("sub/deep/x.txt").await.unwrap();
    assert_eq!(again.metadata["loaded"], json!([]));
    let mut known = ws.context();
    known.options = std::sync::Arc::new(crate::Options {
        loaded_instructions: LoadedInstructions::new([nested.clone()]),
        ..ws.options.clone()
    });
    assert!(!ws.run_in(known, "read", json!({"filePath": "sub/deep/x.txt"})).await.unwrap().output.contains("MARKER"));
}

#[tokio::test]
async fn a_prompt_reads_without_a_grant() {
    let ws = Workspace::new();
    let outside = ws.outside().join("note.txt");
    std::fs::write(&outside, "a\nb\nc\n").unwrap();
    let output = read_for_prompt(&outside, Some(1), Some(2), &ws.context()).await.unwrap();
    assert!(output.output.contains("1: a\n2: b\n\n(Showing lines 1-2 of 3."));
    assert!(read_for_prompt(Path::new("nope"), None, None, &ws.context()).await.is_err());
}

#[tokio::test]
async fn a_long_folder_is_paged() {
    let ws = Workspace::new();
    for n in 0..10 {
        ws.file(&format!("d/f{n}"), "");
    }
    ws.file("d/sub/x", "");
    let output = ws.run("read", json!({"filePath": "d", "offset": 3, "limit": 4})).await.unwrap();
    assert!(
        output.output.contains("<entries>\nf2\nf3\nf4\nf5\n\n(Showing 4 of 11 entries. Use offset=7 to continue.)")
    );
    let end = ws.run("read", json!({"filePath": "d", "offset": 11})).await.unwrap();
    assert!(end.output.contains("<entries>\nsub/\n\n(11 entries)"), "{}", end.output);
    assert!(ws.run("read", json!({"filePath": "d", "offset": u64::MAX})).await.is_ok());
}
