//! `trefoil acp-client`: talks to another ACP agent, as an editor does.

mod display;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use ::acp::client::{
    AgentProcess, Client, ClientError, ClientOptions, Event, Events, FieldInput, Form, Permission, PermissionChoice,
    Root, Session,
};
use anyhow::Context as _;
use exec::{Exec, Spec};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::args::{AcpClient, PermissionPolicy};
use crate::exit::{Exit, Failure};
use crate::run;
use crate::terminal::{LineReader, is_interactive, one_line};
use crate::wiring::{Interrupt, Invocation};
use display::Display;

/// How long a cancelled turn may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// Some agents send their last updates after the answer. A silence of this length means that nothing more comes.
const LATE_UPDATES_WAIT: Duration = Duration::from_millis(200);
/// The most allowed calls that are remembered.
const MAX_ALLOWED: usize = 100;
/// The longest text from an agent's standard error that is shown.
const MAX_STDERR: usize = 500;

/// Runs the agent, sends the message, and ends the agent.
pub async fn command(args: &AcpClient, invocation: &Invocation) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let directory =
        args.root.as_ref().map_or_else(|| invocation.directory.clone(), |root| invocation.directory.join(root));
    let unusable = |error| Failure::new(Exit::Usage, format!("cannot work in {}: {error}", directory.display()));
    let root = Root::new(&directory).map_err(unusable)?;
    let program = std::env::current_exe().context("the path of this program cannot be read")?;
    let directory = root.path().to_owned();
    let options = ClientOptions {
        root,
        exec: Exec::supervised(program, None),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        timeout: Duration::from_secs(args.timeout),
        context: None,
    };
    let spec = Spec::shell(Path::new("/bin/sh"), &args.agent, &directory);
    let (client, events, program) = Client::start(spec, options).await?;
    let user = User {
        display: Display::new(args.json, invocation.terminal_capabilities()),
        input: LineReader::default(),
        interrupt,
        policy: args.permission,
        allowed: AllowedCalls::default(),
    };
    let mut conversation = Conversation { client, events, user, args };
    let result = conversation.run(&directory).await;
    conversation.end(program, result).await
}

/// A conversation with an agent.
struct Conversation<'a> {
    client: Client,
    events: Events,
    user: User,
    args: &'a AcpClient,
}

/// The person at the terminal: what they see and type, and what they decided in advance.
struct User {
    display: Display,
    input: LineReader,
    interrupt: Interrupt,
    policy: PermissionPolicy,
    allowed: AllowedCalls,
}

impl Conversation<'_> {
    async fn run(&mut self, directory: &Path) -> anyhow::Result<()> {
        let args = self.args;
        let agent = self.user.wait_for(&mut self.events, self.client.initialize()).await?;
        self.user.display.handshake(&agent)?;
        let opened = async {
            let mut session = match &args.session {
                Some(id) => self.client.open_session(id, directory, &agent).await,
                None => self.client.new_session(directory).await,
            }?;
            if let Some(model) = &args.model {
                self.client.set_model(&mut session, model).await?;
            }
            if let Some(mode) = &args.mode {
                self.client.set_mode(&mut session, mode).await?;
            }
            Ok(session)
        };
        let opened = self.user.wait_for(&mut self.events, opened).await;
        let session = opened.map_err(|error| add_sign_in_hint(error, &agent))?;
        let message = args.message.join(" ");
        self.user.display.session(&session, message.is_empty())?;
        if message.is_empty() {
            return Ok(());
        }
        let answer = self.turn(&session, &message).await?;
        self.user.display.result(&answer)?;
        check_stop_reason(&answer)
    }

    /// Sends the message, then shows updates and answers requests until the turn has ended.
    async fn turn(&mut self, session: &Session, message: &str) -> anyhow::Result<Value> {
        let silence = Duration::from_secs(self.args.timeout);
        let mut answer = std::pin::pin!(self.client.prompt(&session.id, message));
        let mut limit = Instant::now() + silence;
        let mut cancelled = false;
        let answer = loop {
            tokio::select! {
                biased;
                () = self.user.interrupt.token.cancelled(), if !cancelled => {
                    cancelled = true;
                    limit = Instant::now() + STOP_WAIT;
                    self.client.cancel(&session.id).await;
                }
                Some(event) = self.events.next() => {
                    match event {
                        // A cancelled turn gets no more answers.
                        Event::Permission(permission) if cancelled => permission.cancel(),
                        Event::Permission(permission) => self.user.decide(*permission).await?,
                        Event::Form(form) if cancelled => form.cancel(),
                        Event::Form(form) => self.user.fill(*form).await?,
                        other => self.user.display.event(other, &self.events)?,
                    }
                    if !cancelled {
                        limit = Instant::now() + silence;
                    }
                }
                answer = &mut answer => break answer?,
                () = tokio::time::sleep_until(limit) => return Err(too_long(cancelled, silence).into()),
            }
        };
        while let Ok(Some(event)) = tokio::time::timeout(LATE_UPDATES_WAIT, self.events.next()).await {
            self.user.display.event(event, &self.events)?;
        }
        Ok(answer)
    }

    /// Ends the agent. If it failed, the text on its standard error says why.
    async fn end(self, mut program: AgentProcess, result: anyhow::Result<()>) -> anyhow::Result<()> {
        self.client.close().await;
        let failed = result.as_ref().is_err_and(|error| error.is::<ClientError>());
        let stderr = if failed { program.stderr_tail().await } else { String::new() };
        if let Err(error) = program.end().await {
            tracing::warn!(%error, "the agent did not shut down cleanly");
        }
        result.map_err(|error| explain(error, &stderr))
    }
}

