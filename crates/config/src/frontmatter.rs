//! The front matter of a markdown file, in the part of YAML that people write there: scalars, quoted strings, nested
//! maps, lists in both notations, and block scalars. No anchors, tags or documents.

use api::{Json, JsonMap};

mod scalar;
#[cfg(test)]
mod tests;

use scalar::{flow, key_value, quoted, scalar, without_comment};

/// Maps and lists may be nested this deep.
const MAX_DEPTH: usize = 16;

/// Front matter that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The line in the file, from 1.
    pub(crate) line: usize,
    /// What is wrong there.
    pub(crate) message: String,
}

/// The front matter of a text (empty if it has none), and the text behind it.
pub(crate) fn split(text: &str) -> Result<(JsonMap, &str), Broken> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Vec::new();
    let mut offset = 0;
    for (index, raw) in text.split_inclusive('\n').enumerate() {
        offset += raw.len();
        let line = raw.trim_end_matches(['\n', '\r']);
        match (index, line.trim_end() == "---") {
            (0, true) => {}
            (0, false) => return Ok((JsonMap::new(), text)),
            (_, true) => return Ok((parse(&lines)?, &text[offset..])),
            (_, false) => lines.push(line),
        }
    }
    if lines.is_empty() && text.trim_end() != "---" {
        return Ok((JsonMap::new(), text));
    }
    Err(Broken { line: 1, message: "the front matter is not closed; add a line with --- behind it".to_owned() })
}

/// The line in the file, from 1, where a top-level key of the front matter stands.
pub(crate) fn locate(text: &str, key: &str) -> Option<(usize, usize)> {
    let names = |line: &str| key_value(line).is_ok_and(|(name, _)| name == key);
    let at = text.lines().skip(1).take_while(|line| line.trim_end() != "---").position(names)?;
    Some((at + 2, 1))
}

fn parse(lines: &[&str]) -> Result<JsonMap, Broken> {
    let mut parser = Parser { lines, at: 0 };
    match parser.next_content() {
        None => Ok(JsonMap::new()),
        Some((indent, _)) => match parser.block(indent, 0)? {
            Json::Object(map) if parser.next_content().is_none() => Ok(map),
            Json::Object(_) => Err(parser.broken("this line is indented less than the ones before it")),
            _ => Err(Broken { line: 2, message: "the front matter must be made of \"key: value\" lines".to_owned() }),
        },
    }
}

struct Parser<'a> {
    lines: &'a [&'a str],
    at: usize,
}

impl<'a> Parser<'a> {
    fn broken(&self, message: impl Into<String>) -> Broken {
        // The first line of the front matter is the second of the file.
        Broken { line: self.at + 2, message: message.into() }
    }

    /// The indent and the text of the next line that is neither empty nor a comment.
    fn next_content(&mut self) -> Option<(usize, &'a str)> {
        while let Some(line) = self.lines.get(self.at) {
            let content = line.trim_start();
            if !content.is_empty() && !content.starts_with('#') {
                return Some((line.len() - content.len(), content.trim_end()));
            }
            self.at += 1;
        }
        None
    }

