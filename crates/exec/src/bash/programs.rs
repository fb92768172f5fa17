//! Programs that run what their arguments say, and programs that do not.

use super::inline;
use super::word::Word;

/// What the arguments of a program may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    /// They are data.
    Data,
    /// They may name a command that it starts.
    Commands,
    /// They may be code of a kind that we do not parse.
    Unknown,
}

/// Programs whose arguments are always data.
#[rustfmt::skip]
pub(super) const DATA: &[&str] = &[
    ":", "[", "arch", "b2sum", "base32", "base64", "basename", "bc", "break", "bunzip2", "bzcat", "cal", "cat", "cd",
    "chgrp", "chmod", "chown", "cksum", "cmp", "column", "comm", "continue", "csplit", "cut", "date", "declare", "df",
    "diff", "dirname", "dirs", "du", "echo", "egrep", "exit", "expand", "export", "expr", "factor", "false", "fgrep",
    "file", "fmt", "fold", "free", "getconf", "getopts", "grep", "groups", "gunzip", "head", "hexdump", "hostname",
    "iconv", "id", "jobs", "join", "jq", "kill", "less", "let", "local", "locale", "logname", "ls", "lsof", "mapfile",
    "md5sum", "mkdir", "mkfifo", "mktemp", "more", "nl", "nproc", "numfmt", "od", "paste", "pathchk", "pgrep", "popd",
    "pr", "printenv", "printf", "ps", "pushd", "pwd", "read", "readarray", "readlink", "readonly", "realpath",
    "return", "rev", "rmdir", "seq", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "shift", "shuf",
    "sleep", "stat", "strings", "stty", "sum", "sync", "tac", "tail", "test", "times", "touch", "tput", "tr", "tree",
    "true", "truncate", "tsort", "tty", "type", "typeset", "ulimit", "umask", "uname", "unexpand", "uniq", "unlink",
    "unset", "unxz", "uptime", "users", "wait", "wc", "whereis", "which", "who", "whoami", "xxd", "xzcat", "yes",
    "zcat",
];

/// Programs that run code, with the letters of the options that take it, then those of other options with a value.
const INTERPRETERS: &[(&str, &str, &str)] = &[
    ("R", "e", ""),
    ("Rscript", "e", ""),
    ("bun", "ep", "r"),
    ("clisp", "x", "i"),
    ("elixir", "e", "r"),
    ("erl", "e", ""),
    ("expect", "c", ""),
    ("ghc", "e", ""),
    ("gnuplot", "e", ""),
    ("groovy", "e", ""),
    ("guile", "ce", ""),
    ("ipython", "c", ""),
    ("irb", "e", ""),
    ("jrunscript", "ef", ""),
    ("jshell", "", ""),
    ("julia", "eE", "L"),
    ("lua", "e", "l"),
    ("luajit", "e", "l"),
    ("node", "ep", "rC"),
    ("nodejs", "ep", "rC"),
    ("octave", "", ""),
    ("osascript", "e", "l"),
    ("perl", "eE", ""),
    ("php", "rBRE", "dcz"),
    ("pypy", "c", "WX"),
    ("python", "c", "WXQ"),
    ("racket", "e", ""),
    ("raku", "e", ""),
    ("ruby", "e", "rICE"),
    ("sbcl", "", ""),
    ("scala", "e", ""),
    ("swift", "e", ""),
    ("tclsh", "c", ""),
    ("wish", "c", ""),
];

/// Python modules that run code from an argument.
const CODE_MODULES: &[&str] = &["cProfile", "code", "pdb", "profile", "runpy", "timeit", "trace"];

/// Names of long options that take a command, in any program.
const COMMAND_OPTIONS: &[&str] = &[
    "askpass",
    "checkpoint",
    "cmd",
    "command",
    "editor",
    "entrypoint",
    "eval",
    "exec",
    "hook",
    "invoke",
    "linker",
    "pager",
    "preproc",
    "program",
    "rsh",
    "runner",
    "shell",
    "wrapper",
];

/// Whether a path refers to an open file of the shell, or to a process.
pub(super) fn is_special_file(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let rooted = path.starts_with('/') || parts.contains(&"..");
    let descriptor = |pair: &[&str]| pair[0] == "fd" && pair[1].bytes().all(|byte| byte.is_ascii_digit());
    path == "-"
        || (rooted && parts.iter().any(|part| matches!(*part, "dev" | "proc")))
        || parts.windows(2).any(descriptor)
}

/// A program's name without a version at its end.
pub(super) fn without_version(name: &str) -> &str {
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    if base.is_empty() { name } else { base }
}

