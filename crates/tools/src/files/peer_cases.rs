//! Facts from the test suites of other coding agents: a file, a call, and the file afterwards. Where we differ on
//! purpose, a comment says why.

use std::collections::BTreeMap;

use serde_json::json;

use crate::tool::registry::testing::Workspace;

/// A file, an old and a new text, and the file after the edit; `None` if it is refused.
type Edit = (&'static str, &'static str, &'static str, Option<&'static str>);

async fn check_edits(peer: &str, cases: &[Edit], all: bool) {
    for (content, old, new, want) in cases {
        let ws = Workspace::new();
        let file = ws.file("file.txt", content);
        let input = json!({"filePath": file, "oldString": old, "newString": new, "replaceAll": all});
        let done = ws.run("edit", input).await;
        assert_eq!(done.is_ok(), want.is_some(), "{peer}: {old:?} in {content:?}: {done:?}");
        assert_eq!(ws.content("file.txt"), want.unwrap_or(content), "{peer}: {old:?} in {content:?}");
    }
}

#[tokio::test]
async fn opencode() {
    let cases: &[Edit] = &[
        ("say(\"one\");\n", "\"one\"", "\"two\"", Some("say(\"two\");\n")),
        ("if a {\n  b();\n  c();\n}\n", "  b();\n  c();", "  d();\n  e();", Some("if a {\n  d();\n  e();\n}\n")),
        // Lines that differ in surrounding spaces.
        ("f() {\n    g();   \n}\n", "    g();", "    h();", Some("f() {\n    h();   \n}\n")),
        ("f() {\n    g();   \n    i();\n}\n", "    g();\n    i();", "    h();", Some("f() {\n    h();\n}\n")),
        ("    a\n    b\n", "a\nb", "c\nd", Some("    c\n    d\n")),
        // A block matched by its first and last line.
        (
            "fn sum(items) {\n  let result = 0;\n  for item in items { result += item }\n  return result;\n}\n",
            "fn sum(items) {\n  let result = 0;\n  for item in items { result += itm }\n  return result;\n}",
            "fn sum(items) {\n  return items.sum();\n}",
            Some("fn sum(items) {\n  return items.sum();\n}\n"),
        ),
        ("fn a() {\n  one();\n  two();\n}\n", "fn a() {\n  quite();\n  different();\n}", "x", None),
        // Spaces within a line.
        ("if  (a   &&  b)  {\n", "if (a && b) {", "if (c) {", Some("if (c) {\n")),
        ("let x =  1;\nlet y = 2;\n", "let x = 1;", "let x = 3;", Some("let x = 3;\nlet y = 2;\n")),
        // Escaped once too often.
        ("a = \"x\";\nb = 2;\n", "a = \\\"x\\\";\\nb = 2;", "c = 3;", Some("c = 3;\n")),
        ("`${name}`\n", "\\`\\${name}\\`", "name", Some("name\n")),
        // Several places, and none.
        ("a\nb\na\n", "a", "c", None),
        ("a\n", "z", "c", None),
        ("a\n", "a", "a", None),
        ("caf\u{e9} \u{1f600}\n", "\u{1f600}", "\u{1f680}", Some("caf\u{e9} \u{1f680}\n")),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", Some("x\r\ny\r\nz\r\nc\r\n")),
        ("a\r\nb\r\n", "\nb", "\nc", Some("a\r\nc\r\n")),
        ("\u{feff}a\nb\n", "a", "c", Some("\u{feff}c\nb\n")),
        ("a\nb\nc\n", "b\n", "", Some("a\nc\n")),
        ("", "a", "b", None),
    ];
    check_edits("OpenCode", cases, false).await;
    let all: &[Edit] = &[
        ("a b a c a\n", "a", "x", Some("x b x c x\n")),
        ("aaaa", "aa", "b", Some("bb")),
        ("a\r\nb\r\na\r\nb\r\n", "a\nb", "c", Some("c\r\nc\r\n")),
        ("a\n", "z", "x", None),
    ];
    check_edits("OpenCode", all, true).await;
}

