//! Trust: `trefoil trust`, and the question that `run` asks.

use std::path::Path;

use anyhow::Context as _;
use config::{LoadedConfig, TrustStore, UntrustedFile};
use tokio_util::sync::CancellationToken;

use crate::args::Trust as Args;
use crate::exit::{Exit, Failure};
use crate::run::{Typed, interactive};
use crate::term::{self, Style, one_line, plural};
use crate::wire::World;

/// How many reasons of one file are shown.
const MAX_REASONS: usize = 20;

/// What repository configuration wants beyond what is safe, file by file.
pub fn describe(untrusted: &[UntrustedFile], style: Style) -> String {
    let mut text = String::new();
    for file in untrusted {
        text += &format!("  {}\n", style.bold(&one_line(&file.path.display().to_string(), 200)));
        for reason in file.what.iter().take(MAX_REASONS) {
            text += &format!("    - {}\n", one_line(reason, style.width.max(80)));
        }
        if file.what.len() > MAX_REASONS {
            text += &format!("    … {} more\n", file.what.len() - MAX_REASONS);
        }
    }
    text
}

/// `trefoil trust`.
pub async fn command(args: &Args, world: &World, cancel: CancellationToken) -> anyhow::Result<()> {
    let file = world.dirs.trust_file();
    let mut trusted = TrustStore::load(&file)?;
    if args.list {
        let rows: Vec<Vec<String>> = trusted
            .list()
            .map(|(path, contents)| vec![one_line(&path.display().to_string(), 200), plural(contents.len(), "version")])
            .collect();
        return Ok(term::print(&term::table(&rows))?);
    }
    let path = match &args.path {
        Some(path) => world
            .directory
            .join(path)
            .canonicalize()
            .map_err(|error| Failure::new(Exit::Usage, format!("cannot trust {}: {error}", path.display())))?,
        None => world.directory.clone(),
    };
    let directory = if path.is_dir() { path.clone() } else { path.parent().unwrap_or(&path).to_path_buf() };
    if args.revoke {
        let root =
            if args.path.is_some() { path } else { config::project_info(&directory, &world.dirs.state).worktree };
        let files = trusted.revoke(&root);
        trusted.save()?;
        term::eprint(&format!("no longer trusted: {} below {}\n", plural(files, "file"), root.display()));
        return Ok(());
    }
    let mut untrusted = config::load(&config::Inputs { directory: directory.clone(), ..world.inputs() }).untrusted;
    untrusted.extend(programs_of_git(world, &directory).await?);
    if untrusted.is_empty() {
        term::eprint("there is nothing here that needs trust\n");
        return Ok(());
    }
    term::eprint("This repository's own configuration wants to:\n");
    term::eprint(&describe(&untrusted, Style::stderr(world.no_color())));
    if !args.yes {
        if !interactive() {
            return Err(Failure::new(Exit::Denied, "nothing was trusted: there is no terminal to ask on")
                .hint("look at the list above, then run it again with --yes")
                .into());
        }
        if !confirm("Trust these files, as they are now? [y/N] ", &mut Typed::default(), cancel).await {
            return Err(Failure::new(Exit::Denied, "nothing was trusted").into());
        }
    }
    save(&mut trusted, &untrusted)?;
    term::eprint(&format!("trusted {}, until the content changes\n", plural(untrusted.len(), "file")));
    Ok(())
}

/// The programs that the repository's own git configuration names, which git does not start for us until they are trusted.
async fn programs_of_git(world: &World, directory: &Path) -> anyhow::Result<Option<UntrustedFile>> {
    let program = std::env::current_exe().context("the path of this program cannot be read")?;
    let found = exec::Exec::supervised(program, None).git(directory).programs().await;
    let Ok(Some(programs)) = found else { return Ok(None) };
    let hash = config::content_hash(programs.text().as_bytes());
    let known = world.inputs().trust.covers(&programs.file, &hash);
    Ok((!known).then(|| UntrustedFile { what: programs.what(), path: programs.file, hash }))
}

/// What `run` does about untrusted configuration: asks on a terminal, otherwise names it. True if it is trusted now, so
/// that the configuration must be read again.
pub async fn offer(
    loaded: &LoadedConfig,
    world: &World,
    ask: Option<&mut Typed>,
    cancel: CancellationToken,
) -> anyhow::Result<bool> {
    if loaded.untrusted.is_empty() {
        return Ok(false);
    }
    for file in &loaded.untrusted {
        tracing::warn!(path = %file.path.display(), what = %file.what.join("; "), "not trusted, so left out");
    }
    term::eprint("Not trusted, so left out of the configuration:\n");
    term::eprint(&describe(&loaded.untrusted, Style::stderr(world.no_color())));
    let Some(typed) = ask else {
        term::eprint("  hint: `trefoil trust` trusts these files as they are now\n");
        return Ok(false);
    };
    if !confirm("Trust these files now, as they are? [y/N] ", typed, cancel).await {
        return Ok(false);
    }
    save(&mut TrustStore::load(&world.dirs.trust_file())?, &loaded.untrusted)?;
    Ok(true)
}

fn save(trusted: &mut TrustStore, files: &[UntrustedFile]) -> anyhow::Result<()> {
    for file in files {
        trusted.trust(Path::new(&file.path), &file.hash);
    }
    Ok(trusted.save()?)
}

/// Only a clear yes is a yes.
async fn confirm(question: &str, typed: &mut Typed, cancel: CancellationToken) -> bool {
    term::eprint(question);
    let line = cancel.run_until_cancelled(typed.line()).await.flatten();
    matches!(line.as_deref().map(str::trim), Some("y" | "Y" | "yes"))
}
