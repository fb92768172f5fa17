//! What is too long for a message of an update is shortened, visibly. A single message stays below a megabyte, which is
//! what clients are made for.

use serde_json::Value;

/// The most that a text takes in an update, as JSON.
pub const TEXT: usize = 200 << 10;
/// The most that the arguments or the result of a call take, as JSON.
pub const RAW: usize = 200 << 10;
/// The most that a picture or a diff takes.
pub const BLOB: usize = 300 << 10;
/// Text of one chunk.
pub const CHUNK: usize = 100 << 10;

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

/// The text, or its beginning and how much is missing.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most / MAX_ESCAPE || json_len(text) <= most {
        return text.to_owned();
    }
    let mut room = most.saturating_sub(80);
    let kept = text.char_indices().find_map(|(at, char)| {
        let need = json_len(char.encode_utf8(&mut [0; 4]));
        if need > room {
            return Some(at);
        }
        room -= need;
        None
    });
    let kept = kept.unwrap_or(text.len());
    format!("{}\n[… {} more bytes]", &text[..kept], text.len() - kept)
}

/// A value within its limit: long texts in it are shortened until it fits.
pub fn fit(value: Value, most: usize) -> Value {
    if fits(&value, most) {
        return value;
    }
    let mut fitted = value.clone();
    let mut longest = most;
    while longest > 100 && !fits(&fitted, most) {
        longest /= 4;
        shorten(&mut fitted, longest);
    }
    if fits(&fitted, most) { fitted } else { Value::String(cut(&value.to_string(), most / 4)) }
}

/// Whether a value takes no more than that, as JSON.
fn fits(value: &Value, most: usize) -> bool {
    at_most(value) <= most || serde_json::to_writer(&mut Room(most), value).is_ok()
}

/// What a value takes as JSON at most, which is much cheaper to say than what it takes.
fn at_most(value: &Value) -> usize {
    const MAX_NUMBER: usize = 32;
    let text = |text: &str| text.len() * MAX_ESCAPE + 2;
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => MAX_NUMBER,
        Value::String(string) => text(string),
        Value::Array(items) => 2 + items.iter().map(|item| 1 + at_most(item)).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(key, item)| 2 + text(key) + at_most(item)).sum::<usize>(),
    }
}

/// Takes bytes as long as there is room, and keeps none.
struct Room(usize);

impl std::io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let left = self.0.checked_sub(bytes.len());
        self.0 = left.ok_or_else(|| std::io::Error::other("there is no room left"))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn shorten(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) if json_len(text) > longest => *text = cut(text, longest),
        Value::Array(list) => list.iter_mut().for_each(|item| shorten(item, longest)),
        Value::Object(map) => map.values_mut().for_each(|item| shorten(item, longest)),
        _ => {}
    }
}

/// The pieces of a long text.
pub fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let at = text.floor_char_boundary(CHUNK);
        let (piece, rest) = text.split_at(at);
        text = rest;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lengths_are_those_of_json() {
        for text in ["", "plain", "a\"b\\c\nd\te\r", "\u{1}\u{1f}", "€😀"] {
            assert_eq!(json_len(text) + 2, serde_json::to_string(text).unwrap().len(), "{text:?}");
        }
    }

    #[test]
    fn what_is_long_is_cut_and_says_so() {
        assert_eq!(cut("short", 100), "short");
        for long in ["x".repeat(5000), "\u{1}".repeat(5000), "😀".repeat(5000)] {
            let short = cut(&long, 1000);
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
    fn a_value_takes_no_more_than_is_said() {
        let hard = "\u{1}\"\\\n€".repeat(9);
        let values = [
            json!(null),
            json!([true, false, null]),
            json!([i64::MIN, u64::MAX, f64::MIN, f64::MIN_POSITIVE, -1.234_567_890_123_456_7e-300]),
            json!({ hard.clone(): hard, "": {}, "a": [[], [1]] }),
        ];
        for value in values {
            assert!(value.to_string().len() <= at_most(&value), "{value}");
        }
    }

    #[test]
    fn pieces_join_to_the_whole() {
        let text = "ä😀".repeat(CHUNK);
        assert_eq!(pieces(&text).collect::<String>(), text);
        assert!(pieces(&text).all(|piece| piece.len() <= CHUNK && !piece.is_empty()));
        assert_eq!(pieces("").count(), 0);
    }
}
