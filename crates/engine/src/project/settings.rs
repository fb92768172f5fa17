//! Configuration and credentials as clients read and change them.

use std::path::Path;

use api::{Credential, HostError, Json, JsonMap, Scope};
use config::{CredentialError, EditError, Inputs};
use store::Location;

use crate::access::Right;
use crate::{Engine, run_blocking};

/// The prefix of every directory.
const EVERYWHERE: &str = "/";

impl Engine {
    /// The user's login name, for when the configuration sets none.
    pub fn user(&self) -> Option<&str> {
        ["USER", "LOGNAME"].iter().find_map(|name| self.inner.settings.inputs.env.get(*name)).map(String::as_str)
    }

    /// The user's own configuration, without any project's.
    pub async fn global_config(&self) -> Result<Json, HostError> {
        let inputs = self.inner.inputs_at(Path::new(EVERYWHERE));
        run_blocking(move || config::global(&inputs)).await
    }

    /// Changes the user's own configuration. Returns the places that will reload it.
    pub async fn change_global_config(&self, change: JsonMap) -> Result<Vec<Location>, HostError> {
        self.require(Right::Configure)?;
        let inputs = self.inner.inputs_at(Path::new(EVERYWHERE));
        run_blocking(move || config::edit_global(&inputs, change).map_err(edit_error)).await??;
        Ok(self.reload_below(EVERYWHERE))
    }

    /// Changes the configuration of a directory. Returns the places that will reload it.
    pub async fn change_config(&self, scope: &Scope, change: JsonMap) -> Result<Vec<Location>, HostError> {
        self.require(Right::Configure)?;
        let inputs = self.inner.inputs_at(Path::new(&scope.directory));
        run_blocking(move || config::edit_project(&inputs, change).map_err(edit_error)).await??;
        Ok(self.reload_below(&scope.directory))
    }

    /// Stores the credential of a provider, or removes it.
    pub async fn set_credential(&self, provider: String, credential: Option<Credential>) -> Result<(), HostError> {
        self.require(Right::Configure)?;
        let data = self.inner.settings.inputs.dirs.data.clone();
        let store = move || {
            config::set_credential(&data, &provider, credential.as_ref()).map_err(|error| match error {
                CredentialError::Write { .. } => HostError::Failed(error.to_string()),
                error => HostError::Invalid(error.to_string()),
            })
        };
        run_blocking(store).await??;
        self.reload_below(EVERYWHERE);
        Ok(())
    }

    /// Whether an environment variable has a value.
    pub fn is_set(&self, variable: &str) -> bool {
        self.inner.settings.inputs.env.get(variable).is_some_and(|value| !value.is_empty())
    }

    /// Drops the loaded configuration of a directory, so that the next call reads it again. Running turns keep what
    /// they have.
    pub fn reload(&self, scope: &Scope) {
        self.inner.projects.forget(Path::new(&scope.directory));
    }

    /// Drops the loaded configuration of a directory and those below it, and returns the affected places. Running turns
    /// keep what they have.
    pub fn reload_below(&self, directory: &str) -> Vec<Location> {
        self.inner.projects.forget_below(directory)
    }
}

impl crate::Inner {
    /// The inputs for the configuration of a directory, with the current trust decisions.
    pub(crate) fn inputs_at(&self, directory: &Path) -> Inputs {
        Inputs {
            directory: directory.to_owned(),
            trust: self.settings.inputs.trust.reloaded(),
            ..self.settings.inputs.clone()
        }
    }
}

fn edit_error(error: EditError) -> HostError {
    HostError::Invalid(error.to_string())
}
