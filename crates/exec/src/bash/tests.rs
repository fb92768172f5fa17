use proptest::prelude::*;

use super::*;

/// What is expected of a command line: the texts of its commands, and whether something is opaque.
type Case = (&'static str, &'static [&'static str], bool);

const CLEAR: bool = false;
const OPAQUE: bool = true;

const MATRIX: &[Case] = &[
    // Plain commands, quotes and escapes.
    ("", &[], CLEAR),
    ("  # nothing but a comment", &[], CLEAR),
    ("ls", &["ls"], CLEAR),
    ("git   status\t-s", &["git status -s"], CLEAR),
    ("\"git\" status", &["git status"], CLEAR),
    ("g\\it 'sta'\"tus\"", &["git status"], CLEAR),
    ("$'g\\x69t' status", &["git status"], CLEAR),
    ("git commit -m \"it's \\\"fine\\\"\"", &["git commit -m it's \"fine\""], CLEAR),
    ("echo \"  two  blanks  \"", &["echo   two  blanks  "], CLEAR),
    ("echo a#b c # d", &["echo a#b c"], CLEAR),
    ("echo $ 100%", &["echo $ 100%"], CLEAR),
    ("git show HEAD~1 @{u} stash@{0}", &["git show HEAD~1 @{u} stash@{0}"], CLEAR),
    ("ls *.rs", &["ls *.rs"], CLEAR),
    ("echo \"$HOME\" $PATH ${USER}", &["echo \"$HOME\" $PATH ${USER}"], CLEAR),
    ("cargo test -- --nocapture", &["cargo test -- --nocapture"], CLEAR),
    ("cargo build \\\n  --release", &["cargo build --release"], CLEAR),
    // What the grammar splits or skips, and bash does not.
    ("g\\\nit status", &["g it status"], OPAQUE),
    ("\\ rm x", &["rm x"], OPAQUE),
    ("ls\u{a0}x", &["ls\u{a0}x"], CLEAR),
    ("! ! ls", &["! ls"], OPAQUE),
    ("ls\r\nrm x", &[], OPAQUE),
    ("x=1 -2>&1 y", &["y"], OPAQUE),
    ("echo \"a\"2>f", &["echo a2"], CLEAR),
    ("$';'\\a'$'", &["; a$"], OPAQUE),
    ("cat <<E\n$\\\n(rm x)\nE", &["cat"], OPAQUE),
    ("echo `echo \\`rm x\\``", &[], OPAQUE),
    ("[[ a <(rm x) ]]", &[], OPAQUE),
    // Lists, pipelines and compound commands.
    ("a && b || c; d & e", &["a", "b", "c", "d", "e"], CLEAR),
    ("a |\\\nb", &["a", "b"], CLEAR),
    ("a | b |& c", &["a", "b", "c"], CLEAR),
    ("! grep -q x f", &["grep -q x f"], CLEAR),
    ("(cd x && make) && { a; b; }", &["cd x", "make", "a", "b"], CLEAR),
    ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"], CLEAR),
    ("for f in *.c; do cc -c \"$f\"; done", &["cc -c \"$f\""], CLEAR),
    ("for ((i=0; i<3; i++)); do a; done", &["a"], CLEAR),
    ("while read -r l; do echo \"$l\"; done < in", &["read -r l", "echo \"$l\""], CLEAR),
    ("until a; do b; done", &["a", "b"], CLEAR),
    ("case $x in a|b) one;; *) two;; esac", &["one", "two"], CLEAR),
    ("[ -f x ] && [[ $y == z* ]] && ((i++)) && a", &["a"], CLEAR),
    ("a\nb\n\nc", &["a", "b", "c"], CLEAR),
    // Functions and aliases give a name another meaning.
    ("ls() { rm -rf x; }; ls", &["rm -rf x", "ls"], OPAQUE),
    ("alias ls='rm -rf x'", &["alias ls=rm -rf x"], OPAQUE),
    // Substitutions.
    ("echo $(rm a) `rm b` \"$(rm c)\"", &["rm a", "rm b", "rm c", "echo $(rm a) `rm b` \"$(rm c)\""], CLEAR),
    ("diff <(sort a) <(sort b)", &["sort a", "sort b", "diff <(sort a) <(sort b)"], CLEAR),
    ("x=$(rm a)", &["rm a"], CLEAR),
    ("a=(1 $(rm a))", &["rm a"], CLEAR),
    ("echo ${x:-$(rm a)} $((1 + $(rm b)))", &["rm a", "rm b", "echo ${x:-$(rm a)} $((1 + $(rm b)))"], OPAQUE),
    ("echo \"\\$(rm a)\" '$(rm b)'", &["echo $(rm a) $(rm b)"], CLEAR),
    ("echo ${x@P}", &["echo ${x@P}"], OPAQUE),
    ("x='a[$(rm b)]'; ((x))", &[], OPAQUE),
    ("test -v 'a[$(rm b)]'", &["test -v a[$(rm b)]"], OPAQUE),
    ("[[ -v 'a[$(rm b)]' ]]", &[], OPAQUE),
    // Here-documents and here-strings.
    ("cat <<EOF\n$(rm a)\nEOF\nls", &["rm a", "cat", "ls"], CLEAR),
    ("cat <<'EOF' > f\n$(rm a) `rm b`\nEOF\nls", &["cat", "ls"], CLEAR),
    ("cat <<EOF\n`rm a`\nEOF", &["cat"], OPAQUE),
    ("cat <<-EOF | wc\n\ta\n\tEOF\nls", &["wc", "cat", "ls"], CLEAR),
    ("cat <<A <<B\nA\nB\nrm x\nB", &["cat", "B", "rm x", "B"], OPAQUE),
    ("cat <<E\\OF\nx\nEOF\nrm x\nE\\OF", &["cat", "rm x", "EOF"], OPAQUE),
    ("cat <<< \"$(rm a)\" b", &["rm a", "cat b"], CLEAR),
    ("bash <<< 'rm x'", &["bash"], OPAQUE),
    // Redirects do not hide words.
    ("git > out push -f 2>&1 x", &["git push -f x"], CLEAR),
    ("> out git push", &["git push"], CLEAR),
    ("make 2>&1 >&2 2>&- | tee log", &["make", "tee log"], CLEAR),
    ("echo x > $target", &["echo x"], OPAQUE),
    // Unknown names.
    ("$x status", &[], OPAQUE),
    ("$(echo rm) x", &["echo rm"], OPAQUE),
    ("/bin/r? x", &[], OPAQUE),
    ("{rm,-rf,x}", &[], OPAQUE),
    ("\"git status\"", &[], OPAQUE),
    ("git $x", &["git $x"], OPAQUE),
    ("git {push,--force}", &["git {push,--force}"], OPAQUE),
    ("git status $x", &["git status $x"], CLEAR),
    ("/bin/rm -rf x", &["/bin/rm -rf x", "rm -rf x"], CLEAR),
    ("./gradlew build", &["./gradlew build"], CLEAR),
    // Variables.
    ("FOO=1 BAR=$(a) cargo test", &["a", "cargo test"], CLEAR),
    ("FOO=1", &[], CLEAR),
    ("export FOO=1 && unset BAR", &["export FOO=1", "unset BAR"], CLEAR),
    ("PATH=/tmp ls", &["ls"], OPAQUE),
    ("PATH=/tmp; ls", &["ls"], OPAQUE),
    ("export PATH=/tmp", &["export PATH=/tmp"], OPAQUE),
    ("\"export\" LD_PRELOAD=x", &["export LD_PRELOAD=x"], OPAQUE),
    ("read IFS", &["read IFS"], OPAQUE),
    ("printf -v PATH x", &["printf -v PATH x"], OPAQUE),
    ("printf '%s' '$(x)'", &["printf %s $(x)"], CLEAR),
    ("for PATH in a; do b; done", &["b"], OPAQUE),
    (": ${BASH_ENV:=x}", &[": ${BASH_ENV:=x}"], OPAQUE),
    ("declare -n x=PATH", &["declare -n x=PATH"], OPAQUE),
    ("GIT_PAGER=x git log", &["git log"], OPAQUE),
    // Wrappers.
    ("env -u A B=1 rm x", &["env -u A B=1 rm x", "rm x"], CLEAR),
    ("env PATH=/tmp ls", &["env PATH=/tmp ls"], OPAQUE),
    ("env -S 'rm x'", &["env -S rm x"], OPAQUE),
    ("/usr/bin/env rm x", &["/usr/bin/env rm x", "env rm x", "rm x"], CLEAR),
    ("timeout -k 5 10s rm x", &["timeout -k 5 10s rm x", "rm x"], CLEAR),
    ("timeout --unknown x rm", &["timeout --unknown x rm"], OPAQUE),
    ("nice -n 5 nohup rm x", &["nice -n 5 nohup rm x", "nohup rm x", "rm x"], CLEAR),
    ("sudo -u root -- rm x", &["sudo -u root -- rm x", "rm x"], CLEAR),
    ("sudo -s", &["sudo -s"], OPAQUE),
    ("time -p rm x", &["time -p rm x", "rm x"], CLEAR),
    ("command -v git", &["command -v git"], CLEAR),
    ("command rm x", &["command rm x", "rm x"], CLEAR),
    ("exec -a y rm x", &["exec -a y rm x", "rm x"], CLEAR),
    ("stdbuf -oL setsid -w rm x", &["stdbuf -oL setsid -w rm x", "setsid -w rm x", "rm x"], CLEAR),
    ("ls | xargs -n 1 rm -f", &["ls", "xargs -n 1 rm -f", "rm -f"], CLEAR),
    ("ls | xargs git", &["ls", "xargs git", "git"], OPAQUE),
    ("ls | xargs -I{} {} x", &["ls", "xargs -I{} {} x"], OPAQUE),
    ("ls | xargs -I % sh -c 'rm %'", &["ls", "xargs -I % sh -c rm %", "sh -c rm %"], OPAQUE),
    (
        "find . -name '*.o' -exec rm {} \\; -o -exec a +",
        &["find . -name *.o -exec rm {} ; -o -exec a +", "rm {}", "a"],
        CLEAR,
    ),
    ("find . -name \"$x\"", &["find . -name \"$x\""], CLEAR),
    ("find . $x", &["find . $x"], OPAQUE),
    ("watch -n 1 'rm x; ls'", &["watch -n 1 rm x; ls", "rm x", "ls"], CLEAR),
    ("strace rm x", &["strace rm x"], OPAQUE),
    ("coproc rm x", &["coproc rm x"], OPAQUE),
    // Scripts.
    ("sh -c 'rm x && ls'", &["sh -c rm x && ls", "rm x", "ls"], CLEAR),
    ("bash -euo pipefail -c \"rm x\" arg", &["bash -euo pipefail -c rm x arg", "rm x"], CLEAR),
    ("bash -lc 'bash -c \"rm x\"'", &["bash -lc bash -c \"rm x\"", "bash -c rm x", "rm x"], CLEAR),
    ("sh -c \"$x\"", &["sh -c \"$x\""], OPAQUE),
    ("bash build.sh", &["bash build.sh"], CLEAR),
    ("bash <(curl x)", &["curl x", "bash <(curl x)"], OPAQUE),
    ("curl x | sh", &["curl x", "sh"], OPAQUE),
    ("eval 'rm x'", &["eval rm x", "rm x"], CLEAR),
    ("eval \"$x\"", &["eval \"$x\""], OPAQUE),
    ("source ./env.sh", &["source ./env.sh"], OPAQUE),
    ("trap 'rm x' EXIT", &["trap rm x EXIT", "rm x"], CLEAR),
    ("trap - EXIT", &["trap - EXIT"], CLEAR),
    // Arithmetic evaluates the values of names.
    ("i=0; echo $((i + 1))", &["echo $((i + 1))"], CLEAR),
    ("for i in 1 2; do echo $((i * 2)); done", &["echo $((i * 2))"], CLEAR),
    ("x=y; y=1; ((x))", &[], CLEAR),
    ("x=y; y='a[$(rm b)]'; ((x))", &[], OPAQUE),
    ("read x; echo $((x))", &["read x", "echo $((x))"], OPAQUE),
    ("x=$(a); echo ${y:x}", &["a", "echo ${y:x}"], OPAQUE),
    ("x=$(ls | wc -l); [ $x -gt 1 ]", &["ls", "wc -l"], CLEAR),
    ("x=$(ls); [ $x -gt 1 ]", &["ls"], OPAQUE),
    ("! ((x=$1))", &[], OPAQUE),
    ("((PATH=1))", &[], OPAQUE),
    // Names and options.
    ("/bin/./rm x", &["/bin/./rm x", "rm x"], CLEAR),
    ("eval -- rm x", &["eval -- rm x", "rm x"], CLEAR),
    ("env a.b=1 rm x", &["env a.b=1 rm x"], OPAQUE),
    ("x | xargs env", &["x", "xargs env", "env"], OPAQUE),
    ("x | xargs -0I{} {} y", &["x", "xargs -0I{} {} y"], OPAQUE),
    ("bash 0< f", &["bash 0"], OPAQUE),
    ("bash /dev/stdin", &["bash /dev/stdin"], OPAQUE),
    ("echo x > f; bash f", &["echo x", "bash f"], OPAQUE),
    // Other shells.
    ("sh -c '((rm x))'", &["sh -c ((rm x))"], OPAQUE),
    ("bash -c '((1))'", &["bash -c ((1))"], CLEAR),
    ("zsh -c 'rm x'", &["zsh -c rm x"], OPAQUE),
    ("sh -c 'echo {a,b}'", &["sh -c echo {a,b}", "echo {a,b}"], OPAQUE),
    // Variables that configure programs.
    ("XDG_CONFIG_HOME=x git status", &["git status"], OPAQUE),
    ("export KUBECONFIG=x", &["export KUBECONFIG=x"], OPAQUE),
    ("env PYTHONPATH=x make", &["env PYTHONPATH=x make"], OPAQUE),
    ("while IFS= read -r l; do a; done", &["read -r l", "a"], CLEAR),
    // Programs that run code.
    ("sed -n 1,5p f", &["sed -n 1,5p f"], CLEAR),
    ("sed '1e rm x' f", &["sed 1e rm x f"], OPAQUE),
    ("git -c alias.x=y x", &["git -c alias.x=y x"], OPAQUE),
    ("git -c color.ui=always diff", &["git -c color.ui=always diff"], CLEAR),
    ("prlimit a", &["prlimit a"], OPAQUE),
    // Not bash.
    ("if then fi", &[], OPAQUE),
    ("echo 'open", &[], OPAQUE),
    ("echo )", &[], OPAQUE),
];

#[test]
fn matrix() {
    let mut wrong = Vec::new();
    for (source, texts, opaque) in MATRIX {
        let parsed = parse(source);
        let got: Vec<&str> = parsed.commands.iter().map(|command| command.text.as_str()).collect();
        // What is not bash at all may be read in part.
        let same = got == *texts || (*opaque && texts.is_empty());
        if !same || parsed.opaque.is_empty() == *opaque {
            wrong.push(format!("{source:?}\n  commands {got:?}\n  opaque {:?}", parsed.opaque));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), MATRIX.len(), wrong.join("\n"));
}

#[test]
fn prefixes() {
    for (source, prefix) in [
        ("echo one two", "echo"),
        ("git status -s", "git status"),
        ("git stash pop", "git stash pop"),
        ("git -C x push", "git -C x push"),
        ("npm run build -- --watch", "npm run build"),
        ("npm install", "npm install"),
        ("docker compose up -d", "docker compose up"),
        ("git", "git"),
        ("./x y", "./x"),
    ] {
        assert_eq!(parse(source).commands[0].prefix, prefix, "{source}");
    }
}

#[test]
fn redirects_are_reported() {
    let parsed = parse("a < in > out 2>> 'er r' &> \"$HOME/x\" >/dev/null 2>&1; b >& both; c >| ~/y 3< /etc/*");
    assert_eq!(parsed.writes, ["out", "er r", "~/x", "both", "~/y"]);
    assert_eq!(parsed.reads, ["in", "/etc/*"]);
    assert!(parsed.opaque.is_empty(), "{:?}", parsed.opaque);
    assert_eq!(parse("find . -fprint /etc/x").writes, ["/etc/x"]);
    assert_eq!(parse("sh -c 'echo > deep'").writes, ["deep"]);
}

#[test]
fn paths_are_reported() {
    for (source, paths) in [
        ("cat /etc/passwd -n ../x", &["/etc/passwd", "../x"][..]),
        ("rm -rf -- -x ~/y", &["-x", "~/y"]),
        ("cp $HOME/a \"${HOME}/b c\" $d", &["~/a", "~/b c"]),
        ("chmod 644 f", &["f"]),
        ("grep -r x /etc", &["/etc"]),
        ("ls /etc/*.d", &["/etc/*.d"]),
        ("find -L a b -name c", &["a", "b"]),
        ("dd if=/dev/zero of=x", &["/dev/zero", "x"]),
        ("git -C ../y status", &["../y"]),
        ("echo /etc", &[]),
    ] {
        assert_eq!(parse(source).commands[0].paths, paths, "{source}");
    }
    assert!(!parse("cat {/etc/passwd,x}").opaque.is_empty());
}

#[test]
fn argv_is_there_if_all_is_literal() {
    assert_eq!(parse("a 'b c' \"\" d").commands[0].argv, ["a", "b c", "", "d"]);
    for source in ["a $b", "a *", "a ~", "a {b,c}"] {
        assert!(parse(source).commands[0].argv.is_empty(), "{source}");
    }
}

#[test]
fn bounds() {
    let long = format!("echo {}", "x".repeat(MAX_BYTES));
    assert_eq!((parse(&long).commands.len(), parse(&long).opaque.len()), (0, 1));
    let many = parse(&"a;".repeat(MAX_COMMANDS + 10));
    assert_eq!((many.commands.len(), many.opaque), (MAX_COMMANDS, vec!["a".to_owned()]));
    for (open, close) in [("$(", ")"), ("(", ")"), ("{ ", "; }"), ("\"$(", ")\"")] {
        let deep = format!("{}rm{}", open.repeat(2_000), close.repeat(2_000));
        assert!(!parse(&deep).opaque.is_empty(), "{open}");
    }
    let wrapped = parse(&("nice ".repeat(1_000) + "rm"));
    assert!(!wrapped.opaque.is_empty());
    assert!(!parse(&"a|".repeat(MAX_PIPES + 1)).opaque.is_empty());
    // Each of these would take the parser minutes. The limit is far below that, and far above the parser's timeout.
    for slow in ["a<<E ", "a=("] {
        let start = Instant::now();
        assert!(!parse(&slow.repeat(MAX_BYTES / slow.len())).opaque.is_empty());
        assert!(start.elapsed() < 60 * MAX_TIME, "{slow}: {:?}", start.elapsed());
    }
    for awkward in ["((", "[[ ", "${", "\"$(", "`", "case a in ", "if ", "{a,"] {
        parse(&awkward.repeat(8_000));
    }
}

#[test]
fn letters_beyond_ascii_are_letters() {
    assert_eq!(parse("echo größe \u{2003}日本 'ü'").commands[0].argv, ["echo", "größe", "\u{2003}日本", "ü"]);
    assert!(!parse("é=1").opaque.is_empty(), "bash calls it");
    // The grammar's scanner reads out of bounds on such a character after an open brace.
    for source in ["{\u{10ffff}", "a {\u{d7ba6}..", "echo {1..\u{a7b99}}"] {
        parse(source);
    }
}

/// Scripts in which every command's name is known: `name` with a number.
fn script() -> impl Strategy<Value = (String, Vec<String>)> {
    let name = (0..1000u32).prop_map(|n| format!("cmd{n}"));
    let command = (name, prop::sample::select(vec!["", " -x", " 'q;q'", " \"a|b\"", " $v", " > o", " 2>&1", " a\\;b"]))
        .prop_map(|(name, rest)| (format!("{name}{rest}"), vec![name]));
    command.prop_recursive(5, 40, 3, |inner| {
        let one = (
            inner.clone(),
            prop::sample::select(vec![
                ("( ", ")"),
                ("{ ", "; }"),
                ("echo $( ", ")"),
                ("echo \"`", "`\""),
                ("! ", ""),
                ("if true; then ", "; fi"),
                ("for i in 1 2; do ", "; done"),
                ("while ", "; do :; done"),
                ("cat <( ", ")"),
                ("x=$( ", ")"),
                ("case $z in a) ", ";; esac"),
                ("cat <<E\n$( ", ")\nE\n"),
                ("f() { ", "; }"),
                ("[[ $( ", ") ]]"),
            ]),
        );
        let one = one.prop_map(|((source, names), (open, close))| (format!("{open}{source}{close}"), names));
        let joint = prop::sample::select(vec!["; ", " && ", " || ", " | ", "\n", " & "]);
        let two = (inner.clone(), joint, inner).prop_map(|((a, mut names), joint, (b, more))| {
            names.extend(more);
            (format!("{a}{joint}{b}"), names)
        });
        prop_oneof![one, two]
    })
}

/// The commands that bash really calls for a source: no program is found, so each call ends in a handler that records
/// its name.
fn called_by_bash(source: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let handler = "command_not_found_handle() { printf '%s\\n' \"$1\" >> \"$NOTES\"; return 1; }";
    std::fs::write(dir.path().join("handler"), handler).unwrap();
    let notes = dir.path().join("notes");
    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let mut bash = std::process::Command::new("/bin/bash");
    bash.args(["-c", source]).current_dir(work).env_clear().stdin(std::process::Stdio::null());
    bash.env("PATH", "/nowhere").env("BASH_ENV", dir.path().join("handler")).env("NOTES", &notes);
    bash.output().unwrap();
    let notes = std::fs::read(notes).unwrap_or_default();
    String::from_utf8_lossy(&notes).lines().map(str::to_owned).collect()
}

/// Random pieces of bash, on their own or inserted into a valid script.
fn nonsense() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "a",
        "b",
        "c",
        " ",
        " ",
        " ",
        "\n",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "(",
        ")",
        "{ ",
        "; }",
        "$(",
        ")",
        "`",
        "'",
        "\"",
        "\\",
        "\\\n",
        "$x",
        "${x:-",
        "}",
        "<<E\n",
        "\nE\n",
        " <<'E'",
        "<<<",
        ">",
        ">f ",
        "2>&1 ",
        "<(",
        "if ",
        "; then ",
        "; fi",
        "case a in a)",
        ";; esac",
        "[[ ",
        " ]]",
        "((",
        "))",
        "x=",
        "#",
        "*",
        "?",
        "~",
        "!",
        "\t",
        "$'",
        "$\"",
        "[",
        "]",
    ]);
    let heap = prop::collection::vec(token.clone(), 1..24).prop_map(|tokens| tokens.concat());
    let thrown = (script(), prop::collection::vec((token, any::<prop::sample::Index>()), 1..4));
    let thrown = thrown.prop_map(|((mut source, _), tokens)| {
        for (token, at) in tokens {
            source.insert_str(at.index(source.len() + 1), token);
        }
        source
    });
    // Loops may never end once their condition is another one.
    prop_oneof![heap, thrown.prop_filter("a loop", |source| !source.contains("while"))]
}

