//! What is fuzzed: a plain function, good examples, and words that its grammar knows.

/// One function that must neither panic nor hang, whatever its input.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: &'static [&'static [u8]],
    pub tokens: &'static [&'static str],
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "decoder",
        run: llm::fuzz_decoder,
        seeds: &[
            b"\x20data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\ndata: [DONE]\n\n",
            b"\x07data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"bash\",\"arguments\":\"{\\\"c\"}}]}}]}\n\ndata: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\":1}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
            b"\x01: ping\r\n\r\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":3}}}\r\n\r\n",
            b"\x95data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\",\"code\":529}}\n\n",
            b"\x64data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm \xf0\x9f\x8d\x80\"}}]}\n\n",
        ],
        tokens: &["data: ", "\n\n", "\r\n", "[DONE]", "\"index\":", "-1", "1e400", "18446744073709551616", "null", "\\ud800", "{", "["],
    },
    Target {
        name: "edit",
        run: tools::fuzz_edit,
        seeds: &[
            b"\x01fn main() {\n    println!(\"hi\");\n}\n\x01    println!(\"hi\");\x01    println!(\"ho\");",
            b"\x00a\r\nb\r\nc\r\n\x01b\x01B",
            b"\x01\tif x {\n\t\ty();\n\t}\n\x01if x {\n    y();\n}\x01if x {\n    z();\n}",
            b"\x00one\none\none\x01one\x01two",
            b"\x01caf\xc3\xa9 \xe2\x80\x9cquoted\xe2\x80\x9d\x01caf\xc3\xa9\x01tea",
        ],
        tokens: &["\x01", "\n", "\r\n", "\t", "    ", "\\n", "\u{feff}", "é", "{", "}"],
    },
    Target {
        name: "patch",
        run: tools::fuzz_patch,
        seeds: &[
            b"zero\none\ntwo\nthree\n\x01*** Begin Patch\n*** Update File: a.txt\n@@\n zero\n-one\n+uno\n two\n*** End Patch",
            b"fn main() {\r\n    one\r\n}\r\nx\x01*** Begin Patch\n*** Update File: b\n@@ fn main\n-    one\n+    two\n@@\n-x\n+y\n*** End of File\n*** End Patch\n",
            b"*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** End Patch",
            b"*** Begin Patch\n*** Update File: a.txt\n@@ fn main\n-one\n+uno\n two\n*** End Patch",
            b"*** Begin Patch\n*** Delete File: a.txt\n*** Update File: b\n*** Move to: c\n@@\n-x\n+y\n*** End of File\n*** End Patch\n",
        ],
        tokens: &[
            "*** Begin Patch\n", "*** End Patch\n", "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ",
            "*** End of File\n", "@@", "+", "-", " ", "\n", "\r\n", "../", "\x01",
        ],
    },
    Target {
        name: "bash",
        run: exec::bash::fuzz_bash,
        seeds: &[
            b"git log --oneline | head -n 3 && echo \"done: $(date)\" > out.txt",
            b"for f in *.rs; do env A=1 timeout 5 sh -c 'cat \"$0\"' \"$f\"; done; (cd /tmp && ls) &",
            b"cat <<'EOF' | xargs -0 rm -rf --\n$HOME `id`\nEOF\nif [[ -f x ]]; then exec 2>&1; fi",
            b"x=${y:-$(z)}; a[1]=2; f() { local q=\"${@:2}\"; }; f <(sort a) >> b",
        ],
        tokens: &["$(", ")", "`", "'", "\"", "<<EOF\n", "\nEOF\n", "&&", "||", "|", ";", "$((", "${", "}", "sh -c ", "xargs ", "\\\n", "<(", "eval "],
    },
    Target {
        name: "config",
        run: config::fuzz_config,
        seeds: &[
            b"{\n  // a comment\n  \"model\": \"openai/gpt-5\",\n  \"permission\": {\"bash\": {\"git *\": \"allow\", \"*\": \"ask\"}},\n}",
            b"{\"provider\": {\"x\": {\"options\": {\"baseURL\": \"http://127.0.0.1:1/v1\", \"apiKey\": \"{env:KEY}\"}, \"models\": {\"m\": {\"limit\": {\"context\": 1, \"output\": 2}}}}}}",
            b"---\ndescription: reviews code\nmode: subagent\ntools:\n  write: false\n---\nYou review: $ARGUMENTS\n",
            b"---\nname: 'a'\ndescription: >-\n  one: two\n  three\nbase: &b {bash: deny, \"git *\": [x, ~]}\npermission:\n  <<: *b\n  edit: |2\n    x\nlist:\n- - a\n  - k: !!str 1\n    l: \"\\u00e9\"\n---\nbody",
            b"{\"agent\": {\"a\": {\"prompt\": \"{file:./x.md}\", \"temperature\": 0.5, \"steps\": 3}}, \"mcp\": {\"s\": {\"type\": \"local\", \"command\": [\"x\"]}}}",
        ],
        tokens: &["{", "}", "[", "]", ",", ":", "//", "/*", "*/", "\"", "---\n", "{env:", "{file:", "null", "1e999", "\\u0000", "\u{feff}", "- ", "  ", "&b ", "*b", "<<: ", "|\n", ">-\n", "? ", "!!str ", "\t", "'", "#", "\r\n"],
    },
];
