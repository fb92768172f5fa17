//! Rewrites a page with only the elements that markdown has, always closed, never deeply nested, and without attributes
//! except for links, images and the language of code.

use super::{SKIPPED, Tag, is_block, skip_element};

/// Elements beyond this depth are dropped; their text stays.
const MAX_DEPTH: usize = 32;

/// The maximum length of a language name.
const MAX_LANGUAGE: usize = 30;

/// Elements that are kept and have an end tag.
const KEPT_ELEMENTS: [&str; 29] = [
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
    let mut page = Cleaner { out: String::with_capacity(html.len()), open: Vec::new(), language: None };
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
        if tag.is_end {
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

struct Cleaner {
    out: String,
    /// The open elements.
    open: Vec<&'static str>,
    /// The language that an element around the next code block names.
    language: Option<String>,
}

/// Whether a `pre` contains `code`, by which markdown recognises code blocks.
fn followed_by_code(html: &str) -> bool {
    let next = html.trim_start().get(.."<code".len());
    next.is_some_and(|next| next.eq_ignore_ascii_case("<code"))
}

impl Cleaner {
    fn start(&mut self, name: &str, source: &str) {
        self.close_implied(name);
        match name {
            // In a code block a break is a newline.
            "br" if self.open.contains(&"pre") => self.out.push('\n'),
            "br" | "hr" => self.out.push_str(&format!("<{name}>")),
            "img" => self.open_tag("img", source, &["src", "alt"]),
            _ => match KEPT_ELEMENTS.iter().find(|kept| **kept == name) {
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

    /// Other blocks only separate texts.
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

    /// Closes elements that HTML allows to be left open before this one: a paragraph before any block, an item before
    /// the next.
    fn close_implied(&mut self, name: &str) {
        let (ended, within): (&[&str], &[&str]) = match name {
            "li" => (&["li"], &["ul", "ol"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl"]),
            "td" | "th" => (&["td", "th"], &["tr", "table"]),
            "tr" => (&["tr"], &["table"]),
            "tbody" | "thead" => (&["tbody", "thead"], &["table"]),
            "a" => (&["a"], &[]),
            // A break stays inside the paragraph.
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
        // The language applies only to the next code block.
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

/// The raw value of an attribute in the source of a tag.
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

/// The programming language that a tag names, in the conventions of common highlighters and site generators.
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
