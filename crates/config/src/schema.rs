//! The keys of a configuration file and the shapes of their values. Each key is listed once: with the type that it is
//! read into, or in `unread`.

pub(crate) mod agent;
pub(crate) mod check;
pub(crate) mod json_schema;
pub(crate) mod provider;
mod section;
pub(crate) mod suggest;
pub(crate) mod typed;
mod unread;

use api::JsonMap;

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
pub(crate) const OWN_KEYS: &[&str] = &["a2a", "ask", "env", "session", "subagents", "websearch"];

/// Keys of an agent that only Trefoil has. OpenCode would pass them on to the agent's provider.
pub(crate) const OWN_AGENT_KEYS: &[&str] = &["a2a", "acp", "budget", "isolation", "only"];

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
    "a2a_call",
    "lsp",
    "doom_loop",
    "skill",
    "plan_enter",
    "plan_exit",
    "write",
    "apply_patch",
    "invalid",
];

/// A whole configuration file.
pub(crate) const CONFIG: Shape = Shape::Object(typed::Config::KEYS);

/// Gives the value of an old key to the one that replaced it, unless that is there too.
fn rename_old_key(section: &mut JsonMap, old: &str, new: &str) {
    if let Some(value) = section.shift_remove(old)
        && !section.contains_key(new)
    {
        section.insert(new.to_owned(), value);
    }
}
