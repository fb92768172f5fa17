use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use testkit::TempProject;

use super::*;
use crate::SendOptions;
use crate::model::Role;
use crate::service::scope::resolve;

fn inputs(accept_data: bool) -> Inputs {
    let guard = AddressGuard::new(is_public);
    Inputs { accept_data, files: Files::Here, guard, agent: None, system: None, variant: None }
}

fn request(message: Json, request: Json) -> SendRequest {
    let map = |value: Json| value.as_object().cloned().unwrap_or_default();
    SendRequest {
        message: Message {
            message_id: "m".to_owned(),
            role: Role::User,
            parts: vec![Part::text("a"), Part::data(json!(1)), Part::text("b")],
            context_id: None,
            task_id: None,
            reference_task_ids: Vec::new(),
            extensions: Vec::new(),
            metadata: map(message),
        },
        options: SendOptions::default(),
        metadata: map(request),
        traceparent: None,
    }
}

/// A root with files, and links out of it.
struct Disk {
    _project: TempProject,
    root: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let project = TempProject::without_git();
        let base = resolve(project.path()).unwrap();
        let root = base.join("ws");
        fs::create_dir_all(root.join("folder/inner")).unwrap();
        fs::create_dir_all(base.join("out")).unwrap();
        fs::write(base.join("out/secret.txt"), "secret").unwrap();
        fs::write(root.join("a b.txt"), "one\ntwo\nthree\nfour").unwrap();
        fs::write(root.join("logo.png"), b"\x89PNG\r\n\x1a\n\0\0").unwrap();
        fs::write(root.join("folder/x.rs"), "fn main() {}").unwrap();
        fs::write(root.join("big.bin"), vec![0; 6 << 20]).unwrap();
        fs::write(root.join("big.txt"), vec![b'x'; 2 << 20]).unwrap();
        symlink("../out/secret.txt", root.join("link.txt")).unwrap();
        symlink("../out", root.join("outdir")).unwrap();
        symlink("folder", root.join("indir")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
        Self { _project: project, root }
    }

    fn url(&self, path: &str) -> String {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let mut url = url::Url::from_file_path(self.root.join(path)).unwrap();
        url.set_query(query);
        url.into()
    }
}

async fn read(files: Files, roots: &[&Path], part: &Part) -> Result<PromptPart, Problem> {
    let guard = AddressGuard::new(is_public);
    let roots = roots.iter().map(|root| (*root).to_owned()).collect();
    Reader::new(files, &guard, roots).read(part).await
}

fn url(address: impl Into<String>) -> Part {
    Part::new(Content::Url(address.into()))
}

/// The media type, the name and the content of a part whose content is in it.
fn content(part: PromptPart) -> (String, Option<String>, Vec<u8>) {
    let PromptPart::File { mime, filename, url, .. } = part else { panic!("{part:?}") };
    let (head, body) = url.split_once(',').unwrap();
    assert_eq!(head, format!("data:{mime};base64"));
    (mime, filename, STANDARD.decode(body).unwrap())
}

