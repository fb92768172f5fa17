//! Commands that run other commands.

use super::programs::{self, Arguments, is_special_file};
use super::vars::{Piece, Value};
use super::word::{Target, Word};
use super::{Shell, arith, names};

/// What a command does besides running its program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inner {
    /// A command. `more`: further, unknown arguments follow; `inside`: these are names of files below the working
    /// directory.
    Command { words: Vec<Word>, more: bool, inside: bool },
    /// A script, for a shell.
    Script(String, Shell),
    /// Something that the source does not determine.
    Unknown,
    /// A file that is written.
    Write(Target),
    /// A file that is run.
    Run(String),
    /// A variable is set.
    Set(String, Value),
    /// A variable is unset.
    Unset(String),
    /// A variable is evaluated as arithmetic.
    Evaluate(String),
    /// A variable becomes arguments of `test`.
    Test(String),
    /// Its arguments may name a command that it starts.
    Arguments,
}

/// The options of a wrapper, to find the command after them. Any other option makes the command unknown.
struct Wrapper {
    name: &'static str,
    /// Letters of options without and with a value.
    flags: &'static str,
    values: &'static str,
    long_flags: &'static [&'static str],
    long_values: &'static [&'static str],
    /// How many operands come before the command.
    operands: usize,
    /// Whether `NAME=value` may come before the command.
    assigns: bool,
}

const PLAIN: Wrapper =
    Wrapper { name: "", flags: "", values: "", long_flags: &[], long_values: &[], operands: 0, assigns: false };

const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        name: "env",
        flags: "i0v",
        values: "uC",
        long_flags: &["ignore-environment", "null", "debug"],
        long_values: &["unset", "chdir"],
        assigns: true,
        ..PLAIN
    },
    Wrapper {
        name: "timeout",
        flags: "fpv",
        values: "ks",
        long_flags: &["foreground", "preserve-status", "verbose"],
        long_values: &["kill-after", "signal"],
        operands: 1,
        ..PLAIN
    },
    Wrapper { name: "nice", flags: "0123456789", values: "n", long_values: &["adjustment"], ..PLAIN },
    Wrapper {
        name: "ionice",
        flags: "t",
        values: "cn",
        long_flags: &["ignore"],
        long_values: &["class", "classdata"],
        ..PLAIN
    },
    Wrapper { name: "nohup", ..PLAIN },
    Wrapper { name: "chronic", ..PLAIN },
    Wrapper { name: "setsid", flags: "cfw", long_flags: &["ctty", "fork", "wait"], ..PLAIN },
    Wrapper { name: "stdbuf", values: "ioe", long_values: &["input", "output", "error"], ..PLAIN },
    Wrapper {
        name: "time",
        flags: "apqv",
        values: "fo",
        long_flags: &["append", "portability", "quiet", "verbose"],
        long_values: &["format", "output"],
        ..PLAIN
    },
    Wrapper {
        name: "sudo",
        flags: "AbEHknPS",
        values: "CDghpRTu",
        long_flags: &[
            "askpass",
            "background",
            "non-interactive",
            "preserve-env",
            "preserve-groups",
            "set-home",
            "stdin",
        ],
        long_values: &["chdir", "chroot", "group", "host", "prompt", "user"],
        assigns: true,
        ..PLAIN
    },
    Wrapper { name: "doas", flags: "n", values: "u", ..PLAIN },
    Wrapper { name: "command", flags: "p", ..PLAIN },
    Wrapper { name: "builtin", ..PLAIN },
    Wrapper { name: "exec", flags: "cl", values: "a", ..PLAIN },
    Wrapper {
        name: "xargs",
        flags: "0oprtx",
        values: "adEILnPs",
        long_flags: &["exit", "interactive", "no-run-if-empty", "null", "open-tty", "replace", "verbose"],
        long_values: &["arg-file", "delimiter", "max-args", "max-chars", "max-lines", "max-procs"],
        ..PLAIN
    },
    Wrapper {
        name: "watch",
        flags: "bcdegtwx",
        values: "nq",
        long_flags: &["beep", "chgexit", "color", "differences", "errexit", "exec", "no-title", "no-wrap"],
        long_values: &["equexit", "interval"],
        ..PLAIN
    },
];

