use super::*;
use proptest::prelude::*;

const COLOR: Style = Style { color: true, width: 40 };
const PLAIN: Style = Style { color: false, width: 40 };

fn render(text: &str, style: Style) -> String {
    let mut markdown = Markdown::new(style);
    markdown.push(text) + &markdown.finish()
}

/// The text without control sequences.
fn bare(text: &str) -> String {
    api::strip_control(text).into_owned()
}

#[test]
fn marks_become_styles() {
    for (text, want) in [
        ("plain words\n", "plain words\n"),
        ("**bold** and *slanted*\n", "\x1b[1mbold\x1b[0m and \x1b[3mslanted\x1b[0m\n"),
        ("__name__ and _slanted_.", "__name__ and \x1b[3mslanted\x1b[0m."),
        ("***both***\n", "\x1b[1;3mboth\x1b[0m\n"),
        ("run `ls **` now\n", "run \x1b[36mls\x1b[0m \x1b[36m**\x1b[0m now\n"),
        ("**with `code` in it**\n", "\x1b[1mwith\x1b[0m \x1b[1;36mcode\x1b[0m \x1b[1min\x1b[0m \x1b[1mit\x1b[0m\n"),
        ("# Title\n", "\x1b[1mTitle\x1b[0m\n"),
        ("- one\n  * two\n3. three\n", "• one\n  • two\n3. three\n"),
        ("> said\n", "\x1b[2m│ \x1b[0m\x1b[2msaid\x1b[0m\n"),
        ("[text](http://x)\n", "\x1b[4mtext\x1b[0m \x1b[2m(http://x)\x1b[0m\n"),
        ("[http://x](http://x)\n", "\x1b[4mhttp://x\x1b[0m\n"),
        (
            "```rust\nlet **x** = 1;\n```\nafter\n",
            "\x1b[2m```rust\x1b[0m\n\x1b[36mlet **x** = 1;\x1b[0m\n\x1b[2m```\x1b[0m\nafter\n",
        ),
        ("| a | **b** |\n|---|---|\n", "| a | **b** |\n|---|---|\n"),
        ("\\*not slanted\\*\n", "*not slanted*\n"),
    ] {
        assert_eq!(render(text, COLOR), want, "{text:?}");
        assert_eq!(render(text, PLAIN), text, "without colours marks stay");
    }
    assert_eq!(render("---\n", COLOR), format!("\x1b[2m{}\x1b[0m\n", "─".repeat(40)));
}

#[test]
fn text_that_only_looks_like_a_mark_stays() {
    for text in [
        "def f(**kwargs, *args):\n",
        "2 * 3 * 4 and 2 ** 3\n",
        "snake_case_name and __init__.py_x\n",
        "glob *.rs and *.toml\n",
        "an open ` backtick\n",
        "an **open emphasis\n",
        "a[0] and [x] and [text] (no link)\n",
        "#hashtag and #!/bin/sh\n",
        "-x is an option\n",
        "1.5 times\n",
        "C:\\path\\to and \\d+\n",
        "``` in the `middle\n",
        "\n\n",
        "12345678901. no list\n",
    ] {
        assert_eq!(bare(&render(text, COLOR)), text, "{text:?}");
    }
}

#[test]
fn words_wrap_and_lists_keep_their_indent() {
    let text = "a list of several words that is longer than one line of this terminal\n";
    assert_eq!(render(text, PLAIN), "a list of several words that is longer\nthan one line of this terminal\n");
    let want = "  • a list of several words that is\n    longer than one line of this\n    terminal\n";
    assert_eq!(render(&format!("  - {text}"), COLOR), want);
    let want = "│ a list of several words that is longer\n│ than one line of this terminal\n";
    assert_eq!(bare(&render(&format!("> {text}"), COLOR)), want);
    let code = format!("```\n{text}```\n");
    assert_eq!(bare(&render(&code, COLOR)), code, "code is not wrapped");
    let wide = "日本語 ".repeat(10);
    assert!(render(&wide, PLAIN).lines().all(|line| width(line) <= 40));
}

#[test]
fn text_is_shown_while_it_streams() {
    let mut markdown = Markdown::new(COLOR);
    assert_eq!(markdown.push("Hel"), "");
    assert_eq!(markdown.push("lo wor"), "Hello");
    assert!(markdown.is_open());
    assert_eq!(markdown.push("ld\n- "), " world\n• ");
    assert_eq!(markdown.push("**a"), "");
    assert_eq!(markdown.push("b** c"), "\x1b[1mab\x1b[0m");
    assert_eq!(markdown.finish(), " c");
    markdown.line_closed();
    assert_eq!(markdown.push("# T") + &markdown.finish(), "\x1b[1mT\x1b[0m");
}

#[test]
fn an_open_mark_does_not_hold_back_text_for_ever() {
    for mark in ["`", "**", "*", "["] {
        let mut markdown = Markdown::new(COLOR);
        let mut shown = markdown.push(&format!("{mark}open "));
        for _ in 0..200 {
            shown += &markdown.push("more ");
        }
        assert!(shown.len() > 300, "{mark}: {shown}");
    }
}

/// What a terminal shows: every character with its colours. Code that comes in pieces is painted in pieces.
fn seen(text: &str) -> Vec<(char, &str)> {
    let (mut rest, mut style, mut seen) = (text, "0", Vec::new());
    while let Some(first) = rest.chars().next() {
        if let Some((codes, after)) = rest.strip_prefix("\x1b[").and_then(|rest| rest.split_once('m')) {
            (style, rest) = (codes, after);
        } else {
            seen.push((first, style));
            rest = &rest[first.len_utf8()..];
        }
    }
    seen
}

proptest! {
    #[test]
    fn however_it_is_cut_it_looks_the_same(text in "[a-c `*_#>\\-\\[\\]()|~1.\n\\\\é]{0,120}", cuts in prop::collection::vec(0_usize..8, 0..60), color: bool) {
        let style = if color { COLOR } else { PLAIN };
        let mut markdown = Markdown::new(style);
        let (mut shown, mut rest) = (String::new(), text.as_str());
        for cut in cuts {
            let at = rest.floor_char_boundary(cut);
            shown += &markdown.push(&rest[..at]);
            rest = &rest[at..];
        }
        shown += &markdown.push(rest);
        shown += &markdown.finish();
        let whole = render(&text, style);
        prop_assert_eq!(seen(&shown), seen(&whole));
    }

    #[test]
    fn nothing_but_marks_is_lost_and_lines_fit(text in "[a-e `*_#>\\-\\[\\]()1.\n]{0,300}") {
        let words = |text: &str| text.chars().filter(|c| c.is_ascii_lowercase()).collect::<String>();
        let colored = bare(&render(&text, COLOR));
        prop_assert_eq!(words(&colored), words(&text));
        // Without colours only blanks change.
        let plain = render(&text, PLAIN);
        let solid = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        // A quote that is wrapped gets its mark on every line.
        prop_assert_eq!(solid(&plain).replace('>', ""), solid(&text).replace('>', ""));
        let fits = |line: &str| width(line) <= 40 || !line.trim().contains(' ') || line.contains("```");
        if !text.contains("```") && !text.contains("~~~") {
            for line in colored.lines().chain(plain.lines()) {
                // A word that is too long stands behind the mark of its line.
                prop_assert!(fits(line.trim_start_matches(|c| "│>•*-+.#1 ".contains(c))), "{:?}", line);
            }
        }
    }
}
