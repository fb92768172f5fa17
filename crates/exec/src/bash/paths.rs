//! The arguments of commands that are paths.

use super::word::{Target, Word};

/// A command that works on the files that it names.
struct PathCommand {
    name: &'static str,
    /// How many operands come before the paths.
    skipped: usize,
    /// Letters of options with a value, which is not an operand.
    values: &'static str,
}

#[rustfmt::skip]
const PATH_COMMANDS: &[PathCommand] = &[
    after("awk", 1, "Fv"), plain("b2sum"), plain("base32"), plain("base64"), plain("bunzip2"), plain("bzcat"),
    plain("bzip2"), plain("cat"), plain("cd"), after("chgrp", 1, ""), after("chmod", 1, ""), after("chown", 1, ""),
    plain("cksum"), plain("cmp"), plain("column"), plain("comm"), plain("cp"), after("csplit", 0, "bfn"),
    after("cut", 0, "bcdf"), plain("diff"), plain("du"), after("egrep", 1, "ABCmdD"), plain("expand"),
    after("fgrep", 1, "ABCmdD"), plain("file"), after("fold", 0, "w"), after("gawk", 1, "Fv"),
    after("grep", 1, "ABCmdD"), plain("gunzip"), plain("gzip"), after("head", 0, "nc"), plain("hexdump"),
    plain("iconv"), plain("install"), plain("join"), after("jq", 1, ""), plain("less"), plain("link"), plain("ln"),
    plain("ls"), after("mawk", 1, "Fv"), plain("md5sum"), plain("mkdir"), plain("mkfifo"), plain("mknod"),
    plain("more"), plain("mv"), plain("nl"), plain("od"), plain("paste"), plain("patch"), plain("pr"), plain("pushd"),
    plain("readlink"), plain("realpath"), plain("rev"), after("rg", 1, "ABCEgjmMrtT"), plain("rm"), plain("rmdir"),
    plain("rsync"), after("sed", 1, "El"), plain("sha1sum"), plain("sha224sum"), plain("sha256sum"),
    plain("sha384sum"), plain("sha512sum"), plain("shred"), plain("shuf"), after("sort", 0, "ktS"), plain("split"),
    plain("stat"), plain("strings"), plain("sum"), plain("tac"), after("tail", 0, "nc"), plain("tar"), plain("tee"),
    after("touch", 0, "dt"), plain("tree"), after("truncate", 0, "s"), plain("unexpand"), plain("uniq"),
    plain("unlink"), plain("unxz"), plain("unzip"), plain("wc"), plain("xxd"), plain("xz"), plain("xzcat"),
    plain("zcat"), plain("zip"),
];

const fn plain(name: &'static str) -> PathCommand {
    after(name, 0, "")
}

const fn after(name: &'static str, skipped: usize, values: &'static str) -> PathCommand {
    PathCommand { name, skipped, values }
}

/// Commands with options that name the directory or the file they work in, and these options.
const DIRECTORY_COMMANDS: &[(&str, &[&str])] = &[
    ("cargo", &["--manifest-path", "--target-dir"]),
    ("env", &["-C", "--chdir"]),
    ("git", &["-C", "--git-dir", "--work-tree"]),
    ("make", &["-C", "-f", "--directory", "--file", "--makefile"]),
    ("sudo", &["-D", "--chdir"]),
    ("xargs", &["-a", "--arg-file"]),
];

/// The arguments of a command that are paths. `more`: further, unknown arguments follow.
pub(super) fn paths(name: &str, words: &[Word], more: bool) -> Vec<Target> {
    let arguments = words.get(1..).unwrap_or_default();
    match name {
        "find" => find(arguments),
        // Without an operand it goes to the home directory.
        "cd" if arguments.is_empty() => vec![Target::Path("~".to_owned())],
        "dd" => arguments
            .iter()
            .filter(|word| word.is_dynamic() || word.head().starts_with("if=") || word.head().starts_with("of="))
            .map(|word| word.target(3))
            .collect(),
        _ => match PATH_COMMANDS.binary_search_by_key(&name, |known| known.name).ok().map(|at| &PATH_COMMANDS[at]) {
            Some(known) => {
                let mut paths = known.paths(arguments);
                paths.extend(more.then_some(Target::Unknown));
                paths
            }
            None => match DIRECTORY_COMMANDS.iter().find(|(known, _)| *known == name) {
                Some((_, options)) => directories(options, arguments),
                None => Vec::new(),
            },
        },
    }
}

impl PathCommand {
    fn paths(&self, arguments: &[Word]) -> Vec<Target> {
        let mut paths = Vec::new();
        let mut only_operands = false;
        let mut is_value = false;
        // If an option has the pattern, all operands are files.
        let mut skipped = if self.skipped > 0 && arguments.iter().any(gives_pattern) && !self.name.starts_with("ch") {
            0
        } else {
            self.skipped
        };
        for word in arguments {
            let head = word.head();
            if std::mem::take(&mut is_value) && !word.splits {
                continue;
            }
            if !only_operands && head == "--" && word.literal {
                only_operands = true;
            } else if !only_operands && head.len() > 1 && head.starts_with('-') {
                paths.extend(in_option(word));
                let letters = head.strip_prefix('-').filter(|letters| !letters.starts_with('-')).unwrap_or_default();
                is_value = letters.chars().next_back().is_some_and(|last| self.values.contains(last)) && word.literal;
            } else if word.text.starts_with("<(") || word.text.starts_with(">(") {
                // A process substitution is not a file.
            } else if skipped > 0 && !(word.splits && word.is_dynamic()) {
                skipped -= 1;
            } else {
                paths.push(word.target(0));
            }
        }
        paths
    }
}