/// Commands that run their arguments in ways that we do not parse.
#[rustfmt::skip]
pub(super) const UNREAD: &[&str] = &[
    ".", "alias", "ash", "at", "batch", "bind", "busybox", "bwrap", "capsh", "catchsegv", "choom", "chroot", "chrt",
    "compgen", "complete", "coproc", "coreutils", "crontab", "csh", "daemonize", "dbus-launch", "dbus-run-session",
    "dc", "debugfs", "ed", "elvish", "emacs", "enable", "entr", "ex", "fakechroot", "fakeroot", "fc", "fd", "fdfind",
    "firejail", "fish", "flock", "gdb", "gosu", "gtester", "history", "i386", "icount", "ionice-run", "ksh",
    "launchctl", "ldd", "linux32", "linux64", "lldb", "logsave", "ltrace", "m4", "mksh", "multitime", "nano", "nc",
    "ncat", "netcat", "newgrp", "nsenter", "nu", "numactl", "nvim", "osh", "parallel", "pdksh", "perf", "pexec",
    "pkexec", "prlimit", "proot", "proxychains", "ptx", "pwsh", "rlwrap", "rr", "rsh", "run-one", "run-parts",
    "runcon", "runuser", "rvim", "scp", "screen", "script", "sem", "setarch", "setpriv", "setuidgid", "sftp", "sg",
    "slirp4netns", "socat", "softlimit", "source", "ssh", "sshpass", "start-stop-daemon", "strace", "su", "su-exec",
    "systemd-cat", "systemd-inhibit", "systemd-nspawn", "systemd-run", "tailf", "taskset", "tcsh", "telnet", "tmux",
    "torsocks", "toybox", "trickle", "ts-node", "tsocks", "uclampset", "uname26", "unbuffer", "unshare", "valgrind",
    "vi", "view", "vigr", "vim", "vim.basic", "vim.nox", "vim.tiny", "vimdiff", "vipw", "visudo", "waypipe", "x86_64",
    "xonsh", "xvfb-run", "yash", "zsh",
];

/// Shells whose scripts we read.
const SHELLS: &[&str] = &["bash", "dash", "rbash", "sh"];

/// Shells that take the name of a script.
const OTHER_SHELLS: &[&str] = &["ash", "csh", "fish", "ksh", "mksh", "tcsh", "yash", "zsh"];

/// Builtins that set the variables named in their arguments, or evaluate their arguments as arithmetic, which runs the
/// substitutions in a subscript even if they were quoted.
const EVALUATING: &[&str] = &[
    "[",
    "declare",
    "export",
    "getopts",
    "let",
    "local",
    "mapfile",
    "printf",
    "read",
    "readarray",
    "readonly",
    "test",
    "typeset",
    "unset",
    "wait",
];

/// What a command does besides running its program. `name` is the first of the words, without its directory. `more`:
/// further, unknown arguments follow; `inside`: these are names of files below the working directory.
pub(super) fn inner(name: &str, words: &[Word], more: bool, inside: bool) -> Vec<Inner> {
    let arguments = words.get(1..).unwrap_or_default();
    let plain_file = |word: &Word| word.literal && !word.text.starts_with(['-', '+']) && !is_special_file(&word.text);
    if let [file, ..] = arguments
        && OTHER_SHELLS.contains(&name)
        && plain_file(file)
    {
        return vec![Inner::Run(file.text.clone())];
    }
    let loader = name.starts_with("ld-") || name.starts_with("ld.so") || name.starts_with("ld64.");
    if UNREAD.binary_search(&name).is_ok() || loader {
        // Without arguments some of them only list variables, and the others do nothing.
        return if arguments.is_empty() && !more { Vec::new() } else { vec![Inner::Unknown] };
    }
    if SHELLS.contains(&programs::without_version(name)) {
        return shell(programs::without_version(name), arguments);
    }
    match name {
        "eval" => vec![if more { Inner::Unknown } else { script(after_dashes(arguments), Shell::Bash) }],
        "trap" => trap(arguments),
        "find" if more => vec![Inner::Unknown],
        "find" => find(arguments),
        // It only asks what the command is.
        "command" if matches!(arguments.first().and_then(Word::known), Some("-v" | "-V")) => Vec::new(),
        // Only a program can get arguments from elsewhere, not a builtin.
        _ if EVALUATING.contains(&name) && more => Vec::new(),
        "[" | "test" => test(arguments),
        _ if EVALUATING.contains(&name) => evaluating(name, arguments, inside),
        _ => match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            Some(wrapper) => wrapped(wrapper, arguments, more, inside),
            None => {
                let mut inner: Vec<Inner> =
                    found_by_name(name).map(|file| Inner::Run(file.to_owned())).into_iter().collect();
                match programs::arguments(name, words, more) {
                    Arguments::Data => {}
                    Arguments::Commands => {
                        inner.extend(runs_file(name, arguments).into_iter().chain([Inner::Arguments]))
                    }
                    Arguments::Unknown => inner.push(Inner::Unknown),
                }
                inner
            }
        },
    }
}

