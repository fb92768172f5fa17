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
fn common_elements_become_markdown() {
    let cases = [
        ("<title>Fake page</title><h1>Heading</h1><p>Hello <b>page</b>", "Fake page\n\n# Heading\n\nHello **page**"),
        ("<p>one<p>two", "one\n\ntwo"),
        ("<div>one</div><div><div>two</div></div>three", "one\n\ntwo\n\nthree"),
        ("<a class='x' href='/a?b=1&amp;c=\"2\"'>link</a>", "[link](/a?b=1&c=\"2\")"),
        ("<pre><code>a\n  b &lt; c</code></pre>", "```\na\n  b < c\n```"),
        ("<blockquote>said</blockquote>", "> said"),
        ("1 < 2 &amp; 3 > 2", "1 < 2 & 3 > 2"),
        // A break stays in its paragraph.
        ("<p>one<br>two</p>three", "one  \ntwo\n\nthree"),
        ("<p>one<br/>two<BR />three<p>four", "one  \ntwo  \nthree\n\nfour"),
        ("<p>one <b>two<br>three</b> four</p>", "one **two  \nthree** four"),
        ("one<br>two", "one  \ntwo"),
        ("<ul><li>one<br>two</ul>", "*   one\n    two"),
        ("<blockquote>one<br>two</blockquote>", "> one  \n> two"),
        ("<p>one<hr>two", "one\n\n* * *\n\ntwo"),
    ];
    for (html, want) in cases {
        assert_eq!(to_markdown(html), want, "{html}");
    }
}

#[test]
fn code_keeps_its_language_and_lines() {
    let cases = [
        ("<pre><code class=\"language-rust\">a\n  b</code></pre>", "```rust\na\n  b\n```"),
        ("<pre><code class='hljs language-c++ x'>a</code></pre>", "```c++\na\n```"),
        ("<pre class=\"language-js\"><code>a</code></pre>", "```js\na\n```"),
        ("<pre><code class=lang-python>a</code></pre>", "```python\na\n```"),
        ("<pre class='prettyprint lang-c#'>a</pre>", "```c#\na\n```"),
        ("<div class=\"highlight highlight-source-shell\"><pre>a\nb</pre></div>", "```shell\na\nb\n```"),
        (
            "<div class='highlight-python notranslate'><div class=highlight><pre><span></span>a</pre></div></div>",
            "```python\na\n```",
        ),
        ("<figure data-lang=\"toml\"><pre><code>a</code></pre></figure>", "```toml\na\n```"),
        ("<pre><code data-lang=go>a</code></pre>", "```go\na\n```"),
        ("<pre class=\"brush: java; gutter: false\">a</pre>", "```java\na\n```"),
        ("<pre class=\"sourceCode haskell\"><code class=\"sourceCode haskell\">a</code></pre>", "```haskell\na\n```"),
        ("<pre>a<br>b</pre>", "```\na\nb\n```"),
        ("<pre>a</pre>", "```\na\n```"),
        ("<pre><code class=\"x\">a</code></pre>", "```\na\n```"),
        // The language applies to the next code block only, and is nothing but a name.
        ("<div class='highlight-source-c'></div><p>x</p><pre>a</pre>", "x\n\n```\na\n```"),
        ("<div class=language-c><pre>a</pre></div><pre>b</pre>", "```c\na\n```\n\n```\nb\n```"),
        ("<pre><code class='language-&quot;><b>x'>a</code></pre>", "```\na\n```"),
        ("<p>Use <code class=\"language-c\">a</code> here</p>", "Use `a` here"),
    ];
    for (html, want) in cases {
        assert_eq!(to_markdown(html), want, "{html}");
    }
}

/// Each of these would make an unguarded parser or converter exceed all bounds.
#[test]
fn hostile_pages_are_converted_within_bounds() {
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
