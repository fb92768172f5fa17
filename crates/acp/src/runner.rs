//! Runs other programs' agents as subagents: a program that speaks ACP does the work of a session and reports to its
//! runner context.
//!
//! The program runs for one job and ends with it, however the job ends. The id of its session is saved, so that the
//! session's next job continues there. Its own subagents get [contexts of their own](children).

mod children;
#[cfg(test)]
mod tests;
mod translate;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use api::{
    PromptPart, RunnerCall, RunnerCallState, RunnerContext, RunnerDecision, RunnerEnd, RunnerError, RunnerJob,
    RunnerUpdate,
};
use exec::{Exec, Spec};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{AgentProcess, Client, ClientError, ClientOptions, Event, Events, Permission, Root, Session};
use children::{ChildRun, StartedChild};
use translate::UpdateTranslator;

/// How long an agent may take to get ready for a prompt, unless configured.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may stay silent while it works, unless configured.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The longest wait, whatever is configured.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a cancelled turn may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_millis(1500);
/// Some agents send their last updates after the response: how long a silence means that nothing more comes.
const LATE_UPDATES: Duration = Duration::from_millis(200);
/// Permissions that may be open at the same time.
const MAX_ASKS: usize = 64;
/// How much of an agent's standard error an error quotes.
const MAX_QUOTED_STDERR: usize = 1_000;

/// The prompt for an agent that was interrupted.
const CONTINUE_PROMPT: &str = "The connection to you broke off while you worked on the last message. See what is done already, do \
                     not do it twice, and go on from there. End with the answer to that message.";

/// The deepest nesting of agents that start each other, so that an agent that starts itself comes to an end.
const MAX_DEPTH: u32 = 8;

/// Runs other programs' agents. Cheap to clone.
#[derive(Clone)]
pub struct Runner {
    exec: Exec,
    version: String,
    depth: u32,
}

/// The runner's settings in an agent's configuration.
#[derive(Deserialize)]
struct RunnerSettings {
    command: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    model: Option<String>,
    mode: Option<String>,
    start: Option<u64>,
    silence: Option<u64>,
}

/// What is saved about an agent's session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct SavedSession {
    session: String,
    /// The total cost that the agent last reported.
    #[serde(default)]
    cost: f64,
}

impl Runner {
    /// The environment variable that tells an agent how many agents are above it.
    pub const DEPTH: &str = "ACP_AGENT_DEPTH";

    /// A runner that starts programs with `exec`, reports `version` to them, and has `depth` agents above it.
    pub fn new(exec: Exec, version: &str, depth: u32) -> Self {
        Self { exec, version: version.to_owned(), depth }
    }

    async fn run_job(&self, job: RunnerJob, context: Arc<dyn RunnerContext>) -> Result<RunnerEnd, RunnerError> {
        let settings: RunnerSettings = serde_json::from_value(Value::Object(job.settings.clone()))
            .map_err(|error| RunnerError(format!("The configuration of the agent is not understood: {error}")))?;
        let Some((program, args)) = settings.command.split_first() else {
            return Err(RunnerError("The agent has no command in its configuration".to_owned()));
        };
        if self.depth >= MAX_DEPTH {
            let text = format!("{program} is not started: {MAX_DEPTH} agents have already started each other");
            return Err(RunnerError(text));
        }
        let unusable = |error| RunnerError(format!("Cannot work in {}: {error}", job.directory.display()));
        let root = Root::new(&job.directory).map_err(unusable)?;
        let seconds = |value: Option<u64>, default| value.map_or(default, Duration::from_secs).min(MAX_TIMEOUT);
        let (start, silence) = (seconds(settings.start, START_TIMEOUT), seconds(settings.silence, SILENCE_TIMEOUT));
        let mut env: Vec<(OsString, OsString)> =
            settings.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        env.push((Self::DEPTH.into(), (self.depth + 1).to_string().into()));
        let spec = Spec { env, ..Spec::new(program, args, root.path()) };
        let options = ClientOptions {
            root,
            exec: self.exec.hiding(&job.hidden),
            version: self.version.clone(),
            timeout: start,
            context: Some(context.clone()),
        };
        let started = Client::start(spec, options).await;
        let (client, events, running) =
            started.map_err(|error| RunnerError(format!("The agent {program} did not start: {error}")))?;
        let saved = job.kept.clone().and_then(|saved| serde_json::from_value(saved).ok());
        let job_state = JobState {
            context,
            session: String::new(),
            translator: UpdateTranslator::default(),
            saved,
            asks: JoinSet::new(),
            children: HashMap::new(),
            started_children: Vec::new(),
        };
        let mut connection = AgentConnection { client, events, silence, job: job_state };
        let result = connection.run(&job, &settings, start).await;
        connection.end(running, program, result).await
    }
}