/// What the arguments of a program may do. `more`: further, unknown arguments follow.
pub(super) fn arguments(name: &str, words: &[Word], more: bool) -> Arguments {
    let arguments = words.get(1..).unwrap_or_default();
    if DATA.binary_search(&name).is_ok() {
        return Arguments::Data;
    }
    let kind = without_version(name);
    if let Some((_, code, values)) = INTERPRETERS.iter().find(|(known, ..)| *known == kind) {
        return interpreter(kind, code, values, arguments);
    }
    match name {
        "git" => git(arguments),
        "sed" | "gsed" => sed(arguments, more),
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => awk(arguments),
        "tar" | "bsdtar" | "gtar" => tar(arguments),
        "make" | "gmake" => make(arguments),
        "set" => known(set(arguments)),
        "shopt" => known(shopt(arguments)),
        "sort" if has_long(arguments, &["--co"]) => Arguments::Unknown,
        "sort" if arguments.iter().any(may_be_option) => Arguments::Commands,
        "sort" => Arguments::Data,
        "deno" if matches!(arguments.first().and_then(Word::known), Some("eval" | "repl")) => Arguments::Unknown,
        "split" => known(!has_long(arguments, &["--f"]) && !arguments.iter().any(may_be_option)),
        "rg" => known(!has_long(arguments, &["--pre", "--hostname-bin"])),
        "zip" | "man" | "rsync" | "scp" | "apt" | "apt-get" | "wget" => guarded(name, arguments),
        "mysql" | "psql" | "sqlite3" => database(arguments),
        "hash" => {
            if arguments.is_empty() {
                Arguments::Data
            } else {
                Arguments::Unknown
            }
        }
        _ if has_command_option(arguments) || brings_code(arguments) => Arguments::Unknown,
        _ => Arguments::Commands,
    }
}

/// Whether an option that usually takes code has a value of several words.
fn brings_code(arguments: &[Word]) -> bool {
    arguments.windows(2).any(|pair| {
        matches!(pair[0].known(), Some("-c" | "-e" | "-x" | "--call"))
            && pair[1].known().is_some_and(|code| code.contains([' ', ';', '$', '`']))
    })
}

fn known(harmless: bool) -> Arguments {
    if harmless { Arguments::Data } else { Arguments::Unknown }
}

/// Whether a word may expand to an option that is not in the source.
fn may_be_option(word: &Word) -> bool {
    word.is_dynamic() && word.head().is_empty() && !word.is_number()
}

fn has_long(arguments: &[Word], starts: &[&str]) -> bool {
    arguments.iter().any(|word| starts.iter().any(|start| word.head().starts_with(start)))
}

fn has_short(arguments: &[Word], letters: &str) -> bool {
    arguments.iter().any(|word| {
        word.head()
            .strip_prefix('-')
            .is_some_and(|rest| !rest.starts_with('-') && rest.contains(|c| letters.contains(c)))
    })
}

fn has_command_option(arguments: &[Word]) -> bool {
    arguments.iter().map(Word::head).take_while(|head| *head != "--").any(|head| {
        let name = head.strip_prefix("--").filter(|name| !name.starts_with("no-"));
        let name = name.and_then(|name| name.split('=').next()).unwrap_or_default().to_ascii_lowercase();
        COMMAND_OPTIONS.iter().any(|part| name.contains(part))
    })
}

/// Programs with a few options that take a command.
fn guarded(name: &str, arguments: &[Word]) -> Arguments {
    let bad = match name {
        "zip" => has_short(arguments, "T") || has_long(arguments, &["--u", "--t"]),
        "man" => has_short(arguments, "PHCp") || has_long(arguments, &["--p", "--h", "--c"]),
        "rsync" => has_short(arguments, "eM") || has_long(arguments, &["--rs", "--rem", "--d", "--co", "--e"]),
        "scp" => has_short(arguments, "SoFDJ"),
        "wget" => has_short(arguments, "e") || has_long(arguments, &["--use-a", "--ex", "--co"]),
        _ => has_short(arguments, "oc") || has_long(arguments, &["--o", "--c"]),
    };
    if bad || arguments.iter().any(may_be_option) { Arguments::Unknown } else { Arguments::Commands }
}

/// Database clients have commands of their own beside SQL, which can run a shell.
fn database(arguments: &[Word]) -> Arguments {
    let plain = |word: &Word| {
        let text = word.known().unwrap_or("\\");
        !text.contains('\\') && !text.contains("system") && text.lines().all(|line| !line.trim_start().starts_with('.'))
    };
    let strange = ["edit(", "load_extension", "-init", "-cmd"];
    let operands = arguments.iter().filter(|word| !word.head().starts_with('-')).count();
    let inline =
        operands > 1 || has_short(arguments, "ceVl") || has_long(arguments, &["--version", "--list", "--command"]);
    let harmless = arguments.iter().all(|word| plain(word) && !strange.iter().any(|part| word.text.contains(part)));
    known(inline && harmless)
}

