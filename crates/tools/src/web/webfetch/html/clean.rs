//! Writes a page anew: the elements that mean something in markdown, always closed, never deep, with no attributes but
//! those of links and images, and the language of a program.

use super::{SKIPPED, Tag, is_block, skip_element};

/// Elements beyond this depth are left out; their text stays.
const MAX_DEPTH: usize = 32;

/// The longest name of a programming language.
const MAX_LANGUAGE: usize = 30;

/// Elements that are kept, and have an end.
const KEPT: [&str; 29] = [
    "a",
    "b",
    "blockquote",
    "code",
    "dd",
    "del",
    "dl",
    "dt",
    "em",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "i",
    "li",
    "ol",
    "p",
    "pre",
    "s",
    "strong",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "ul",
];

pub(super) fn clean(html: &str) -> String {
    let mut page = Page { out: String::with_capacity(html.len()), open: Vec::new(), language: None };
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        page.out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(tag) = Tag::read(rest) else {
            page.out.push_str("&lt;");
            rest = &rest[1..];
            continue;
        };
        let source = &rest[..tag.length];
        rest = &rest[tag.length..];
        if tag.closes {
            page.end(&tag.name);
        } else if SKIPPED.contains(&tag.name.as_str()) {
            rest = skip_element(rest, &tag.name);
        } else {
            page.start(&tag.name, source);
            if tag.name == "pre" && !followed_by_code(rest) {
                page.start("code", "<code>");
            }
        }
    }
    page.out.push_str(rest);
    page.close_to(0);
    page.out
}

struct Page {
    out: String,
    /// The elements that are open.
    open: Vec<&'static str>,
    /// What a box around the next program says about its language.
    language: Option<String>,
}

/// Whether a program is marked as one; markdown knows it by that alone.
fn followed_by_code(html: &str) -> bool {
    let next = html.trim_start().get(.."<code".len());
    next.is_some_and(|next| next.eq_ignore_ascii_case("<code"))
}

impl Page {
    fn start(&mut self, name: &str, source: &str) {
        self.close_implied(name);
        match name {
            // In a program a line ends where the text has its end.
            "br" if self.open.contains(&"pre") => self.out.push('\n'),
            "br" | "hr" => self.out.push_str(&format!("<{name}>")),
            "img" => self.open_tag("img", source, &["src", "alt"]),
            _ => match KEPT.iter().find(|kept| **kept == name) {
                Some(kept) if self.open.len() < MAX_DEPTH => {
                    self.open_tag(kept, source, if name == "a" { &["href"] } else { &[] });
                    self.open.push(kept);
                }
                _ => {
                    self.language = language(source).or(self.language.take());
                    self.separate(name);
                }
            },
        }
    }

    fn end(&mut self, name: &str) {
        match self.open.iter().rposition(|open| *open == name) {
            Some(at) => self.close_to(at),
            None => self.separate(name),
        }
    }

    /// Other blocks are no more than a break between texts.
    fn separate(&mut self, name: &str) {
        if is_block(name) {
            self.out.push_str("<div></div>");
        }
    }

    fn close_to(&mut self, depth: usize) {
        for name in self.open.drain(depth..).rev() {
            self.out.push_str(&format!("</{name}>"));
        }
    }

    /// Ends what may be left open before such an element: a paragraph before any block, an entry before the next one.
    fn close_implied(&mut self, name: &str) {
        let (ended, within): (&[&str], &[&str]) = match name {
            "li" => (&["li"], &["ul", "ol"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl"]),
            "td" | "th" => (&["td", "th"], &["tr", "table"]),
            "tr" => (&["tr"], &["table"]),
            "tbody" | "thead" => (&["tbody", "thead"], &["table"]),
            "a" => (&["a"], &[]),
            // A break is inside the paragraph.
            "br" => return,
            _ if is_block(name) => (&["p"], &["li", "td", "th", "dd", "blockquote"]),
            _ => return,
        };
        let inner = self.open.iter().rposition(|open| within.contains(open)).map_or(0, |at| at + 1);
        if let Some(at) = self.open[inner..].iter().position(|open| ended.contains(open)) {
            self.close_to(inner + at);
        }
    }

    fn open_tag(&mut self, name: &str, source: &str, attributes: &[&str]) {
        self.out.push_str(&format!("<{name}"));
        // Only the program that comes next is in the box.
        let around = self.language.take_if(|_| name != "code");
        if matches!(name, "pre" | "code")
            && let Some(language) = language(source).or(around)
        {
            self.out.push_str(&format!(" class=\"language-{language}\""));
        }
        for attribute in attributes {
            if let Some(value) = value(source, attribute) {
                self.out.push_str(&format!(" {attribute}=\"{}\"", value.replace('"', "&quot;")));
            }
        }
        self.out.push('>');
    }
}

/// The value of an attribute in the source of a tag, as it is written.
fn value<'a>(source: &'a str, attribute: &str) -> Option<&'a str> {
    let mut rest = source;
    loop {
        let at = rest.find(|c: char| c.is_ascii_whitespace())?;
        rest = rest[at..].trim_start();
        let named = rest.get(..attribute.len()).is_some_and(|name| name.eq_ignore_ascii_case(attribute));
        let Some(value) = named.then(|| rest[attribute.len()..].trim_start().strip_prefix('=')).flatten() else {
            continue;
        };
        let value = value.trim_start();
        return match value.chars().next()? {
            quote @ ('"' | '\'') => value[1..].split(quote).next(),
            _ => value.split(|c: char| c.is_ascii_whitespace() || c == '>').next(),
        };
    }
}

/// The programming language that a tag names, as the usual highlighters and generators of pages do.
fn language(source: &str) -> Option<String> {
    let class = value(source, "class").unwrap_or_default();
    let prefixes = ["language-", "lang-", "highlight-source-", "highlight-text-", "highlight-"];
    let from_class = class
        .split_ascii_whitespace()
        .find_map(|word| prefixes.iter().find_map(|prefix| word.strip_prefix(prefix)))
        .or_else(|| class.split_once("brush:").map(|(_, rest)| rest.trim_start()))
        .or_else(|| class.split_once("sourceCode ").map(|(_, rest)| rest.trim_start()));
    let from_data = || value(source, "data-lang").or_else(|| value(source, "data-language"));
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '#' | '.' | '-' | '_');
    let name = from_class.or_else(from_data)?;
    let name = &name[..name.find(|c| !is_name(c)).unwrap_or(name.len())];
    (!name.is_empty() && name.len() <= MAX_LANGUAGE).then(|| name.to_owned())
}
