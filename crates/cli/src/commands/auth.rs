//! `trefoil auth`: the keys of model providers, in the file that the configuration reads. A key is typed or piped in, never an
//! argument, which other users could see.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, IsTerminal as _};

use api::{ApiCredential, Credential};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde::Serialize;

use crate::args::Auth;
use crate::exit::{Exit, Failure};
use crate::terminal::{self, one_line, print_json};
use crate::wiring::Invocation;

/// The longest line that is read, in bytes.
const MAX_LINE: u64 = 16 << 10;

/// `trefoil auth`.
pub fn command(command: &Auth, invocation: &Invocation) -> anyhow::Result<()> {
    match command {
        Auth::Login { provider } => login(invocation, provider.as_deref()),
        Auth::List { json } => list(invocation, *json),
        Auth::Logout { provider } => logout(invocation, provider),
    }
}

/// Asks for a provider's key, and for the provider if none is given, and stores it.
pub fn login(invocation: &Invocation, provider: Option<&str>) -> anyhow::Result<()> {
    let provider = match provider {
        Some(provider) => provider.to_owned(),
        None => {
            let known: Vec<&str> = config::vendors().filter(|vendor| !vendor.env.is_empty()).map(|v| v.id).collect();
            ask(&format!("Provider ({}): ", known.join(", ")), false)?
        }
    };
    let shown = one_line(&provider, 80);
    let key = ask(&format!("Key for {shown}: "), true)?;
    let credential = Credential::Api(ApiCredential { key, metadata: None });
    config::set_credential(&invocation.dirs.data, &provider, Some(&credential))?;
    let file = config::credentials_file(&invocation.dirs.data);
    terminal::say(&format!("The key for {shown} is stored in {}.\n", file.display()));
    let loaded = config::load(&invocation.config_inputs());
    if let Some(unusable) = loaded.unusable.get(&provider) {
        terminal::say(&format!("It is not used yet. {}\n", one_line(&unusable.why, 500)));
    } else if loaded.providers.iter().all(|entry| entry.provider.id != provider) {
        terminal::say(&format!("No provider has that name yet: add `provider.{shown}` to trefoil.json.\n"));
    } else {
        terminal::say(&format!("`trefoil models {shown}` lists its models.\n"));
    }
    Ok(())
}

/// A known key.
#[derive(Debug, Serialize)]
struct KeyEntry {
    provider: String,
    /// `api` and the like, as stored; `env` for a variable.
    kind: String,
    /// The file or the variable that has it.
    source: String,
}

fn list(invocation: &Invocation, json: bool) -> anyhow::Result<()> {
    let file = config::credentials_file(&invocation.dirs.data);
    let damaged = |why| Failure::new(Exit::Failed, format!("{}: {why}", file.display())).hint("fix or remove the file");
    let stored = config::credentials(&invocation.env, &invocation.dirs.data).map_err(damaged)?;
    let source = stored.variable.map_or_else(|| file.display().to_string(), str::to_owned);
    let stored = stored.kinds.into_iter().map(|(provider, kind)| KeyEntry { provider, kind, source: source.clone() });
    let is_set = |name: &str| invocation.env.get(name).is_some_and(|value| !value.is_empty());
    let variables = config::vendors().filter_map(|vendor| {
        let variable = vendor.env.iter().find(|name| is_set(name))?;
        Some(KeyEntry { provider: vendor.id.to_owned(), kind: "env".to_owned(), source: (*variable).to_owned() })
    });
    let entries: Vec<KeyEntry> = stored.chain(variables).collect();
    if json {
        return print_json(&entries);
    }
    if entries.is_empty() {
        terminal::say(
            "There are no keys. `trefoil auth login` stores one, or set a variable such as OPENAI_API_KEY.\n",
        );
    }
    let row = |entry: &KeyEntry| {
        let kind = match entry.kind.as_str() {
            "api" => "key",
            "env" => "variable",
            other => other,
        };
        vec![one_line(&entry.provider, 60), one_line(kind, 20), one_line(&entry.source, 200)]
    };
    Ok(terminal::print(&terminal::table(&entries.iter().map(row).collect::<Vec<_>>()))?)
}

fn logout(invocation: &Invocation, provider: &str) -> anyhow::Result<()> {
    let known = config::credentials(&BTreeMap::new(), &invocation.dirs.data).unwrap_or_default().kinds;
    if known.iter().all(|(id, _)| id != provider.trim_end_matches('/')) {
        let variable = config::vendors().find(|vendor| vendor.id == provider);
        let variables = variable.map_or(&[][..], |vendor| vendor.env);
        let variable = variables.iter().chain(&[config::AUTH_CONTENT]).find(|name| invocation.env.contains_key(**name));
        let known: Vec<String> = known.into_iter().map(|(id, _)| id).collect();
        let failure = Failure::unknown("stored key", provider, &known);
        return Err(match variable {
            Some(variable) => failure.hint(format!("its key comes from the environment: unset {variable}")),
            None => failure,
        }
        .into());
    }
    config::set_credential(&invocation.dirs.data, provider, None)?;
    Ok(terminal::print(&format!("Removed the key for {}.\n", one_line(provider, 80)))?)
}

fn ask(question: &str, secret: bool) -> anyhow::Result<String> {
    let is_terminal = io::stdin().is_terminal();
    // Before the question, which may be answered at once.
    let echo_off = (secret && is_terminal).then(EchoOff::begin).flatten();
    if is_terminal {
        terminal::eprint(question);
    }
    let mut line = String::new();
    io::Read::take(io::stdin().lock(), MAX_LINE).read_line(&mut line)?;
    if echo_off.is_some() {
        terminal::eprint("\n");
    }
    let line = line.trim().to_owned();
    if line.is_empty() {
        return Err(Failure::new(Exit::Usage, "nothing was typed, so nothing is stored")
            .hint("type it at the prompt, or pipe it in: trefoil auth login openai < key.txt")
            .into());
    }
    Ok(line)
}

/// Hides what is typed until it is dropped.
struct EchoOff(rustix::termios::Termios);

impl EchoOff {
    fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