    /// A map or a list whose lines have this indent.
    fn block(&mut self, indent: usize, depth: usize) -> Result<Json, Broken> {
        if depth > MAX_DEPTH {
            return Err(self.broken(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        match self.next_content() {
            Some((_, content)) if is_item(content) => self.list(indent, depth),
            _ => self.map(indent, depth),
        }
    }

    fn map(&mut self, indent: usize, depth: usize) -> Result<Json, Broken> {
        let mut map = JsonMap::new();
        while let Some((found, content)) = self.next_content() {
            if found < indent {
                break;
            }
            if found > indent {
                return Err(self.broken("this line is indented more than the ones before it"));
            }
            if self.lines[self.at][..found].contains('\t') {
                return Err(self.broken("indent with spaces, not with tabs"));
            }
            let (key, value) = key_value(content).map_err(|message| self.broken(message))?;
            let value = self.value(value, indent, depth)?;
            if map.contains_key(&key) {
                return Err(self.broken(format!("the key \"{key}\" stands here twice")));
            }
            // A key without a value says nothing.
            if !value.is_null() {
                map.insert(key, value);
            }
        }
        Ok(Json::Object(map))
    }

    fn list(&mut self, indent: usize, depth: usize) -> Result<Json, Broken> {
        let mut list = Vec::new();
        while let Some((found, content)) = self.next_content() {
            if found < indent || (found == indent && !is_item(content)) {
                break;
            }
            if found > indent {
                return Err(self.broken("this line is indented more than the ones before it"));
            }
            let item = content[1..].trim_start();
            // Maps inside of lists have no use in the files we read.
            list.push(self.value(item, indent, depth)?);
        }
        Ok(Json::Array(list))
    }

    /// The value that begins with `text` on the current line; the lines of a longer one are indented more.
    fn value(&mut self, text: &str, indent: usize, depth: usize) -> Result<Json, Broken> {
        let first = text.chars().next();
        let result = match first {
            Some('|' | '>') => {
                let header = without_comment(text);
                if !header[1..].chars().all(|c| matches!(c, '-' | '+')) {
                    return Err(self.broken("only |, >, |-, >-, |+ and >+ begin a block of text"));
                }
                self.at += 1;
                return Ok(Json::String(self.text_block(header, indent)));
            }
            Some('[' | '{') => flow(text),
            Some('"' | '\'') => quoted(text).and_then(|(value, rest)| match without_comment(rest) {
                "" => Ok(Json::String(value)),
                _ => Err("there is more text behind the closing quote".to_owned()),
            }),
            _ => {
                let plain = without_comment(text);
                self.at += 1;
                return if plain.is_empty() { self.nested(indent, depth) } else { self.plain(plain, indent) };
            }
        };
        let value = result.map_err(|message| self.broken(message))?;
        self.at += 1;
        Ok(value)
    }

    /// What stands below a key without a value: a deeper block, or a list at the same indent.
    fn nested(&mut self, indent: usize, depth: usize) -> Result<Json, Broken> {
        match self.next_content() {
            Some((deeper, _)) if deeper > indent => self.block(deeper, depth + 1),
            Some((same, content)) if same == indent && is_item(content) && !self.in_list(indent) => {
                self.list(indent, depth + 1)
            }
            _ => Ok(Json::Null),
        }
    }

    /// Whether the line before the current one is itself an item of a list at this indent.
    fn in_list(&self, indent: usize) -> bool {
        let above = self.at.checked_sub(1).and_then(|at| self.lines.get(at));
        above.and_then(|line| line.get(indent..)).is_some_and(is_item)
    }

    /// A plain scalar; deeper lines continue it.
    fn plain(&mut self, first: &str, indent: usize) -> Result<Json, Broken> {
        let mut text = first.to_owned();
        let mut longer = false;
        while let Some(line) = self.lines.get(self.at) {
            let content = line.trim();
            if content.is_empty() || content.starts_with('#') || line.len() - line.trim_start().len() <= indent {
                break;
            }
            if key_value(content).is_ok() {
                return Err(self.broken("this line is indented more than the ones before it; quote text with a colon"));
            }
            text.push(' ');
            text.push_str(without_comment(content));
            longer = true;
            self.at += 1;
        }
        Ok(if longer { Json::String(text) } else { scalar(&text) })
    }

    /// The lines of a block scalar: `|` keeps line ends, `>` folds them.
    fn text_block(&mut self, header: &str, indent: usize) -> String {
        let start = self.at;
        let mut inner = None;
        while let Some(line) = self.lines.get(self.at) {
            let depth = line.len() - line.trim_start().len();
            if !line.trim().is_empty() {
                if depth <= indent {
                    break;
                }
                inner.get_or_insert(depth);
            }
            self.at += 1;
        }
        let inner = inner.unwrap_or(0);
        let lines: Vec<&str> =
            self.lines[start..self.at].iter().map(|line| line.get(inner..).unwrap_or("").trim_end()).collect();
        let mut text = String::new();
        let body = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        for (index, line) in lines[..body].iter().enumerate() {
            if index > 0 {
                let paragraph = line.is_empty() || lines[index - 1].is_empty();
                match header.starts_with('|') {
                    true => text.push('\n'),
                    false if line.is_empty() => text.push('\n'),
                    false if !paragraph => text.push(' '),
                    false => {}
                }
            }
            text.push_str(line);
        }
        match header {
            _ if text.is_empty() => {}
            "|-" | ">-" => {}
            "|+" | ">+" => text.extend(std::iter::repeat_n('\n', 1 + lines.len() - body)),
            _ => text.push('\n'),
        }
        text
    }
}

fn is_item(content: &str) -> bool {
    content == "-" || content.starts_with("- ")
}
