//! The documents are true: the commands, options, variables and settings that they name exist, and their examples work.

mod a2a;
mod commands;
mod configuration;
mod readme;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The documents for users: those in the root, and all in `docs`.
fn documents() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)).into();
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    files.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    files
}

/// A code block of a document.
struct Fence {
    language: String,
    text: String,
}

/// Splits a document into its code blocks and its prose.
fn split(document: &str) -> (Vec<Fence>, String) {
    let (mut fences, mut prose) = (Vec::new(), String::new());
    let mut open: Option<Fence> = None;
    for line in document.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some(fence)) => fences.push(fence),
            (Some(language), None) => open = Some(Fence { language: language.to_owned(), text: String::new() }),
            (None, Some(fence)) => open = Some(Fence { text: fence.text + line + "\n", ..fence }),
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    assert!(open.is_none(), "a code block is not closed");
    (fences, prose)
}

/// The texts of all files below a folder with that ending.
fn texts(folder: &Path, ending: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            texts(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The variables of ours that a text names, without prefixes that code completes (`TREFOIL_SERVER_`).
fn variables(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| {
        let length = rest.find(|char: char| !char.is_ascii_uppercase() && char != '_').unwrap_or(rest.len());
        format!("TREFOIL_{}", &rest[..length])
    };
    text.split("TREFOIL_").skip(1).map(name).filter(|name| !name.ends_with('_')).collect()
}

#[test]
fn every_variable_that_is_read_is_documented_and_no_other() {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap().map(Result::unwrap) {
        let folder = entry.path().join("src");
        if folder.is_dir() && !entry.path().ends_with("testkit") {
            texts(&folder, "rs", &mut sources);
        }
    }
    let read: BTreeSet<String> = sources.iter().flat_map(|source| variables(source)).collect();
    assert!(read.contains("TREFOIL_ALLOW_PRIVATE_FETCH") && read.contains("TREFOIL_DB"), "{read:?}");
    let document = std::fs::read_to_string(root().join("docs/environment.md")).unwrap();
    let documented = variables(&document);
    let missing: Vec<_> = read.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/environment.md does not name {missing:?}");
    // The configuration builds these names from a prefix.
    let is_whole = |name: &&String| !name.contains("_DISABLE_");
    let gone: Vec<_> = documented.difference(&read).filter(is_whole).collect();
    assert!(gone.is_empty(), "docs/environment.md names variables that nothing reads: {gone:?}");
}

/// The anchors of a document: its headings as GitHub names them.
fn anchors(document: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let kept = heading.trim().to_lowercase();
        kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>().replace(' ', "-")
    };
    split(document).1.lines().filter_map(|line| Some(anchor(line.strip_prefix('#')?.trim_start_matches('#')))).collect()
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
            let path = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            let leads = match anchor {
                Some(anchor) => std::fs::read_to_string(&path).is_ok_and(|text| anchors(&text).contains(anchor)),
                None => path.exists(),
            };
            if !leads {
                broken.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