impl User {
    /// Waits for an answer of the agent, shows its updates meanwhile, and gives up at Ctrl-C. The user is not asked yet.
    async fn wait_for<T>(
        &mut self,
        events: &mut Events,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> anyhow::Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = self.interrupt.token.cancelled() => return Err(run::cancelled().into()),
                Some(event) = events.next() => match event {
                    Event::Permission(permission) => permission.cancel(),
                    Event::Form(form) => form.cancel(),
                    other => self.display.event(other, events)?,
                },
                done = &mut work => return Ok(done?),
            }
        }
    }

    /// Whether the user can be asked.
    fn can_ask(&self) -> bool {
        self.policy == PermissionPolicy::Ask && is_interactive() && !self.display.is_json()
    }

    /// Answers a permission request: by policy, or by asking on a terminal.
    async fn decide(&mut self, permission: Permission) -> anyhow::Result<()> {
        if !permission.is_from_agent() && self.allowed.covers(&permission.call) {
            permission.allow();
            return Ok(());
        }
        let chosen = if self.can_ask() {
            // Before the question, which may be answered at once.
            self.input.discard();
            let mut question = self.display.question(&permission);
            self.display.ask(&question);
            loop {
                tokio::select! {
                    () = self.interrupt.token.cancelled() => break None,
                    () = permission.withdrawn() => break None,
                    line = self.input.line() => match line {
                        None => break None,
                        Some(line) if question.turn_page(&line) => self.display.ask(&question),
                        Some(line) => match display::choose(&permission.choices, &line) {
                            // Before the last page, only a no counts.
                            Some(answer) if question.is_last() || answer.kind.starts_with("reject") => {
                                break Some(answer.clone());
                            }
                            _ => self.display.ask(&question),
                        },
                    },
                }
            }
        } else {
            let kinds = match self.policy {
                PermissionPolicy::Allow => ["allow_once", "allow_always"],
                PermissionPolicy::Ask | PermissionPolicy::Reject => ["reject_once", "reject_always"],
            };
            permission.choice_of_kind(&kinds).cloned()
        };
        self.display.decision(&permission, chosen.as_ref())?;
        if permission.is_from_agent() {
            self.allowed.record(&permission.call, chosen.as_ref());
        }
        match chosen {
            Some(answer) => permission.choose(&answer.id),
            None => permission.cancel(),
        }
        Ok(())
    }

    /// Answers a form: by policy, or by asking on a terminal.
    async fn fill(&mut self, form: Form) -> anyhow::Result<()> {
        let content = match self.policy {
            PermissionPolicy::Allow => form.default_content(),
            PermissionPolicy::Ask if self.can_ask() => match self.ask_fields(&form).await {
                Some(content) => Some(content),
                None => {
                    self.display.form_answer(&form, "cancel", None)?;
                    form.cancel();
                    return Ok(());
                }
            },
            PermissionPolicy::Ask | PermissionPolicy::Reject => None,
        };
        let action = if content.is_some() { "accept" } else { "decline" };
        self.display.form_answer(&form, action, content.as_ref())?;
        match content {
            Some(content) => form.accept(content),
            None => form.decline(),
        }
        Ok(())
    }

    /// Asks for one field after the other. Returns `None` if the input ends or the form is withdrawn.
    async fn ask_fields(&mut self, form: &Form) -> Option<Map<String, Value>> {
        let mut content = Map::new();
        self.display.form(form);
        for field in &form.fields {
            self.input.discard();
            self.display.field(field);
            loop {
                let line = tokio::select! {
                    () = self.interrupt.token.cancelled() => None,
                    () = form.withdrawn() => None,
                    line = self.input.line() => line,
                };
                match field.parse(&line?) {
                    Some(FieldInput::Value(value)) => drop(content.insert(field.key.clone(), value)),
                    Some(FieldInput::Empty) => {}
                    None => {
                        self.display.field(field);
                        continue;
                    }
                }
                break;
            }
        }
        Some(content)
    }
}