impl api::Runner for Runner {
    fn run(&self, job: RunnerJob, context: Arc<dyn RunnerContext>) -> BoxFuture<'_, Result<RunnerEnd, RunnerError>> {
        Box::pin(self.run_job(job, context))
    }
}

/// Why a job failed.
enum JobFailure {
    /// The agent failed; its standard error may say more.
    Agent(String),
    /// This side failed.
    Internal(RunnerError),
    /// It was cancelled and did not react.
    Unresponsive,
}

impl From<RunnerError> for JobFailure {
    fn from(error: RunnerError) -> Self {
        Self::Internal(error)
    }
}

impl From<ClientError> for JobFailure {
    fn from(error: ClientError) -> Self {
        Self::Agent(match error.wants_login() {
            true => format!("it wants you to sign in first, with its own program ({error})"),
            false => error.to_string(),
        })
    }
}

/// A connection to an agent that works on a job.
struct AgentConnection {
    client: Client,
    events: Events,
    silence: Duration,
    job: JobState,
}

/// The state of a job.
struct JobState {
    context: Arc<dyn RunnerContext>,
    /// The agent's session.
    session: String,
    translator: UpdateTranslator,
    saved: Option<SavedSession>,
    /// Open permissions, each on its own task: waiting for an answer must not delay updates.
    asks: JoinSet<Option<RunnerUpdate>>,
    /// Its subagents by session; the client limits their number.
    children: HashMap<String, ChildRun>,
    /// Subagents started since the last look.
    started_children: Vec<StartedChild>,
}

/// A request to stop one subagent.
enum ChildStop {
    /// Its context asked for it.
    Requested(String),
    /// It was cancelled and did not report its end in time.
    TimedOut(String),
}

impl AgentConnection {
    async fn run(
        &mut self,
        job: &RunnerJob,
        settings: &RunnerSettings,
        start: Duration,
    ) -> Result<RunnerEnd, JobFailure> {
        let context = self.job.context.clone();
        let opened = tokio::time::timeout(start, self.open(job, settings));
        let (session, agent) = tokio::select! {
            biased;
            () = context.stopped() => return Ok(RunnerEnd::Stopped),
            opened = opened => opened.unwrap_or_else(|_| {
                Err(JobFailure::Agent(format!("it was not ready within {} s (\"start\" gives it more)", start.as_secs())))
            })?,
        };
        self.job.session.clone_from(&session.id);
        self.job.translator.begin(&session.id, self.job.saved.as_ref().map_or(0.0, |saved| saved.cost));
        let saved =
            SavedSession { session: session.id.clone(), cost: self.job.saved.as_ref().map_or(0.0, |saved| saved.cost) };
        context.tell(RunnerUpdate::Started(json!(saved))).await?;
        self.job.saved = Some(saved);
        let blocks = match job.prompt.is_empty() {
            true => vec![json!({"type": "text", "text": CONTINUE_PROMPT})],
            false => content_blocks(&job.prompt, &agent),
        };
        let answer = self.turn(&session.id, &blocks, &agent).await?;
        while let Ok(Some(event)) = tokio::time::timeout(LATE_UPDATES, self.events.next()).await {
            self.job.handle_event(event, &self.client).await?;
        }
        if let Some(report) = self.job.translator.finish(&answer) {
            self.job.report(report).await?;
        }
        match answer["stopReason"].as_str() {
            Some("end_turn" | "max_turn_requests") => Ok(RunnerEnd::Done),
            Some("max_tokens") => Ok(RunnerEnd::Length),
            Some("refusal") => Ok(RunnerEnd::Refused),
            Some("cancelled") => Ok(RunnerEnd::Stopped),
            _ => Err(JobFailure::Agent("its response to session/prompt has no known stopReason".to_owned())),
        }
    }