#[tokio::test]
async fn gemini() {
    let cases: &[Edit] = &[
        // What other replacement syntaxes treat as special is plain text.
        ("the price is $100 here", "is $100", "is $200", Some("the price is $200 here")),
        ("word", "word", "x$'y", Some("x$'y")),
        ("one two", "one", "$&-x", Some("$&-x two")),
        ("before-middle-after", "middle", "new$`x", Some("before-new$`x-after")),
        ("one two", "one", "$1$2x", Some("$1$2x two")),
        ("a value", "value", "$$100", Some("a $$100")),
        ("| match('^[ab]d[a-z]$')", "'^[ab]d[a-z]$'", "'^[ab]d[a-z]$' # new", Some("| match('^[ab]d[a-z]$' # new)")),
        ("two words", "words", "things", Some("two things")),
        ("two words", "absent", "things", None),
        ("  let  f( a ) {\n    a\n  }", "let f( a ) {", "let g(a) {", Some("  let g(a) {\n    a\n  }")),
        // Gemini leaves both lines at the indentation of the first, which nobody wrote.
        ("  one\n    two\n", "one\ntwo", "three\nfour", None),
        (
            "let settings = {\n  feature: true,\n  retries: 3\n};",
            "let settings = {\n  feature: true\n  retries: 3\n};",
            "let settings = {\n  feature: false,\n  retries: 5\n};",
            Some("let settings = {\n  feature: false,\n  retries: 5\n};"),
        ),
        ("let settings = {\n  feature: true\n};", "function other() {\n  return false;\n}", "x", None),
        ("a\r\nb\r\nc\r\n", "a\nb", "d\ne", Some("d\r\ne\r\nc\r\n")),
        ("a\nb\n", "a\r\nb\r\n", "c\r\n", Some("c\n")),
        ("no line ending", "line ending", "newline", Some("no newline")),
        ("one one", "one", "two", None),
    ];
    check_edits("Gemini", cases, false).await;
    check_edits("Gemini", &[("old word old\n", "old", "new", Some("new word new\n"))], true).await;
}

#[tokio::test]
async fn aider() {
    let cases: &[Edit] = &[
        ("\n    a\n    b\n        c\n    d\n", "b\n    c\n", "x\n    y\n", Some("\n    a\n    x\n        y\n    d\n")),
        ("    a\n    b\n    c\n", "a\nb\n", "x\ny\n", Some("    x\n    y\n    c\n")),
        ("    a\n    b\n    c\n", " a\n b\n", " x\n     y\n", Some("    x\n        y\n    c\n")),
        ("one\ntwo\nthree\n", "two\n", "new\n", Some("one\nnew\nthree\n")),
        // Aider takes the first of several places; nobody can know which one is meant.
        ("a\nb\na\nc\n", "a\n", "x\n", None),
        ("    a\n    b\n    a\n    c\n", "a\n", "x\n", None),
        // Aider ignores an empty line that the file does not have.
        ("    a\n    b\n    c\n", "\n  a\n  b\n", "  x\n  y\n", None),
        ("A text.\nAnother.\n", "A text\n", "B\n", None),
    ];
    check_edits("Aider", cases, false).await;
}

#[tokio::test]
async fn cline() {
    let cases: &[Edit] = &[
        ("a\nb\nc", "b\n", "x\n", Some("a\nx\nc")),
        ("a\nstart\nmiddle\nend\ne", "start\nmiddle\nend\n", "x\n", Some("a\nx\ne")),
        // Cline drops the spaces around the line; we use the indentation of the file.
        ("a\n b \nc", "b\n", "x\n", Some("a\n x\nc")),
        ("a\nb\nc\nd", "d", "", Some("a\nb\nc\n")),
        ("a\nb\nc\nd", "a\n", "", Some("b\nc\nd")),
        ("head\n\nbody\n\nfoot\n", "\nbody\n\n", "new\n", Some("head\nnew\nfoot\n")),
        (
            "f() {\n\ta = 1;\n\treturn a;\n}",
            "\ta = 1;\n\treturn a;\n",
            "\ta = 2;\n\tlog();\n\treturn a;\n",
            Some("f() {\n\ta = 2;\n\tlog();\n\treturn a;\n}"),
        ),
        ("a\nb\nc", "absent\n", "x\n", None),
    ];
    check_edits("Cline", cases, false).await;
}

#[tokio::test]
async fn zed() {
    let cases: &[Edit] = &[
        ("    one\n    two\n    three\n", "two", "x", Some("    one\n    x\n    three\n")),
        ("    one\n    two\n    three\n", "one\ntwo", "x\ny", Some("    x\n    y\n    three\n")),
        ("f1() {\n    return 42;\n}\n\nf2() {\n    return 42;\n}\n", "return 42;", "return 43;", None),
        ("use a;\nuse b;\n", "use c;\nuse d;\nuse e;", "x", None),
        // Zed also accepts blocks with other or additional lines. We accept only the place that was named.
        ("f1(a) -> usize {\n    40\n}\n", "f1(a) -> u32 {\n40\n}", "x", None),
        ("two() {}\nthree() {}\nfour() {}\n", "two() {}\nfour() {}", "x", None),
    ];
    check_edits("Zed", cases, false).await;
}

