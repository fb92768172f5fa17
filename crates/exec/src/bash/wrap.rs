//! Commands that run other commands.

use super::names;
use super::word::Word;

/// What a wrapper runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inner {
    /// A command; `more` says that arguments which we do not see will follow.
    Command { words: Vec<Word>, more: bool },
    /// A script.
    Script(String),
    /// Something that the source does not tell.
    Unknown,
    /// A file that is written.
    Write(String),
}

/// The options of a wrapper, so that the command after them is found. An option that is not here makes it unknown.
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

/// Commands that run what they are given in ways that we do not read.
const UNREAD: &[&str] = &[
    ".",
    "alias",
    "bind",
    "busybox",
    "bwrap",
    "chroot",
    "chrt",
    "compgen",
    "complete",
    "coproc",
    "dbus-run-session",
    "enable",
    "entr",
    "expect",
    "fc",
    "firejail",
    "fish",
    "flock",
    "gdb",
    "hash",
    "ltrace",
    "nsenter",
    "numactl",
    "parallel",
    "pkexec",
    "rlwrap",
    "runuser",
    "script",
    "setarch",
    "setpriv",
    "source",
    "strace",
    "su",
    "systemd-run",
    "taskset",
    "toybox",
    "unbuffer",
    "unshare",
    "valgrind",
    "xvfb-run",
];

const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "rbash", "sh", "zsh"];

/// Builtins that set the variables they are given, or evaluate their arguments as arithmetic, which runs the
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

/// What a command runs besides itself. `name` is the first of the words, without its directory.
pub(super) fn inner(name: &str, words: &[Word]) -> Vec<Inner> {
    let arguments = words.get(1..).unwrap_or_default();
    if UNREAD.contains(&name) {
        // Without arguments some of them only list what there is, and the others do nothing.
        return if arguments.is_empty() { Vec::new() } else { vec![Inner::Unknown] };
    }
    if SHELLS.contains(&name) {
        return vec![shell(arguments)].into_iter().flatten().collect();
    }
    match name {
        "eval" => vec![script(arguments)],
        "trap" => match arguments.first().map(Word::known) {
            None | Some(Some("" | "-" | "-l" | "-p")) => Vec::new(),
            Some(_) => vec![script(&arguments[..1])],
        },
        "find" => find(arguments),
        // A question, not a call.
        "command" if matches!(arguments.first().and_then(Word::known), Some("-v" | "-V")) => Vec::new(),
        _ if EVALUATING.contains(&name) => evaluating(name, arguments).into_iter().collect(),
        _ => match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            Some(wrapper) => wrapped(wrapper, arguments).into_iter().collect(),
            None => Vec::new(),
        },
    }
}

fn script(words: &[Word]) -> Inner {
    match words.iter().map(Word::known).collect::<Option<Vec<_>>>() {
        Some(words) => Inner::Script(words.join(" ")),
        None => Inner::Unknown,
    }
}

fn wrapped(wrapper: &Wrapper, arguments: &[Word]) -> Option<Inner> {
    let Some(mut at) = wrapper.skip_options(arguments) else { return Some(Inner::Unknown) };
    let options = &arguments[..at];
    for word in arguments[at..].iter().take_while(|_| wrapper.assigns) {
        match word.text.split_once('=') {
            Some((name, _)) if names::is_dangerous(name) => return Some(Inner::Unknown),
            Some((name, _)) if names::is_variable(name) => at += 1,
            _ => break,
        }
    }
    at += wrapper.operands;
    let rest = arguments.get(at..).filter(|rest| !rest.is_empty())?;
    match wrapper.name {
        "watch" => Some(script(rest)),
        "xargs" => {
            let replaced = replacement(options);
            let fill = |word: &Word| match &replaced {
                Some(mark) if word.text.contains(mark.as_str()) => Word::dynamic(word.text.clone()),
                _ => word.clone(),
            };
            Some(Inner::Command { words: rest.iter().map(fill).collect(), more: replaced.is_none() })
        }
        _ => Some(Inner::Command { words: rest.to_vec(), more: false }),
    }
}