/// The files that a program runs without being told.
fn found_by_name(name: &str) -> Option<&'static str> {
    match programs::without_version(name) {
        "make" => Some("*akefile"),
        "python" => Some("*.py"),
        "npm" | "npx" | "pnpm" | "yarn" => Some("package.json"),
        _ => None,
    }
}

/// The file that an interpreter runs.
fn runs_file(name: &str, arguments: &[Word]) -> Option<Inner> {
    let file = match name {
        "make" | "awk" | "gawk" | "mawk" => {
            let at = arguments.iter().position(|word| word.text == "-f")?;
            arguments.get(at + 1)
        }
        _ => arguments.iter().find(|word| !word.head().starts_with('-')),
    };
    file.and_then(Word::known).map(|file| Inner::Run(file.to_owned()))
}

fn after_dashes(arguments: &[Word]) -> &[Word] {
    match arguments {
        [first, rest @ ..] if first.known() == Some("--") => rest,
        _ => arguments,
    }
}

fn trap(arguments: &[Word]) -> Vec<Inner> {
    let rest = after_dashes(arguments);
    match rest.first().map(Word::known) {
        None | Some(Some("" | "-")) => Vec::new(),
        Some(Some(option)) if rest.len() == arguments.len() && option.starts_with('-') => {
            if option[1..].chars().all(|c| matches!(c, 'l' | 'p')) { Vec::new() } else { vec![Inner::Unknown] }
        }
        Some(_) => vec![script(&rest[..1], Shell::Bash)],
    }
}

fn script(words: &[Word], shell: Shell) -> Inner {
    match words.iter().map(Word::known).collect::<Option<Vec<_>>>() {
        Some(words) => Inner::Script(words.join(" "), shell),
        None => Inner::Unknown,
    }
}

fn wrapped(wrapper: &Wrapper, arguments: &[Word], more: bool, inside: bool) -> Vec<Inner> {
    let Some((options, mut at)) = wrapper.read_options(arguments) else { return vec![Inner::Unknown] };
    let mut found = Vec::new();
    // An option can also unset a variable.
    if wrapper.assigns && options.iter().any(|(name, value)| matches!(*name, "u" | "unset") && names::configures(value))
    {
        return vec![Inner::Unknown];
    }
    for word in arguments[at..].iter().take_while(|_| wrapper.assigns) {
        // Any word with `=` is an assignment, even if it begins with no valid name.
        let Some((name, value)) = word.text.split_once('=') else { break };
        if !names::is_variable(name) || names::configures(name) {
            return vec![Inner::Unknown];
        }
        let known = word.literal.then(|| Value::Text(value.to_owned()));
        found.push(Inner::Set(name.to_owned(), known.unwrap_or(Value::Unknown)));
        at += 1;
    }
    at += wrapper.operands;
    let Some(rest) = arguments.get(at..).filter(|rest| !rest.is_empty()) else {
        // The unknown arguments would be the command.
        found.extend((more || (wrapper.name == "xargs" && at > arguments.len())).then_some(Inner::Unknown));
        return found;
    };
    found.push(match wrapper.name {
        "watch" if more => Inner::Unknown,
        "watch" => script(rest, Shell::Posix),
        "xargs" => {
            let from_file = options.iter().any(|(name, _)| matches!(*name, "a" | "arg-file"));
            let fed = inside && !from_file;
            let mark = options.iter().rev().find_map(|(name, value)| match *name {
                "I" => Some(*value),
                "replace" => Some(if value.is_empty() { "{}" } else { value }),
                _ => None,
            });
            let counts = options.iter().any(|(name, _)| matches!(*name, "n" | "L" | "max-args" | "max-lines"));
            let fill = |word: &Word| match mark {
                Some(mark) if word.text.contains(mark) => filled(word, mark, fed),
                _ => word.clone(),
            };
            let words = rest.iter().map(fill).collect();
            Inner::Command { words, more: more || mark.is_none() || counts, inside: fed }
        }
        _ => Inner::Command { words: rest.to_vec(), more, inside },
    });
    found
}

