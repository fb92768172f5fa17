//! What the README shows and promises of a first look.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{TempProject, WAIT, finish};

use super::{read, split};
use crate::clients::harness::TestServer;

#[test]
fn the_demo_prints_what_the_readme_shows() {
    let (fences, _) = split(&read("README.md"));
    let transcript =
        fences.iter().find(|fence| fence.text.contains("offline demo")).expect("the README shows the demo");
    let project = TempProject::without_git();
    let mut command = project.command(env!("CARGO_BIN_EXE_trefoil"));
    let (mut reader, writer) = std::io::pipe().unwrap();
    // One pipe for both streams, as on a terminal.
    command.args(["demo", "sample"]).stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
    let child = command.spawn().unwrap();
    drop(command);
    let mut printed = String::new();
    std::io::Read::read_to_string(&mut reader, &mut printed).unwrap();
    assert!(finish("the demo", child, WAIT).status.success(), "{printed}");
    // The folder has a name of its own, and files that are read side by side are done in any order.
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
        for line in lines.iter_mut().filter(|line| line.starts_with("A small repository with a bug: /")) {
            *line = "A small repository with a bug: /…".to_owned();
        }
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines(&printed), lines(&transcript.text), "the demo printed:\n{printed}");
}

#[test]
fn the_rust_version_is_the_one_that_is_needed() {
    let manifest = read("Cargo.toml");
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap().trim_matches('"');
    for document in ["README.md", "CONTRIBUTING.md"] {
        assert!(read(document).contains(&format!("({version} or newer)")), "{document} does not name Rust {version}");
    }
}

#[test]
fn the_tools_are_those_that_a_session_has() {
    let readme = read("README.md");
    let (_, list) = readme.split_once("the tools `bash`").expect("the README lists the tools");
    let list = format!("`bash`{}", list.split_once("; MCP").unwrap().0);
    let is_tool = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let mut named: Vec<&str> = list.split('`').skip(1).step_by(2).filter(is_tool).collect();
    let project = TempProject::new();
    let config = json!({ "websearch": { "url": "http://127.0.0.1:9/?q={query}" } });
    project.write_home(".config/trefoil/trefoil.json", config.to_string());
    let (status, ids) = TestServer::with(project, |_| {}).send("GET", "/experimental/tool/ids", None);
    assert_eq!(status, 200, "{ids}");
    let mut known: Vec<&str> = ids.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    // A call that no tool can take gets its answer under this name; models do not see it.
    known.retain(|name| *name != "invalid");
    named.sort_unstable();
    known.sort_unstable();
    assert_eq!(named, known);
}