    /// Opens a new session or that of an earlier job. Replayed events are dropped: they are known here.
    async fn open(&mut self, job: &RunnerJob, settings: &RunnerSettings) -> Result<(Session, Value), JobFailure> {
        let (client, earlier) = (&self.client, self.job.saved.as_ref().map(|saved| saved.session.as_str()));
        let opened = async {
            let agent = client.initialize().await?;
            let mut session = match earlier {
                Some(id) => client.resume_session(id, &job.directory, &agent).await.map_err(|error| {
                    let what = if job.prompt.is_empty() { "interrupted: it was cut off, and" } else { "it" };
                    let more = if job.prompt.is_empty() {
                        "What it did so far is not known; check before you repeat the task"
                    } else {
                        "Begin a new task, without task_id"
                    };
                    JobFailure::Agent(format!("{what} cannot go on with its session {id}: {error}. {more}"))
                })?,
                None => client.new_session(&job.directory).await?,
            };
            if let Some(model) = &settings.model {
                client.set_model(&mut session, model).await?;
            }
            if let Some(mode) = &settings.mode {
                client.set_mode(&mut session, mode).await?;
            }
            Ok((session, agent))
        };
        let mut opened = std::pin::pin!(opened);
        loop {
            tokio::select! {
                biased;
                Some(event) = self.events.next() => if let Event::Permission(permission) = event {
                    permission.cancel();
                },
                opened = &mut opened => return opened,
            }
        }
    }

    /// Sends the prompt, and reports, asks and steers until the turn has ended.
    async fn turn(&mut self, session: &str, blocks: &[Value], agent: &Value) -> Result<Value, JobFailure> {
        let Self { client, events, silence, job } = self;
        let (client, context) = (&*client, job.context.clone());
        let mut answer = std::pin::pin!(client.prompt_blocks(session, blocks));
        let mut next_message = std::pin::pin!(context.steered());
        let mut can_steer = Client::can_steer(agent);
        let mut steering = FuturesUnordered::new();
        let mut stops: FuturesUnordered<BoxFuture<'static, Option<ChildStop>>> = FuturesUnordered::new();
        let mut stopping = false;
        let mut limit = Instant::now() + *silence;
        loop {
            tokio::select! {
                biased;
                () = context.stopped(), if !stopping => {
                    stopping = true;
                    limit = Instant::now() + STOP_TIMEOUT;
                    cancel(client, session).await;
                }
                Some(stop) = stops.next(), if !stopping => match stop {
                    Some(ChildStop::Requested(id)) => if let Some((can_cancel, idle)) = job.stop_info(&id) {
                        if can_cancel {
                            cancel(client, &id).await;
                        }
                        stops.push(Box::pin(async move {
                            let ended = tokio::time::timeout(STOP_TIMEOUT, idle.cancelled()).await;
                            ended.is_err().then_some(ChildStop::TimedOut(id))
                        }));
                    },
                    Some(ChildStop::TimedOut(id)) => job.end_child(&id, Ok(RunnerEnd::Stopped), client).await,
                    None => {}
                },
                Some(event) = events.next() => {
                    if !stopping {
                        limit = Instant::now() + *silence;
                    }
                    job.handle_event(event, client).await?;
                    stops.extend(job.started_children.drain(..).map(wait_for_stop));
                }
                answer = &mut answer => return Ok(answer?),
                Some(finished) = job.asks.join_next() => {
                    if !stopping {
                        limit = Instant::now() + *silence;
                    }
                    if let Ok(Some(report)) = finished {
                        job.report(report).await?;
                    }
                }
                message = &mut next_message, if can_steer && steering.is_empty() && !stopping => {
                    let blocks = content_blocks(&message.parts, agent);
                    steering.push(async move { (message.id, client.steer(session, &blocks).await) });
                    next_message.set(context.steered());
                }
                Some((id, taken)) = steering.next() => match taken {
                    Ok(_) => job.report(RunnerUpdate::Steered(id)).await?,
                    Err(error) => {
                        tracing::info!(%error, "the agent takes no messages now; it gets them later");
                        can_steer = false;
                    }
                },
                () = tokio::time::sleep_until(limit) => match stopping {
                    true => return Err(JobFailure::Unresponsive),
                    // The user is deciding, or a command runs.
                    false if !job.asks.is_empty() || client.is_busy() => limit = Instant::now() + *silence,
                    false => {
                        let seconds = silence.as_secs();
                        cancel(client, session).await;
                        return Err(JobFailure::Agent(format!("it said nothing for {seconds} s (\"silence\" gives it more)")));
                    }
                },
            }
        }
    }

