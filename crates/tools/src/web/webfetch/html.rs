//! Converts HTML to markdown or plain text.
//!
//! Pages come from strangers, and neither the HTML parser nor the markdown converter limits itself: a page can be
//! crafted to exhaust memory or stack. So markdown is made from a rewritten page with few kinds of elements, almost no
//! attributes and bounded nesting.

mod clean;

/// Elements whose text is not shown.
const SKIPPED: [&str; 8] = ["script", "style", "noscript", "template", "iframe", "object", "embed", "svg"];

/// Converts a page to markdown.
pub(crate) fn to_markdown(html: &str) -> String {
    htmd::convert(&clean::clean(html)).unwrap_or_else(|_| to_text(html))
}

/// The text that a reader would see, one line per block.
pub(super) fn to_text(html: &str) -> String {
    let mut out = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        push_text(&mut out, &rest[..at]);
        rest = &rest[at..];
        let Some(tag) = Tag::read(rest) else {
            push_text(&mut out, "<");
            rest = &rest[1..];
            continue;
        };
        rest = &rest[tag.length..];
        if !tag.is_end && SKIPPED.contains(&tag.name.as_str()) {
            rest = skip_element(rest, &tag.name);
        } else if is_block(&tag.name) && !out.ends_with('\n') {
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
    }
    push_text(&mut out, rest);
    out.trim().to_owned()
}

struct Tag {
    /// In lower case; empty for comments and the like.
    name: String,
    is_end: bool,
    length: usize,
}

impl Tag {
    /// Parses the tag at the start of `html`; `None` if the `<` is just text.
    fn read(html: &str) -> Option<Tag> {
        if let Some(comment) = html.strip_prefix("<!--") {
            let length = comment.find("-->").map_or(html.len(), |end| "<!--".len() + end + "-->".len());
            return Some(Tag { name: String::new(), is_end: false, length });
        }
        let body = html.strip_prefix('<')?;
        let is_end = body.starts_with('/');
        let body = body.strip_prefix('/').unwrap_or(body);
        if !body.starts_with(|c: char| c.is_ascii_alphabetic() || c == '!' || c == '?') {
            return None;
        }
        let end = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(body.len());
        let name = body[..end].to_ascii_lowercase();
        Some(Tag { name, is_end, length: end_of_tag(html) })
    }
}

/// The length of a tag, whose attributes may contain a quoted `>`.
fn end_of_tag(html: &str) -> usize {
    let mut quote = None;
    for (at, byte) in html.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return at + 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    html.len()
}

/// Skips to after the end tag of an element.
fn skip_element<'a>(html: &'a str, name: &str) -> &'a str {
    let mut rest = html;
    while let Some(at) = rest.find("</") {
        rest = &rest[at..];
        let found = rest.get(2..2 + name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name));
        if found {
            return &rest[end_of_tag(rest)..];
        }
        rest = &rest[2..];
    }
    ""
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "br"
            | "dd"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hr"
            | "li"
            | "main"
            | "nav"
            | "ol"
            | "option"
            | "p"
            | "pre"
            | "section"
            | "table"
            | "title"
            | "tr"
            | "ul"
    )
}

fn push_text(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (c, length) = if c == '&' { entity(rest) } else { (c, c.len_utf8()) };
        rest = &rest[length..];
        if !c.is_whitespace() {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with([' ', '\n']) {
            out.push(' ');
        }
    }
}

/// Decodes the entity at the start of `text`; returns the character and the length.
fn entity(text: &str) -> (char, usize) {
    const NAMED: [(&str, char); 14] = [
        ("amp", '&'),
        ("lt", '<'),
        ("gt", '>'),
        ("quot", '"'),
        ("apos", '\''),
        ("nbsp", ' '),
        ("mdash", '—'),
        ("ndash", '–'),
        ("hellip", '…'),
        ("copy", '©'),
        ("lsquo", '‘'),
        ("rsquo", '’'),
        ("ldquo", '“'),
        ("rdquo", '”'),
    ];
    const LONGEST: usize = 12;
    let end = text.bytes().take(LONGEST).position(|b| b == b';');
    let decoded = end.and_then(|end| {
        let name = text.get(1..end)?;
        let c = match name.strip_prefix('#') {
            Some(number) => {
                let code = match number.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => number.parse().ok()?,
                };
                char::from_u32(code)?
            }
            None => NAMED.iter().find(|(known, _)| *known == name)?.1,
        };
        Some((c, end + 1))
    });
    decoded.unwrap_or(('&', 1))
}

#[cfg(test)]
mod tests;