/// Whether an option has the pattern or the program of `grep`, `sed` and the like.
fn gives_pattern(word: &Word) -> bool {
    let head = word.head();
    match head.strip_prefix('-') {
        Some(long) if long.starts_with('-') => {
            ["--regexp", "--file", "--expression", "--from-file"].iter().any(|name| head.starts_with(name))
        }
        Some(letters) => letters.split(['/', '.', '=']).next().unwrap_or_default().contains(['e', 'f']),
        None => false,
    }
}

/// The path in an option: `--name=path`, `-Xpath`.
fn in_option(word: &Word) -> Option<Target> {
    let head = word.head();
    if head.starts_with("--") {
        return match head.find('=') {
            Some(at) if word.is_dynamic() || is_pathlike(&head[at + 1..]) => Some(word.target(at + 1)),
            Some(_) => None,
            None => word.is_dynamic().then_some(Target::Unknown),
        };
    }
    if word.is_dynamic() {
        return Some(word.target(2));
    }
    let at = head.find(['/', '~']).or(head.find(".."))?;
    // The letters before it are options, or the beginning of a path inside.
    Some(Target::Path(head[at..].to_owned()))
}

fn is_pathlike(value: &str) -> bool {
    value.starts_with(['/', '~', '.']) || value.contains('/')
}

fn directories(options: &[&str], arguments: &[Word]) -> Vec<Target> {
    let mut paths = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        let head = word.head();
        for option in options {
            let letter = option.strip_prefix('-').filter(|letter| !letter.starts_with('-'));
            let bundled = letter.is_some_and(|letter| is_short(head) && head.ends_with(letter));
            if (head == *option || bundled) && word.literal {
                paths.extend(arguments.get(at + 1).map(|value| value.target(0)));
            } else if let Some(rest) = head.strip_prefix(option)
                && (rest.starts_with('=') || !option.starts_with("--"))
            {
                paths.push(word.target(option.len() + usize::from(rest.starts_with('='))));
            }
        }
    }
    paths
}

/// The starting points of `find` come before its expression; some tests look at other files.
fn find(arguments: &[Word]) -> Vec<Target> {
    let is_expression = |word: &Word| word.head().starts_with(['-', '(', '!']);
    let options = |word: &&Word| matches!(word.text.as_str(), "-H" | "-L" | "-P");
    let mut paths: Vec<Target> = arguments
        .iter()
        .skip_while(options)
        .take_while(|word| !is_expression(word))
        .map(|word| word.target(0))
        .collect();
    let compares = |word: &Word| {
        let head = word.head();
        head.starts_with("-newer") || matches!(head, "-anewer" | "-cnewer" | "-samefile" | "-files0-from")
    };
    paths.extend(arguments.windows(2).filter(|pair| compares(&pair[0])).map(|pair| pair[1].target(0)));
    paths
}

/// Whether a command prints names of files below the working directory, and nothing else.
pub(super) fn lists_files_inside(command: &str) -> bool {
    if command.contains([';', '&', '`', '(', ')', '{', '}', '\n', '\\', '<', '>', '$']) || command.contains("||") {
        return false;
    }
    let mut stages = command.split('|').map(|stage| stage.split_whitespace().collect::<Vec<_>>());
    let Some(first) = stages.next() else { return false };
    let stays = |word: &&str| {
        let word = word.trim_start_matches(['\'', '"']);
        !word.starts_with(['/', '~']) && word != ".." && !word.contains("../") && !word.contains("/..")
    };
    let has = |wanted: &[&str]| first.iter().any(|word| wanted.contains(word));
    let short = |letter: char| first.iter().any(|word| is_short(word) && word.contains(letter));
    let lists = match first[..] {
        ["find", ..] => {
            let acts = |word: &&str| {
                ["-printf", "-exec", "-ok", "-fprint", "-fls", "-files0", "-L", "-H", "-follow", "-ls"]
                    .iter()
                    .any(|action| word.starts_with(action))
            };
            !first.iter().any(acts)
        }
        ["git", "ls-files", ..] => true,
        ["git", "diff" | "show", ..] => has(&["--name-only"]),
        ["git", "grep", ..] | ["grep", ..] => short('l') && !short('f') && !short('h'),
        ["rg", ..] => short('l') || has(&["--files", "--files-with-matches"]),
        ["ls", ..] => !short('l'),
        _ => false,
    };
    lists
        && first.iter().all(stays)
        && stages.all(|stage| match stage[..] {
            ["grep", ref rest @ ..] => {
                let operands = rest.iter().filter(|word| !word.starts_with('-')).count();
                operands == 1 && !rest.iter().any(|word| is_short(word) && word.contains(['f', 'e', 'r']))
            }
            ["sort" | "uniq" | "head" | "tail", ref rest @ ..] => {
                rest.iter().all(|word| word.starts_with('-') || word.bytes().all(|byte| byte.is_ascii_digit()))
            }
            _ => false,
        })
}

fn is_short(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted() {
        assert!(PATH_COMMANDS.is_sorted_by_key(|known| known.name));
        assert!(super::super::programs::DATA.is_sorted() && super::super::wrap::UNREAD.is_sorted());
    }

    #[test]
    fn lists_of_files() {
        for command in ["find . -name '*.rs'", "git ls-files | grep rs | head -3", "rg -l foo", "ls", "grep -rl x src"]
        {
            assert!(lists_files_inside(command), "{command}");
        }
        for command in
            ["find / -name x", "find . -printf /etc/x", "cat list", "ls ../x", "git ls-files | sed s/a/b/", "grep x f"]
        {
            assert!(!lists_files_inside(command), "{command}");
        }
    }
}
