//! Other agents as subagents: a program that speaks the protocol does the work of a session, and reports at its desk.
//!
//! The program runs for one job and ends with it, whatever ends the job. Its session is remembered by its id, so that the
//! next job of the same session goes on in it. Subagents that it tells of get [desks](children) of their own.

mod children;
#[cfg(test)]
mod tests;
mod translate;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use api::{Desk, PromptPart, RunnerAnswer, RunnerCall, RunnerCallState, RunnerEnd, RunnerError, RunnerJob, RunnerNews};
use exec::{Exec, Spec};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, ClientError, Event, Events, Options, Permission, Program, Root, Session};
use children::{Begun, Child};
use translate::Report;

/// How long an agent may take until it is ready for a prompt, unless the configuration says otherwise.
const START: Duration = Duration::from_secs(60);
/// How long it may say nothing while it works, unless the configuration says otherwise.
const SILENCE: Duration = Duration::from_secs(30 * 60);
/// No wait is longer, whatever the configuration says.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a cancelled turn may take to stop.
const STOP_WAIT: Duration = Duration::from_millis(1500);
/// Some agents send the last updates behind the answer: how long a silence says that nothing more comes.
const LATE: Duration = Duration::from_millis(200);
/// Permissions that may be asked for at once.
const MAX_ASKS: usize = 64;
/// How much of what an agent wrote to standard error is told.
const MAX_COMPLAINT: usize = 1_000;

/// What an agent gets that was cut off.
const GO_ON: &str = "The connection to you broke off while you worked on the last message. See what is done already, do \
                     not do it twice, and go on from there. End with the answer to that message.";

/// The most agents that may have started each other, one below the other: one that starts itself comes to an end.
const MAX_DEPTH: u32 = 8;

/// Runs agents of others. Cheap to clone.
#[derive(Clone)]
pub struct Runner {
    exec: Exec,
    version: String,
    depth: u32,
}

/// What the configuration says.
#[derive(Deserialize)]
struct Settings {
    command: Vec<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    model: Option<String>,
    mode: Option<String>,
    start: Option<u64>,
    silence: Option<u64>,
}

/// What is kept of an agent's session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Kept {
    session: String,
    /// What all of it cost, as the agent reported it last.
    #[serde(default)]
    cost: f64,
}

impl Runner {
    /// The variable by which an agent knows how many agents are above it.
    pub const DEPTH: &str = "ACP_AGENT_DEPTH";

    /// One that starts programs with this, tells them this version, and has so many agents above it.
    pub fn new(exec: Exec, version: &str, depth: u32) -> Self {
        Self { exec, version: version.to_owned(), depth }
    }

    async fn work(&self, job: RunnerJob, desk: Arc<dyn Desk>) -> Result<RunnerEnd, RunnerError> {
        let settings: Settings = serde_json::from_value(Value::Object(job.settings.clone()))
            .map_err(|error| RunnerError(format!("The configuration of the agent is not understood: {error}")))?;
        let Some((program, args)) = settings.command.split_first() else {
            return Err(RunnerError("The agent has no command in its configuration".to_owned()));
        };
        if self.depth >= MAX_DEPTH {
            let text = format!("{MAX_DEPTH} agents have started each other already, so {program} is not started, too");
            return Err(RunnerError(text));
        }
        let unusable = |error| RunnerError(format!("Cannot work in {}: {error}", job.directory.display()));
        let root = Root::new(&job.directory).map_err(unusable)?;
        let seconds = |value: Option<u64>, default| value.map_or(default, Duration::from_secs).min(LONGEST);
        let (start, silence) = (seconds(settings.start, START), seconds(settings.silence, SILENCE));
        let mut env: Vec<(OsString, OsString)> =
            settings.environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        env.push((Self::DEPTH.into(), (self.depth + 1).to_string().into()));
        let spec = Spec { env, ..Spec::new(program, args, root.path()) };
        let options = Options {
            root,
            exec: self.exec.hiding(&job.hidden),
            version: self.version.clone(),
            patience: start,
            desk: Some(desk.clone()),
        };
        let started = Client::start(spec, options).await;
        let (client, events, running) =
            started.map_err(|error| RunnerError(format!("The agent {program} did not start: {error}")))?;
        let kept = job.kept.clone().and_then(|kept| serde_json::from_value(kept).ok());
        let work = Work {
            desk,
            session: String::new(),
            report: Report::default(),
            kept,
            asks: JoinSet::new(),
            children: HashMap::new(),
            begun: Vec::new(),
        };
        let mut talk = Talk { client, events, silence, work };
        let result = talk.hold(&job, &settings, start).await;
        talk.end(running, program, result).await
    }
}

