//! The list of settings.

use std::time::Duration;

use super::boundary::{
    APPROVAL, ESCALATION, ExecutionBoundary, NETWORK, OUTSIDE, SANDBOX_MODES, SCOPES, WRITE_SCOPES, word,
};
use super::value::{above_zero, flag, line, lines, list, number, seconds, url};
use super::{Backend, Settings};
use crate::Line;

/// A setting.
pub struct Setting {
    /// Its variable.
    pub variable: &'static str,
    /// Its key in the section `a2a` of the configuration.
    pub key: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Its default, for people.
    pub default: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        variable: "A2A_HOST",
        key: "host",
        meaning: "the address to listen on",
        default: "`127.0.0.1`",
        set: |settings, text| {
            settings.host = text.to_owned();
            Ok(())
        },
    },
    Setting {
        variable: "A2A_PORT",
        key: "port",
        meaning: "the port; 0 picks a free one",
        default: "8000",
        set: |settings, text| number(text).map(|port| settings.port = port),
    },
    Setting {
        variable: "A2A_PUBLIC_URL",
        key: "public_url",
        meaning: "the base URL that cards publish",
        default: "the address that is listened on",
        set: |settings, text| url(text).map(|url| settings.public_url = Some(url)),
    },
    Setting {
        variable: "A2A_PROJECT",
        key: "project",
        meaning: "the project that cards name",
        default: "none",
        set: |settings, text| some(&mut settings.project, text),
    },
    Setting {
        variable: "A2A_TITLE",
        key: "title",
        meaning: "the name on the cards",
        default: "`Trefoil`",
        set: |settings, text| {
            settings.title = text.to_owned();
            Ok(())
        },
    },
    Setting {
        variable: "A2A_DESCRIPTION",
        key: "description",
        meaning: "the description on the cards",
        default: "our own",
        set: |settings, text| some(&mut settings.description, text),
    },
    Setting {
        variable: "A2A_VERSION",
        key: "version",
        meaning: "the version on the cards",
        default: "that of Trefoil",
        set: |settings, text| some(&mut settings.version, text),
    },
    Setting {
        variable: "A2A_DOCUMENTATION_URL",
        key: "documentation_url",
        meaning: "the address of the documentation that cards name",
        default: "none",
        set: |settings, text| url(text).map(|url| settings.documentation_url = Some(url)),
    },
    Setting {
        variable: "A2A_PROTOCOL_VERSION",
        key: "protocol_version",
        meaning: "the version of requests that name none",
        default: "0.3",
        set: |settings, text| line(text).map(|line| settings.default_line = line),
    },
    Setting {
        variable: "A2A_SUPPORTED_PROTOCOL_VERSIONS",
        key: "supported_protocol_versions",
        meaning: "the versions that are served",
        default: "0.3,1.0",
        set: |settings, text| lines(text).map(|lines| settings.lines = lines),
    },
    Setting {
        variable: "A2A_LOG_LEVEL",
        key: "log_level",
        meaning: "the log level of the service",
        default: "`WARNING`",
        set: |settings, text| some(&mut settings.log_level, text),
    },
    Setting {
        variable: "A2A_LOG_PAYLOADS",
        key: "log_payloads",
        meaning: "log bodies; never those about sessions",
        default: "false",
        set: |settings, text| flag(text).map(|on| settings.log_payloads = on),
    },
    Setting {
        variable: "A2A_LOG_BODY_LIMIT",
        key: "log_body_limit",
        meaning: "the most bytes of a logged body; 0 means all",
        default: "0",
        set: |settings, text| number(text).map(|bytes| settings.log_body_limit = bytes),
    },
    Setting {
        variable: "A2A_HTTP_GZIP_MINIMUM_SIZE",
        key: "http_gzip_minimum_size",
        meaning: "from how many bytes on responses are compressed",
        default: "8192",
        set: |settings, text| number(text).map(|bytes| settings.gzip_minimum = bytes),
    },
    Setting {
        variable: "A2A_MAX_REQUEST_BODY_BYTES",
        key: "max_request_body_bytes",
        meaning: "the largest body of a request",
        default: "1048576",
        set: |settings, text| above_zero(text).map(|bytes| settings.max_request_body = bytes),
    },
    Setting {
        variable: "A2A_ALLOW_DIRECTORY_OVERRIDE",
        key: "allow_directory_override",
        meaning: "whether clients may choose a directory below the workspace",
        default: "true",
        set: |settings, text| flag(text).map(|on| settings.allow_directory_override = on),
    },
    Setting {
        variable: "A2A_ENABLE_SESSION_SHELL",
        key: "enable_session_shell",
        meaning: "enable `opencode.sessions.shell`",
        default: "false",
        set: |settings, text| flag(text).map(|on| settings.session_shell = on),
    },
    Setting {
        variable: "A2A_ENABLE_WORKSPACE_MUTATIONS",
        key: "enable_workspace_mutations",
        meaning: "enable the methods that change workspaces and worktrees",
        default: "false",
        set: |settings, text| flag(text).map(|on| settings.workspace_mutations = on),
    },
    Setting {
        variable: "A2A_ACCEPT_DATA_PARTS",
        key: "accept_data_parts",
        meaning: "take data parts in as JSON files instead of refusing them",
        default: "false",
        set: |settings, text| flag(text).map(|on| settings.accept_data_parts = on),
    },
    Setting {
        variable: "A2A_SANDBOX_MODE",
        key: "sandbox_mode",
        meaning: "declared: the sandbox",
        default: "`unknown`",
        set: |settings, text| word(text, SANDBOX_MODES).map(|word| settings.boundary.sandbox_mode = word),
    },
    Setting {
        variable: "A2A_SANDBOX_FILESYSTEM_SCOPE",
        key: "sandbox_filesystem_scope",
        meaning: "declared: the files that can be reached",
        default: "`unknown`",
        set: |settings, text| word(text, SCOPES).map(|word| settings.boundary.filesystem_scope = word),
    },
    Setting {
        variable: "A2A_SANDBOX_WRITABLE_ROOTS",
        key: "sandbox_writable_roots",
        meaning: "declared: further folders that may be written",
        default: "none",
        set: |settings, text| {
            settings.boundary.writable_roots = list(text);
            Ok(())
        },
    },
    Setting {
        variable: "A2A_NETWORK_ACCESS",
        key: "network_access",
        meaning: "declared: the network",
        default: "`unknown`",
        set: |settings, text| word(text, NETWORK).map(|word| settings.boundary.network_access = word),
    },
    Setting {
        variable: "A2A_NETWORK_ALLOWED_DOMAINS",
        key: "network_allowed_domains",
        meaning: "declared: the domains that may be reached",
        default: "none",
        set: |settings, text| {
            settings.boundary.network_allowed_domains = list(text);
            Ok(())
        },
    },
    Setting {
        variable: "A2A_APPROVAL_POLICY",
        key: "approval_policy",
        meaning: "declared: when a person is asked",
        default: "`unknown`",
        set: |settings, text| word(text, APPROVAL).map(|word| settings.boundary.approval_policy = word),
    },
    Setting {
        variable: "A2A_APPROVAL_ESCALATION_BEHAVIOR",
        key: "approval_escalation_behavior",
        meaning: "declared: who decides then",
        default: "`unknown`",
        set: |settings, text| word(text, ESCALATION).map(|word| settings.boundary.approval_escalation = word),
    },
    Setting {
        variable: "A2A_WRITE_ACCESS_SCOPE",
        key: "write_access_scope",
        meaning: "declared: what may be written",
        default: "`unknown`",
        set: |settings, text| word(text, WRITE_SCOPES).map(|word| settings.boundary.write_scope = word),
    },
    Setting {
        variable: "A2A_WRITE_ACCESS_OUTSIDE_WORKSPACE",
        key: "write_access_outside_workspace",
        meaning: "declared: writing outside of the workspace",
        default: "`unknown`",
        set: |settings, text| word(text, OUTSIDE).map(|word| settings.boundary.write_outside = word),
    },
    Setting {
        variable: "A2A_PENDING_SESSION_CLAIM_TTL_SECONDS",
        key: "pending_session_claim_ttl_seconds",
        meaning: "how long a claim of a session waits for its first success",
        default: "30",
        set: |settings, text| seconds(text).map(|time| settings.claim_ttl = time),
    },
    Setting {
        variable: "A2A_INTERRUPT_REQUEST_TTL_SECONDS",
        key: "interrupt_request_ttl_seconds",
        meaning: "how long an interrupt can be answered",
        default: "10800",
        set: |settings, text| seconds(text).map(|time| settings.interrupt_ttl = time),
    },
    Setting {
        variable: "A2A_INTERRUPT_REQUEST_TOMBSTONE_TTL_SECONDS",
        key: "interrupt_request_tombstone_ttl_seconds",
        meaning: "how long an expired interrupt is remembered",
        default: "600",
        set: |settings, text| seconds(text).map(|time| settings.interrupt_tombstone_ttl = time),
    },
    Setting {
        variable: "A2A_CANCEL_ABORT_TIMEOUT_SECONDS",
        key: "cancel_abort_timeout_seconds",
        meaning: "how long a cancellation waits for the turn to stop",
        default: "2",
        set: |settings, text| seconds(text).map(|time| settings.cancel_abort_timeout = time),
    },
    Setting {
        variable: "A2A_TASK_STORE_BACKEND",
        key: "task_store_backend",
        meaning: "`database` or `memory`",
        default: "`database`",
        set: |settings, text| backend(settings, text),
    },
    Setting {
        variable: "A2A_TASK_STORE_DATABASE_URL",
        key: "task_store_database_url",
        meaning: "the database, `sqlite+aiosqlite:///PATH`",
        default: "Trefoil's own",
        set: |settings, text| database(settings, text),
    },
    Setting {
        variable: "A2A_BEARER_TOKEN",
        key: "bearer_token",
        meaning: "the token of a service with one identity",
        default: "none",
        set: |settings, text| some(&mut settings.bearer_token, text),
    },
    Setting {
        variable: "A2A_STATIC_AUTH_CREDENTIALS",
        key: "static_auth_credentials",
        meaning: "the registry of credentials, a JSON list",
        default: "none",
        set: |settings, text| some(&mut settings.static_credentials, text),
    },
    Setting {
        variable: "A2A_ALLOWED_ORIGINS",
        key: "allowed_origins",
        meaning: "further origins whose pages may call",
        default: "none",
        set: |settings, text| {
            settings.allowed_origins = list(text);
            Ok(())
        },
    },
    Setting {
        variable: "A2A_ALLOWED_HOSTS",
        key: "allowed_hosts",
        meaning: "further host names under which the service is reached",
        default: "none",
        set: |settings, text| {
            settings.allowed_hosts = list(text);
            Ok(())
        },
    },
    Setting {
        variable: "A2A_METRICS_ENABLED",
        key: "metrics_enabled",
        meaning: "serve `/metrics`",
        default: "true",
        set: |settings, text| flag(text).map(|on| settings.metrics = on),
    },
    Setting {
        variable: "A2A_RATE_LIMIT_ENABLED",
        key: "rate_limit_enabled",
        meaning: "limit the requests of an identity",
        default: "false",
        set: |settings, text| flag(text).map(|on| settings.rate_limit = on),
    },
    Setting {
        variable: "A2A_RATE_LIMIT_WINDOW_SECONDS",
        key: "rate_limit_window_seconds",
        meaning: "the window of that limit",
        default: "60",
        set: |settings, text| seconds(text).map(|time| settings.rate_limit_window = time),
    },
    Setting {
        variable: "A2A_RATE_LIMIT_MAX_REQUESTS",
        key: "rate_limit_max_requests",
        meaning: "the most requests of an identity in a window",
        default: "120",
        set: |settings, text| above_zero(text).map(|requests| settings.rate_limit_requests = requests),
    },
    Setting {
        variable: "A2A_MAX_STREAMS",
        key: "max_streams",
        meaning: "the most open streams of an identity",
        default: "2048",
        set: |settings, text| above_zero(text).map(|streams| settings.max_streams = streams),
    },
    Setting {
        variable: "A2A_STREAM_MAX_BYTES",
        key: "stream_max_bytes",
        meaning: "the most bytes of a stream",
        default: "67108864",
        set: |settings, text| above_zero(text).map(|bytes| settings.stream_max_bytes = bytes),
    },
    Setting {
        variable: "A2A_STREAM_MAX_DURATION_SECONDS",
        key: "stream_max_duration_seconds",
        meaning: "the longest time of a stream",
        default: "3600",
        set: |settings, text| seconds(text).map(|time| settings.stream_max_duration = time),
    },
    Setting {
        variable: "A2A_STREAM_IDLE_TIMEOUT_SECONDS",
        key: "stream_idle_timeout_seconds",
        meaning: "the longest silence of a stream; a request for input does not count",
        default: "120",
        set: |settings, text| seconds(text).map(|time| settings.stream_idle_timeout = time),
    },
    Setting {
        variable: "A2A_EXPOSE_WORKSPACE_ROOT_IN_CARD",
        key: "expose_workspace_root_in_card",
        meaning: "show the path of the workspace in the extended card",
        default: "false",
        set: |settings, text| flag(text).map(|on| settings.expose_workspace_root = on),
    },
    Setting {
        variable: "A2A_CARD_SIGNING_KEY",
        key: "card_signing_key",
        meaning: "a file with the private key (PKCS#8, PEM) that signs cards",
        default: "none",
        set: |settings, text| some(&mut settings.card_signing_key, text),
    },
    Setting {
        variable: "A2A_PUSH_ENABLED",
        key: "push_enabled",
        meaning: "send push notifications",
        default: "true",
        set: |settings, text| flag(text).map(|on| settings.push = on),
    },
    Setting {
        variable: "A2A_PUSH_ALLOW_PRIVATE_HOSTS",
        key: "push_allow_private_hosts",
        meaning: "send them to this machine and to private networks too",
        default: "false",
        set: |settings, text| flag(text).map(|on| settings.push_allow_private_hosts = on),
    },
    Setting {
        variable: "OPENCODE_BASE_URL",
        key: "opencode_base_url",
        meaning: "the OpenCode server to work on",
        default: "the engine of this process",
        set: |settings, text| url(text).map(|url| settings.upstream_url = Some(url)),
    },
    Setting {
        variable: "OPENCODE_AUTH_USERNAME",
        key: "opencode_auth_username",
        meaning: "the user name for that server",
        default: "`opencode`",
        set: |settings, text| some(&mut settings.upstream_username, text),
    },
    Setting {
        variable: "OPENCODE_AUTH_PASSWORD",
        key: "opencode_auth_password",
        meaning: "the password for that server",
        default: "none",
        set: |settings, text| some(&mut settings.upstream_password, text),
    },
    Setting {
        variable: "OPENCODE_TIMEOUT",
        key: "opencode_timeout",
        meaning: "how many seconds a request to that server may take",
        default: "120",
        set: |settings, text| seconds(text).map(|time| settings.upstream_timeout = time),
    },
    Setting {
        variable: "OPENCODE_TIMEOUT_STREAM",
        key: "opencode_timeout_stream",
        meaning: "how many seconds a prompt to that server may take",
        default: "no limit",
        set: |settings, text| seconds(text).map(|time| settings.upstream_stream_timeout = Some(time)),
    },
    Setting {
        variable: "OPENCODE_MAX_CONCURRENT_REQUESTS",
        key: "opencode_max_concurrent_requests",
        meaning: "the most requests to that server at the same time; 0 means any number",
        default: "0",
        set: |settings, text| number(text).map(|requests| settings.upstream_max_requests = requests),
    },
    Setting {
        variable: "OPENCODE_MAX_CONCURRENT_STREAMS",
        key: "opencode_max_concurrent_streams",
        meaning: "the most streams of tasks on that server at the same time; 0 means any number",
        default: "0",
        set: |settings, text| number(text).map(|streams| settings.upstream_max_streams = streams),
    },
    Setting {
        variable: "OPENCODE_WORKSPACE_ROOT",
        key: "opencode_workspace_root",
        meaning: "the workspace",
        default: "the current directory",
        set: |settings, text| some(&mut settings.workspace_root, text),
    },
    Setting {
        variable: "OPENCODE_AGENT",
        key: "opencode_agent",
        meaning: "the agent of prompts",
        default: "none",
        set: |settings, text| some(&mut settings.agent, text),
    },
    Setting {
        variable: "OPENCODE_SYSTEM",
        key: "opencode_system",
        meaning: "an addition to the system prompt",
        default: "none",
        set: |settings, text| some(&mut settings.system, text),
    },
    Setting {
        variable: "OPENCODE_VARIANT",
        key: "opencode_variant",
        meaning: "the variant of the model",
        default: "none",
        set: |settings, text| some(&mut settings.variant, text),
    },
];

