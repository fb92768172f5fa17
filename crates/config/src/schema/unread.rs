//! The shapes of sections that are not read into types: they have no effect yet, or are used as JSON.

use crate::schema::Shape::{self, Any, Count, Either, Flag, List, Map, Object, Text, Word};

pub(crate) const IMAGE: Shape =
    Object(&[("auto_resize", Flag), ("max_width", Count(1)), ("max_height", Count(1)), ("max_base64_bytes", Count(1))]);
pub(crate) const COMPACTION: Shape = Object(&[
    ("auto", Flag),
    ("prune", Flag),
    ("tail_turns", Count(0)),
    ("preserve_recent_tokens", Count(0)),
    ("reserved", Count(0)),
]);
pub(crate) const EXPERIMENTAL: Shape = Object(&[
    ("disable_paste_summary", Flag),
    ("batch_tool", Flag),
    ("openTelemetry", Flag),
    ("primary_tools", List(&Text)),
    ("continue_loop_on_deny", Flag),
    ("mcp_timeout", Count(1)),
    ("policies", List(&Object(&[("action", Text), ("effect", Text), ("resource", Text)]))),
]);
pub(crate) const SERVER: Shape =
    Object(&[("port", Count(1)), ("hostname", Text), ("mdns", Flag), ("mdnsDomain", Text), ("cors", List(&Text))]);
/// A local server, a remote one, or just a switch: that is known only once all files are merged.
pub(crate) const MCP: Shape = Object(&[
    ("type", Word(&["local", "remote"])),
    ("command", List(&Text)),
    ("cwd", Text),
    ("environment", Map(&Text)),
    ("url", Text),
    ("headers", Map(&Text)),
    (
        "oauth",
        Either(&[
            Flag,
            Object(&[
                ("clientId", Text),
                ("clientSecret", Text),
                ("scope", Text),
                ("callbackPort", Count(1)),
                ("redirectUri", Text),
            ]),
        ]),
    ),
    ("enabled", Flag),
    ("timeout", Count(1)),
]);
pub(crate) const FORMATTER: Shape =
    Object(&[("disabled", Flag), ("command", List(&Text)), ("environment", Map(&Text)), ("extensions", List(&Text))]);
pub(crate) const LSP: Shape = Object(&[
    ("disabled", Flag),
    ("command", List(&Text)),
    ("extensions", List(&Text)),
    ("env", Map(&Text)),
    ("initialization", Map(&Any)),
]);
pub(crate) const REFERENCE: Shape = Either(&[
    Text,
    Object(&[("repository", Text), ("branch", Text), ("path", Text), ("description", Text), ("hidden", Flag)]),
]);
