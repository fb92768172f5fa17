//! Times, money, tokens and bytes in a few characters.

use api::{Timestamp, Usage};

/// `8.2 s`, `3m 05s`, `2h 07m`.
pub fn elapsed(millis: Timestamp) -> String {
    let millis = millis.max(0);
    match millis / 1000 {
        seconds @ 0..60 => format!("{seconds}.{} s", millis % 1000 / 100),
        seconds @ 60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        seconds => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// What was used: money if there is a price, otherwise tokens. `~` marks an amount that is partly estimated.
pub fn price(usage: &Usage) -> String {
    let amount = amount(usage.cost.0, usage.all_tokens());
    if usage.estimated_steps > 0 && !amount.is_empty() { format!("~{amount}") } else { amount }
}

/// Money if there is a price, otherwise tokens; empty if nothing was used.
pub fn amount(cost: f64, tokens: u64) -> String {
    match (cost, tokens) {
        (cost, _) if cost > 0.0 => dollars(cost),
        (_, 0) => String::new(),
        (_, tokens) => format!("{} tok", short_count(tokens)),
    }
}

/// `$0.0123`, `$12.34`.
pub fn dollars(amount: f64) -> String {
    if amount < 10.0 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

/// `950`, `12.3k`, `4.5M`.
pub fn short_count(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1}k", number as f64 / 1e3),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

/// 1234567 as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1.5 MB`.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_amounts_are_short() {
        for (millis, want) in
            [(-5, "0.0 s"), (8_250, "8.2 s"), (59_999, "59.9 s"), (185_000, "3m 05s"), (7_620_000, "2h 07m")]
        {
            assert_eq!(elapsed(millis), want);
        }
        let usage = |cost: f64, input: u64, estimated: u64| Usage {
            cost: api::Usd(cost),
            tokens: api::Tokens { input, ..api::Tokens::default() },
            estimated_steps: estimated,
            ..Usage::default()
        };
        assert_eq!(price(&usage(0.0, 0, 0)), "");
        assert_eq!(price(&usage(0.0, 950, 0)), "950 tok");
        assert_eq!(price(&usage(0.0, 12_345, 1)), "~12.3k tok");
        assert_eq!(price(&usage(0.01234, 1, 0)), "$0.0123");
        assert_eq!(price(&usage(123.456, 1, 2)), "~$123.46");
    }

    #[test]
    fn numbers_have_separators() {
        for (number, want) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(thousands(number), want);
        }
    }
}