/// A word in which a mark is replaced. `inside`: by the name of a file below the working directory.
fn filled(word: &Word, mark: &str, inside: bool) -> Word {
    let mut pieces = Vec::new();
    for (at, text) in word.text.split(mark).enumerate() {
        pieces.extend((at > 0).then_some(Piece::Inside));
        pieces.extend((!text.is_empty()).then(|| Piece::Text(text.to_owned())));
    }
    let pieces = (inside && word.literal).then_some(pieces);
    Word { pieces, splits: false, ..Word::dynamic(word.text.clone()) }
}

impl Wrapper {
    /// The options with their values, and where they end; `None` if one is unknown.
    fn read_options<'w>(&self, words: &'w [Word]) -> Option<(Vec<(&'w str, &'w str)>, usize)> {
        let mut options = Vec::new();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            if !word.literal {
                // It may expand to an option, or to nothing.
                return None;
            }
            let text = word.text.as_str();
            at += 1;
            if text == "--" {
                break;
            }
            let value_at = |at: &mut usize| {
                *at += 1;
                words.get(*at - 1).filter(|word| word.literal).map(|word| word.text.as_str())
            };
            if let Some(long) = text.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let takes = self.long_values.contains(&name);
                if !takes && !self.long_flags.contains(&name) {
                    return None;
                }
                let value = if takes && value.is_none() { value_at(&mut at)? } else { value.unwrap_or_default() };
                options.push((name, value));
            } else if let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                let value = letters.find(|c| self.values.contains(c));
                let flags = &letters[..value.unwrap_or(letters.len())];
                if !flags.chars().all(|c| self.flags.contains(c)) {
                    return None;
                }
                if let Some(start) = value {
                    let attached = &letters[start + 1..];
                    let value = if attached.is_empty() { value_at(&mut at)? } else { attached };
                    options.push((&letters[start..=start], value));
                }
            } else {
                at -= 1;
                break;
            }
        }
        Some((options, at.min(words.len())))
    }
}

/// For `sh -c script`, the script; a shell without a file reads its script from an unknown source.
fn shell(name: &str, arguments: &[Word]) -> Vec<Inner> {
    let reads = if name.ends_with("bash") { Shell::Bash } else { Shell::Posix };
    let mut at = 0;
    let mut script_follows = false;
    while let Some(text) = arguments.get(at).map(Word::known) {
        let Some(text) = text else { return vec![Inner::Unknown] };
        at += 1;
        match text {
            "--" => break,
            "--login" | "--norc" | "--noprofile" | "--posix" => {}
            _ if text.starts_with("--") => return vec![Inner::Unknown],
            _ if text.len() > 1 && text.starts_with(['-', '+']) => {
                if !text[1..].chars().all(|c| "bBcCeEfhlmnopPrtTuvx".contains(c)) {
                    return vec![Inner::Unknown];
                }
                script_follows |= text.contains('c');
                for _ in text.matches('o') {
                    if !matches!(
                        arguments.get(at).and_then(Word::known),
                        Some("pipefail" | "errexit" | "nounset" | "xtrace")
                    ) {
                        return vec![Inner::Unknown];
                    }
                    at += 1;
                }
            }
            _ => {
                at -= 1;
                break;
            }
        }
    }
    match (script_follows, arguments.get(at)) {
        (true, Some(word)) => vec![script(std::slice::from_ref(word), reads)],
        (false, Some(file)) if file.literal && !is_special_file(&file.text) => vec![Inner::Run(file.text.clone())],
        _ => vec![Inner::Unknown],
    }
}

/// Tests and actions of `find` that take one argument.
#[rustfmt::skip]
const FIND_VALUES: &[&str] = &[
    "-amin", "-anewer", "-atime", "-cmin", "-cnewer", "-ctime", "-fstype", "-gid", "-group", "-ilname", "-iname", "-inum",
    "-ipath", "-iregex", "-iwholename", "-links", "-lname", "-maxdepth", "-mindepth", "-mmin", "-mtime", "-name", "-newer",
    "-path", "-perm", "-printf", "-regex", "-regextype", "-samefile", "-size", "-type", "-uid", "-used", "-user",
    "-wholename", "-xtype",
];

