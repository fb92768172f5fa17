//! `trefoil acp-client`: speaks to an agent of others, as an editor does.

mod show;

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

use crate::args::{AcpClient, Policy};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::run::{self, Typed};
use crate::term::one_line;
use crate::wire::World;
use show::Show;

/// How long a cancelled turn may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// Some agents send the last updates behind the answer: how long a silence says that nothing more comes.
const LATE: Duration = Duration::from_millis(200);
/// How many grants are remembered.
const MAX_GRANTED: usize = 100;
/// How much of what an agent wrote to standard error is shown.
const MAX_COMPLAINT: usize = 500;

/// Runs the agent, does what was asked, and ends it.
pub async fn acp_client(args: &AcpClient, world: &World) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let directory = args.root.as_ref().map_or_else(|| world.directory.clone(), |root| world.directory.join(root));
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
    let show = Show::new(args.json, world.look());
    let granted = Granted::default();
    let human = Human { show, typed: Typed::default(), interrupt, policy: args.permission, granted };
    let mut talk = Talk { client, events, human, args };
    let result = talk.hold(&directory).await;
    talk.end(program, result).await
}

/// A conversation with an agent.
struct Talk<'a> {
    client: Client,
    events: Events,
    human: Human,
    args: &'a AcpClient,
}

/// Who sits here: what they see and type, and how they decided in advance.
struct Human {
    show: Show,
    typed: Typed,
    interrupt: Interrupt,
    policy: Policy,
    granted: Granted,
}

impl Talk<'_> {
    async fn hold(&mut self, directory: &Path) -> anyhow::Result<()> {
        let args = self.args;
        let agent = self.human.listen(&mut self.events, self.client.initialize()).await?;
        self.human.show.handshake(&agent)?;
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
        let opened = self.human.listen(&mut self.events, opened).await;
        let session = opened.map_err(|error| sign_in(error, &agent))?;
        let message = args.message.join(" ");
        self.human.show.session(&session, message.is_empty())?;
        if message.is_empty() {
            return Ok(());
        }
        let answer = self.turn(&session, &message).await?;
        self.human.show.result(&answer)?;
        judge(&answer)
    }

    /// Sends the message, and shows and answers until the turn has ended.
    async fn turn(&mut self, session: &Session, message: &str) -> anyhow::Result<Value> {
        let silence = Duration::from_secs(self.args.timeout);
        let mut answer = std::pin::pin!(self.client.prompt(&session.id, message));
        let mut limit = Instant::now() + silence;
        let mut cancelled = false;
        let answer = loop {
            tokio::select! {
                biased;
                () = self.human.interrupt.token.cancelled(), if !cancelled => {
                    cancelled = true;
                    limit = Instant::now() + STOP_WAIT;
                    self.client.cancel(&session.id).await;
                }
                Some(event) = self.events.next() => {
                    match event {
                        // A turn that is cancelled is asked nothing any more.
                        Event::Permission(permission) if cancelled => permission.cancel(),
                        Event::Permission(permission) => self.human.decide(*permission).await?,
                        Event::Form(form) if cancelled => form.cancel(),
                        Event::Form(form) => self.human.fill(*form).await?,
                        other => self.human.show.event(other, &self.events)?,
                    }
                    if !cancelled {
                        limit = Instant::now() + silence;
                    }
                }
                answer = &mut answer => break answer?,
                () = tokio::time::sleep_until(limit) => return Err(too_long(cancelled, silence).into()),
            }
        };
        while let Ok(Some(event)) = tokio::time::timeout(LATE, self.events.next()).await {
            self.human.show.event(event, &self.events)?;
        }
        Ok(answer)
    }

    /// Ends the agent. If it broke off, what it complained about says why.
    async fn end(self, mut program: AgentProcess, result: anyhow::Result<()>) -> anyhow::Result<()> {
        self.client.close().await;
        let failed = result.as_ref().is_err_and(|error| error.is::<ClientError>());
        let complaint = if failed { program.stderr_tail().await } else { String::new() };
        if let Err(error) = program.end().await {
            tracing::warn!(%error, "the agent did not end well");
        }
        result.map_err(|error| explain(error, &complaint))
    }
}

