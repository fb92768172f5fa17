use super::*;
use proptest::prelude::*;

const PAGE: &str = "<html><head><title>A page</title><style>b{}</style></head><body><h1>Heading</h1>\
                    <p>Hello <b>page</b> &amp; &lt;you&gt;&nbsp;&#8212;</p><script>if (a < b) {}</script><ul><li>x<li>y</ul></body></html>";

#[test]
fn markdown() {
    let text = to_markdown(PAGE);
    assert!(text.contains("# Heading") && text.contains("Hello **page** &"), "{text}");
    assert!(!text.contains("a < b") && !text.contains("b{}"), "{text}");
}

#[test]
fn text() {
    assert_eq!(to_text(PAGE), "A page\nHeading\nHello page & <you> —\nx\ny");
    assert_eq!(to_text("1 < 2 <br/>and <!-- <p> --> 3"), "1 < 2\nand 3");
    assert_eq!(to_text("<a title='>'>link</a>"), "link");
    assert_eq!(to_text("&unknown; &#xZ; & &amp"), "&unknown; &#xZ; & &amp");
}

#[test]
fn markdown_of_usual_things() {
    let cases = [
        ("<title>Fake page</title><h1>Heading</h1><p>Hello <b>page</b>", "Fake page\n\n# Heading\n\nHello **page**"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("<div>one</div><div><div>two</div></div>three", "one\n\ntwo\n\nthree"),
        ("<a class='x' href='/a?b=1&amp;c=\"2\"'>link</a>", "[link](/a?b=1&c=\"2\")"),
        ("<pre><code>a\n  b &lt; c</code></pre>", "```\na\n  b < c\n```"),
        ("<blockquote>said</blockquote>", "> said"),
        ("1 < 2 &amp; 3 > 2", "1 < 2 & 3 > 2"),
    ];
    for (html, want) in cases {
        assert_eq!(to_markdown(html), want, "{html}");
    }
}

/// Each of these would take a parser or converter that is not on its guard beyond all bounds.
#[test]
fn hostile_pages_are_converted_all_the_same() {
    let many = 20_000;
    let different: String = (0..many).map(|n| format!("<b id={n}>")).collect();
    let pages = [
        "<div>".repeat(many),
        "<blockquote>".repeat(many),
        "<b>".repeat(many),
        "<ul><li>".repeat(many),
        "<table><tr><td>".repeat(many),
        "<rt>".repeat(many),
        "<svg><td>".repeat(many),
        "<div></x>".repeat(many),
        "<b><div></b>".repeat(many),
        "<!-->".to_owned() + &"<ul>".repeat(many),
        "<a \">".to_owned() + &"<ul>".repeat(many),
        different + &"<p>x".repeat(many),
    ];
    for html in pages {
        let markdown = to_markdown(&format!("{html}end"));
        assert!(markdown.len() < 20 * html.len(), "{}", &html[..40]);
    }
}

proptest! {
    #[test]
    fn text_is_total(html in "([a-z <>/&;#!\"'é-]|<p>|</p>|<script>|<!--){0,80}") {
        let _ = to_text(&html);
        let _ = to_markdown(&html);
    }

    #[test]
    fn plain_words_survive(words in prop::collection::vec("[a-z]{1,8}", 1..10)) {
        let html: String = words.iter().map(|w| format!("<p>{w}</p>")).collect();
        prop_assert_eq!(to_text(&html), words.join("\n"));
    }
}