impl api::Runner for Runner {
    fn run(&self, job: RunnerJob, desk: Arc<dyn Desk>) -> BoxFuture<'_, Result<RunnerEnd, RunnerError>> {
        Box::pin(self.work(job, desk))
    }
}

/// Why a job did not come to its end.
enum Failure {
    /// The agent said or did it: what it complained about says more.
    Agent(String),
    /// We did.
    Own(RunnerError),
    /// It was stopped, and did not even say so.
    Deaf,
}

impl From<RunnerError> for Failure {
    fn from(error: RunnerError) -> Self {
        Self::Own(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Agent(match error.wants_login() {
            true => format!("it wants you to sign in first, with its own program ({error})"),
            false => error.to_string(),
        })
    }
}

/// A conversation with an agent.
struct Talk {
    client: Client,
    events: Events,
    silence: Duration,
    work: Work,
}

/// What the agent does, and what becomes of it.
struct Work {
    desk: Arc<dyn Desk>,
    /// The agent's session.
    session: String,
    report: Report,
    kept: Option<Kept>,
    /// Permissions that wait for an answer. Tasks of their own: nothing that waits may hold up what is told.
    asks: JoinSet<Option<RunnerNews>>,
    /// Its subagents, by their sessions; as many as the client follows.
    children: HashMap<String, Child>,
    /// Those that were begun since somebody looked.
    begun: Vec<Begun>,
}

/// What becomes of a subagent that shall be stopped alone.
enum Stop {
    /// Somebody wants that.
    Wanted(String),
    /// It was told to, and did not say that it has.
    Due(String),
}

impl Talk {
    async fn hold(&mut self, job: &RunnerJob, settings: &Settings, start: Duration) -> Result<RunnerEnd, Failure> {
        let desk = self.work.desk.clone();
        let opened = tokio::time::timeout(start, self.open(job, settings));
        let (session, agent) = tokio::select! {
            biased;
            () = desk.stopped() => return Ok(RunnerEnd::Stopped),
            opened = opened => opened.unwrap_or_else(|_| {
                Err(Failure::Agent(format!("it was not ready within {} s (\"start\" gives it more)", start.as_secs())))
            })?,
        };
        self.work.session.clone_from(&session.id);
        self.work.report.begin(&session.id, self.work.kept.as_ref().map_or(0.0, |kept| kept.cost));
        let kept = Kept { session: session.id.clone(), cost: self.work.kept.as_ref().map_or(0.0, |kept| kept.cost) };
        desk.tell(RunnerNews::Begun(json!(kept))).await?;
        self.work.kept = Some(kept);
        let blocks = match job.prompt.is_empty() {
            true => vec![json!({"type": "text", "text": GO_ON})],
            false => blocks(&job.prompt, &agent),
        };
        let answer = self.turn(&session.id, &blocks, &agent).await?;
        while let Ok(Some(event)) = tokio::time::timeout(LATE, self.events.next()).await {
            self.work.take(event, &self.client).await?;
        }
        if let Some(news) = self.work.report.end(&answer) {
            self.work.tell(news).await?;
        }
        match answer["stopReason"].as_str() {
            Some("end_turn" | "max_turn_requests") => Ok(RunnerEnd::Done),
            Some("max_tokens") => Ok(RunnerEnd::Length),
            Some("refusal") => Ok(RunnerEnd::Refused),
            Some("cancelled") => Ok(RunnerEnd::Stopped),
            _ => Err(Failure::Agent("its answer to session/prompt has no stopReason that is known".to_owned())),
        }
    }

