//! Another back end must be able to stand beside SQLite, so nothing outside `src/sqlite` may know it.

use std::fs;
use std::path::{Path, PathBuf};

/// What only the back end may say.
const WORDS: [&str; 4] = ["rusqlite", "sqlite::", "PRAGMA", "SELECT "];

/// The accepted exceptions: a file, a word, and why.
const ACCEPTED: [(&str, &str, &str); 3] = [
    ("lib.rs", "sqlite::", "exports what the back end's queries return"),
    ("store.rs", "sqlite::", "the handle holds the writer and the readers, and passes requests to them"),
    ("upkeep.rs", "sqlite::", "passes requests for upkeep to the writer"),
];

/// Types of the database's driver, which no public function may take or return.
const DRIVER: [&str; 5] = ["rusqlite", "Connection", "Row<", "Statement", "Transaction"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All Rust files below a folder, with their content.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let content = fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(sources()).unwrap().to_owned(), content));
        }
    }
    found
}

fn is_code(line: &str) -> bool {
    !line.trim_start().starts_with("//")
}

#[test]
fn only_the_back_end_knows_its_database() {
    let mut met = Vec::new();
    for (path, content) in files(&sources()) {
        let name = path.to_str().unwrap();
        if name.starts_with("sqlite/") {
            continue;
        }
        for line in content.lines().filter(|line| is_code(line)) {
            for word in WORDS.into_iter().filter(|word| line.contains(word)) {
                let accepted = ACCEPTED.iter().find(|(file, accepted, _)| (*file, *accepted) == (name, word));
                assert!(accepted.is_some(), "{name} knows the back end: {line}");
                met.push((name.to_owned(), word));
            }
        }
    }
    for (file, word, why) in ACCEPTED {
        assert!(met.contains(&(file.to_owned(), word)), "{file} does not need {word:?} any more ({why}): remove it");
    }
}

/// JSON functions differ between databases, and nothing can move the clock of one.
#[test]
fn statements_look_into_no_json_and_at_no_clock() {
    let words =
        ["->>", "json_extract", "json_set", "json_remove", "json_valid", "CURRENT_TIME", "strftime", "unixepoch"];
    let mut met = Vec::new();
    for (path, content) in files(&sources()) {
        let name = path.to_str().unwrap().to_owned();
        let found = words.into_iter().filter(|word| content.lines().any(|line| is_code(line) && line.contains(word)));
        met.extend(found.map(|word| (name.clone(), word)));
    }
    // What an older version left behind, found for a report on the space of the file.
    assert_eq!(met, [("sqlite/upkeep/space.rs".to_owned(), "->>")]);
}

#[test]
fn no_public_function_shows_the_driver() {
    let mut seen = 0;
    for (path, content) in files(&sources()) {
        for (at, _) in content.match_indices("pub fn ").chain(content.match_indices("pub async fn ")) {
            let signature = &content[at..];
            let signature = &signature[..signature.find('{').unwrap_or(signature.len())];
            seen += 1;
            let word = DRIVER.into_iter().find(|word| signature.contains(word));
            assert_eq!(word, None, "{} is part of the public interface: {signature}", path.display());
        }
    }
    assert!(seen > 100, "only {seen} functions were looked at");
}