impl Default for Settings {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            public_url: None,
            project: None,
            title: "Trefoil".to_owned(),
            description: None,
            version: None,
            documentation_url: None,
            default_line: Line::V03,
            lines: Line::ALL.to_vec(),
            log_level: None,
            log_payloads: false,
            log_body_limit: 0,
            gzip_minimum: 8192,
            max_request_body: 1 << 20,
            allow_directory_override: true,
            session_shell: false,
            workspace_mutations: false,
            accept_data_parts: false,
            boundary: ExecutionBoundary::default(),
            claim_ttl: Duration::from_secs(30),
            interrupt_ttl: Duration::from_secs(10_800),
            interrupt_tombstone_ttl: Duration::from_secs(600),
            cancel_abort_timeout: Duration::from_secs(2),
            backend: Backend::Default,
            bearer_token: None,
            static_credentials: None,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            metrics: true,
            rate_limit: false,
            rate_limit_window: Duration::from_secs(60),
            rate_limit_requests: 120,
            max_streams: 2048,
            stream_max_bytes: 64 << 20,
            stream_max_duration: Duration::from_secs(3600),
            stream_idle_timeout: Duration::from_secs(120),
            expose_workspace_root: false,
            card_signing_key: None,
            push: true,
            push_allow_private_hosts: false,
            upstream_url: None,
            upstream_username: None,
            upstream_password: None,
            upstream_timeout: Duration::from_secs(120),
            upstream_stream_timeout: None,
            upstream_max_requests: 0,
            upstream_max_streams: 0,
            workspace_root: None,
            agent: None,
            system: None,
            variant: None,
        }
    }
}

fn some(setting: &mut Option<String>, text: &str) -> Result<(), String> {
    *setting = Some(text.to_owned());
    Ok(())
}

fn backend(settings: &mut Settings, text: &str) -> Result<(), String> {
    settings.backend = match text.to_ascii_lowercase().as_str() {
        "database" => Backend::Default,
        "memory" => Backend::Memory,
        _ => return Err(format!("is neither database nor memory: {text:?}")),
    };
    Ok(())
}

/// As SQLAlchemy spells it: three slashes before a relative path, four before an absolute one.
fn database(settings: &mut Settings, text: &str) -> Result<(), String> {
    let path = ["sqlite+aiosqlite:///", "sqlite:///"].iter().find_map(|prefix| text.strip_prefix(prefix));
    let path = path.ok_or("is not a URL of an SQLite file; only sqlite+aiosqlite:///PATH is supported")?;
    let path = path.split('?').next().unwrap_or_default();
    if settings.backend == Backend::Memory {
        return Ok(());
    }
    settings.backend = match path {
        "" | ":memory:" => Backend::Memory,
        path => Backend::File(path.to_owned()),
    };
    Ok(())
}
