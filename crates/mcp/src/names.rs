//! Names of a server's tools, prompts and resources, as in OpenCode.

/// The longest tool name that all models accept.
const TOOL_NAME_MAX: usize = 64;
/// How much of a longer name stays before its digest.
const KEPT_PREFIX: usize = 55;
/// The length of that digest.
const DIGEST_DIGITS: usize = 8;

/// Replaces everything but letters, digits, `_` and `-`.
pub fn sanitized(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

/// The name of a server's tool. A name that is too long for models ends with a digest, so that it stays unique.
pub fn tool_name(server: &str, tool: &str) -> String {
    let name = format!("{}_{}", sanitized(server), sanitized(tool));
    if name.len() <= TOOL_NAME_MAX {
        return name;
    }
    format!("{}_{}", &name[..KEPT_PREFIX], &api::sha256_hex(name.as_bytes())[..DIGEST_DIGITS])
}

/// The name of the command for a server's prompt.
pub fn prompt_name(server: &str, prompt: &str) -> String {
    format!("{}:{}", sanitized(server), sanitized(prompt))
}

/// The key of a server's resource.
pub fn resource_key(server: &str, uri: &str) -> String {
    format!("{}:{uri}", server.replace('%', "%25").replace(':', "%3A"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sanitised_and_short_enough() {
        assert_eq!(tool_name("my server", "read.file"), "my_server_read_file");
        assert_eq!(prompt_name("a/b", "c d"), "a_b:c_d");
        assert_eq!(resource_key("a:b", "file:///x"), "a%3Ab:file:///x");
        let (one, other) = (tool_name("s", &"x".repeat(100)), tool_name("s", &"x".repeat(101)));
        assert_eq!((one.len(), other.len()), (TOOL_NAME_MAX, TOOL_NAME_MAX));
        assert_ne!(one, other);
        assert_eq!(sanitized("größe"), "gr__e");
    }
}