fn find(arguments: &[Word]) -> Vec<Inner> {
    let mut inner = Vec::new();
    let mut at = 0;
    let mut quoted = false;
    while let Some(word) = arguments.get(at) {
        at += 1;
        match word.text.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" if word.literal => {
                let rest = &arguments[at..];
                let end = rest.iter().position(|word| matches!(word.text.as_str(), ";" | "+"));
                let Some(end) = end else { return vec![Inner::Unknown] };
                let fill = |word: &Word| if word.text.contains("{}") { filled(word, "{}", true) } else { word.clone() };
                inner.push(Inner::Command {
                    words: rest[..end].iter().map(fill).collect(),
                    more: false,
                    inside: false,
                });
                at += end + 1;
            }
            "-fprint" | "-fprint0" | "-fls" | "-fprintf" if word.literal => {
                inner.push(arguments.get(at).map_or(Inner::Unknown, |word| Inner::Write(word.target(0))));
                at += 1;
            }
            value if word.literal && FIND_VALUES.contains(&value) => {
                // An unquoted expansion can become any number of words, including an action.
                inner.extend(arguments.get(at).filter(|word| word.is_dynamic() && word.splits).map(|_| Inner::Unknown));
                at += 1;
            }
            ";" | "+" if quoted => inner.push(Inner::Unknown),
            _ if word.is_dynamic() && word.splits => inner.push(Inner::Unknown),
            _ if word.is_dynamic() => quoted = true,
            _ => {}
        }
    }
    inner
}

/// `test`, one of whose operators evaluates a subscript.
pub(super) fn test(arguments: &[Word]) -> Vec<Inner> {
    let mut found = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let next = arguments.get(at + 1);
        if matches!(word.known(), Some("-v" | "-R")) {
            let sound = next.is_none_or(|next| next.known().is_some_and(|name| is_target(name) || name == "]"));
            found.extend((!sound).then_some(Inner::Unknown));
        } else if word.is_dynamic() && !word.is_number() {
            match word.pieces.as_deref() {
                // Unquoted, it may expand to an operator and its operands.
                Some(pieces) if word.splits => found.extend(pieces.iter().filter_map(|piece| match piece {
                    Piece::Variable(name) => Some(Inner::Test(name.clone())),
                    Piece::Text(_) | Piece::Number | Piece::Here => None,
                    _ => Some(Inner::Unknown),
                })),
                None if word.splits => found.push(Inner::Unknown),
                _ => {}
            }
            let evaluated =
                next.is_some_and(|next| (next.is_dynamic() && !next.is_number()) || next.text.contains('['));
            found.extend(evaluated.then_some(Inner::Unknown));
        } else if word.splits && !word.is_dynamic() && !word.text.contains(|c: char| c.is_ascii_alphanumeric()) {
            // A pattern expands to names of files, which can be operators.
            found.push(Inner::Unknown);
        } else if hides_code(word) {
            found.push(Inner::Unknown);
        }
    }
    found
}

/// Whether a text names a variable, or an element with a number.
fn is_target(text: &str) -> bool {
    let (name, index) = text.split_once('[').map_or((text, None), |(name, rest)| (name, rest.strip_suffix(']')));
    let plain =
        !text.contains('[') || index.is_some_and(|index| matches!(index, "@" | "*") || arith::is_integer(index));
    names::is_variable(name) && plain
}

/// The letters of a builtin's options that take a value.
fn value_letters(name: &str) -> &'static str {
    match name {
        "read" => "adinNptu",
        "mapfile" | "readarray" => "dnOsucC",
        "wait" => "p",
        "printf" => "v",
        _ => "",
    }
}

