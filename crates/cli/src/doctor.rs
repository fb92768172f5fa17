//! `trefoil doctor`: what was found, and what to do about each.

mod servers;
mod space;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use api::HostError;
use config::{LoadedConfig, Severity};
use engine::Catalog;
use llm::Llm;
use serde::Serialize;
use store::{Store, StoreError};

use crate::config_cmd::totals;
use crate::exit::Exit;
use crate::session::print_json;
use crate::term::{self, Style, one_line, plural};
use crate::wire::{self, World};

/// Keys of model vendors that are commonly set. Their values are never read.
const KEYS: [&str; 6] =
    ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY"];

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Note,
    Warning,
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    name: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Finding {
    fn new(name: &'static str, level: Level, found: impl Into<String>) -> Self {
        Self { name, level, found: found.into(), advice: None }
    }

    fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// `trefoil doctor`.
pub async fn command(world: &World, json: bool) -> anyhow::Result<Exit> {
    let loaded = Arc::new(config::load(&world.inputs()));
    let mut findings = vec![Finding::new("version", Level::Ok, env!("CARGO_PKG_VERSION"))];
    findings.extend(keys(world));
    findings.extend(models(world, &loaded).await);
    findings.push(git());
    findings.push(shell(world, &loaded));
    findings.push(database(&world.database()));
    findings.extend(losses(&world.database()));
    findings.extend(space::look(world));
    findings.extend(configuration(world, &loaded));
    let exit = if findings.iter().any(|f| f.level == Level::Error) { Exit::Failed } else { Exit::Success };
    if json {
        print_json(&findings)?;
    } else {
        term::print(&text(&findings, Style::stdout(world.no_color())))?;
    }
    Ok(exit)
}

fn text(findings: &[Finding], style: Style) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = match finding.level {
            Level::Ok => style.green("✓"),
            Level::Note => style.dim("·"),
            Level::Warning => style.yellow("!"),
            Level::Error => style.red("✗"),
        };
        let name = format!("{:<14}", finding.name);
        text += &format!("{mark} {}  {}\n", style.bold(&name), one_line(&finding.found, 400));
        if let Some(advice) = &finding.advice {
            text += &format!("  {:<14}  {}\n", "", style.dim(&format!("→ {}", one_line(advice, 400))));
        }
    }
    text
}

fn keys(world: &World) -> Vec<Finding> {
    let is_set = |name: &&&str| world.env.get(**name).is_some_and(|value| !value.is_empty());
    KEYS.iter().filter(is_set).map(|name| Finding::new("key", Level::Ok, format!("{name} is set"))).collect()
}

/// The model servers, and the model that a prompt gets which names none.
async fn models(world: &World, loaded: &Arc<LoadedConfig>) -> Vec<Finding> {
    let catalog = Catalog::new(Arc::clone(loaded), &world.scripts(), &world.env);
    let mut findings = servers::probe(&Llm::new(wire::USER_AGENT), loaded, &catalog).await;
    findings.push(match catalog.default_model(None) {
        Ok(model) => {
            Finding::new("model", Level::Ok, format!("{model}, unless a prompt names another or one was used last"))
        }
        Err(HostError::NoModel { message, advice }) => {
            Finding { advice, ..Finding::new("model", Level::Warning, message) }
        }
        Err(error) => {
            Finding::new("model", Level::Error, error.to_string()).advice("`trefoil models` lists what can be used")
        }
    });
    findings
}

