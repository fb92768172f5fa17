//! What is known about commands and variables by their names.

use super::word::Word;

/// How many words say what a command does, for commands where the name alone does not. The longest entry wins.
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

/// How many words of a command rules distinguish; the rest are arguments.
pub(super) fn arity(words: &[Word]) -> usize {
    let first = words.first().and_then(Word::known).unwrap_or_default();
    let Some(initial) = first.bytes().next() else { return 1 };
    if !ARITY.iter().any(|(name, _)| {
        name.as_bytes()[0] == initial
            && name.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }) {
        return 1;
    }
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

/// Whether a text is a valid name of a variable in bash.
pub(super) fn is_variable(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a text is `$name`.
pub(super) fn is_plain_variable(text: &str) -> bool {
    text.strip_prefix('$').is_some_and(is_variable)
}

/// Whether a path is one of the usual directories of programs, however it is spelled.
pub(super) fn holds_programs(directory: &str) -> bool {
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." && parts.last().is_some_and(|last| *last != "..") {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.last().is_some_and(|last| matches!(*last, "bin" | "sbin"))
}

/// Variables that bash itself sets to text that may come from anywhere.
pub(super) fn holds_text(variable: &str) -> bool {
    const NAMES: &[&str] = &["_", "DIRSTACK", "FUNCNAME", "MAPFILE", "OLDPWD", "OPTARG", "PWD", "REPLY"];
    NAMES.contains(&variable) || variable.starts_with("BASH_") || variable.starts_with(|c: char| c.is_ascii_digit())
}

/// Variables whose value bash evaluates as arithmetic when they are set.
pub(super) fn is_integer(variable: &str) -> bool {
    const NAMES: &[&str] =
        &["EPOCHREALTIME", "EPOCHSECONDS", "HISTCMD", "LINENO", "OPTIND", "RANDOM", "SECONDS", "SRANDOM"];
    NAMES.contains(&variable)
}

/// Variables that make a later command run something else, or somewhere else, and that may already be in the
/// environment.
#[rustfmt::skip]
pub(super) fn is_dangerous(variable: &str) -> bool {
    const NAMES: &[&str] = &[
        "AR", "AS", "BROWSER", "CARGO_HOME", "CC", "CDPATH", "CLASSPATH", "CXX", "ENV", "EXECIGNORE", "EXINIT", "FCEDIT",
        "FIGNORE", "FPATH", "GLOBIGNORE", "GNUPGHOME", "GOFLAGS", "HISTFILE", "HOME", "IFS", "INPUTRC", "JAVA_HOME",
        "KUBECONFIG", "LD", "LESS", "LESSCLOSE", "LESSOPEN", "MAKEFILES", "MAKEFLAGS", "NODE_PATH", "OLDPWD", "PATH",
        "PERL5DB", "PERL5LIB", "PERL5OPT", "POSIXLY_CORRECT", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4", "PWD",
        "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "RSYNC_RSH", "RUBYLIB", "RUBYOPT", "RUSTC", "RUSTDOC", "RUSTFLAGS",
        "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "SHELL", "SHELLOPTS", "SSH_AUTH_SOCK", "VIMINIT", "ZDOTDIR",
    ];
    const STARTS: &[&str] = &["BASH", "DYLD_", "GIT_", "LD_", "NPM_CONFIG_", "XDG_", "npm_config_"];
    const ENDS: &[&str] = &[
        "ASKPASS", "EDITOR", "OPTIONS", "OPTS", "PAGER", "VISUAL", "_COMMAND", "_LINKER", "_RUNNER", "_SHELL",
        "_WRAPPER",
    ];
    NAMES.contains(&variable)
        || STARTS.iter().any(|start| variable.starts_with(start))
        || ENDS.iter().any(|end| variable.ends_with(end))
}

/// Variables from which a program may take commands, code or the path of its configuration.
#[rustfmt::skip]
pub(super) fn configures(variable: &str) -> bool {
    const HARMLESS: &[&str] = &[
        "CARGO_BUILD_JOBS", "CARGO_INCREMENTAL", "CARGO_TARGET_DIR", "GOARCH", "GODEBUG", "GOMAXPROCS", "GOOS",
        "GOTRACEBACK", "NODE_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUNBUFFERED",
        "PYTHONUTF8", "TERM_PROGRAM",
    ];
    const HARMLESS_STARTS: &[&str] = &["CARGO_NET_", "CARGO_PROFILE_", "CARGO_TERM_"];
    const NAMES: &[&str] = &[
        "AWK", "BZIP", "BZIP2", "CPP", "EMACS", "FC", "GZIP", "LEX", "MAIL", "MAILCAP", "MAILCAPS", "NM", "OBJCOPY",
        "RANLIB", "RSH", "SED", "STRIP", "TAPE", "TERMCAP", "TERMINFO", "VIM", "VIMRUNTIME", "YACC",
    ];
    const STARTS: &[&str] = &[
        "ANSIBLE_", "AWK", "BAT_", "BUN_", "BUNDLE_", "CARGO_", "CCACHE_", "CMAKE_", "CONDA_", "COREPACK_", "DENO_",
        "DISTCC_", "DOCKER_", "EMACS", "ERL_", "FZF_", "GCC_", "GCONV", "GEM_", "GO", "GPG", "GST_", "GTK_", "HELM_",
        "JAVA", "JDK_", "JULIA_", "LESS", "LUA_", "MAKE", "MYSQL_", "NODE_", "OPENSSL_", "PERL", "PHP", "PIP_", "PNPM_",
        "POETRY_", "PSQL", "PYTHON", "QT_", "RIPGREP_", "RUBY", "RUSTC", "RUSTDOC", "RUSTUP_", "R_", "SCCACHE_", "SSH_",
        "SUDO_", "SYSTEMD_", "TAR_", "TCL", "TF_CLI", "UV_", "VIRTUAL_ENV", "YARN_", "_JAVA",
    ];
    const ENDS: &[&str] = &["FLAGS", "HOME", "PATH", "RC", "RCFILE"];
    const PARTS: &[&str] = &[
        "AGENT", "ARGS", "BIN", "BROWSER", "CMD", "COMMAND", "COMPILER", "CONF", "CONFIG", "DIR", "DIRS", "DRIVER",
        "EDITOR", "EXE", "EXEC", "EXECUTABLE", "FILTER", "HANDLER", "HELPER", "HOME", "HOOK", "HOOKS", "INIT", "LAUNCHER",
        "LIB", "LIBRARY", "LIBS", "LINKER", "LOADER", "MODULE", "MODULES", "OPT", "PAGER", "PLUGIN", "PLUGINS", "PRELOAD",
        "PREPROCESSOR", "PROG", "PROGRAM", "RSH", "RUNNER", "SCRIPT", "SHELL", "SSH", "STARTUP", "TOOL", "TOOLCHAIN",
        "TOOLS", "WRAPPER",
    ];
    if HARMLESS.contains(&variable) || HARMLESS_STARTS.iter().any(|start| variable.starts_with(start)) {
        return false;
    }
    is_dangerous(variable)
        || NAMES.contains(&variable)
        || STARTS.iter().any(|start| variable.starts_with(start))
        || ENDS.iter().any(|end| variable.ends_with(end))
        || (variable.contains('_') && variable.split('_').any(|part| PARTS.contains(&part)))
}