impl Wrapper {
    /// Where the options end; none if one is not known.
    fn skip_options(&self, words: &[Word]) -> Option<usize> {
        let mut at = 0;
        while let Some(word) = words.get(at) {
            if !word.literal {
                // It may become an option, or nothing at all.
                return None;
            }
            if word.text == "--" {
                return Some(at + 1);
            }
            if let Some(long) = word.text.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                let takes = self.long_values.contains(&name);
                if !takes && !self.long_flags.contains(&name) {
                    return None;
                }
                at += if takes && value.is_none() { 2 } else { 1 };
            } else if let Some(letters) = word.text.strip_prefix('-') {
                let value = letters.find(|c| self.values.contains(c));
                let flags = &letters[..value.unwrap_or(letters.len())];
                if !flags.chars().all(|c| self.flags.contains(c)) {
                    return None;
                }
                at += if value.is_some_and(|at| at + 1 == letters.len()) { 2 } else { 1 };
            } else {
                break;
            }
        }
        Some(at.min(words.len()))
    }
}

/// What `xargs` replaces in its command.
fn replacement(options: &[Word]) -> Option<String> {
    options.iter().enumerate().rev().find_map(|(at, word)| match word.text.as_str() {
        "--replace" => Some("{}".to_owned()),
        "-I" => options.get(at + 1).map(|word| word.text.clone()),
        text => text.strip_prefix("-I").or(text.strip_prefix("--replace=")).map(str::to_owned),
    })
}

/// `sh -c script` is the script; a shell without a file reads its script from somewhere that we do not.
fn shell(arguments: &[Word]) -> Option<Inner> {
    let mut at = 0;
    let mut script_follows = false;
    while let Some(text) = arguments.get(at).map(Word::known) {
        let Some(text) = text else { return Some(Inner::Unknown) };
        at += 1;
        match text {
            "--" => break,
            "--login" | "--norc" | "--noprofile" | "--posix" => {}
            _ if text.starts_with("--") => return Some(Inner::Unknown),
            _ if text.len() > 1 && text.starts_with(['-', '+']) => {
                if !text[1..].chars().all(|c| "abBcCeEfhHiklmnoOpPrtTuvx".contains(c)) {
                    return Some(Inner::Unknown);
                }
                script_follows |= text.contains('c');
                at += text.matches(['o', 'O']).count();
            }
            _ => {
                at -= 1;
                break;
            }
        }
    }
    match (script_follows, arguments.get(at)) {
        (true, Some(word)) => Some(script(std::slice::from_ref(word))),
        (false, Some(file)) if file.literal && file.text != "-" && !file.text.starts_with("/dev/") => None,
        _ => Some(Inner::Unknown),
    }
}

fn find(arguments: &[Word]) -> Vec<Inner> {
    let mut inner = Vec::new();
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += 1;
        match word.text.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                let rest = &arguments[at..];
                let end = rest.iter().position(|word| matches!(word.text.as_str(), ";" | "+"));
                let Some(end) = end else { return vec![Inner::Unknown] };
                let fill =
                    |word: &Word| if word.text.contains("{}") { Word::dynamic(&*word.text) } else { word.clone() };
                inner.push(Inner::Command { words: rest[..end].iter().map(fill).collect(), more: false });
                at += end + 1;
            }
            "-fprint" | "-fprint0" | "-fls" | "-fprintf" => {
                let file = arguments.get(at).and_then(|word| word.path.clone());
                inner.push(file.map_or(Inner::Unknown, Inner::Write));
                at += 1;
            }
            // An expansion without quotes can become any number of words, an action among them.
            text if !word.literal && text.starts_with('$') => inner.push(Inner::Unknown),
            _ => {}
        }
    }
    inner
}

fn evaluating(name: &str, arguments: &[Word]) -> Option<Inner> {
    let first = arguments.first().map(|word| word.text.as_str()).unwrap_or_default();
    let sets = match name {
        "[" | "test" | "wait" => false,
        "printf" if !first.starts_with("-v") => return None,
        _ => true,
    };
    let calls_back =
        matches!(name, "mapfile" | "readarray") && arguments.iter().any(|word| word.text.starts_with("-C"));
    let aliases = matches!(name, "declare" | "typeset" | "local")
        && arguments.iter().any(|word| word.text.starts_with('-') && word.text.contains('n'));
    let unknown = arguments.iter().any(|word| {
        let target = word.text.strip_prefix("-v").unwrap_or(&word.text);
        let target = target.split(['=', '+', '[']).next().unwrap_or_default();
        hides_code(word) || (sets && (names::is_dangerous(target) || (!word.literal && !word.text.contains('='))))
    });
    (calls_back || aliases || unknown).then_some(Inner::Unknown)
}

/// Whether a word has the form of a substitution but is none, as it is quoted: some builtins run it nevertheless.
fn hides_code(word: &Word) -> bool {
    let quoted = word.literal || word.text.contains(['\\', '\'']);
    quoted && (word.text.contains('`') || word.text.replace('\\', "").contains("$("))
}