proptest! {
    /// The grammar is not bash: if bash runs a command that we did not list, something must be opaque.
    #[test]
    fn bash_calls_nothing_that_we_did_not_see(source in nonsense()) {
        let parsed = parse(&source);
        if parsed.opaque.is_empty() {
            for name in called_by_bash(&source) {
                let known = parsed.commands.iter().any(|command| command.text.split(' ').next() == Some(&*name));
                prop_assert!(known, "bash calls {name:?} in {source:?}, we see {parsed:?}");
            }
        }
    }
}

proptest! {
        #[test]
    fn no_command_is_lost((source, names) in script()) {
        let parsed = parse(&source);
        for name in names {
            let known = parsed.commands.iter().any(|command| command.text.split(' ').next() == Some(&*name));
            let opaque = parsed.opaque.iter().any(|piece| piece.contains(&name));
            prop_assert!(known || opaque, "{name} is missing from {source:?}: {parsed:?}");
        }
    }

    #[test]
    fn quoting_changes_nothing(words in prop::collection::vec("[a-z]{1,6}", 1..4), how in any::<u64>()) {
        let quote = |(i, word): (usize, &String)| match (how >> (2 * i)) & 3 {
            0 => word.clone(),
            1 => format!("'{word}'"),
            2 => format!("\"{word}\""),
            _ => word.chars().flat_map(|c| ['\\', c]).collect(),
        };
        let source: Vec<String> = words.iter().enumerate().map(quote).collect();
        let parsed = parse(&format!("run {}", source.join(" ")));
        prop_assert_eq!(&parsed.commands[0].text, &format!("run {}", words.join(" ")));
    }

    #[test]
    fn any_bytes_are_answered(data in any::<Vec<u8>>()) {
        fuzz_bash(&data);
    }

    #[test]
    fn any_tokens_are_answered(tokens in prop::collection::vec(prop::sample::select(vec![
        "a", " ", "\n", ";", "&&", "|", "(", ")", "{", "}", "$(", "`", "'", "\"", "\\", "$x", "${", "<<E", "E", ">", "<(",
        "if", "then", "fi", "case", "in", "esac", ";;", "[[", "]]", "((", "))", "=", "x=", "#", "*", "~", "é", "sh -c",
    ]), 0..40)) {
        fuzz_bash(tokens.concat().as_bytes());
    }
}

