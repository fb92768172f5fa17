//! Runs agents of other machines as subagents: an agent that speaks A2A does the work of a session and reports to its runner
//! context.
//!
//! * `settings`: the agent's configuration.
//! * `saved`: what is kept of a job, so that the next process continues it.
//! * `job`: one job, from its message to the end of the task.
//! * `asks`: what the agent asks, and the answers.
//! * `progress`: what the agent does, in our terms. Pure.
//!
//! A task is begun once: after a crash it is followed by its id, and if that is not known, the job fails.

mod asks;
mod job;
mod progress;
mod saved;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api::{RunnerContext, RunnerEnd, RunnerError, RunnerJob};
use futures::future::BoxFuture;

use crate::SettingError;
use crate::client::{A2AClient, ChosenBy, ClientOptions};
use job::Job;
use settings::RunnerSettings;

/// Looks a variable of the environment up.
type Variable = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Runs agents of other machines. Cheap to clone.
#[derive(Clone)]
pub struct Runner {
    options: Result<ClientOptions, SettingError>,
    variable: Arc<Variable>,
}

impl Runner {
    /// A runner with these options. `variable` looks up the variables that hold credentials of single agents.
    pub fn new(
        options: Result<ClientOptions, SettingError>,
        variable: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self { options, variable: Arc::new(variable) }
    }

    async fn run_job(&self, job: RunnerJob, context: Arc<dyn RunnerContext>) -> Result<RunnerEnd, RunnerError> {
        let failed = |why: &dyn std::fmt::Display| RunnerError(format!("The agent cannot be reached: {why}"));
        let options = self.options.clone().map_err(|error| failed(&error))?;
        let settings = RunnerSettings::read(&job.settings)?;
        let options = settings.apply(options, &*self.variable)?;
        let peer = A2AClient::new(options).peer(&settings.url, ChosenBy::User).map_err(|error| failed(&error))?;
        Job::new(peer, context, settings.silence).run(&job).await
    }
}

impl api::Runner for Runner {
    fn run(&self, job: RunnerJob, context: Arc<dyn RunnerContext>) -> BoxFuture<'_, Result<RunnerEnd, RunnerError>> {
        Box::pin(self.run_job(job, context))
    }
}
