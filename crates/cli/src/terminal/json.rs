//! JSON that is safe to print on a terminal.

use anyhow::Context as _;
use serde::Serialize;

/// A line of JSON without characters that a terminal obeys. JSON leaves some of them bare (C1 controls, bidirectional overrides);
/// they can only stand inside strings, so escaping them changes no value.
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out += &format!("\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(value).context("cannot write it as JSON")?;
    Ok(super::print(&escape_json(&json))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn escaping_keeps_the_value_and_moves_no_terminal(text in any::<String>()) {
            let line = escape_json(&json!(text).to_string());
            prop_assert_eq!(serde_json::from_str::<String>(&line).unwrap(), text);
            prop_assert_eq!(api::strip_control(&line), line.as_str());
        }
    }
}
