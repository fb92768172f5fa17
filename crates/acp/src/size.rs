//! Shortens texts and values, visibly, so that every message stays below one megabyte, the size that clients are built
//! for.

use serde_json::Value;

/// The longest text of an update, as JSON.
pub const MAX_TEXT: usize = 200 << 10;
/// The largest arguments or result of a tool call, as JSON.
pub const MAX_RAW: usize = 200 << 10;
/// The largest image or diff.
pub const MAX_BLOB: usize = 300 << 10;
/// The longest text of one chunk.
pub const MAX_CHUNK: usize = 100 << 10;

/// The length of a text as JSON: control characters take six bytes each.
pub fn json_len(text: &str) -> usize {
    let extra = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(extra).sum::<usize>()
}

/// The most bytes that one byte of text takes as JSON.
const MAX_ESCAPE: usize = 6;

/// The text, or its beginning and the number of missing bytes.
pub fn truncate(text: &str, max: usize) -> String {
    if text.len() <= max / MAX_ESCAPE || json_len(text) <= max {
        return text.to_owned();
    }
    let mut budget = max.saturating_sub(80);
    let kept = text.char_indices().find_map(|(at, char)| {
        let need = json_len(char.encode_utf8(&mut [0; 4]));
        if need > budget {
            return Some(at);
        }
        budget -= need;
        None
    });
    let kept = kept.unwrap_or(text.len());
    format!("{}\n[… {} more bytes]", &text[..kept], text.len() - kept)
}

/// Shortens the long texts in a value until it fits.
pub fn fit(value: Value, max: usize) -> Value {
    if fits(&value, max) {
        return value;
    }
    let mut fitted = value.clone();
    let mut longest = max;
    while longest > 100 && !fits(&fitted, max) {
        longest /= 4;
        shorten(&mut fitted, longest);
    }
    if fits(&fitted, max) { fitted } else { Value::String(truncate(&value.to_string(), max / 4)) }
}

/// Whether a value takes at most `max` bytes as JSON.
fn fits(value: &Value, max: usize) -> bool {
    upper_bound(value) <= max || serde_json::to_writer(&mut ByteBudget(max), value).is_ok()
}

/// The most bytes that a value can take as JSON. Much cheaper than its real length.
fn upper_bound(value: &Value) -> usize {
    const MAX_NUMBER: usize = 32;
    let text = |text: &str| text.len() * MAX_ESCAPE + 2;
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => MAX_NUMBER,
        Value::String(string) => text(string),
        Value::Array(items) => 2 + items.iter().map(|item| 1 + upper_bound(item)).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(key, item)| 2 + text(key) + upper_bound(item)).sum::<usize>(),
    }
}

/// A writer that counts bytes and fails once the budget is used up.
struct ByteBudget(usize);

impl std::io::Write for ByteBudget {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.ok_or_else(|| std::io::Error::other("the byte budget is used up"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn shorten(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) if json_len(text) > longest => *text = truncate(text, longest),
        Value::Array(list) => list.iter_mut().for_each(|item| shorten(item, longest)),
        Value::Object(map) => map.values_mut().for_each(|item| shorten(item, longest)),
        _ => {}
    }
}

/// Splits a long text.
pub fn chunks(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let at = text.floor_char_boundary(MAX_CHUNK);
        let (chunk, rest) = text.split_at(at);
        text = rest;
        Some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_lengths_match_serde() {
        for text in ["", "plain", "a\"b\\c\nd\te\r", "\u{1}\u{1f}", "€😀"] {
            assert_eq!(json_len(text) + 2, serde_json::to_string(text).unwrap().len(), "{text:?}");
        }
    }

    #[test]
    fn long_texts_are_truncated_visibly() {
        assert_eq!(truncate("short", 100), "short");
        for long in ["x".repeat(5000), "\u{1}".repeat(5000), "😀".repeat(5000)] {
            let short = truncate(&long, 1000);
            assert!(json_len(&short) <= 1000 && short.contains("more bytes]"), "{short}");
        }
        let value = json!({"a": "x".repeat(9000), "b": ["y".repeat(9000), "z"], "c": 1});
        let fitted = fit(value, 5000);
        assert!(fitted.to_string().len() <= 5000 && fitted["c"] == 1 && fitted["b"][1] == "z");
        assert_eq!(fit(json!({"a": 1}), 7), json!({"a": 1}));
        assert_eq!(fit(json!({"a": 1}), 6), json!("\n[… 7 more bytes]"));
        let many = Value::Array(vec![json!(12345); 9000]);
        assert!(fit(many, 5000).to_string().len() <= 5000);
    }

    #[test]
    fn no_value_exceeds_its_upper_bound() {
        let hard = "\u{1}\"\\\n€".repeat(9);
        let values = [
            json!(null),
            json!([true, false, null]),
            json!([i64::MIN, u64::MAX, f64::MIN, f64::MIN_POSITIVE, -1.234_567_890_123_456_7e-300]),
            json!({ hard.clone(): hard, "": {}, "a": [[], [1]] }),
        ];
        for value in values {
            assert!(value.to_string().len() <= upper_bound(&value), "{value}");
        }
    }

    #[test]
    fn chunks_join_to_the_whole() {
        let text = "ä😀".repeat(MAX_CHUNK);
        assert_eq!(chunks(&text).collect::<String>(), text);
        assert!(chunks(&text).all(|chunk| chunk.len() <= MAX_CHUNK && !chunk.is_empty()));
        assert_eq!(chunks("").count(), 0);
    }
}
