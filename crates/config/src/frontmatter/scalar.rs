//! Values on one line: plain and quoted scalars, and lists and maps in brackets.

use api::{Json, JsonMap};

use super::MAX_DEPTH;

/// Splits `key: value`; the key may be quoted.
pub(super) fn key_value(line: &str) -> Result<(String, &str), String> {
    let missing = || "expected \"key: value\"".to_owned();
    if line.starts_with(['"', '\'']) {
        let (key, rest) = quoted(line)?;
        let value = rest.trim_start().strip_prefix(':').ok_or_else(missing)?;
        return Ok((key, value.trim_start()));
    }
    let at = line.find(": ").or_else(|| line.ends_with(':').then(|| line.len() - 1)).ok_or_else(missing)?;
    let key = line[..at].trim_end();
    if key.is_empty() {
        return Err(missing());
    }
    Ok((key.to_owned(), line[at + 1..].trim_start()))
}

/// A string that begins with a quote, and what stands behind it.
pub(super) fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut chars = text.char_indices();
    let quote = chars.next().map_or('"', |(_, quote)| quote);
    let mut out = String::new();
    while let Some((at, c)) = chars.next() {
        let rest = &text[at + c.len_utf8()..];
        match c {
            '\'' if quote == '\'' && rest.starts_with('\'') => {
                chars.next();
                out.push('\'');
            }
            '\\' if quote == '"' => match chars.next().map(|(_, c)| c) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some(c @ ('"' | '\\' | '/' | ' ')) => out.push(c),
                Some('u') => {
                    let code: String = chars.by_ref().take(4).map(|(_, c)| c).collect();
                    let code = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                    out.push(code.ok_or("\\u needs four hexadecimal digits of a character")?);
                }
                _ => return Err("unknown escape; inside of double quotes write \\\\ for a backslash".to_owned()),
            },
            c if c == quote => return Ok((out, rest)),
            c => out.push(c),
        }
    }
    Err(format!("the closing {quote} is missing on this line"))
}

/// The text without a comment behind it.
pub(super) fn without_comment(text: &str) -> &str {
    if text.starts_with('#') {
        return "";
    }
    match text.find(" #") {
        Some(at) => text[..at].trim_end(),
        None => text.trim_end(),
    }
}

/// A plain scalar: a boolean, a number, nothing, or text.
pub(super) fn scalar(text: &str) -> Json {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Json::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    // Numbers as JSON has them; `007`, `1_000` or `inf` are text.
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0') || digits.starts_with("0."));
    match serde_json::from_str::<serde_json::Number>(text) {
        Ok(number) if numeric => Json::Number(number),
        _ => Json::String(text.to_owned()),
    }
}

/// A list or map in brackets that ends on its line.
pub(super) fn flow(text: &str) -> Result<Json, String> {
    let mut flow = Flow { rest: text };
    let value = flow.value(0)?;
    match without_comment(flow.rest.trim_start()) {
        "" => Ok(value),
        _ => Err("there is more text behind the closing bracket".to_owned()),
    }
}

struct Flow<'a> {
    rest: &'a str,
}

impl<'a> Flow<'a> {
    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        self.rest = self.rest.trim_start();
        match self.rest.chars().next() {
            Some('[') => {
                let mut list = Vec::new();
                self.rest = &self.rest[1..];
                while !self.ends(']')? {
                    list.push(self.value(depth + 1)?);
                    self.comma(']')?;
                }
                Ok(Json::Array(list))
            }
            Some('{') => {
                let mut map = JsonMap::new();
                self.rest = &self.rest[1..];
                while !self.ends('}')? {
                    let key = self.word(&[':', ',', '}'])?;
                    self.rest = self.rest.trim_start().strip_prefix(':').ok_or("expected key: value inside of { }")?;
                    let value = self.value(depth + 1)?;
                    let Json::String(key) = key else { return Err("the keys inside of { } must be text".to_owned()) };
                    map.insert(key, value);
                    self.comma('}')?;
                }
                Ok(Json::Object(map))
            }
            _ => self.word(&[',', ']', '}']),
        }
    }

    /// Eats the closing bracket, if it comes next.
    fn ends(&mut self, close: char) -> Result<bool, String> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Err(format!("the closing {close} is missing on this line"));
        }
        match self.rest.strip_prefix(close) {
            Some(rest) => {
                self.rest = rest;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Eats a comma; without one the closing bracket must come next.
    fn comma(&mut self, close: char) -> Result<(), String> {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(',') {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None if self.rest.starts_with(close) => Ok(()),
            None if self.rest.is_empty() => Err(format!("the closing {close} is missing on this line")),
            None => Err(format!("expected , or {close}")),
        }
    }

    fn word(&mut self, ends: &[char]) -> Result<Json, String> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(['"', '\'']) {
            let (value, rest) = quoted(self.rest)?;
            self.rest = rest;
            return Ok(Json::String(value));
        }
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let word = self.rest[..end].trim_end();
        if word.is_empty() {
            return Err("expected a value".to_owned());
        }
        self.rest = &self.rest[end..];
        Ok(scalar(word))
    }
}