fn interpreter(name: &str, code: &str, values: &str, arguments: &[Word]) -> Arguments {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        let Some(text) = word.known() else { return Arguments::Unknown };
        at += 1;
        match text {
            "--version" | "--help" | "-h" | "-V" | "-v" if arguments.len() == 1 => return Arguments::Data,
            _ if is_special_file(text) => return Arguments::Unknown,
            "-m" if name == "python" => {
                let module = arguments.get(at).and_then(Word::known).unwrap_or("code");
                return if CODE_MODULES.contains(&module) { Arguments::Unknown } else { Arguments::Commands };
            }
            // These have subcommands, or arguments that are scripts of their own.
            "eval" | "repl" | "exec" if matches!(name, "bun" | "elixir" | "julia") => return Arguments::Unknown,
            _ if text.starts_with("--") && (name == "node" || name == "bun") => match text {
                "--test" | "--watch" | "--check" | "--no-warnings" | "--trace-warnings" | "--enable-source-maps" => {}
                _ => return Arguments::Unknown,
            },
            _ if text.starts_with("--") => return Arguments::Unknown,
            _ if text.len() > 1 && text.starts_with('-') => {
                let letters = &text[1..];
                let brings = letters.find(|c| code.contains(c));
                let takes = letters.find(|c| values.contains(c));
                match (brings, takes) {
                    (Some(brings), takes) if takes.is_none_or(|takes| takes > brings) => {
                        let attached = &letters[brings + 1..];
                        let source = if attached.is_empty() { arguments.get(at).and_then(Word::known) } else { None };
                        return known(source.is_some_and(|source| match name {
                            "python" => inline::python(source),
                            "node" => inline::javascript(source),
                            "perl" => inline::perl(source) && letters.chars().all(|c| "pnile0".contains(c)),
                            _ => false,
                        }));
                    }
                    (_, Some(takes)) if takes + 1 == letters.len() => at += 1,
                    _ if name == "perl" && letters.contains(['M', 'm', 'd', 'x']) => return Arguments::Unknown,
                    _ => {}
                }
            }
            _ => return Arguments::Commands,
        }
    }
    // It reads what it runs from an unknown source.
    Arguments::Unknown
}

fn sed(arguments: &[Word], more: bool) -> Arguments {
    let mut operands = Vec::new();
    let mut at = 0;
    let mut given = false;
    while let Some(word) = arguments.get(at) {
        at += 1;
        let head = word.head();
        let mut check = |source: Option<&Word>, skipped: usize| {
            given = true;
            source.and_then(Word::known).and_then(|text| text.get(skipped..)).is_some_and(inline::sed)
        };
        let sound = match head {
            "-e" | "--expression" if word.literal => {
                at += 1;
                check(arguments.get(at - 1), 0)
            }
            _ if head.starts_with("--expression=") => check(Some(word), "--expression=".len()),
            _ if head.starts_with("-i") || head.starts_with("--in-place") => word.literal,
            "--quiet" | "--silent" | "--regexp-extended" | "--posix" | "--sandbox" | "--debug" | "--null-data"
            | "--separate" => true,
            "-l" => {
                at += 1;
                true
            }
            _ if head.len() > 1 && head.starts_with('-') => match head[1..].strip_suffix('e') {
                Some(flags) if is_flags(flags) => {
                    at += 1;
                    check(arguments.get(at - 1), 0)
                }
                _ => word.literal && is_flags(head[1..].trim_end_matches('i')),
            },
            _ => {
                operands.push(word);
                true
            }
        };
        if !sound {
            return Arguments::Unknown;
        }
    }
    let mut files = operands.into_iter();
    if !given && !files.next().and_then(Word::known).is_some_and(inline::sed) {
        return Arguments::Unknown;
    }
    if more || files.any(may_be_option) { Arguments::Commands } else { Arguments::Data }
}

fn is_flags(letters: &str) -> bool {
    letters.chars().all(|c| "nrEsuz".contains(c))
}