    /// Ends the agent. If it failed, its standard error may say why.
    async fn end(
        mut self,
        mut running: AgentProcess,
        program: &str,
        result: Result<RunnerEnd, JobFailure>,
    ) -> Result<RunnerEnd, RunnerError> {
        self.job.asks.abort_all();
        self.client.close().await;
        let stderr = match &result {
            Err(JobFailure::Agent(_)) => running.stderr_tail().await,
            _ => String::new(),
        };
        let ended = match &result {
            Ok(RunnerEnd::Stopped) | Err(_) => running.kill().await,
            Ok(_) => running.end().await,
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "the agent did not end cleanly");
        }
        match result {
            Ok(end) => Ok(end),
            Err(JobFailure::Unresponsive) => Ok(RunnerEnd::Stopped),
            Err(JobFailure::Internal(error)) => Err(error),
            Err(JobFailure::Agent(why)) => Err(RunnerError(failure_text(program, &why, &stderr))),
        }
    }
}

impl JobState {
    /// Handles an event of the agent.
    async fn handle_event(&mut self, event: Event, client: &Client) -> Result<(), JobFailure> {
        match event {
            Event::Permission(permission) => self.ask(*permission).await?,
            // We announced that we do not fill in forms.
            Event::Form(form) => form.cancel(),
            Event::Subagent(subagent) => self.subagent_changed(&subagent, client).await?,
            Event::Update { session, update } => {
                if session != self.session && self.child_update(&session, &update, client).await? {
                    return Ok(());
                }
                if let Some(report) = self.translator.update(&session, &update, &|id| client.terminal_text(id)) {
                    self.report(report).await?;
                }
            }
        }
        Ok(())
    }

    async fn report(&mut self, report: RunnerUpdate) -> Result<(), JobFailure> {
        if let RunnerUpdate::Usage { kept: cost, .. } = &report
            && let Some(saved) = &mut self.saved
        {
            saved.cost = cost.as_f64().unwrap_or(saved.cost);
        }
        let report = match (report, &self.saved) {
            (RunnerUpdate::Usage { used, .. }, Some(saved)) => RunnerUpdate::Usage { used, kept: json!(saved) },
            (other, _) => other,
        };
        Ok(self.context.tell(report).await?)
    }

