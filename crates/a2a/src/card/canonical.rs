//! The canonical form of JSON (RFC 8785), which entity tags and signatures are made of.

use std::fmt::Write as _;

use api::Json;
use serde_json::Number;

/// How characters beyond ASCII are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    /// As they are.
    None,
    /// As `\u` and four digits for each half, which RFC 8785 does not have.
    BeyondAscii,
}

/// The canonical form of a value.
pub(super) fn canonical(value: &Json) -> String {
    write_all(value, Escapes::None)
}

/// The canonical form of a value, but for how characters beyond ASCII are written.
pub(super) fn write_all(value: &Json, escapes: Escapes) -> String {
    let mut text = String::new();
    write(value, escapes, &mut text);
    text
}

fn write(value: &Json, escapes: Escapes, to: &mut String) {
    match value {
        Json::Null => to.push_str("null"),
        Json::Bool(true) => to.push_str("true"),
        Json::Bool(false) => to.push_str("false"),
        Json::Number(number) => write_number(number, to),
        Json::String(text) => write_text(text, escapes, to),
        Json::Array(items) => {
            to.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    to.push(',');
                }
                write(item, escapes, to);
            }
            to.push(']');
        }
        Json::Object(map) => {
            let mut members: Vec<(&String, &Json)> = map.iter().collect();
            members.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            to.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    to.push(',');
                }
                write_text(name, escapes, to);
                to.push(':');
                write(value, escapes, to);
            }
            to.push('}');
        }
    }
}

fn write_text(text: &str, escapes: Escapes, to: &mut String) {
    to.push('"');
    for character in text.chars() {
        match character {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\u{8}' => to.push_str("\\b"),
            '\t' => to.push_str("\\t"),
            '\n' => to.push_str("\\n"),
            '\u{c}' => to.push_str("\\f"),
            '\r' => to.push_str("\\r"),
            character if character < ' ' || (escapes == Escapes::BeyondAscii && !character.is_ascii()) => {
                for half in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(to, "\\u{half:04x}");
                }
            }
            character => to.push(character),
        }
    }
    to.push('"');
}

/// The shortest digits of a number are written out from 10⁻⁶ up to below 10²¹, as ECMAScript does.
const WRITTEN_OUT: std::ops::RangeInclusive<i32> = -5..=21;

/// Numbers are written as ECMAScript writes them.
fn write_number(number: &Number, to: &mut String) {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        let _ = write!(to, "{number}");
        return;
    };
    if float == 0.0 {
        to.push('0');
        return;
    }
    if float < 0.0 {
        to.push('-');
    }
    let scientific = format!("{:e}", float.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    // The place of the point, counted from before the first digit.
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    if !WRITTEN_OUT.contains(&point) {
        let (first, rest) = digits.split_at(1);
        to.push_str(first);
        if !rest.is_empty() {
            to.push('.');
            to.push_str(rest);
        }
        let _ = write!(to, "e{:+}", point - 1);
    } else if point <= 0 {
        to.push_str("0.");
        to.extend(std::iter::repeat_n('0', point.unsigned_abs() as usize));
        to.push_str(&digits);
    } else if point >= count {
        to.push_str(&digits);
        to.extend(std::iter::repeat_n('0', point.abs_diff(count) as usize));
    } else {
        let (whole, fraction) = digits.split_at(point.unsigned_abs() as usize);
        to.push_str(whole);
        to.push('.');
        to.push_str(fraction);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_by_utf16_and_nothing_is_spaced() {
        let value = json!({"\u{ff5e}": 1, "\u{1f600}": 2, "b": [true, null, {}], "a": "\u{7}\u{8}\t\n\u{c}\r\"\\/é"});
        let want = "{\"a\":\"\\u0007\\b\\t\\n\\f\\r\\\"\\\\/é\",\"b\":[true,null,{}],\"\u{1f600}\":2,\"\u{ff5e}\":1}";
        assert_eq!(canonical(&value), want);
        assert_eq!(write_all(&json!("é\u{1f600}"), Escapes::BeyondAscii), "\"\\u00e9\\ud83d\\ude00\"");
    }

    #[test]
    fn numbers_are_those_of_ecmascript() {
        for (number, want) in [
            (json!(0), "0"),
            (json!(-32001), "-32001"),
            (json!(-0.0), "0"),
            (json!(1.0), "1"),
            (json!(4.50), "4.5"),
            (json!(2e-3), "0.002"),
            (json!(1e-6), "0.000001"),
            (json!(1e-7), "1e-7"),
            (json!(1.5e-9), "1.5e-9"),
            (json!(333_333_333.333_333_3), "333333333.3333333"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(1.234e30), "1.234e+30"),
            (json!(-1e23), "-1e+23"),
            (json!(9007199254740993_u64), "9007199254740993"),
        ] {
            assert_eq!(canonical(&number), want);
        }
    }
}
