//! The keys of a configuration file and the shapes of their values.

pub(crate) mod check;
pub(crate) mod json_schema;
pub(crate) mod suggest;
pub(crate) mod typed;

/// The shape of a value.
pub(crate) enum Shape {
    /// Anything.
    Any,
    /// A string.
    Text,
    /// `true` or `false`.
    Flag,
    /// Any number.
    Number,
    /// A number above 0.
    Amount,
    /// A whole number of at least this.
    Count(u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of values of this shape.
    List(&'static Shape),
    /// An object with arbitrary keys.
    Map(&'static Shape),
    /// An object with these keys.
    Object(&'static [Field]),
    /// An object with these keys, and others that are passed on.
    Open(&'static [Field]),
    /// The first of these that matches.
    Either(&'static [Shape]),
    /// Permission rules; invalid ones count as `ask`.
    Permission,
    /// Tools switched on or off by name; invalid values count as `ask`.
    Tools,
    /// The only tools that may be used; an invalid value means none.
    Only,
}

/// A key and the shape of its value.
pub(crate) type Field = (&'static str, Shape);

/// Keys that are read and checked, but have no effect yet.
pub(crate) const INERT: &[&str] = &[
    "attachment",
    "autoupdate",
    "compaction",
    "enterprise",
    "experimental",
    "formatter",
    "layout",
    "lsp",
    "plugin",
    "reference",
    "references",
    "server.mdns",
    "server.mdnsDomain",
    "share",
    "skills.urls",
    "snapshot",
    "watcher",
];

/// Top-level keys that only Trefoil has. OpenCode rejects a file with one of them.
pub(crate) const OWN_KEYS: &[&str] = &["ask", "env", "session", "subagents", "websearch"];

/// Keys of an agent that only Trefoil has. OpenCode would pass them on to the agent's provider.
pub(crate) const OWN_AGENT_KEYS: &[&str] = &["acp", "budget", "isolation", "only"];

/// The actions of a permission rule.
pub(crate) const ACTIONS: &[&str] = &["allow", "ask", "deny"];

/// The names that permission rules apply to, in addition to MCP tools.
pub(crate) const PERMISSIONS: &[&str] = &[
    "read",
    "edit",
    "glob",
    "grep",
    "list",
    "bash",
    "task",
    "external_directory",
    "git_directory",
    "todowrite",
    "question",
    "webfetch",
    "websearch",
    "lsp",
    "doom_loop",
    "skill",
    "plan_enter",
    "plan_exit",
    "write",
    "apply_patch",
    "invalid",
];

use Shape::{Amount, Any, Count, Either, Flag, List, Map, Number, Object, Only, Open, Permission, Text, Tools, Word};

/// A whole configuration file.
pub(crate) const CONFIG: Shape = Object(&[
    ("$schema", Text),
    ("agent", Map(&AGENT)),
    ("ask", Object(&[("timeout", Count(0)), ("then", Word(&["reject", "allow"]))])),
    ("attachment", Object(&[("image", IMAGE)])),
    ("autoshare", Flag),
    ("autoupdate", Either(&[Flag, Word(&["notify"])])),
    ("command", Map(&COMMAND)),
    ("compaction", COMPACTION),
    ("default_agent", Text),
    ("disabled_providers", List(&Text)),
    ("enabled_providers", List(&Text)),
    ("enterprise", Object(&[("url", Text)])),
    ("env", Object(&[("hide", List(&Text))])),
    ("experimental", EXPERIMENTAL),
    ("formatter", Either(&[Flag, Map(&FORMATTER)])),
    ("instructions", List(&Text)),
    ("layout", Word(&["auto", "stretch"])),
    ("logLevel", Word(&["DEBUG", "INFO", "WARN", "ERROR"])),
    ("lsp", Either(&[Flag, Map(&LSP)])),
    ("mcp", Map(&MCP)),
    ("mode", Map(&AGENT)),
    ("model", Text),
    ("permission", Permission),
    ("plugin", List(&Either(&[Text, List(&Any)]))),
    ("provider", Map(&PROVIDER)),
    ("reference", Map(&REFERENCE)),
    ("references", Map(&REFERENCE)),
    ("server", SERVER),
    ("session", Object(&[("max_age_days", Count(1))])),
    ("share", Word(&["manual", "auto", "disabled"])),
    ("shell", Text),
    ("skills", Object(&[("paths", List(&Text)), ("urls", List(&Text))])),
    ("small_model", Text),
    ("snapshot", Flag),
    ("subagent_depth", Count(0)),
    (
        "subagents",
        Object(&[
            ("at_once", Count(1)),
            ("descendants", Count(0)),
            ("budget", BUDGET),
            ("wait", Count(0)),
            ("background", Flag),
        ]),
    ),
    ("tool_output", Object(&[("max_lines", Count(1)), ("max_bytes", Count(1))])),
    ("tools", Tools),
    ("username", Text),
    ("watcher", Object(&[("ignore", List(&Text))])),
    ("websearch", Object(&[("url", Text), ("headers", Map(&Text)), ("body", Open(&[])), ("tool", Text)])),
]);

const IMAGE: Shape =
    Object(&[("auto_resize", Flag), ("max_width", Count(1)), ("max_height", Count(1)), ("max_base64_bytes", Count(1))]);
const COMPACTION: Shape = Object(&[
    ("auto", Flag),
    ("prune", Flag),
    ("tail_turns", Count(0)),
    ("preserve_recent_tokens", Count(0)),
    ("reserved", Count(0)),
]);
const EXPERIMENTAL: Shape = Object(&[
    ("disable_paste_summary", Flag),
    ("batch_tool", Flag),
    ("openTelemetry", Flag),
    ("primary_tools", List(&Text)),
    ("continue_loop_on_deny", Flag),
    ("mcp_timeout", Count(1)),
    ("policies", List(&Object(&[("action", Text), ("effect", Text), ("resource", Text)]))),
]);
const SERVER: Shape =
    Object(&[("port", Count(1)), ("hostname", Text), ("mdns", Flag), ("mdnsDomain", Text), ("cors", List(&Text))]);

/// A command, in a file or in front matter (where the body is the template).
const COMMAND: Shape = Object(&[
    ("template", Text),
    ("description", Text),
    ("agent", Text),
    ("model", Text),
    ("variant", Text),
    ("subtask", Flag),
]);
const BUDGET: Shape = Object(&[("cost", Amount), ("tokens", Count(1)), ("steps", Count(1)), ("seconds", Count(1))]);
const AGENT: Shape = Open(AGENT_FIELDS);
/// The keys of an agent; others are options for its provider.
pub(crate) const AGENT_FIELDS: &[Field] = &[
    ("name", Text),
    ("model", Text),
    ("variant", Text),
    ("temperature", Number),
    ("top_p", Number),
    ("prompt", Text),
    ("tools", Tools),
    ("disable", Flag),
    ("description", Text),
    ("mode", Word(&["subagent", "primary", "all"])),
    ("hidden", Flag),
    ("options", Map(&Any)),
    ("color", Text),
    ("steps", Count(1)),
    ("maxSteps", Count(1)),
    ("permission", Permission),
    ("budget", BUDGET),
    ("isolation", Word(&["worktree"])),
    ("only", Only),
    ("acp", ACP),
];

/// An external agent that speaks the Agent Client Protocol.
const ACP: Shape = Object(&[
    ("command", List(&Text)),
    ("environment", Map(&Text)),
    ("model", Text),
    ("mode", Text),
    ("start", Count(1)),
    ("silence", Count(1)),
]);

const TIMEOUT: Shape = Either(&[Count(1), Flag]);
const PROVIDER: Shape = Object(&[
    ("api", Text),
    ("name", Text),
    ("env", List(&Text)),
    ("id", Text),
    ("npm", Text),
    ("whitelist", List(&Text)),
    ("blacklist", List(&Text)),
    (
        "options",
        Open(&[
            ("apiKey", Text),
            ("baseURL", Text),
            ("enterpriseUrl", Text),
            ("headers", Map(&Text)),
            ("setCacheKey", Flag),
            ("timeout", TIMEOUT),
            ("headerTimeout", TIMEOUT),
            ("chunkTimeout", TIMEOUT),
        ]),
    ),
    ("models", Map(&MODEL)),
]);
const KINDS: Shape = List(&Word(&["text", "audio", "image", "video", "pdf"]));
const PRICE: &[Field] = &[("input", Number), ("output", Number), ("cache_read", Number), ("cache_write", Number)];
const MODEL: Shape = Object(&[
    ("id", Text),
    ("name", Text),
    ("family", Text),
    ("release_date", Text),
    ("attachment", Flag),
    ("reasoning", Flag),
    ("temperature", Flag),
    ("tool_call", Flag),
    ("interleaved", Either(&[Flag, Text, Object(&[("field", Text)])])),
    (
        "cost",
        Object(&[
            ("input", Number),
            ("output", Number),
            ("cache_read", Number),
            ("cache_write", Number),
            ("context_over_200k", Object(PRICE)),
        ]),
    ),
    ("limit", Object(&[("context", Count(0)), ("input", Count(0)), ("output", Count(0))])),
    ("modalities", Object(&[("input", KINDS), ("output", KINDS)])),
    ("experimental", Flag),
    ("status", Word(&["alpha", "beta", "deprecated", "active"])),
    ("provider", Object(&[("npm", Text), ("api", Text)])),
    ("options", Map(&Any)),
    ("headers", Map(&Text)),
    ("variants", Map(&Map(&Any))),
]);

/// A local server, a remote one, or just a switch: that is known only once all files are merged.
const MCP: Shape = Object(&[
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
const FORMATTER: Shape =
    Object(&[("disabled", Flag), ("command", List(&Text)), ("environment", Map(&Text)), ("extensions", List(&Text))]);
const LSP: Shape = Object(&[
    ("disabled", Flag),
    ("command", List(&Text)),
    ("extensions", List(&Text)),
    ("env", Map(&Text)),
    ("initialization", Map(&Any)),
]);
const REFERENCE: Shape = Either(&[
    Text,
    Object(&[("repository", Text), ("branch", Text), ("path", Text), ("description", Text), ("hidden", Flag)]),
]);