fn awk(arguments: &[Word]) -> Arguments {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += 1;
        let head = word.head();
        match head {
            "-F" | "-v" if word.literal => at += 1,
            "-f" if word.literal => {
                let file = arguments.get(at).and_then(Word::known);
                return if file.is_some_and(|file| !is_special_file(file)) {
                    Arguments::Commands
                } else {
                    Arguments::Unknown
                };
            }
            "--" if word.literal => {}
            _ if head.starts_with("-F") || head.starts_with("-v") => {}
            _ if head.starts_with('-') => return Arguments::Unknown,
            _ => return known(word.known().is_some_and(inline::awk)),
        }
    }
    Arguments::Unknown
}

fn tar(arguments: &[Word]) -> Arguments {
    const LONG: &[&str] = &[
        "--absolute-names",
        "--append",
        "--auto-compress",
        "--bzip2",
        "--create",
        "--delete",
        "--diff",
        "--directory",
        "--exclude",
        "--exclude-vcs",
        "--extract",
        "--file",
        "--get",
        "--group",
        "--gzip",
        "--list",
        "--mode",
        "--mtime",
        "--no-same-owner",
        "--numeric-owner",
        "--one-file-system",
        "--owner",
        "--sort",
        "--strip-components",
        "--transform",
        "--update",
        "--verbose",
        "--version",
        "--wildcards",
        "--xz",
        "--zstd",
    ];
    let mut dynamic = false;
    for (at, word) in arguments.iter().enumerate() {
        let head = word.head();
        let old_style = at == 0 && !head.starts_with('-');
        if head.starts_with("--") {
            let name = head.split('=').next().unwrap_or_default();
            if name != "--" && !LONG.contains(&name) {
                return Arguments::Unknown;
            }
        } else if (head.starts_with('-') || old_style) && (head.contains(['I', 'F']) || word.is_dynamic()) {
            return Arguments::Unknown;
        }
        dynamic |= may_be_option(word) || head.starts_with(['*', '?', '[']);
    }
    // The name of a file may be an option as well.
    known(!dynamic)
}

fn make(arguments: &[Word]) -> Arguments {
    for (at, word) in arguments.iter().enumerate() {
        let head = word.head();
        let file = match head {
            "-f" | "--file" | "--makefile" => arguments.get(at + 1).and_then(Word::known),
            _ => head.strip_prefix("-f").or(head.strip_prefix("--file=")).or(head.strip_prefix("--makefile=")),
        };
        let evaluates = head.starts_with("--ev") || head.starts_with("-E") || head.starts_with("SHELL=");
        if evaluates || head.starts_with(".SHELLFLAGS=") || file.is_some_and(is_special_file) || may_be_option(word) {
            return Arguments::Unknown;
        }
    }
    Arguments::Commands
}

/// Whether options of the shell leave the way it parses the rest unchanged.
fn set(arguments: &[Word]) -> bool {
    const NAMED: &[&str] = &["errexit", "noclobber", "noglob", "nounset", "pipefail", "verbose", "xtrace"];
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        let Some(text) = word.known() else { return false };
        at += 1;
        match text.strip_prefix(['-', '+']) {
            Some("" | "-") | None => return true,
            Some(letters) => {
                for _ in letters.matches('o') {
                    let name = arguments.get(at).and_then(Word::known);
                    if name.is_some_and(|name| !NAMED.contains(&name)) || (name.is_none() && at < arguments.len()) {
                        return false;
                    }
                    at += 1;
                }
                if !letters.chars().all(|c| "bCeEfhmnouvx".contains(c)) {
                    return false;
                }
            }
        }
    }
    true
}

fn shopt(arguments: &[Word]) -> bool {
    const NAMED: &[&str] = &[
        "-p",
        "-q",
        "-s",
        "-u",
        "dotglob",
        "failglob",
        "globstar",
        "inherit_errexit",
        "lastpipe",
        "nocaseglob",
        "nocasematch",
        "nullglob",
    ];
    arguments.iter().all(|word| word.known().is_some_and(|text| NAMED.contains(&text)))
}

/// Subcommands of git whose arguments are data, except for some options.
#[rustfmt::skip]
const GIT_DATA: &[&str] = &[
    "add", "am", "apply", "blame", "branch", "cat-file", "check-ignore", "checkout", "cherry", "cherry-pick", "clean",
    "commit", "config", "count-objects", "describe", "diff", "diff-index", "diff-tree", "fetch", "for-each-ref",
    "format-patch", "fsck", "gc", "grep", "hash-object", "init", "log", "ls-files", "ls-remote", "ls-tree", "merge",
    "merge-base", "mv", "name-rev", "notes", "pull", "push", "range-diff", "reflog", "remote", "reset", "restore", "rev-list",
    "rev-parse", "revert", "rm", "shortlog", "show", "show-ref", "sparse-checkout", "stash", "status", "switch",
    "symbolic-ref", "tag", "update-index", "update-ref", "version", "whatchanged", "worktree", "write-tree",
];

