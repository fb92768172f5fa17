//! `trefoil acp --login`: asks for the key of a provider and stores it where the configuration finds it.

use std::io::{self, BufRead as _, IsTerminal as _};

use api::{ApiCredential, Credential};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::exit::{Exit, Failure};
use crate::term;
use crate::wire::World;

/// The longest line that is read.
const MAX_LINE: u64 = 16 << 10;

/// Asks, and stores.
pub fn login(world: &World) -> anyhow::Result<Exit> {
    let provider = ask("Provider (for example openai, openrouter, groq, deepseek, xai, mistral): ", false)?;
    let key = ask(&format!("Key of {}: ", term::one_line(&provider, 80)), true)?;
    let credential = Credential::Api(ApiCredential { key, metadata: None });
    config::set_credential(&world.dirs.data, &provider, Some(&credential))?;
    term::eprint("The key is stored. Open the agent in your editor again.\n");
    Ok(Exit::Success)
}

fn ask(question: &str, secret: bool) -> anyhow::Result<String> {
    term::eprint(question);
    let hidden = (secret && io::stdin().is_terminal()).then(Hidden::begin).flatten();
    let mut line = String::new();
    io::Read::take(io::stdin().lock(), MAX_LINE).read_line(&mut line)?;
    if hidden.is_some() {
        term::eprint("\n");
    }
    let line = line.trim().to_owned();
    if line.is_empty() {
        return Err(Failure::new(Exit::Usage, "nothing was typed, so nothing is stored").into());
    }
    Ok(line)
}

/// What is typed is not shown, until it is dropped.
struct Hidden(rustix::termios::Termios);

impl Hidden {
    fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