#[test]
fn a_pipeline_broken_in_two_places_ends_in_time() {
    let unit = "| head -";
    for length in [12, 40, 400] {
        let quarter = unit.repeat(length / 4);
        let half = unit.repeat(length / 2);
        let source = format!("git log {quarter}| head |-{quarter}| | head -{half}n 3 && echo \"$(date)\" > out");
        assert!(!parse(&source).opaque.is_empty(), "{length}");
    }
}

#[test]
fn arguments_of_other_programs_are_reported() {
    assert_eq!(parse("docker run x rm").arguments, ["run", "x", "rm"]);
    assert!(parse("grep rm f; git commit -m rm").arguments.is_empty());
    assert!(parse("x=rm; docker run $x").arguments.contains(&"rm".to_owned()), "the value may be the program");
}

#[test]
fn paths_that_depend_on_variables() {
    for (source, paths, unknown) in [
        ("X=/etc/x; cat $X", &["/etc/x"][..], false),
        ("X=a; cat \"$X/b\"", &["a/b"], false),
        ("for f in a /b; do cat $f; done", &["a", "/b"], false),
        ("cat $X", &[], true),
        ("X=a true; cat $X", &[], true),
        ("false && X=a; cat $X", &[], true),
        ("X=a; X=$(b); cat $X", &[], true),
        ("X=a; unset X; cat $X", &[], true),
        ("X=a; bash -c 'cat $X'", &[], true),
        ("grep -ex /etc/x", &["/etc/x"], false),
        ("cp --target-directory=/etc x", &["/etc", "x"], false),
        ("tar xf a -C /etc", &["xf", "a", "/etc"], false),
    ] {
        let parsed = parse(source);
        let got: Vec<&String> = parsed.commands.iter().flat_map(|command| &command.paths).collect();
        assert_eq!(got, paths, "{source}");
        assert_eq!(!parsed.unknown_paths.is_empty(), unknown, "{source}");
    }
}