/// An address without what may be secret in it.
fn bare(address: &str) -> String {
    let Ok(mut url) = url::Url::parse(address) else { return "an address that is none".into() };
    // Neither fails on an address with a host, and one without has neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

fn git() -> Finding {
    match Command::new("git").arg("--version").output() {
        Ok(output) if output.status.success() => {
            Finding::new("git", Level::Ok, String::from_utf8_lossy(&output.stdout).trim().to_string())
        }
        _ => Finding::new("git", Level::Warning, "git is not there")
            .advice("install git: without it a directory has no project of its own"),
    }
}

fn shell(world: &World, loaded: &LoadedConfig) -> Finding {
    let shell = loaded.config.shell.clone().or_else(|| world.env.get("SHELL").cloned());
    let Some(shell) = shell else {
        return Finding::new("shell", Level::Ok, "SHELL is not set, so the system's shell is used");
    };
    let name = shell.rsplit('/').next().unwrap_or_default();
    let usable = matches!(name, "bash" | "zsh" | "sh" | "dash" | "ksh") && Path::new(&shell).is_file();
    if usable {
        return Finding::new("shell", Level::Ok, shell);
    }
    Finding::new("shell", Level::Warning, format!("{shell} is not there or no POSIX shell; the system's shell is used"))
        .advice("set `shell` in trefoil.json to the path of bash, zsh or sh")
}

fn database(path: &Path) -> Finding {
    let shown = path.display();
    let Ok(metadata) = std::fs::metadata(path) else {
        return match writable(path) {
            true if Store::is_disk_full(path) => {
                Finding::new("database", Level::Warning, format!("{shown} cannot be made: its disk is full"))
                    .advice("free some space, or name a directory on another disk with TREFOIL_DATA_DIR")
            }
            true => Finding::new("database", Level::Ok, format!("{shown} will be made by the first `trefoil run`")),
            false => Finding::new("database", Level::Error, format!("{shown} cannot be made"))
                .advice("make its directory writable, or name another one with TREFOIL_DATA_DIR"),
        };
    };
    let size = format!("{shown}, {:.1} MB", metadata.len() as f64 / 1e6);
    match Store::check(path) {
        Ok(()) if Store::is_disk_full(path) => Finding::new("database", Level::Warning, format!("{size}, sound, but its disk is full"))
            .advice("free some space, or name a directory on another disk with TREFOIL_DATA_DIR; until then it can only be read"),
        Ok(()) if writable(path) => Finding::new("database", Level::Ok, format!("{size}, sound")),
        Ok(()) => Finding::new("database", Level::Warning, format!("{size}, sound, but not writable"))
            .advice("make it and its directory writable, or name another one with TREFOIL_DATA_DIR; until then it can only be read"),
        Err(error @ StoreError::Newer { .. }) => Finding::new("database", Level::Error, error.to_string())
            .advice("a newer Trefoil wrote it: upgrade this one, or name another file with TREFOIL_DB"),
        Err(error) => Finding::new("database", Level::Error, error.to_string())
            .advice("restore a copy, or move the file away to start afresh"),
    }
}

/// What the database has lost: since it was last open, and before.
fn losses(path: &Path) -> Vec<Finding> {
    let now = Store::detect_data_loss(path).ok().flatten().map(|loss| {
        Finding::new("lost", Level::Error, loss.to_string())
            .advice("put a copy of the -wal file back before anything else opens the database, or go on without it")
    });
    let before = Store::past_data_losses(path).into_iter().map(|text| {
        Finding::new("lost before", Level::Warning, text.trim().to_owned())
            .advice("remove the files with `torn` in their names once you do not need them")
    });
    now.into_iter().chain(before).collect()
}

/// Whether the nearest directory above that exists can be written.
fn writable(path: &Path) -> bool {
    let folder = path.ancestors().skip(1).find(|folder| folder.exists());
    let folder = folder.is_some_and(|folder| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok());
    folder && (!path.exists() || rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok())
}

fn configuration(world: &World, loaded: &LoadedConfig) -> Vec<Finding> {
    let errors = loaded.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let warnings = loaded.problems.len() - errors;
    let level = match (errors, warnings) {
        (0, 0) => Level::Ok,
        (0, _) => Level::Warning,
        _ => Level::Error,
    };
    let finding = Finding::new("configuration", level, totals(loaded.sources.len(), errors, warnings));
    let mut findings =
        vec![if level == Level::Ok { finding } else { finding.advice("`trefoil config check` says what and where") }];
    findings.push(match (world.trusts_all(), loaded.untrusted.len()) {
        (true, _) => Finding::new("trust", Level::Warning, "TREFOIL_TRUST=all: every repository may run what it likes")
            .advice("unset it outside of throw-away environments"),
        (false, 0) => Finding::new("trust", Level::Ok, "nothing here waits for trust"),
        (false, files) => Finding::new(
            "trust",
            Level::Warning,
            format!("parts of {} are left out until trusted", plural(files, "file")),
        )
        .advice("`trefoil trust` shows what they want and trusts them"),
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_lines_with_advice_below() {
        let findings = [
            Finding::new("git", Level::Ok, "git version 2"),
            Finding::new("database", Level::Error, "/x\x1b[2J is broken").advice("mend it"),
        ];
        let want = "✓ git             git version 2\n✗ database        /x is broken\n                  → mend it\n";
        assert_eq!(text(&findings, Style::plain()), want);
    }

    #[test]
    fn addresses_are_shown_without_secrets() {
        assert_eq!(bare("https://me:pw@example.org/v1?key=x"), "https://example.org/v1");
        assert_eq!(bare("nonsense"), "an address that is none");
    }

    #[test]
    fn a_database_that_is_not_there_yet_is_fine_where_it_can_be_made() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(database(&dir.path().join("a/b/trefoil.db")).level, Level::Ok);
        assert!(!dir.path().join("a").exists(), "looking makes nothing");
    }
}