fn refused(result: Result<PromptPart, Problem>) -> String {
    match result {
        Err(Problem::Refused(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn parts_that_are_refused_at_once() {
    let check = |accept, line, parts: &[Part]| inputs(accept).check(line, parts);
    let data = [Part::text("a"), Part::data(json!({"a": 1}))];
    assert!(matches!(check(false, Line::V03, &data), Err(Refusal::Task(text)) if text.contains("Part 1")));
    let error = check(false, Line::V10, &data).unwrap_err();
    assert!(matches!(error, Refusal::Call(error) if error.kind == ErrorKind::ContentTypeNotSupported));
    assert_eq!(check(true, Line::V10, &data), Ok(()));
    for empty in [vec![], vec![Part::text(" \n"), Part::text("")]] {
        assert!(matches!(check(false, Line::V03, &empty), Err(Refusal::Task(_))));
        let error = check(false, Line::V10, &empty).unwrap_err();
        assert!(matches!(error, Refusal::Call(error) if error.kind == ErrorKind::InvalidParams));
    }
    let many = vec![Part::text("a"); 1_000_000];
    for line in Line::ALL {
        let error = check(true, line, &many).unwrap_err();
        assert!(matches!(error, Refusal::Call(error) if error.fields["max"] == MAX_PARTS));
    }
    assert_eq!(check(false, Line::V03, &many[..MAX_PARTS]), Ok(()));
}

#[tokio::test]
async fn each_kind_of_part() {
    let none: [&Path; 0] = [];
    let part = read(Files::Here, &none, &Part::text("hello")).await.unwrap();
    assert_eq!(part, PromptPart::text("hello"));

    let part = read(Files::Here, &none, &Part::data(json!({"a": 1}))).await.unwrap();
    let (mime, name, bytes) = content(part);
    assert_eq!((mime.as_str(), name.as_deref()), ("text/plain", Some("data.json")));
    assert_eq!(serde_json::from_slice::<Json>(&bytes).unwrap(), json!({"a": 1}));

    for (raw, media_type, filename, want_type, want) in [
        ("aGVsbG8=", Some("text/plain"), Some("a.txt"), "text/plain", &b"hello"[..]),
        ("aGVsbG8", Some("Application/JSON; charset=utf-8"), None, "text/plain", b"hello"),
        ("aGVsbG8=", None, Some("x.unknown"), "text/plain", b"hello"),
        ("aGVsbG8=", Some("application/octet-stream"), None, "text/plain", b"hello"),
        ("aGVsbG8=", None, Some("x.PNG"), "image/png", b"hello"),
        ("aGVsbG8=", Some("image/webp"), None, "image/webp", b"hello"),
        ("JVBERi0=", None, None, "application/pdf", b"%PDF-"),
        ("AAEC_w", None, None, "application/octet-stream", b"\0\x01\x02\xff"),
        ("AAEC", Some("no type,base64"), None, "application/octet-stream", b"\0\x01\x02"),
    ] {
        let mut part = Part::new(Content::Raw(raw.to_owned()));
        part.media_type = media_type.map(str::to_owned);
        part.filename = filename.map(str::to_owned);
        let (mime, name, bytes) = content(read(Files::Here, &none, &part).await.unwrap());
        assert_eq!((mime.as_str(), name.as_deref(), bytes.as_slice()), (want_type, filename, want), "{raw}");
    }
    for (address, want_type, want) in [
        ("data:text/markdown;base64,aGVsbG8=", "text/plain", &b"hello"[..]),
        ("data:,a%20b", "text/plain", b"a b"),
        ("DATA:image/png;x=y;base64,AAEC", "image/png", b"\0\x01\x02"),
    ] {
        let (mime, _, bytes) = content(read(Files::Here, &none, &url(address)).await.unwrap());
        assert_eq!((mime.as_str(), bytes.as_slice()), (want_type, want), "{address}");
    }
}

#[tokio::test]
async fn malformed_parts() {
    let none: [&Path; 0] = [];
    for part in [
        Part::new(Content::Raw("***".to_owned())),
        Part::new(Content::Raw("aGVsbG8=x".to_owned())),
        url("data:text/plain;base64"),
        url("data:text/plain;base64,***"),
        url("file://host/x"),
        url("file:"),
    ] {
        let read = read(Files::Here, &none, &part).await;
        assert!(matches!(read, Err(Problem::Malformed(_) | Problem::Refused(_))), "{part:?}: {read:?}");
    }
    for address in ["report.pdf", "ftp://x/y", "javascript:1", "mcp://server/x", "/etc/passwd", ""] {
        refused(read(Files::Here, &none, &url(address)).await);
    }
}

#[tokio::test]
async fn files_are_read_inside_of_the_roots_alone() {
    let disk = Disk::new();
    let roots = [disk.root.as_path()];
    for (path, want_type, want_name, want) in [
        ("a b.txt", "text/plain", "a b.txt", &b"one\ntwo\nthree\nfour"[..]),
        ("a b.txt?start=2&end=3", "text/plain", "a b.txt", b"two\nthree\n"),
        ("a b.txt?start=4", "text/plain", "a b.txt", b"four"),
        ("a b.txt?start=0&end=0", "text/plain", "a b.txt", b"one\n"),
        ("a b.txt?start=9&end=2", "text/plain", "a b.txt", b""),
        ("logo.png", "image/png", "logo.png", b"\x89PNG\r\n\x1a\n\0\0"),
        ("indir/x.rs", "text/plain", "x.rs", b"fn main() {}"),
        ("folder/../folder/x.rs", "text/plain", "x.rs", b"fn main() {}"),
    ] {
        let part = read(Files::Here, &roots, &url(disk.url(path))).await.unwrap();
        let (mime, name, bytes) = content(part);
        assert_eq!((mime.as_str(), name.as_deref(), bytes.as_slice()), (want_type, Some(want_name), want), "{path}");
    }
    for (address, says) in [
        (disk.url("link.txt"), "outside"),
        (disk.url("outdir/secret.txt"), "outside"),
        (disk.url("../out/secret.txt"), "outside"),
        (disk.url("indir/../../out/secret.txt"), "outside"),
        ("file:///etc/passwd".to_owned(), "outside"),
        ("file:///".to_owned(), "outside"),
        ("FILE:///etc/passwd".to_owned(), "outside"),
        (format!("{}/%2e%2e/%2e%2e/out/secret.txt", disk.url("folder")), "outside"),
        (format!("{}/..%2Fout%2Fsecret.txt", disk.url(".")), "outside"),
        (disk.url("missing.txt"), "does not exist"),
        (disk.url("a b.txt/x"), "does not exist"),
        (disk.url("pipe"), "neither"),
        (disk.url("big.bin"), "larger"),
        (disk.url("big.txt"), "at most"),
    ] {
        for files in [Files::Here, Files::Nearby] {
            if files == Files::Nearby && says == "does not exist" {
                continue;
            }
            let text = refused(read(files, &roots, &url(address.clone())).await);
            assert!(text.contains(says), "{address}: {text}");
            assert!(!text.contains("secret\""), "{text}");
        }
    }
    let none: [&Path; 0] = [];
    refused(read(Files::Here, &none, &url(disk.url("a b.txt"))).await);
}

#[tokio::test]
async fn a_directory_becomes_a_list() {
    let disk = Disk::new();
    let part = read(Files::Here, &[&disk.root], &url(disk.url("folder"))).await.unwrap();
    let (mime, name, bytes) = content(part);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!((mime.as_str(), name.as_deref()), ("text/plain", Some("folder")));
    assert!(text.ends_with("contains:\ninner/\nx.rs\n"), "{text}");
}

#[tokio::test]
async fn files_of_another_machine_are_named_by_their_resolved_path() {
    let disk = Disk::new();
    let roots = [disk.root.as_path()];
    for (files, path, want) in [
        (Files::Elsewhere, "a b.txt?start=2", "a b.txt?start=2"),
        (Files::Elsewhere, "indir/x.rs", "folder/x.rs"),
        (Files::Elsewhere, "there/only.rs", "there/only.rs"),
        (Files::Nearby, "there/only.rs", "there/only.rs"),
    ] {
        let part = read(files, &roots, &url(disk.url(path))).await.unwrap();
        let PromptPart::File { url, mime, .. } = part else { panic!("{part:?}") };
        assert_eq!((url, mime.as_str()), (disk.url(want), "text/plain"));
    }
    for path in ["link.txt", "outdir/secret.txt", "../out/secret.txt", "there/../../out/secret.txt"] {
        refused(read(Files::Elsewhere, &roots, &url(disk.url(path))).await);
    }
}

#[tokio::test]
async fn limits_of_all_files_together() {
    let disk = Disk::new();
    let guard = AddressGuard::new(is_public);
    let mut reader = Reader::new(Files::Here, &guard, vec![disk.root.clone()]);
    let image = |bytes: usize| {
        let mut part = Part::new(Content::Raw(STANDARD.encode(vec![0; bytes])));
        part.media_type = Some("image/png".to_owned());
        part
    };
    assert!(reader.read(&image(5 << 20)).await.is_ok());
    assert!(reader.read(&image(5 << 20)).await.is_ok());
    assert!(refused(reader.read(&image(1)).await).contains("together"));

    let mut reader = Reader::new(Files::Here, &guard, vec![disk.root.clone()]);
    for _ in 0..64 {
        assert!(reader.read(&image(1)).await.is_ok());
    }
    assert!(refused(reader.read(&image(1)).await).contains("at most 64"));
    // Texts are no files.
    assert!(reader.read(&Part::text("a")).await.is_ok());

    let mut reader = Reader::new(Files::Here, &guard, Vec::new());
    for _ in 0..8 {
        assert!(refused(reader.read(&url("http://127.0.0.1:1/")).await).contains("private"));
    }
    assert!(refused(reader.read(&url("http://127.0.0.1:1/")).await).contains("at most 8"));
}

#[test]
fn the_request_wins_over_its_message() {
    let request = request(
        json!({"shared": {"session": {"id": "ses_m"}, "model": 1}, "opencode": {"directory": "m"}, "x": {"a": 1}}),
        json!({"shared": {"session": {"id": "ses_r"}}, "x": {"b": 2}, "opencode": 5}),
    );
    assert_eq!(
        Json::Object(metadata_of(&request)),
        json!({"shared": {"session": {"id": "ses_r"}, "model": 1}, "opencode": 5, "x": {"b": 2}})
    );
    assert_eq!(text_of(&request.message), "a\nb");
}

#[test]
fn models_need_both_ids() {
    let model = |model: Json| model_of(&JsonMap::from_iter([("shared".to_owned(), json!({ "model": model }))]));
    let chosen = model(json!({"providerID": "p", "modelID": "m", "more": 1})).unwrap().unwrap();
    assert_eq!((chosen.provider_id.as_str(), chosen.model_id.as_str()), ("p", "m"));
    for none in [json!(null), json!({}), json!({"providerID": null})] {
        assert_eq!(model(none).unwrap(), None);
    }
    for (value, field) in [
        (json!({"providerID": "p"}), "metadata.shared.model"),
        (json!({"modelID": "m"}), "metadata.shared.model"),
        (json!({"providerID": 5, "modelID": "m"}), "metadata.shared.model.providerID"),
        (json!({"providerID": "p", "modelID": ""}), "metadata.shared.model.modelID"),
        (json!("p/m"), "metadata.shared.model"),
    ] {
        let error = model(value).unwrap_err();
        assert_eq!((error.kind, &error.fields["field"]), (ErrorKind::InvalidParams, &json!(field)));
    }
    assert!(model_of(&JsonMap::from_iter([("shared".to_owned(), json!([]))])).is_err());
}

#[test]
fn sessions_to_go_on_with() {
    let session = |id: Json| session_of(&JsonMap::from_iter([("shared".to_owned(), json!({"session": {"id": id}}))]));
    assert_eq!(session(json!(null)), Ok(None));
    assert_eq!(session(json!("ses_1")).unwrap().unwrap().as_str(), "ses_1");
    assert!(matches!(session(json!("nope")), Err(Refusal::Runtime(_))));
    assert!(matches!(session(json!(5)), Err(Refusal::Call(_))));
}

#[test]
fn a_path_that_has_become_a_link_is_not_read() {
    let disk = Disk::new();
    // The path was resolved when there was no link yet.
    for path in ["link.txt", "outdir/secret.txt", "indir/x.rs"] {
        let read = disk::read(&disk.root.join(path), 1000);
        assert!(matches!(read, Err(disk::DiskError::Outside)), "{path}: {read:?}");
    }
    assert!(matches!(disk::read(&disk.root.join("folder/x.rs"), 1000), Ok(disk::Found::File(_))));
}

#[test]
fn arguments_of_commands_that_may_lead_out() {
    let disk = Disk::new();
    let roots = [disk.root.clone()];
    let inside = disk.root.join("folder/x.rs");
    for (arguments, mentioned, named) in [
        ("fix the bug in @folder/x.rs, please", 0, 0),
        ("write to bob@example.org about a...b", 0, 0),
        ("@../out/secret.txt", 1, 1),
        ("see @/etc/passwd, and `@~/.ssh/id_rsa`", 2, 2),
        ("/etc/passwd", 0, 1),
        ("'../out/secret.txt' folder/../../out", 0, 2),
        ("@outdir/../ws/x", 0, 0),
        ("@folder/../outdir/secret.txt", 1, 1),
        (inside.to_str().unwrap(), 0, 0),
    ] {
        let outside: Vec<bool> = command::outside_candidates(arguments)
            .into_iter()
            .filter(|(_, name)| !command::is_inside(&disk.root, &roots, name.trim_start_matches('@')))
            .map(|(mention, _)| mention)
            .collect();
        let mentions = outside.iter().filter(|mention| **mention).count();
        assert_eq!(mentions, mentioned, "{arguments}");
        assert!(outside.len() >= named, "{arguments}: {outside:?}");
        assert_eq!(outside.is_empty(), named == 0, "{arguments}: {outside:?}");
    }
}
