use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;

fn filled(command: &str, line: &str) -> TemplatePiece {
    let template = format!("!`{command}`");
    piece(command, &CommandArguments::new(&template, line))
}

#[test]
fn arguments_are_quoted_for_their_context() {
    for (command, line, want) in [
        ("echo $1", "a", "echo 'a'"),
        ("echo $ARGUMENTS", "a \"b c\"", "echo 'a' 'b c'"),
        ("echo \"$ARGUMENTS\"", "a \"b c\"", "echo \"\"'a \"b c\"'\"\""),
        ("echo '$1'", "it's", "echo '''it s'''"),
        ("echo '$1' x", "\"it's\"", r#"echo '''it'\''s''' x"#),
        ("./scripts/x.sh $1 --all", "a", "./scripts/x.sh 'a' --all"),
        ("npm run test -- $ARGUMENTS", "a b", "npm run test -- 'a' 'b'"),
        ("python3 tools/x.py \"$1\"", "a", "python3 tools/x.py \"\"'a'\"\""),
        ("git diff $1...HEAD", "main", "git diff 'main'...HEAD"),
        ("test -f $1 && cat $1 || echo none", "a", "test -f 'a' && cat 'a' || echo none"),
        ("for f in $ARGUMENTS; do head \"$f\"; done", "a b", "for f in 'a' 'b'; do head \"$f\"; done"),
        ("git log -n$1 -- $2", "5 a b", "git log -n'5' -- 'a' 'b'"),
        ("echo \"$(cat $1)\"", "a.txt", "echo \"$(cat 'a.txt')\""),
        ("gh pr view $1 --json title | jq .title", "12", "gh pr view '12' --json title | jq .title"),
        ("echo \\$1 $1", "x", "echo \\$1 'x'"),
        ("ls | awk '{print $1}'", "", "ls | awk '{print }'"),
        ("echo $1", "", "echo "),
    ] {
        assert_eq!(filled(command, line), TemplatePiece::Shell(want.to_owned()), "{command} with {line}");
    }
}

#[test]
fn arguments_that_would_be_executed_are_refused() {
    for (command, line) in [
        ("$1", "id"),
        ("$ARGUMENTS", "rm -rf x"),
        ("'$1'", "id"),
        ("x=1; $1 y", "id"),
        ("env $1", "id"),
        ("sudo $1", "id"),
        ("nice -n 5 $1", "id"),
        ("echo a | xargs $1", "id"),
        ("sh -c $1", "id"),
        ("sh -c \"echo $1\"", "$(id)"),
        ("bash -c 'echo $1'", "x;id"),
        ("eval \"echo $1\"", "x;id"),
        ("eval $1", "id"),
        ("find . -exec $1 {} +", "id"),
        ("echo $(( $1 ))", "a[$(id)]"),
        ("[[ $1 -eq 3 ]]", "a[$(id)]"),
        ("echo hi # $1", "x"),
        ("cat <<EOF\n$1\nEOF", "$(id)"),
        ("ls | awk '{print $1}'", "system(\"id\")"),
        ("trap $1 EXIT", "id"),
    ] {
        let line = if line == "x" { "\"x\nid\n#\"" } else { line };
        assert_eq!(filled(command, line), TemplatePiece::Refused(command.to_owned()), "{command} with {line}");
    }
}

/// Runs the resulting script, and returns whether the canary file was created.
fn touches(script: &str, folder: &Path) -> bool {
    let canary = folder.join("canary");
    let _ = std::fs::remove_file(&canary);
    let run =
        Command::new("bash").args(["-c", script]).current_dir(folder).env_clear().env("PATH", "/usr/bin:/bin").output();
    run.expect("bash runs");
    canary.exists()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the arguments, and wherever a template puts them: bash runs nothing that the template does not call.
    #[test]
    fn no_argument_is_executed(
        command in prop::sample::select(vec![
            "echo $1", "echo $ARGUMENTS", "echo \"$1\"", "echo '$1'", "echo x$1y\"$2\"'$3'", "echo \"$(echo $1)\"",
            "echo \"$(echo \"$1\")\" $2", "printf %s $1 | cat - ", "X=$1; echo \"$X\"", "echo ${X:-$1}", "echo \"${X:-$1}\"",
            "echo $(( $1 ))", "[[ $1 -eq 1 ]]", "[ \"$1\" = x ]", "cat <<EOF\n$1\nEOF", "cat <<'EOF'\n$1\nEOF", "cat <<< $1",
            "echo x # $1", "for x in $ARGUMENTS; do echo \"$x\"; done", "case $1 in x) echo y;; esac", "echo $'$1'", "echo \\$1",
            "echo \\\\$1", "echo \"\\$1\"", "$1", "$1 x", "eval $1", "sh -c $1", "sh -c \"echo $1\"", "sh -c 'echo $1'",
            "awk 'BEGIN {print \"$1\"}'", "awk 'BEGIN {print $1}'", "let x=$1", "declare -i x=$1", "test -v $1", "printf -v $1 x",
            "echo ($1)", "echo {$1,x}", "echo >$1.out", "(echo $1)", "{ echo $1; }", "echo \"a'$1'b\"", "echo 'a\"$1\"b'",
            "echo $1 \\", "echo $1 '", "echo $1 \"", "if [ -n \"$1\" ]; then echo $1; fi", "unset $1", "read $1 <<< x",
        ]),
        line in "(touch canary|[$][(]touch canary[)]|;|[|]|&|\n|['\"\\\\$(){}<>#*!=\\[\\] -]|a|a\\[[$][(]touch canary[)]\\]|system[(]\"touch canary\"[)]|EOF\n|x){0,8}",
    ) {
        if let TemplatePiece::Shell(script) = filled(command, &line) {
            let folder = tempfile::tempdir().unwrap();
            prop_assert!(!touches(&script, folder.path()), "{script}");
        }
    }

    /// Words that mean nothing to the shell arrive unchanged.
    #[test]
    fn plain_arguments_arrive_unchanged(words in prop::collection::vec("[a-zA-Z0-9 $();|&*!#{}<>\\[\\]\\\\~-]{1,12}", 1..4)) {
        let line = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" ");
        let TemplatePiece::Shell(script) = filled("printf '<%s>' $ARGUMENTS", &line) else { panic!("refused: {line}") };
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        let want: String = words.iter().map(|word| format!("<{word}>")).collect();
        prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), want);
    }
}
