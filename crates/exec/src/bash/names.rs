//! What is known about commands and variables by their names.

use super::word::Word;

/// How many words say what a command does, for those where that is more than its name. The longest entry wins.
#[rustfmt::skip]
const ARITY: &[(&str, usize)] = &[
    ("apt", 2), ("apt-get", 2), ("aws", 3), ("az", 3), ("brew", 2), ("bun", 2), ("bun run", 3), ("bun x", 3),
    ("bundle", 2), ("bundle exec", 3), ("cargo", 2), ("composer", 2), ("conda", 2), ("deno", 2), ("deno task", 3),
    ("dnf", 2), ("docker", 2), ("docker builder", 3), ("docker compose", 3), ("docker container", 3),
    ("docker image", 3), ("docker network", 3), ("docker volume", 3), ("dotnet", 2), ("flutter", 2), ("gcloud", 3),
    ("gem", 2), ("gh", 3), ("git", 2), ("git bisect", 3), ("git config", 3), ("git remote", 3), ("git stash", 3),
    ("git submodule", 3), ("git worktree", 3), ("go", 2), ("go mod", 3), ("helm", 2), ("ip", 2), ("jj", 2),
    ("kubectl", 2), ("launchctl", 2), ("make", 2), ("mix", 2), ("npm", 2), ("npm exec", 3), ("npm run", 3),
    ("npx", 2), ("nx", 2), ("pip", 2), ("pip3", 2), ("pipenv", 2), ("pipenv run", 3), ("pipx", 2), ("pipx run", 3),
    ("pnpm", 2), ("pnpm dlx", 3), ("pnpm exec", 3), ("pnpm run", 3), ("podman", 2), ("podman compose", 3),
    ("poetry", 2), ("poetry run", 3), ("rustup", 2), ("swift", 2), ("systemctl", 2), ("terraform", 2), ("turbo", 2),
    ("uv", 2), ("uv pip", 3), ("uv run", 3), ("yarn", 2), ("yarn run", 3), ("zig", 2),
];

/// How many words of a command its rules tell apart; the rest are arguments.
pub(super) fn arity(words: &[Word]) -> usize {
    let known: Vec<&str> = words.iter().take(3).map_while(Word::known).collect();
    (1..=known.len())
        .rev()
        .find_map(|count| {
            let key = known[..count].join(" ");
            ARITY.iter().find(|(name, _)| *name == key).map(|(_, arity)| *arity)
        })
        .unwrap_or(1)
}

/// Words that begin or end a compound command. `time` and `coproc` are read as the wrappers that they are.
pub(super) fn is_reserved(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "!", "[[", "]]", "case", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in", "select",
        "then", "until", "while", "{", "}",
    ];
    WORDS.contains(&name)
}

/// Whether bash takes a text for a variable's name.
pub(super) fn is_variable(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Variables that make a later command run something else than it says, or somewhere else.
pub(super) fn is_dangerous(variable: &str) -> bool {
    const NAMES: &[&str] = &[
        "AR",
        "AS",
        "BROWSER",
        "CARGO_HOME",
        "CC",
        "CDPATH",
        "CLASSPATH",
        "CXX",
        "ENV",
        "EXINIT",
        "FIGNORE",
        "FPATH",
        "GLOBIGNORE",
        "GOFLAGS",
        "HOME",
        "IFS",
        "JAVA_HOME",
        "LD",
        "LESS",
        "LESSCLOSE",
        "LESSOPEN",
        "MAKEFLAGS",
        "NODE_PATH",
        "OLDPWD",
        "PATH",
        "PERL5DB",
        "PERL5LIB",
        "PERL5OPT",
        "PROMPT_COMMAND",
        "PS0",
        "PS1",
        "PS2",
        "PS4",
        "PWD",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "RSYNC_RSH",
        "RUBYLIB",
        "RUBYOPT",
        "RUSTC",
        "RUSTDOC",
        "RUSTFLAGS",
        "RUSTUP_HOME",
        "SHELL",
        "SHELLOPTS",
        "SSH_AUTH_SOCK",
        "VIMINIT",
        "ZDOTDIR",
    ];
    const STARTS: &[&str] = &["BASH", "DYLD_", "GIT_", "LD_", "NPM_CONFIG_", "npm_config_"];
    const ENDS: &[&str] = &[
        "ASKPASS", "EDITOR", "OPTIONS", "OPTS", "PAGER", "VISUAL", "_COMMAND", "_LINKER", "_RUNNER", "_SHELL",
        "_WRAPPER",
    ];
    NAMES.contains(&variable)
        || STARTS.iter().any(|start| variable.starts_with(start))
        || ENDS.iter().any(|end| variable.ends_with(end))
}

/// Commands whose arguments, options aside, are all paths; the number is how many arguments come before them.
#[rustfmt::skip]
const PATH_COMMANDS: &[(&str, usize)] = &[
    ("cat", 0), ("cd", 0), ("chgrp", 1), ("chmod", 1), ("chown", 1), ("cmp", 0), ("cp", 0), ("diff", 0), ("du", 0),
    ("egrep", 1), ("fgrep", 1), ("file", 0), ("grep", 1), ("head", 0), ("install", 0), ("less", 0), ("ln", 0),
    ("ls", 0), ("md5sum", 0), ("mkdir", 0), ("more", 0), ("mv", 0), ("nl", 0), ("od", 0), ("pushd", 0),
    ("readlink", 0), ("realpath", 0), ("rg", 1), ("rm", 0), ("rmdir", 0), ("rsync", 0), ("sha256sum", 0), ("shred", 0),
    ("sort", 0), ("stat", 0), ("tac", 0), ("tail", 0), ("tee", 0), ("touch", 0), ("tree", 0), ("truncate", 0),
    ("unlink", 0), ("wc", 0), ("xxd", 0),
];

/// Commands with an option `-C` that takes the directory to work in.
const DIRECTORY_COMMANDS: &[&str] = &["git", "make", "tar"];

/// The arguments of a command that are paths.
pub(super) fn paths(name: &str, words: &[Word]) -> Vec<String> {
    let arguments = words.get(1..).unwrap_or_default();
    match name {
        // Its starting points come before its expression.
        "find" => {
            let is_expression = |word: &Word| word.text.starts_with(['-', '(', '!']);
            let options = |word: &&Word| matches!(word.text.as_str(), "-H" | "-L" | "-P");
            let operands = arguments.iter().skip_while(options).take_while(|word| !is_expression(word));
            operands.filter_map(|word| word.path.clone()).collect()
        }
        "dd" => arguments
            .iter()
            .filter_map(|word| word.path.as_deref())
            .filter_map(|path| path.strip_prefix("if=").or(path.strip_prefix("of=")))
            .map(str::to_owned)
            .collect(),
        _ if DIRECTORY_COMMANDS.contains(&name) => {
            arguments.windows(2).filter(|pair| pair[0].text == "-C").filter_map(|pair| pair[1].path.clone()).collect()
        }
        _ => match PATH_COMMANDS.iter().find(|(known, _)| *known == name) {
            Some((_, skipped)) => operands(arguments).skip(*skipped).filter_map(|word| word.path.clone()).collect(),
            None => Vec::new(),
        },
    }
}

/// Arguments that are not options; everything after `--` is none.
fn operands(arguments: &[Word]) -> impl Iterator<Item = &Word> {
    let mut only_operands = false;
    arguments.iter().filter(move |word| {
        if !only_operands && word.text == "--" {
            only_operands = true;
            return false;
        }
        only_operands || !word.text.starts_with('-') || word.text == "-"
    })
}