    /// Opens a session, or the one of an earlier job. What the agent shows of earlier work is known here.
    async fn open(&mut self, job: &RunnerJob, settings: &Settings) -> Result<(Session, Value), Failure> {
        let (client, earlier) = (&self.client, self.work.kept.as_ref().map(|kept| kept.session.as_str()));
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
                    Failure::Agent(format!("{what} cannot go on with its session {id}: {error}. {more}"))
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

    /// Sends the prompt, and tells, asks and steers until the turn has ended.
    async fn turn(&mut self, session: &str, blocks: &[Value], agent: &Value) -> Result<Value, Failure> {
        let Self { client, events, silence, work } = self;
        let (client, desk) = (&*client, work.desk.clone());
        let mut answer = std::pin::pin!(client.prompt_blocks(session, blocks));
        let mut steered = std::pin::pin!(desk.steered());
        let mut steers = Client::can_steer(agent);
        let mut steering = FuturesUnordered::new();
        let mut stops: FuturesUnordered<BoxFuture<'static, Option<Stop>>> = FuturesUnordered::new();
        let mut stopping = false;
        let mut limit = Instant::now() + *silence;
        loop {
            tokio::select! {
                biased;
                () = desk.stopped(), if !stopping => {
                    stopping = true;
                    limit = Instant::now() + STOP_WAIT;
                    cancel(client, session).await;
                }
                Some(stop) = stops.next(), if !stopping => match stop {
                    Some(Stop::Wanted(id)) => if let Some((can, rests)) = work.stops(&id) {
                        if can {
                            cancel(client, &id).await;
                        }
                        stops.push(Box::pin(async move {
                            let rested = tokio::time::timeout(STOP_WAIT, rests.cancelled()).await;
                            rested.is_err().then_some(Stop::Due(id))
                        }));
                    },
                    Some(Stop::Due(id)) => work.rest(&id, Ok(RunnerEnd::Stopped), client).await,
                    None => {}
                },
                Some(event) = events.next() => {
                    if !stopping {
                        limit = Instant::now() + *silence;
                    }
                    work.take(event, client).await?;
                    stops.extend(work.begun.drain(..).map(stop));
                }
                answer = &mut answer => return Ok(answer?),
                Some(told) = work.asks.join_next() => {
                    if !stopping {
                        limit = Instant::now() + *silence;
                    }
                    if let Ok(Some(news)) = told {
                        work.tell(news).await?;
                    }
                }
                steer = &mut steered, if steers && steering.is_empty() && !stopping => {
                    let blocks = self::blocks(&steer.parts, agent);
                    steering.push(async move { (steer.id, client.steer(session, &blocks).await) });
                    steered.set(desk.steered());
                }
                Some((id, taken)) = steering.next() => match taken {
                    Ok(_) => work.tell(RunnerNews::Steered(id)).await?,
                    Err(error) => {
                        tracing::info!(%error, "the agent takes no messages now; it gets them later");
                        steers = false;
                    }
                },
                () = tokio::time::sleep_until(limit) => match stopping {
                    true => return Err(Failure::Deaf),
                    // A human thinks, or a command runs.
                    false if !work.asks.is_empty() || client.is_served() => limit = Instant::now() + *silence,
                    false => {
                        let seconds = silence.as_secs();
                        cancel(client, session).await;
                        return Err(Failure::Agent(format!("it said nothing for {seconds} s (\"silence\" gives it more)")));
                    }
                },
            }
        }
    }

    /// Ends the agent. If it broke off, what it complained about says why.
    async fn end(
        mut self,
        mut running: Program,
        program: &str,
        result: Result<RunnerEnd, Failure>,
    ) -> Result<RunnerEnd, RunnerError> {
        self.work.asks.abort_all();
        self.client.close().await;
        let complaint = match &result {
            Err(Failure::Agent(_)) => running.complaints().await,
            _ => String::new(),
        };
        let ended = match &result {
            Ok(RunnerEnd::Stopped) | Err(_) => running.kill().await,
            Ok(_) => running.end().await,
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "the agent did not end well");
        }
        match result {
            Ok(end) => Ok(end),
            Err(Failure::Deaf) => Ok(RunnerEnd::Stopped),
            Err(Failure::Own(error)) => Err(error),
            Err(Failure::Agent(why)) => Err(RunnerError(explain(program, &why, &complaint))),
        }
    }
}

impl Work {
    /// Takes what the agent tells or asks.
    async fn take(&mut self, event: Event, client: &Client) -> Result<(), Failure> {
        match event {
            Event::Permission(permission) => self.ask(*permission).await?,
            // It was told that nobody fills them in.
            Event::Form(form) => form.cancel(),
            Event::Subagent(subagent) => self.subagent(&subagent, client).await?,
            Event::Update { session, update } => {
                if session != self.session && self.child_update(&session, &update, client).await? {
                    return Ok(());
                }
                if let Some(news) = self.report.update(&session, &update, &|id| client.terminal_text(id)) {
                    self.tell(news).await?;
                }
            }
        }
        Ok(())
    }

