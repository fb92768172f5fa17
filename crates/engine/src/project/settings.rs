//! Configuration and credentials, as clients read and change them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Credential, HostError, Json, JsonMap, Scope};
use config::{CredentialError, EditError, Inputs};
use store::Place;

use crate::project::instance::Instance;
use crate::{Engine, lock};

/// Every directory there is.
const EVERYWHERE: &str = "/";

impl Engine {
    /// The name that the user goes by if no configuration says so.
    pub fn user(&self) -> Option<&str> {
        ["USER", "LOGNAME"].iter().find_map(|name| self.inner.inputs.env.get(*name)).map(String::as_str)
    }

    /// What the user's own configuration says, without any project's.
    pub async fn global_config(&self) -> Result<Json, HostError> {
        let inputs = self.inner.inputs_at(Path::new(EVERYWHERE));
        run_blocking(move || Ok(config::global(&inputs))).await
    }

    /// Changes the user's own configuration. Gives the places that read it anew.
    pub async fn change_global_config(&self, change: JsonMap) -> Result<Vec<Place>, HostError> {
        let inputs = self.inner.inputs_at(Path::new(EVERYWHERE));
        run_blocking(move || config::edit_global(&inputs, change).map_err(edit_error)).await?;
        Ok(self.reload_below(EVERYWHERE))
    }

    /// Changes the configuration of a directory. Gives the places that read it anew.
    pub async fn change_config(&self, scope: &Scope, change: JsonMap) -> Result<Vec<Place>, HostError> {
        let inputs = self.inner.inputs_at(Path::new(&scope.directory));
        run_blocking(move || config::edit_project(&inputs, change).map_err(edit_error)).await?;
        Ok(self.reload_below(&scope.directory))
    }

    /// Stores the credential of a provider, or forgets it.
    pub async fn set_credential(&self, provider: String, credential: Option<Credential>) -> Result<(), HostError> {
        let data = self.inner.inputs.dirs.data.clone();
        let store = move || {
            config::set_credential(&data, &provider, credential.as_ref()).map_err(|error| match error {
                CredentialError::Write { .. } => HostError::Failed(error.to_string()),
                error => HostError::Invalid(error.to_string()),
            })
        };
        run_blocking(store).await?;
        self.reload_below(EVERYWHERE);
        Ok(())
    }

    /// Whether a variable of the environment has a value.
    pub fn is_set(&self, variable: &str) -> bool {
        self.inner.inputs.env.get(variable).is_some_and(|value| !value.is_empty())
    }

    /// Forgets what was loaded for a directory and for those below it; gives the places that this concerns. Running turns
    /// keep what they have.
    pub fn reload_below(&self, directory: &str) -> Vec<Place> {
        let mut instances = lock(&self.inner.instances);
        // Worktrees of subagents have the configuration of the directory that they were made from.
        let below = |at: &PathBuf, instance: &mut Arc<Instance>| {
            at.starts_with(directory) || instance.origin.starts_with(directory)
        };
        let forgotten: Vec<_> = instances.extract_if(below).collect();
        forgotten.into_iter().map(|(_, instance)| instance.place.clone()).collect()
    }
}

impl crate::Inner {
    /// What decides about the configuration of a directory, with the trust of now.
    pub(crate) fn inputs_at(&self, directory: &Path) -> Inputs {
        Inputs { directory: directory.to_owned(), trust: self.inputs.trust.fresh(), ..self.inputs.clone() }
    }
}

fn edit_error(error: EditError) -> HostError {
    HostError::Invalid(error.to_string())
}

/// Does work on files where it holds nobody up.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(HostError::Failed(error.to_string())),
    }
}
