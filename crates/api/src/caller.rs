//! Who makes a call.

/// Who makes a call. It belongs to a handle, not to a call: a face makes a handle for each of its clients
/// ([`Host::with_caller`](crate::Host::with_caller)), and everything that is done through the handle is theirs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// Who it is. `None` is the person who owns the machine, and sees everything; anyone else sees only the sessions
    /// that they own.
    pub identity: Option<String>,
    /// The name of the program that calls, for people.
    pub client: Option<String>,
    /// The W3C trace context that its calls belong to: sent to upstream servers, and propagated to the model calls of
    /// its prompts, unless these have their own. It is validated where it is used.
    pub traceparent: Option<String>,
    /// What the caller may do besides reading.
    pub capabilities: CallerCapabilities,
}

impl Caller {
    /// The owner of the machine, who uses this program.
    pub fn owner(client: impl Into<String>) -> Self {
        Self { client: Some(client.into()), ..Self::default() }
    }

    /// The name of the program, as logs show it.
    pub fn client_name(&self) -> &str {
        self.client.as_deref().unwrap_or_default()
    }
}

/// What a caller may do besides reading; everything by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerCapabilities {
    /// Create, change and delete sessions, send prompts, and control turns.
    pub work: bool,
    /// Answer permission requests and questions.
    pub answer: bool,
    /// Add, connect and sign in to MCP servers.
    pub configure: bool,
}

impl Default for CallerCapabilities {
    fn default() -> Self {
        Self { work: true, answer: true, configure: true }
    }
}
