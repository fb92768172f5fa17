//! `trefoil a2a card`: what another agent says about itself.

use ::a2a::client::{AgentCard, transport_name};

use super::{failure, peer};
use crate::args::A2aCard;
use crate::terminal::{self, Style, one_line, table};
use crate::wiring::Invocation;

/// The longest text of a line.
const MAX_TEXT: usize = 120;
/// The longest description.
const MAX_DESCRIPTION: usize = 1000;

/// Prints the card of an agent.
pub async fn command(args: &A2aCard, invocation: &Invocation) -> anyhow::Result<()> {
    let card = peer(&args.agent, invocation)?.get_agent_card().await.map_err(|error| failure(&error))?;
    if args.json {
        return Ok(terminal::print(&format!("{}\n", serde_json::to_string_pretty(&card.document)?))?);
    }
    Ok(terminal::print(&summary(&card, Style::stdout(invocation.no_color())))?)
}

/// A card as a person reads it. It is the agent's own text, so nothing of it reaches the terminal as it is.
fn summary(card: &AgentCard, style: Style) -> String {
    let line = |text: &str| one_line(text, MAX_TEXT);
    let mut out = format!("{}\n", style.bold(line(&format!("{} {}", card.name, card.version)).trim_end()));
    if !card.description.trim().is_empty() {
        out += &format!("{}\n", one_line(&card.description, MAX_DESCRIPTION));
    }
    let interface = |one: &::a2a::wire::PeerInterface| {
        vec![format!("  {}", transport_name(one.transport)), one.line.to_string(), line(&one.url)]
    };
    section(&mut out, "Interfaces", card.interfaces.iter().map(interface).collect());
    let can =
        [(card.streaming, "streams"), (card.push, "sends notifications"), (card.has_extended, "has an extended card")];
    let can: Vec<&str> = can.into_iter().filter(|(can, _)| *can).map(|(_, what)| what).collect();
    if !can.is_empty() {
        section(&mut out, "It", vec![vec![format!("  {}", can.join(", "))]]);
    }
    let pair = |(name, text): (&String, &String)| vec![format!("  {}", line(name)), line(text)];
    section(&mut out, "Sign-in", card.security.iter().map(|(name, kind)| pair((name, kind))).collect());
    section(&mut out, "Skills", card.skills.iter().map(|skill| pair((&skill.name, &skill.description))).collect());
    let extension = |one: &::a2a::client::Extension| {
        let required = if one.required { "(required) " } else { "" };
        vec![format!("  {}", line(&one.uri)), line(&format!("{required}{}", one.description))]
    };
    section(&mut out, "Extensions", card.extensions.iter().map(extension).collect());
    out
}

fn section(out: &mut String, title: &str, rows: Vec<Vec<String>>) {
    if !rows.is_empty() {
        *out += &format!("\n{title}\n{}", table(&rows));
    }
}