impl Human {
    /// Waits for an answer of the agent, shows what it says meanwhile, and gives up at Ctrl-C. Nobody is asked yet.
    async fn listen<T>(
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
                    other => self.show.event(other, events)?,
                },
                done = &mut work => return Ok(done?),
            }
        }
    }

    /// Whether somebody is there to be asked.
    fn is_asked(&self) -> bool {
        self.policy == Policy::Ask && run::interactive() && !self.show.is_json()
    }

    /// Answers a permission: by policy, or by hand where there is a terminal.
    async fn decide(&mut self, permission: Permission) -> anyhow::Result<()> {
        if !permission.is_from_agent() && self.granted.covers(&permission.call) {
            permission.allow();
            return Ok(());
        }
        let chosen = if self.is_asked() {
            // Before it is asked: an answer may come at once.
            self.typed.forget();
            let mut pages = self.show.question(&permission);
            self.show.ask(&pages);
            loop {
                tokio::select! {
                    () = self.interrupt.token.cancelled() => break None,
                    () = permission.withdrawn() => break None,
                    line = self.typed.line() => match line {
                        None => break None,
                        Some(line) if pages.turn(&line) => self.show.ask(&pages),
                        Some(line) => match show::choose(&permission.choices, &line) {
                            // Only a no is taken before the end was seen.
                            Some(answer) if pages.is_last() || answer.kind.starts_with("reject") => {
                                break Some(answer.clone());
                            }
                            _ => self.show.ask(&pages),
                        },
                    },
                }
            }
        } else {
            let kinds = match self.policy {
                Policy::Allow => ["allow_once", "allow_always"],
                Policy::Ask | Policy::Reject => ["reject_once", "reject_always"],
            };
            permission.choice_of_kind(&kinds).cloned()
        };
        self.show.decision(&permission, chosen.as_ref())?;
        if permission.is_from_agent() {
            self.granted.note(&permission.call, chosen.as_ref());
        }
        match chosen {
            Some(answer) => permission.choose(&answer.id),
            None => permission.cancel(),
        }
        Ok(())
    }

    /// Fills a form in: by policy, or by hand where there is a terminal.
    async fn fill(&mut self, form: Form) -> anyhow::Result<()> {
        let content = match self.policy {
            Policy::Allow => form.default_content(),
            Policy::Ask if self.is_asked() => match self.fill_by_hand(&form).await {
                Some(content) => Some(content),
                None => {
                    self.show.filled(&form, "cancel", None)?;
                    form.cancel();
                    return Ok(());
                }
            },
            Policy::Ask | Policy::Reject => None,
        };
        let action = if content.is_some() { "accept" } else { "decline" };
        self.show.filled(&form, action, content.as_ref())?;
        match content {
            Some(content) => form.accept(content),
            None => form.decline(),
        }
        Ok(())
    }

    /// One field after the other; nothing if nobody answers any more.
    async fn fill_by_hand(&mut self, form: &Form) -> Option<Map<String, Value>> {
        let mut content = Map::new();
        self.show.form(form);
        for field in &form.fields {
            self.typed.forget();
            self.show.field(field);
            loop {
                let line = tokio::select! {
                    () = self.interrupt.token.cancelled() => None,
                    () = form.withdrawn() => None,
                    line = self.typed.line() => line,
                };
                match field.parse(&line?) {
                    Some(FieldInput::Value(value)) => drop(content.insert(field.key.clone(), value)),
                    Some(FieldInput::Empty) => {}
                    None => {
                        self.show.field(field);
                        continue;
                    }
                }
                break;
            }
        }
        Some(content)
    }
}

/// What the human allowed when the agent asked: the same thing is not asked again when the agent has it done here.
#[derive(Default)]
struct Granted(VecDeque<Grant>);

struct Grant {
    commands: Vec<String>,
    paths: Vec<String>,
    always: bool,
}

impl Granted {
    /// Remembers what an allowed call is about.
    fn note(&mut self, call: &Value, answer: Option<&PermissionChoice>) {
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
        self.0.push_back(Grant { commands: texts(&input["command"]).into_iter().collect(), paths, always });
        if self.0.len() > MAX_GRANTED {
            self.0.pop_front();
        }
    }

    /// Whether a command or a write was allowed before; what was allowed once counts once.
    fn covers(&mut self, call: &Value) -> bool {
        let input = &call["rawInput"];
        let command = call["kind"] == "execute";
        let wanted = if command { [&input["command"], &input["script"]] } else { [&call["content"][0]["path"]; 2] };
        self.0.iter_mut().any(|grant| {
            let things = if command { &mut grant.commands } else { &mut grant.paths };
            let Some(place) = things.iter().position(|thing| wanted.iter().any(|wanted| *wanted == thing)) else {
                return false;
            };
            if !grant.always {
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

/// What the end of a turn means for whoever started it.
fn judge(answer: &Value) -> anyhow::Result<()> {
    match answer["stopReason"].as_str() {
        Some("end_turn") => Ok(()),
        Some("cancelled") => Err(run::cancelled().into()),
        Some(other) => {
            Err(Failure::new(Exit::Model, format!("the agent stopped early: {}", one_line(other, 60))).into())
        }
        None => Err(Failure::new(Exit::Failed, "the agent's answer to session/prompt has no stopReason").into()),
    }
}

/// An error of the agent, with what is known about it.
fn explain(error: anyhow::Error, complaint: &str) -> anyhow::Error {
    let failure = match error.downcast::<ClientError>() {
        Ok(ClientError::Unknown { what, wanted, known }) => Failure::unknown(what, &wanted, &known),
        Ok(other) => Failure::new(Exit::Failed, other.to_string()),
        Err(error) => return error,
    };
    if complaint.is_empty() || failure.hint.is_some() {
        return failure.into();
    }
    let start = complaint.ceil_char_boundary(complaint.len().saturating_sub(MAX_COMPLAINT));
    failure.hint(format!("the agent wrote: {}", one_line(&complaint[start..], MAX_COMPLAINT))).into()
}

/// Adds how the human can sign in, if that is missing.
fn sign_in(error: anyhow::Error, agent: &Value) -> anyhow::Error {
    let Some(refused) = error.downcast_ref::<ClientError>().filter(|error| error.wants_login()) else { return error };
    let methods = agent["authMethods"].as_array().into_iter().flatten();
    let ways: Vec<&str> =
        methods.filter_map(|method| method["description"].as_str().or_else(|| method["name"].as_str())).collect();
    let hint = if ways.is_empty() { "sign in with the agent's own program".to_owned() } else { ways.join("; or ") };
    Failure::new(Exit::Failed, format!("the agent wants you to sign in first: {refused}")).hint(hint).into()
}