/// The files before, the body of a patch, and the files that differ afterwards; `None` if it is refused.
type Patch =
    (&'static [(&'static str, &'static str)], &'static str, Option<&'static [(&'static str, Option<&'static str>)]>);

#[tokio::test]
async fn codex() {
    let cases: &[Patch] = &[
        (&[], "*** Add File: a/b.md\n+one\n+two", Some(&[("a/b.md", Some("one\ntwo\n"))])),
        (&[], "*** Add File: a", Some(&[("a", Some(""))])),
        (
            &[("x", "1\n2\n"), ("y", "gone\n")],
            "*** Add File: n/z\n+new\n*** Delete File: y\n*** Update File: x\n@@\n-2\n+3",
            Some(&[("n/z", Some("new\n")), ("y", None), ("x", Some("1\n3\n"))]),
        ),
        (
            &[("x", "1\n2\n3\n4\n")],
            "*** Update File: x\n@@\n-2\n+two\n@@\n-4\n+four",
            Some(&[("x", Some("1\ntwo\n3\nfour\n"))]),
        ),
        (
            &[("o/x", "old\n")],
            "*** Update File: o/x\n*** Move to: n/d/x\n@@\n-old\n+new",
            Some(&[("o/x", None), ("n/d/x", Some("new\n"))]),
        ),
        (&[("x", "1\n")], "", None),
        (&[("x", "1\n2\n")], "*** Update File: x\n@@\n-missing\n+y", None),
        (&[], "*** Delete File: missing", None),
        (&[("x", "1\n")], "*** Update File: x", None),
        (&[], "*** Update File: missing\n@@\n-a\n+b", None),
        (&[("d/x", "1\n")], "*** Delete File: d", None),
        (&[("x", "1\n")], "*** Frobnicate File: x", None),
        (&[("x", "no end")], "*** Update File: x\n@@\n-no end\n+one\n+two", Some(&[("x", Some("one\ntwo\n"))])),
        (&[("x", "1\n2\n")], "*** Update File: x\n@@\n+3\n+4", Some(&[("x", Some("1\n2\n3\n4\n"))])),
        (&[("x", "old\n")], "  *** Update File: x  \n@@\n-old\n+new", Some(&[("x", Some("new\n"))])),
        (&[("x", "1\n2\n3\n")], "*** Update File: x\n@@\n 1\n-2\n 3", Some(&[("x", Some("1\n3\n"))])),
        (&[("x", "a\nb\n")], "*** Update File: x\n@@\n a\n-b\n+c\n*** End of File", Some(&[("x", Some("a\nc\n"))])),
        (&[("x", "a\nb\nc\n")], "*** Update File: x\n@@\n-a\n+z\n*** End of File", None),
        (&[("x", "import a \u{2013} b\n")], "*** Update File: x\n@@\n-import a - b\n+c", Some(&[("x", Some("c\n"))])),
        (
            &[("x", "a\nb\nc\nd\ne\n")],
            "*** Update File: x\n@@\n a\n-b\n+B\n c\n d\n-e\n+E\n+f\n*** End of File",
            Some(&[("x", Some("a\nB\nc\nd\nE\nf\n"))]),
        ),
        (&[("x", "a\r\nb\r\n")], "*** Update File: x\n@@\n-b\n+c\n+d", Some(&[("x", Some("a\r\nc\r\nd\r\n"))])),
        (&[("x", "  a  \nb\n")], "*** Update File: x\n@@\n a\n-b\n+  c", Some(&[("x", Some("  a  \n  c\n"))])),
        (&[("x", "a\nb\n")], "*** Update File: x\n-a\n+c", Some(&[("x", Some("c\nb\n"))])),
        (&[("x", "a\nb\nc\n")], "*** Update File: x\n@@\n+z\n@@\n-a\n+y", Some(&[("x", Some("y\nb\nc\nz\n"))])),
        (
            &[("x", "f1\n  a\nf2\n  a\n")],
            "*** Update File: x\n@@ f2\n-  a\n+  b",
            Some(&[("x", Some("f1\n  a\nf2\n  b\n"))]),
        ),
        // Codex overwrites an existing file, and applies a patch up to where it fails; we change all files or none.
        (&[("x", "old\n")], "*** Add File: x\n+new", None),
        (&[("x", "old\n"), ("y", "there\n")], "*** Update File: x\n*** Move to: y\n@@\n-old\n+new", None),
        (&[], "*** Add File: x\n+new\n*** Update File: missing\n@@\n-a\n+b", None),
        // Codex moves lines that are only added to the end; we put them where the anchor says.
        (&[("x", "a\nb\n")], "*** Update File: x\n@@ a\n+n", Some(&[("x", Some("a\nn\nb\n"))])),
    ];
    for (before, body, want) in cases {
        let ws = Workspace::new();
        let mut files: BTreeMap<&str, Option<&str>> = before.iter().map(|(name, text)| (*name, Some(*text))).collect();
        for (name, text) in *before {
            ws.file(name, text);
        }
        let patch = format!("*** Begin Patch\n{body}\n*** End Patch");
        let done = ws.run("apply_patch", json!({"patchText": patch})).await;
        assert_eq!(done.is_ok(), want.is_some(), "{body}: {done:?}");
        files.extend(want.unwrap_or_default().iter().copied());
        for (name, text) in files {
            assert_eq!(std::fs::read_to_string(ws.path(name)).ok().as_deref(), text, "{body}: {name}");
        }
    }
}