/// Builtins that set variables.
fn evaluating(name: &str, arguments: &[Word], inside: bool) -> Vec<Inner> {
    let mut found = Vec::new();
    if name == "let" {
        for word in arguments {
            match word.known().and_then(arith::names) {
                Some(names) if !names.iter().any(|name| names::is_dangerous(name)) => {
                    found.extend(names.into_iter().map(|name| Inner::Evaluate(name.to_owned())));
                }
                _ => found.push(Inner::Unknown),
            }
        }
        return found;
    }
    if name == "printf"
        && !arguments.first().is_some_and(|word| word.head().starts_with("-v") || word.head().is_empty())
    {
        return found;
    }
    let declares = matches!(name, "declare" | "export" | "local" | "readonly" | "typeset");
    let takes = value_letters(name);
    let mut exported = name == "export";
    let mut integer = false;
    let mut operands = 0;
    let mut at = 0;
    let mut only_operands = false;
    while let Some(word) = arguments.get(at) {
        at += 1;
        let head = word.head();
        if !only_operands && word.known() == Some("--") {
            only_operands = true;
            continue;
        }
        if !only_operands && head.len() > 1 && head.starts_with(['-', '+']) {
            let Some(text) = word.known() else { return vec![Inner::Unknown] };
            let letters = &text[1..];
            let value = letters.find(|c| takes.contains(c));
            let flags = &letters[..value.unwrap_or(letters.len())];
            exported |= declares && text.starts_with('-') && flags.contains('x');
            integer |= declares && flags.contains('i');
            // A name reference, or a callback.
            if declares && flags.contains('n') && name != "export" {
                return vec![Inner::Unknown];
            }
            if let Some(start) = value {
                let attached = &letters[start + 1..];
                let value = if attached.is_empty() {
                    at += 1;
                    arguments.get(at - 1).cloned()
                } else {
                    Some(Word::literal(attached))
                };
                match (name, letters.as_bytes()[start]) {
                    ("mapfile" | "readarray", b'C') => return vec![Inner::Unknown],
                    ("read", b'a') | ("wait", b'p') | ("printf", b'v') => {
                        found.extend(target(name, value.as_ref(), false, integer, inside));
                        if name == "printf" {
                            return found;
                        }
                    }
                    // Other values are strings and numbers.
                    _ => {}
                }
            }
            continue;
        }
        operands += 1;
        if name == "wait" || name == "printf" || (name == "getopts" && operands != 2) {
            found.extend((name != "getopts" && hides_code(word)).then_some(Inner::Unknown));
            continue;
        }
        found.extend(target(name, Some(word), exported, integer, inside));
    }
    match name {
        "read" if operands == 0 => found.push(Inner::Set("REPLY".to_owned(), Value::Unknown)),
        "mapfile" | "readarray" if operands == 0 => found.push(Inner::Set("MAPFILE".to_owned(), Value::Unknown)),
        _ => {}
    }
    found
}

/// What a builtin does to the variable that a word names; a value may follow the name.
fn target(builtin: &str, word: Option<&Word>, exported: bool, integer: bool, inside: bool) -> Vec<Inner> {
    let Some(word) = word else { return vec![Inner::Unknown] };
    let head = word.head();
    let (name, value) = match head.split_once('=') {
        Some((name, value)) => (name.strip_suffix('+').unwrap_or(name), word.literal.then_some(value)),
        None if word.literal => (head, None),
        None => return vec![Inner::Unknown],
    };
    let assigns = head.contains('=');
    let bad = if exported { names::configures(name) } else { names::is_dangerous(base_name(name)) };
    let compound = value.is_some_and(|value| value.starts_with('(') && value.contains(['[', '$', '`']));
    if bad || !is_target(name) || compound {
        return vec![Inner::Unknown];
    }
    let name = base_name(name).to_owned();
    let mut found = Vec::new();
    if integer {
        found.push(Inner::Evaluate(name.clone()));
    }
    if names::is_integer(&name) && builtin != "unset" && !value.is_some_and(arith::is_integer) {
        found.push(Inner::Unknown);
    }
    // Its value was recorded where the source sets it.
    let noted = word.pieces.as_ref().is_some_and(|pieces| pieces.contains(&Piece::Noted));
    match value {
        _ if noted => {}
        _ if builtin == "unset" => found.push(Inner::Unset(name)),
        Some(value) => found.push(Inner::Set(name, Value::Text(value.to_owned()))),
        None if builtin == "read" && inside => found.push(Inner::Set(name, Value::Inside)),
        None if assigns || !matches!(builtin, "declare" | "export" | "local" | "readonly" | "typeset" | "unset") => {
            found.push(Inner::Set(name, Value::Unknown));
        }
        None => {}
    }
    found
}

fn base_name(target: &str) -> &str {
    target.split('[').next().unwrap_or_default()
}

/// Whether a word is a quoted substitution, which the shell does not run but some builtins do.
fn hides_code(word: &Word) -> bool {
    let quoted = word.literal || word.text.contains(['\\', '\'']);
    quoted && (word.text.contains('`') || word.text.replace('\\', "").contains("$("))
}