/// Subcommands of git that run their arguments.
const GIT_RUNS: &[&str] = &[
    "citool",
    "credential",
    "daemon",
    "difftool",
    "fast-import",
    "filter-branch",
    "for-each-repo",
    "gui",
    "hook",
    "instaweb",
    "maintenance",
    "mergetool",
    "p4",
    "receive-pack",
    "remote-ext",
    "send-email",
    "shell",
    "upload-pack",
    "web--browse",
];

/// Settings of git that start nothing.
fn is_git_data_key(key: &str) -> bool {
    const SECTIONS: &[&str] = &["advice", "branch", "color", "init", "pull", "push", "user"];
    const KEYS: &[&str] = &[
        "commit.gpgsign",
        "core.abbrev",
        "core.autocrlf",
        "core.quotepath",
        "diff.algorithm",
        "diff.renames",
        "merge.conflictstyle",
        "rebase.autostash",
        "tag.gpgsign",
    ];
    let key = key.to_ascii_lowercase();
    let section = key.split('.').next().unwrap_or_default();
    key.contains('.') && (KEYS.contains(&key.as_str()) || (SECTIONS.contains(&section) && key != "init.templatedir"))
}

fn git(arguments: &[Word]) -> Arguments {
    let mut at = 0;
    let subcommand = loop {
        let Some(word) = arguments.get(at) else { return Arguments::Data };
        let Some(text) = word.known() else { return Arguments::Unknown };
        at += 1;
        match text {
            "-C" => at += 1,
            "-c" => {
                let key = arguments.get(at).map(Word::head).unwrap_or_default();
                let key = key.split('=').next().unwrap_or_default();
                if !is_git_data_key(key) {
                    return Arguments::Unknown;
                }
                at += 1;
            }
            "--no-pager" | "-P" | "--version" | "--help" | "--no-optional-locks" | "--literal-pathspecs" | "--bare" => {
            }
            _ if text.starts_with('-') => return Arguments::Unknown,
            subcommand => break subcommand,
        }
    };
    let rest = &arguments[at..];
    if GIT_RUNS.contains(&subcommand) {
        return Arguments::Unknown;
    }
    // An option can be abbreviated as long as that is unambiguous.
    let long = |starts: &[&str]| has_long(rest, starts);
    let transport = || rest.iter().any(|word| word.text.contains("::")) || rest.iter().any(may_be_option);
    let bad = match subcommand {
        "clone" => has_short(rest, "uc") || long(&["--u", "--conf", "--t"]) || transport(),
        "init" => long(&["--t"]),
        "fetch" | "pull" | "push" | "ls-remote" => long(&["--up", "--exe", "--rece"]) || transport(),
        "remote" => rest.iter().any(|word| word.text.contains("::")),
        "archive" => long(&["--exe", "--rem"]),
        "grep" => has_short(rest, "O") || long(&["--op"]),
        "rebase" => has_short(rest, "x") || long(&["--ex"]),
        "bisect" => rest.iter().any(|word| word.text == "run" || word.is_dynamic()),
        "submodule" => rest.iter().any(|word| word.text == "foreach" || word.is_dynamic()),
        "config" => !git_config(rest),
        _ => false,
    };
    match subcommand {
        _ if bad => Arguments::Unknown,
        "archive" | "bisect" | "clone" | "rebase" | "submodule" => Arguments::Data,
        _ if GIT_DATA.contains(&subcommand) => Arguments::Data,
        _ if has_command_option(rest) => Arguments::Unknown,
        _ => Arguments::Commands,
    }
}

/// Whether `git config` only reads, or changes only settings that start nothing.
fn git_config(arguments: &[Word]) -> bool {
    let scope = |word: &&Word| matches!(word.text.as_str(), "--global" | "--local" | "--system");
    let first = arguments.iter().find(|word| !scope(word)).map(|word| word.text.as_str());
    if matches!(first, Some("--get" | "--get-all" | "--list" | "-l" | "--unset")) {
        return true;
    }
    let operands: Vec<&Word> = arguments.iter().filter(|word| !word.head().starts_with('-')).collect();
    let options = arguments.iter().map(Word::head).filter(|head| head.starts_with('-'));
    let known = options
        .into_iter()
        .all(|head| matches!(head, "--global" | "--local" | "--system" | "--bool" | "--int" | "--add"));
    match operands[..] {
        [key] => known && key.literal,
        [key, _] => known && key.known().is_some_and(is_git_data_key),
        _ => false,
    }
}