/// What the user allowed when the agent asked. The user is not asked again when the agent has the same thing done here.
#[derive(Default)]
struct AllowedCalls(VecDeque<AllowedCall>);

struct AllowedCall {
    commands: Vec<String>,
    paths: Vec<String>,
    always: bool,
}

impl AllowedCalls {
    /// Remembers the commands and paths of an allowed call.
    fn record(&mut self, call: &Value, answer: Option<&PermissionChoice>) {
        let always = match answer.map(|answer| answer.kind.as_str()) {
            Some("allow_always") => true,
            Some("allow_once") => false,
            _ => return,
        };
        let texts = |value: &Value| value.as_str().map(str::to_owned);
        let input = &call["rawInput"];
        let list = |name: &str| call[name].as_array().cloned().unwrap_or_default();
        let mut paths: Vec<String> =
            ["filePath", "file_path", "filepath", "path"].iter().filter_map(|name| texts(&input[*name])).collect();
        paths.extend(list("content").iter().chain(&list("locations")).filter_map(|entry| texts(&entry["path"])));
        self.0.push_back(AllowedCall { commands: texts(&input["command"]).into_iter().collect(), paths, always });
        if self.0.len() > MAX_ALLOWED {
            self.0.pop_front();
        }
    }

    /// Whether a command or a write was allowed before. What was allowed once counts once.
    fn covers(&mut self, call: &Value) -> bool {
        let input = &call["rawInput"];
        let command = call["kind"] == "execute";
        let wanted = if command { [&input["command"], &input["script"]] } else { [&call["content"][0]["path"]; 2] };
        self.0.iter_mut().any(|allowed| {
            let things = if command { &mut allowed.commands } else { &mut allowed.paths };
            let Some(place) = things.iter().position(|thing| wanted.iter().any(|wanted| *wanted == thing)) else {
                return false;
            };
            if !allowed.always {
                things.remove(place);
            }
            true
        })
    }
}

fn too_long(cancelled: bool, silence: Duration) -> Failure {
    if cancelled {
        return Failure::new(Exit::Cancelled, format!("the agent did not stop within {} s", STOP_WAIT.as_secs()));
    }
    Failure::new(Exit::Failed, format!("the agent said nothing for {} s", silence.as_secs()))
        .hint("--timeout gives it more time")
}

/// Turns the end of a turn into an error, unless the agent finished.
fn check_stop_reason(answer: &Value) -> anyhow::Result<()> {
    match answer["stopReason"].as_str() {
        Some("end_turn") => Ok(()),
        Some("cancelled") => Err(run::cancelled().into()),
        Some(other) => {
            Err(Failure::new(Exit::Model, format!("the agent stopped early: {}", one_line(other, 60))).into())
        }
        None => Err(Failure::new(Exit::Failed, "the agent's answer to session/prompt has no stopReason").into()),
    }
}

/// An error of the agent, with the end of its standard error.
fn explain(error: anyhow::Error, stderr: &str) -> anyhow::Error {
    let failure = match error.downcast::<ClientError>() {
        Ok(ClientError::Unknown { what, wanted, known }) => Failure::unknown(what, &wanted, &known),
        Ok(other) => Failure::new(Exit::Failed, other.to_string()),
        Err(error) => return error,
    };
    if stderr.is_empty() || failure.hint.is_some() {
        return failure.into();
    }
    let start = stderr.ceil_char_boundary(stderr.len().saturating_sub(MAX_STDERR));
    failure.hint(format!("the agent wrote: {}", one_line(&stderr[start..], MAX_STDERR))).into()
}

/// Adds how to sign in, if the agent refuses because nobody is signed in.
fn add_sign_in_hint(error: anyhow::Error, agent: &Value) -> anyhow::Error {
    let Some(refused) = error.downcast_ref::<ClientError>().filter(|error| error.wants_login()) else { return error };
    let methods = agent["authMethods"].as_array().into_iter().flatten();
    let ways: Vec<&str> =
        methods.filter_map(|method| method["description"].as_str().or_else(|| method["name"].as_str())).collect();
    let hint = if ways.is_empty() { "sign in with the agent's own program".to_owned() } else { ways.join("; or ") };
    Failure::new(Exit::Failed, format!("the agent requires you to sign in first: {refused}")).hint(hint).into()
}