    /// Gets a permission decided on its own task.
    async fn ask(&mut self, permission: Permission) -> Result<(), JobFailure> {
        if self.asks.len() >= MAX_ASKS {
            permission.cancel();
            return Ok(());
        }
        let elsewhere = permission.session != self.session;
        let (context, call, of_child) = match self.working_child(&permission.session) {
            Some((context, translator)) => {
                let (call, _) = translator.permission_call(&permission.session, &permission.call);
                (context, call, false)
            }
            None => {
                let (call, of_child) = self.translator.permission_call(&permission.session, &permission.call);
                (self.context.clone(), call, of_child)
            }
        };
        // Report the call first: the user must see what the question is about.
        if let Err(error) = context.tell(RunnerUpdate::Call(call.clone())).await {
            permission.cancel();
            return if elsewhere { Ok(()) } else { Err(error.into()) };
        }
        self.asks.spawn(async move {
            let decision = tokio::select! {
                biased;
                () = context.stopped() => RunnerDecision::Stopped,
                () = permission.withdrawn() => {
                    if let Err(error) = context.tell(RunnerUpdate::CallWithdrawn(call.id.clone())).await {
                        tracing::debug!(%error, "failed to withdraw a question");
                    }
                    RunnerDecision::Stopped
                }
                decision = context.ask(call.clone()) => decision,
            };
            answer_permission(permission, &decision);
            // A call of an untracked subagent gets no other final state.
            let (state, output) = match decision {
                RunnerDecision::Allowed => (RunnerCallState::Completed, String::new()),
                RunnerDecision::Rejected(why) => (RunnerCallState::Failed, why),
                RunnerDecision::Stopped => return None,
            };
            of_child.then(|| RunnerUpdate::Call(RunnerCall { state, output, ..call }))
        });
        Ok(())
    }
}

/// Waits until a subagent should be stopped alone; `None` once it is idle.
fn wait_for_stop(StartedChild { id, context, idle }: StartedChild) -> BoxFuture<'static, Option<ChildStop>> {
    Box::pin(async move {
        tokio::select! {
            biased;
            () = idle.cancelled() => None,
            () = context.stopped() => Some(ChildStop::Requested(id)),
        }
    })
}

/// Asks the agent to end its turn. One that does not even read is killed later.
async fn cancel(client: &Client, session: &str) {
    if tokio::time::timeout(STOP_TIMEOUT, client.cancel(session)).await.is_err() {
        tracing::debug!("the agent does not read its messages");
    }
}

/// The error of a failed agent, with the end of its standard error.
fn failure_text(program: &str, why: &str, stderr: &str) -> String {
    let start = stderr.ceil_char_boundary(stderr.len().saturating_sub(MAX_QUOTED_STDERR));
    let stderr = stderr[start..].trim();
    let wrote = if stderr.is_empty() { String::new() } else { format!("; it wrote: {stderr}") };
    format!("The agent {program} failed: {why}{wrote}")
}

/// Answers a permission with one of the agent's options. We remember what is always allowed, so the agent need not.
fn answer_permission(permission: Permission, decision: &RunnerDecision) {
    let kinds = match decision {
        RunnerDecision::Allowed => ["allow_once", "allow_always"],
        RunnerDecision::Rejected(_) => ["reject_once", "reject_always"],
        RunnerDecision::Stopped => return permission.cancel(),
    };
    match permission.choice_of_kind(&kinds).map(|choice| choice.id.clone()) {
        Some(id) => permission.choose(&id),
        None => permission.cancel(),
    }
}

/// A prompt as ACP content blocks.
fn content_blocks(parts: &[PromptPart], agent: &Value) -> Vec<Value> {
    let images = agent["agentCapabilities"]["promptCapabilities"]["image"] == true;
    let block = |part: &PromptPart| match part {
        PromptPart::Text { text, .. } => Some(json!({"type": "text", "text": text})),
        PromptPart::File { mime, filename, url, .. } => {
            let name = filename.clone().unwrap_or_else(|| "file".to_owned());
            Some(match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
                Some((_, data)) if images && mime.starts_with("image/") => {
                    json!({"type": "image", "data": data, "mimeType": mime})
                }
                // The content of a text file is a text part of its own.
                _ if url.starts_with("data:") => {
                    json!({"type": "text", "text": format!("[{name} ({mime}) was attached and cannot be shown]")})
                }
                _ => json!({"type": "resource_link", "uri": url, "name": name, "mimeType": mime}),
            })
        }
        PromptPart::Agent { .. } | PromptPart::Subtask { .. } => None,
    };
    parts.iter().filter_map(block).collect()
}
