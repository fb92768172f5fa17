//! Arguments of commands. OpenCode reads the files that a command mentions with `@`, wherever they are; the engine of this
//! process reads none outside of the workspace.

use std::path::{Path, PathBuf};

use api::Scope;
use tokio::task::spawn_blocking;

use super::Files;
use crate::Error;
use crate::service::Service;
use crate::service::scope::resolve;

/// What ends a mention.
const STOPS: [char; 2] = ['`', ','];

impl Service {
    /// Fails if the arguments of a command would make the agent runtime read a file outside of the allowed directories.
    pub(crate) async fn check_command(&self, scope: &Scope, command: &str, arguments: &str) -> Result<(), Error> {
        let inner = &self.inner;
        if inner.inputs.files == Files::Here {
            return Ok(());
        }
        let names = outside_candidates(arguments);
        if names.is_empty() {
            return Ok(());
        }
        let roots = inner.places.file_roots(&*inner.host, scope).await;
        let base = PathBuf::from(&scope.directory);
        let looked = spawn_blocking(move || {
            names.into_iter().filter(|(_, name)| !is_inside(&base, &roots, name)).map(|(mention, _)| mention).collect()
        });
        let outside: Vec<bool> = looked.await.unwrap_or_else(|_| vec![true]);
        // A word that is no mention becomes one in a template that puts the sign before its arguments.
        let refused = outside.contains(&true) || (!outside.is_empty() && self.may_mention(scope, command).await);
        if !refused {
            return Ok(());
        }
        let message = "request.arguments must not name files outside of the workspace";
        Err(Error::invalid("request.arguments", message))
    }

    /// Whether the template of a command mentions its arguments.
    async fn may_mention(&self, scope: &Scope, command: &str) -> bool {
        let Ok(commands) = self.inner.host.commands(scope).await else { return true };
        commands.iter().find(|known| known.name == command).is_none_or(|command| command.template.contains("@$"))
    }
}

/// The names in a text that may lead out of the workspace, and whether they are mentions.
pub(super) fn outside_candidates(arguments: &str) -> Vec<(bool, String)> {
    let ends = |c: char| c.is_whitespace() || STOPS.contains(&c);
    let mentions = arguments.match_indices('@').map(|(at, _)| {
        let rest = &arguments[at + 1..];
        (true, &rest[..rest.find(ends).unwrap_or(rest.len())])
    });
    let words = arguments.split(ends).map(|word| (false, word.trim_matches(['"', '\''])));
    let words = words.filter(|(_, word)| !word.starts_with('@'));
    let may_lead_out = |name: &str| name.starts_with(['/', '~']) || name.split('/').any(|part| part == "..");
    let found = mentions.chain(words).filter(|(_, name)| may_lead_out(name));
    found.map(|(mention, name)| (mention, name.to_owned())).collect()
}

pub(super) fn is_inside(base: &Path, roots: &[PathBuf], name: &str) -> bool {
    // The home directory of whoever runs the agent runtime is not known here.
    let path = if name.starts_with('~') { None } else { resolve(&base.join(name)) };
    path.is_some_and(|path| roots.iter().any(|root| path.starts_with(root)))
}
