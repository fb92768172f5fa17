//! `trefoil config show|path|check`.

use config::{LoadedConfig, Severity};

use crate::args::Config as Args;
use crate::exit::Exit;
use crate::run::escape;
use crate::session::print_json;
use crate::term::{self, Style, one_line, plural};
use crate::wire::World;
use crate::{log, trust};

/// `trefoil config`.
pub fn command(args: &Args, world: &World) -> anyhow::Result<Exit> {
    let loaded = config::load(&world.inputs());
    match args {
        Args::Show { json: true } => print_json(&loaded.raw)?,
        Args::Show { json: false } => {
            let mut text = String::new();
            for source in &loaded.sources {
                text += &format!("// {}\n", one_line(&source.label, 300));
            }
            text += &escape(&serde_json::to_string_pretty(&loaded.raw)?);
            term::print(&text)?;
        }
        Args::Path => term::print(&paths(&loaded, world))?,
        Args::Check => {
            let (text, exit) = report(&loaded, Style::stdout(world.no_color()));
            term::print(&text)?;
            return Ok(exit);
        }
    }
    Ok(Exit::Success)
}

/// How much was read and how much of it is wrong.
pub fn totals(sources: usize, errors: usize, warnings: usize) -> String {
    format!("{}, {}, {}", plural(sources, "source"), plural(errors, "error"), plural(warnings, "warning"))
}

fn paths(loaded: &LoadedConfig, world: &World) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, path: &std::path::Path| {
        rows.push(vec![name.to_string(), one_line(&path.display().to_string(), 400)]);
    };
    for source in &loaded.sources {
        if let Some(path) = &source.path {
            row("read", path);
        }
    }
    for folder in &world.dirs.config {
        row("config", folder);
    }
    row("data", &world.dirs.data);
    row("state", &world.dirs.state);
    row("cache", &world.dirs.cache);
    row("database", &world.database());
    row("trust", &world.dirs.trust_file());
    row("log", &log::path(&world.dirs.state));
    term::table(&rows)
}

/// What is wrong, what is left out and what has no effect yet; an error anywhere makes the check fail.
fn report(loaded: &LoadedConfig, style: Style) -> (String, Exit) {
    let mut text = String::new();
    let mut errors = 0;
    for problem in &loaded.problems {
        let kind = match problem.severity {
            Severity::Error => {
                errors += 1;
                style.red("error")
            }
            Severity::Warning => style.yellow("warning"),
        };
        text += &format!("{kind}: {}\n", one_line(&problem.to_string(), 1000));
    }
    if !loaded.untrusted.is_empty() {
        text += &format!("{}: not trusted, so left out (`trefoil trust` trusts it):\n", style.yellow("warning"));
        text += &trust::describe(&loaded.untrusted, style);
    }
    if !loaded.inert.is_empty() {
        let keys: Vec<String> = loaded.inert.iter().map(|key| one_line(key, 100)).collect();
        text += &format!("{}: known, but without effect yet: {}\n", style.dim("note"), keys.join(", "));
    }
    let warnings = loaded.problems.len() - errors;
    text += &format!("{}\n", totals(loaded.sources.len(), errors, warnings));
    (text, if errors > 0 { Exit::Failed } else { Exit::Success })
}
