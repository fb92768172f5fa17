//! Recognises the names and values of secrets.

/// Parts of the names of secret values, without word separators.
const PARTS: &[&str] = &[
    "key",
    "secret",
    "token",
    "password",
    "passwd",
    "passphrase",
    "authorization",
    "credential",
    "cookie",
    "private",
    "signature",
    "bearer",
];
/// Words that make a name secret if they stand alone in it.
const WORDS: &[&str] = &["auth", "pass", "pat", "pwd", "sig", "jwt", "sid", "pin", "otp"];

/// Prefixes of tokens that vendors issue.
const PREFIXES: &[&str] = &[
    "sk-",
    "sk_",
    "rk_live_",
    "pk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "xoxa-",
    "xoxb-",
    "xoxc-",
    "xoxd-",
    "xoxe-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "hf_",
    "npm_",
    "pypi-",
    "dop_v1_",
    "shpat_",
    "SG.",
    "gsk_",
    "xai-",
    "r8_",
    "pplx-",
    "tvly-",
    "lin_api_",
    "ntn_",
    "figd_",
    "sntrys_",
    "AGE-SECRET-KEY-",
];
/// The minimum length of a token after its prefix, in bytes.
const MIN_TOKEN: usize = 8;
/// A run of letters this long is not a word.
const LONG_TOKEN: usize = 20;

/// Whether a value with this name may be a secret.
pub(super) fn is_secret_name(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    PARTS.iter().any(|part| plain.contains(part)) || words(name).any(|word| WORDS.contains(&word.as_str()))
}

/// The words of a `snake_case`, `kebab-case` or `camelCase` name, in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(name.len() + 4);
    let mut lower = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && lower {
            spaced.push(' ');
        }
        lower = c.is_ascii_lowercase();
        spaced.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
    }
    spaced.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn is_token_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.+/=~%".contains(c)
}

/// Whether a value looks machine-generated: a long run of letters and digits, or a UUID.
pub(super) fn looks_random(value: &str, least: usize) -> bool {
    let run = |text: &str| {
        let mixed = text.bytes().any(|b| b.is_ascii_digit()) && text.bytes().any(|b| b.is_ascii_alphabetic());
        text.len() >= least && mixed
    };
    let parts = || value.split(|c: char| !c.is_ascii_alphanumeric());
    let lengths: Vec<usize> = parts().map(str::len).collect();
    value.chars().all(is_token_char) && (parts().any(run) || lengths == [8, 4, 4, 4, 12])
}

/// Masks vendor tokens in a text.
pub(super) fn tokens(text: &str, mask: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut inside = false;
    while let Some(c) = rest.chars().next() {
        let prefix = if inside { None } else { PREFIXES.iter().find(|prefix| rest.starts_with(**prefix)) };
        if let Some(prefix) = prefix {
            let length = rest.find(|c| !is_token_char(c)).unwrap_or(rest.len());
            if length >= prefix.len() + MIN_TOKEN && is_dense(&rest[prefix.len()..length]) {
                out.push_str(mask);
                rest = &rest[length..];
                continue;
            }
        }
        inside = c.is_ascii_alphanumeric();
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Whether the text after a prefix is a token and not words: it has a digit, or mixed-case letters in one piece.
fn is_dense(text: &str) -> bool {
    let piece = |piece: &str| {
        let upper = piece.bytes().skip(1).any(|b| b.is_ascii_uppercase());
        piece.len() >= LONG_TOKEN || piece.len() >= MIN_TOKEN && upper && piece.bytes().any(|b| b.is_ascii_lowercase())
    };
    text.bytes().any(|b| b.is_ascii_digit()) || text.split(|c: char| !c.is_ascii_alphanumeric()).any(piece)
}
