//! What the documents say is what there is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
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

/// The variables of ours that a text names. Names that are put together from pieces end with `_` and are left out.
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
    // Those of the configuration are put together from a prefix and a name.
    let made = |name: &&String| !name.contains("_DISABLE_");
    let gone: Vec<_> = documented.difference(&read).filter(made).collect();
    assert!(gone.is_empty(), "docs/environment.md names what nobody reads: {gone:?}");
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    let mut broken = Vec::new();
    let mut files: Vec<PathBuf> = ["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(|name| root().join(name)).into();
    let docs = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    files.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let path = target.split('#').next().unwrap_or_default();
            if !file.parent().unwrap().join(path).exists() {
                broken.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
