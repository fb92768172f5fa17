//! `trefoil a2a call`: sends a message to another agent and prints its answer as it comes.

use std::time::Duration;

use ::a2a::TaskState;
use ::a2a::client::{Follower, TaskView, text_message};

use super::display::Display;
use super::{failure, peer};
use crate::args::A2aCall;
use crate::exit::{Exit, Failure};
use crate::terminal::{self, Style, one_line};
use crate::wiring::{Interrupt, Invocation, Signal};

/// How long a cancelled task may take to confirm it.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
/// The longest text of the agent in an error.
const MAX_TEXT: usize = 1000;

/// Calls an agent. Everything but a task that it completed is an error.
pub async fn command(args: &A2aCall, invocation: &Invocation) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen()?;
    let peer = peer(&args.agent, invocation)?;
    let text = args.text.join(" ");
    let mut follower = match (&args.task, text.trim()) {
        (Some(task), "") => peer.follow_task(task),
        (None, "") => {
            return Err(Failure::new(Exit::Usage, "there is no message")
                .hint("trefoil a2a call URL \"what to do\"")
                .into());
        }
        (task, _) => peer.follow(text_message(&text, args.context.as_deref(), task.as_deref())),
    };
    let mut display = Display::new(args.json, Style::stderr(invocation.no_color()));
    let followed = follow(&mut follower, &mut display, &interrupt).await;
    display.finish(follower.view())?;
    match followed? {
        None => verdict(args, follower.view()),
        Some(signal) => Err(stopped(args, signal, &mut follower).await.into()),
    }
}

/// Prints what the agent says until its task ends or needs an answer, or until a signal.
async fn follow(
    follower: &mut Follower,
    display: &mut Display,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<Signal>> {
    loop {
        let changes = tokio::select! {
            biased;
            () = interrupt.token.cancelled() => return Ok(Some(interrupt.signal().unwrap_or(Signal::Interrupt))),
            changes = follower.next() => changes,
        };
        let Some(changes) = changes else { return Ok(None) };
        for change in changes.map_err(|error| failure(&error))? {
            display.show(&change)?;
        }
        if follower.view().is_settled() {
            return Ok(None);
        }
    }
}

/// Ctrl-C cancels the task; the other signals leave it alone.
async fn stopped(args: &A2aCall, signal: Signal, follower: &mut Follower) -> Failure {
    if signal != Signal::Interrupt {
        let failure = Failure::new(signal.exit(), format!("ended by {}; the agent goes on", signal.name()));
        return match follower.view().task_id() {
            Some(task) => failure.hint(format!("{} waits for its answer", again(args, task, ""))),
            None => failure,
        };
    }
    match follower.cancel(CANCEL_WAIT).await {
        true => Failure::new(signal.exit(), "cancelled"),
        false => Failure::new(signal.exit(), "the agent did not confirm that its task is cancelled")
            .hint("it may still be working"),
    }
}

/// The result of the command.
fn verdict(args: &A2aCall, view: &TaskView) -> anyhow::Result<()> {
    let words = view.status_text().map(|text| one_line(&text, MAX_TEXT));
    let because = |default: &str| words.clone().unwrap_or_else(|| default.to_owned());
    // Its answer may say why, and was shown.
    let unexplained = if view.text().is_empty() { "it does not say why" } else { "see above" };
    let task = view.task_id().unwrap_or_default();
    let failure = match view.state() {
        Some(TaskState::Completed) => {
            if let Some(context) = view.context_id().filter(|_| !args.json) {
                terminal::eprint(&format!("--context {} continues the conversation\n", one_line(context, MAX_TEXT)));
            }
            return Ok(());
        }
        Some(TaskState::InputRequired) => {
            Failure::new(Exit::Denied, format!("the agent asks: {}", because("something, without saying what")))
                .hint(format!("{} answers it", again(args, task, " \"...\"")))
        }
        Some(TaskState::AuthRequired) => {
            Failure::new(Exit::Denied, format!("the agent needs credentials: {}", because("it does not say which")))
                .hint(format!("{} lets it try again", again(args, task, " \"go on\"")))
        }
        Some(TaskState::Failed) => Failure::new(Exit::Model, format!("the agent failed: {}", because(unexplained))),
        Some(TaskState::Rejected) => Failure::new(Exit::Model, format!("the agent declined: {}", because(unexplained))),
        Some(TaskState::Canceled) => Failure::new(Exit::Cancelled, "the task was cancelled"),
        Some(TaskState::Submitted | TaskState::Working) | None => {
            Failure::new(Exit::Failed, "the agent ended its answer before its task")
        }
    };
    Err(failure.into())
}

/// The command line that goes on with a task.
fn again(args: &A2aCall, task: &str, text: &str) -> String {
    let url = one_line(&args.agent.url, MAX_TEXT);
    let token: String = args.agent.token_env.iter().map(|name| format!(" --token-env {name}")).collect();
    format!("trefoil a2a call {url}{token} --task {}{text}", one_line(task, MAX_TEXT))
}
