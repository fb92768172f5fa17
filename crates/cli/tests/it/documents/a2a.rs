//! `docs/a2a.md` lists the settings that there are.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use a2a::{CLIENT_SETTINGS, SETTINGS};

use super::{documents, read, root};

const HEAD: &str = "| variable | key | meaning | default |\n|---|---|---|---|\n";
const CLIENT_HEAD: &str = "| variable | meaning | default |\n|---|---|---|\n";

/// Both tables, as they stand in the document.
fn tables() -> [String; 2] {
    let (mut service, mut client) = (HEAD.to_owned(), CLIENT_HEAD.to_owned());
    for setting in SETTINGS {
        let (variable, key) = (setting.variable, setting.key);
        writeln!(service, "| `{variable}` | `{key}` | {} | {} |", setting.meaning, setting.default).unwrap();
    }
    for setting in CLIENT_SETTINGS {
        writeln!(client, "| `{}` | {} | {} |", setting.variable, setting.meaning, setting.default).unwrap();
    }
    [service, client]
}

/// The document with the table that begins like this one replaced.
fn replaced(document: &str, table: &str, head: &str) -> String {
    let (before, rest) = document.split_once(head).unwrap_or_else(|| panic!("docs/a2a.md has no table {head:?}"));
    let after = rest.split_once("\n\n").map_or("", |(_, after)| after);
    format!("{before}{table}\n{after}")
}

#[test]
fn the_settings_are_those_of_the_service() {
    let [service, client] = tables();
    let written = read("docs/a2a.md");
    let right = replaced(&replaced(&written, &service, HEAD), &client, CLIENT_HEAD);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(root().join("docs/a2a.md"), &right).unwrap();
        return;
    }
    assert!(written == right, "the settings in docs/a2a.md are not those of the service; rewrite them with BLESS=1");
}

#[test]
fn every_variable_of_a_document_is_a_setting() {
    let known: BTreeSet<&str> = SETTINGS
        .iter()
        .map(|setting| setting.variable)
        .chain(CLIENT_SETTINGS.iter().map(|setting| setting.variable))
        .collect();
    let mut wrong = Vec::new();
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        for rest in text.split("A2A_").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(rest.len());
            let name = format!("A2A_{}", &rest[..end]);
            // A prefix such as `A2A_*`.
            if !name.ends_with('_') && !known.contains(name.as_str()) {
                wrong.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
