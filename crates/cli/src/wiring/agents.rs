//! Other agents: how the engine's agents and its tool `a2a_call` reach them.

use std::sync::Arc;
use std::time::Duration;

use a2a::SettingError;
use a2a::client::{A2AClient, ChosenBy, ClientError, ClientOptions, Follower, TaskView, text_message};
use futures::future::BoxFuture;
use tokio::time::Instant;
use tools::{AgentAnswer, AgentClient, AgentRequest, AgentState, Tool, ToolError};

use super::Invocation;

/// How long a cancelled task may take to confirm it.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// The minimum interval between two looks at an unfinished answer.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// How to call other agents. The environment says it, as some of it is secret.
pub fn client_options(invocation: &Invocation) -> Result<ClientOptions, SettingError> {
    ClientOptions::read(|name| invocation.env.get(name).cloned())
}

/// The runner of agents elsewhere.
pub fn runner(invocation: &Invocation) -> Arc<dyn api::Runner> {
    let variables = invocation.env.clone();
    Arc::new(a2a::Runner::new(client_options(invocation), move |name| variables.get(name).cloned()))
}

/// The tool `a2a_call`, if the user has allowed a host. Without one a model could call nobody, and would read of the tool in
/// vain.
pub fn tools(invocation: &Invocation) -> Vec<Arc<dyn Tool>> {
    match client_options(invocation) {
        Ok(options) if options.allowed_hosts.is_empty() => Vec::new(),
        Ok(options) => vec![tools::a2a_call(Agents { client: A2AClient::new(options) })],
        Err(error) => {
            tracing::warn!(%error, "a2a_call is not available");
            Vec::new()
        }
    }
}

/// The agents that a model may call.
struct Agents {
    client: A2AClient,
}

impl AgentClient for Agents {
    fn check(&self, url: &str) -> Result<String, String> {
        let peer = self.client.peer(url, ChosenBy::Model).map_err(|error| error.to_string())?;
        Ok(peer.url().to_string())
    }

    fn call<'a>(
        &'a self,
        request: AgentRequest,
        so_far: &'a (dyn Fn(&str) + Send + Sync),
    ) -> BoxFuture<'a, Result<AgentAnswer, ToolError>> {
        Box::pin(async move {
            let refused = |error: ClientError| ToolError::failed(error.to_string());
            let peer = self.client.peer(&request.url, ChosenBy::Model).map_err(refused)?;
            let follower = match (&request.message, &request.task) {
                (Some(text), task) => {
                    let mut message = text_message(text, request.context.as_deref(), task.as_deref());
                    message.traceparent.clone_from(&request.traceparent);
                    peer.follow(message)
                }
                (None, Some(task)) => peer.follow_task(task),
                (None, None) => return Err(ToolError::failed("There is neither a message nor a task.")),
            };
            follow(follower, &request, so_far).await
        })
    }
}

/// Follows a task until it is answered, asks something or fails, or until the time is over.
async fn follow(
    mut follower: Follower,
    request: &AgentRequest,
    so_far: &(dyn Fn(&str) + Send + Sync),
) -> Result<AgentAnswer, ToolError> {
    let mut over = std::pin::pin!(tokio::time::sleep(request.wait));
    let mut next_look = Instant::now();
    loop {
        let changes = tokio::select! {
            biased;
            () = request.cancel.cancelled() => {
                follower.cancel(CANCEL_WAIT).await;
                return Err(ToolError::Aborted);
            }
            () = &mut over => break,
            changes = follower.next() => changes,
        };
        match changes {
            None => break,
            Some(Ok(_)) if follower.view().is_settled() => break,
            Some(Ok(_)) => {
                if Instant::now() >= next_look {
                    so_far(&follower.view().text());
                    next_look = Instant::now() + PROGRESS_INTERVAL;
                }
            }
            Some(Err(error)) => return Err(lost(&error, follower.view())),
        }
    }
    Ok(answer(follower.view()))
}

/// An error, and how to go on if the agent may still be working.
fn lost(error: &ClientError, view: &TaskView) -> ToolError {
    match view.task_id() {
        Some(task) if error.is_transient() => ToolError::failed(format!(
            "{error}. The agent may still be working: call again with the task {task} and no message."
        )),
        None if error.is_transient() => {
            ToolError::failed(format!("{error}. Whether the agent got the message is not known."))
        }
        _ => ToolError::failed(error.to_string()),
    }
}

fn answer(view: &TaskView) -> AgentAnswer {
    let state = match view.state() {
        Some(state) if state.is_interrupted() => AgentState::Asks,
        Some(a2a::TaskState::Completed) => AgentState::Answered,
        Some(state) if state.is_terminal() => AgentState::Failed,
        _ => AgentState::Working,
    };
    AgentAnswer {
        text: view.text(),
        state,
        about: view.status_text(),
        task: view.task_id().map(str::to_owned),
        context: view.context_id().map(str::to_owned),
        usage: view.usage().and_then(|usage| usage.as_object().cloned()),
    }
}