    async fn tell(&mut self, news: RunnerNews) -> Result<(), Failure> {
        if let RunnerNews::Used { kept: cost, .. } = &news
            && let Some(kept) = &mut self.kept
        {
            kept.cost = cost.as_f64().unwrap_or(kept.cost);
        }
        let news = match (news, &self.kept) {
            (RunnerNews::Used { used, .. }, Some(kept)) => RunnerNews::Used { used, kept: json!(kept) },
            (other, _) => other,
        };
        Ok(self.desk.tell(news).await?)
    }

    /// Has a permission decided, beside everything else.
    async fn ask(&mut self, permission: Permission) -> Result<(), Failure> {
        if self.asks.len() >= MAX_ASKS {
            permission.cancel();
            return Ok(());
        }
        let elsewhere = permission.session != self.session;
        let (desk, call, of_child) = match self.at_work(&permission.session) {
            Some((desk, report)) => {
                let (call, _) = report.wanted(&permission.session, &permission.call);
                (desk, call, false)
            }
            None => {
                let (call, of_child) = self.report.wanted(&permission.session, &permission.call);
                (self.desk.clone(), call, of_child)
            }
        };
        // The human is asked about something that everybody sees.
        if let Err(error) = desk.tell(RunnerNews::Call(call.clone())).await {
            permission.cancel();
            return if elsewhere { Ok(()) } else { Err(error.into()) };
        }
        self.asks.spawn(async move {
            let answer = tokio::select! {
                biased;
                () = desk.stopped() => RunnerAnswer::Stopped,
                () = permission.withdrawn() => {
                    if let Err(error) = desk.tell(RunnerNews::Withdrawn(call.id.clone())).await {
                        tracing::debug!(%error, "a question is left open");
                    }
                    RunnerAnswer::Stopped
                }
                answer = desk.ask(call.clone()) => answer,
            };
            reply(permission, &answer);
            // A call of a subagent has no other end here.
            let (state, output) = match answer {
                RunnerAnswer::Allowed => (RunnerCallState::Completed, String::new()),
                RunnerAnswer::Rejected(why) => (RunnerCallState::Failed, why),
                RunnerAnswer::Stopped => return None,
            };
            of_child.then(|| RunnerNews::Call(RunnerCall { state, output, ..call }))
        });
        Ok(())
    }
}

/// Waits until a subagent shall be stopped alone.
fn stop(Begun { id, desk, rests }: Begun) -> BoxFuture<'static, Option<Stop>> {
    Box::pin(async move {
        tokio::select! {
            biased;
            () = rests.cancelled() => None,
            () = desk.stopped() => Some(Stop::Wanted(id)),
        }
    })
}

/// Asks the agent to end its turn. One that does not even read is ended later.
async fn cancel(client: &Client, session: &str) {
    if tokio::time::timeout(STOP_WAIT, client.cancel(session)).await.is_err() {
        tracing::debug!("the agent does not read what it is told");
    }
}

/// What went wrong with an agent, with the end of what it wrote to standard error.
fn explain(program: &str, why: &str, complaint: &str) -> String {
    let start = complaint.ceil_char_boundary(complaint.len().saturating_sub(MAX_COMPLAINT));
    let complaint = complaint[start..].trim();
    let wrote = if complaint.is_empty() { String::new() } else { format!("; it wrote: {complaint}") };
    format!("The agent {program} failed: {why}{wrote}")
}

/// Answers a permission in the words of the agent. What is allowed for always is known here: the agent need not remember.
fn reply(permission: Permission, answer: &RunnerAnswer) {
    let kinds = match answer {
        RunnerAnswer::Allowed => ["allow_once", "allow_always"],
        RunnerAnswer::Rejected(_) => ["reject_once", "reject_always"],
        RunnerAnswer::Stopped => return permission.cancel(),
    };
    match permission.of_kind(&kinds).map(|answer| answer.id.clone()) {
        Some(id) => permission.choose(&id),
        None => permission.cancel(),
    }
}

/// A prompt as the protocol has it.
fn blocks(parts: &[PromptPart], agent: &Value) -> Vec<Value> {
    let images = agent["agentCapabilities"]["promptCapabilities"]["image"] == true;
    let block = |part: &PromptPart| match part {
        PromptPart::Text { text, .. } => Some(json!({"type": "text", "text": text})),
        PromptPart::File { mime, filename, url, .. } => {
            let name = filename.clone().unwrap_or_else(|| "file".to_owned());
            Some(match url.strip_prefix("data:").and_then(|data| data.split_once(";base64,")) {
                Some((_, data)) if images && mime.starts_with("image/") => {
                    json!({"type": "image", "data": data, "mimeType": mime})
                }
                // What a text file holds stands in a text of its own.
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
