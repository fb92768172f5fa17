//! `docs/opencode-operations.md` matches the router.

use std::fmt::Write as _;
use std::path::Path;

use trefoil_server::{Operation, Support, operations};

const HEAD: &str = "# Operations\n\n\
    Every operation of OpenCode's v1 API, and those of v2 that its terminal client and web page read, as `trefoil serve` answers them. \
    Generated from the router: `BLESS=1 cargo xtask test -p server operations` rewrites this file.\n\n\
    *done*: works as OpenCode's clients expect. *partial*: works, except for what it names. *not offered*: answers with an error \
    that says why.\n\n";

const OWN: &str = "\n## Trefoil's own\n\nOpenCode's clients do not call them. Those for subagents are described in \
    [subagents.md](subagents.md).\n\n| operation | method | path | what it does |\n|---|---|---|---|\n";

/// Whether the operation is not OpenCode's.
fn is_own(operation: &Operation) -> bool {
    operation.id.starts_with("trefoil.") || ["doc.get", "metrics.get"].contains(&operation.id)
}

#[test]
fn the_documented_table_matches_the_router() {
    let mut operations = operations();
    operations.sort_by_key(|operation| (operation.path, operation.method.to_string()));
    let (own, operations): (Vec<_>, Vec<_>) = operations.into_iter().partition(is_own);
    let count = |wanted: fn(&Support) -> bool| operations.iter().filter(|operation| wanted(&operation.support)).count();
    let mut table = HEAD.to_owned();
    writeln!(
        table,
        "{} done, {} partial, {} not offered.\n\n| operation | method | path | state |\n|---|---|---|---|",
        count(|support| *support == Support::Full),
        count(|support| matches!(support, Support::Partial(_))),
        count(|support| matches!(support, Support::NotOffered(_))),
    )
    .unwrap();
    for operation in &operations {
        let state = match operation.support {
            Support::Full => "done".to_owned(),
            Support::Partial(missing) => format!("partial: {missing}"),
            Support::NotOffered(why) => format!("not offered: {why}"),
        };
        writeln!(table, "| {} | {} | `{}` | {state} |", operation.id, operation.method, operation.path).unwrap();
    }
    table.push_str(OWN);
    for Operation { id, method, path, summary, .. } in &own {
        writeln!(table, "| {id} | {method} | `{path}` | {summary} |").unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/opencode-operations.md");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &table).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == table, "docs/opencode-operations.md does not match the router; rewrite it with BLESS=1");
}

#[test]
fn names_and_paths_are_unique() {
    let operations = operations();
    for (index, one) in operations.iter().enumerate() {
        for other in &operations[..index] {
            assert_ne!(one.id, other.id, "two operations share a name");
            assert!(one.path != other.path || one.method != other.method, "{} and {} collide", one.id, other.id);
        }
    }
}
