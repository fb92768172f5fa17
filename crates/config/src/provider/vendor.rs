//! Vendors that are known without configuration. The wire format is code, the vendor is data.

use api::{Cost, CostTier, Limit, Modalities, Model, Usd};

/// A vendor that speaks OpenAI chat completions.
#[derive(Debug)]
pub struct Vendor {
    /// Its id as a provider.
    pub id: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its base URL.
    pub url: &'static str,
    /// The environment variables that may hold its key, the usual one first; none if it needs no key.
    pub env: &'static [&'static str],
    /// Models that suit an agent, the best first: what a prompt gets that names none.
    pub(crate) preferred: &'static [&'static str],
}

/// The vendors whose URL need not be configured.
pub fn vendors() -> impl Iterator<Item = &'static Vendor> {
    VENDORS.iter()
}

/// A vendor that does not speak OpenAI chat completions.
pub(crate) struct UnsupportedVendor {
    pub(crate) id: &'static str,
    /// Its wire format.
    pub(crate) wire: &'static str,
    /// The environment variables that may hold its key.
    pub(crate) env: &'static [&'static str],
}

/// Vendors that we know but do not support yet.
pub(crate) const UNSUPPORTED_VENDORS: &[UnsupportedVendor] = &[
    UnsupportedVendor { id: "anthropic", wire: "Anthropic Messages", env: &["ANTHROPIC_API_KEY"] },
    UnsupportedVendor { id: "google", wire: "Gemini", env: &["GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"] },
];

const fn vendor(
    id: &'static str,
    name: &'static str,
    url: &'static str,
    env: &'static [&'static str],
    preferred: &'static [&'static str],
) -> Vendor {
    Vendor { id, name, url, env, preferred }
}

/// The vendors whose URL need not be configured.
pub(crate) const VENDORS: &[Vendor] = &[
    vendor("openai", "OpenAI", "https://api.openai.com/v1", &["OPENAI_API_KEY"], &[]),
    vendor(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        &["OPENROUTER_API_KEY"],
        &["anthropic/claude-sonnet-4.5", "openai/gpt-5", "anthropic/claude-sonnet-4"],
    ),
    vendor(
        "groq",
        "Groq",
        "https://api.groq.com/openai/v1",
        &["GROQ_API_KEY"],
        &["openai/gpt-oss-120b", "moonshotai/kimi-k2-instruct-0905", "llama-3.3-70b-versatile"],
    ),
    vendor(
        "deepseek",
        "DeepSeek",
        "https://api.deepseek.com/v1",
        &["DEEPSEEK_API_KEY"],
        &["deepseek-chat", "deepseek-reasoner"],
    ),
    vendor("xai", "xAI", "https://api.x.ai/v1", &["XAI_API_KEY"], &["grok-code-fast-1", "grok-4", "grok-3"]),
    vendor(
        "mistral",
        "Mistral",
        "https://api.mistral.ai/v1",
        &["MISTRAL_API_KEY"],
        &["devstral-medium-latest", "mistral-medium-latest", "mistral-large-latest"],
    ),
    vendor(
        "cerebras",
        "Cerebras",
        "https://api.cerebras.ai/v1",
        &["CEREBRAS_API_KEY"],
        &["zai-glm-4.6", "gpt-oss-120b", "llama-3.3-70b"],
    ),
    vendor(
        "togetherai",
        "Together AI",
        "https://api.together.xyz/v1",
        &["TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"],
        &["moonshotai/Kimi-K2-Instruct-0905", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3.1"],
    ),
    vendor("ollama", "Ollama", "http://127.0.0.1:11434/v1", &[], &[]),
    vendor("lmstudio", "LM Studio", "http://127.0.0.1:1234/v1", &[], &[]),
];

/// The models of a vendor that suit an agent, the best first.
pub(crate) fn preferred(id: &str) -> &'static [&'static str] {
    VENDORS.iter().find(|vendor| vendor.id == id).map_or(&[], |vendor| vendor.preferred)
}

/// The package that OpenCode users configure for any server that speaks OpenAI chat completions.
pub(crate) const COMPATIBLE: &str = "@ai-sdk/openai-compatible";

/// Whether an AI SDK package speaks OpenAI chat completions.
pub(crate) fn speaks_chat(npm: &str) -> bool {
    let name = npm.strip_prefix("@ai-sdk/").or_else(|| npm.strip_prefix("@openrouter/"));
    matches!(
        name,
        Some(
            "openai-compatible"
                | "openai"
                | "groq"
                | "deepseek"
                | "xai"
                | "mistral"
                | "cerebras"
                | "togetherai"
                | "ai-sdk-provider"
        )
    )
}

/// The wire format of a vendor or AI SDK package that we know but do not support yet.
pub(crate) fn unsupported_wire(id: &str, npm: Option<&str>) -> Option<&'static str> {
    let name = npm.map_or(id, |npm| npm.strip_prefix("@ai-sdk/").unwrap_or_default());
    UNSUPPORTED_VENDORS.iter().find(|vendor| vendor.id == name).map(|vendor| vendor.wire)
}

/// The path below its URL where a vendor confirms a key, if its list of models does not: OpenRouter lists them for
/// everybody.
pub(crate) fn key_check(id: &str) -> Option<&'static str> {
    (id == "openrouter").then_some("key")
}

/// Id, name, context, output, prices (input, output, cached input), whether it reasons.
type ModelRow = (&'static str, &'static str, u64, u64, [f64; 3], bool);

const OPENAI: &[ModelRow] = &[
    ("gpt-5", "GPT-5", 400_000, 128_000, [1.25, 10.0, 0.125], true),
    ("gpt-5-mini", "GPT-5 mini", 400_000, 128_000, [0.25, 2.0, 0.025], true),
    ("gpt-5-nano", "GPT-5 nano", 400_000, 128_000, [0.05, 0.4, 0.005], true),
    ("gpt-4.1", "GPT-4.1", 1_047_576, 32_768, [2.0, 8.0, 0.5], false),
    ("gpt-4.1-mini", "GPT-4.1 mini", 1_047_576, 32_768, [0.4, 1.6, 0.1], false),
    ("gpt-4o", "GPT-4o", 128_000, 16_384, [2.5, 10.0, 1.25], false),
    ("gpt-4o-mini", "GPT-4o mini", 128_000, 16_384, [0.15, 0.6, 0.075], false),
    ("o4-mini", "o4-mini", 200_000, 100_000, [1.1, 4.4, 0.275], true),
];

/// The models that OpenAI's own URL serves.
pub(crate) fn openai_models() -> impl Iterator<Item = Model> {
    OPENAI.iter().map(|(id, name, context, output, [fresh, out, cached], reasoning)| {
        let mut model = Model { id: (*id).to_owned(), name: (*name).to_owned(), ..blank() };
        model.limit = Limit { context: *context, input: None, output: *output };
        let cache = CostTier { read: Usd(*cached), write: Usd(0.0) };
        model.cost = Cost { input: Usd(*fresh), output: Usd(*out), cache };
        model.capabilities.reasoning = *reasoning;
        model.capabilities.temperature = !reasoning;
        model.capabilities.attachment = true;
        model.capabilities.input.image = true;
        model
    })
}

/// A model that accepts and produces text and calls tools, of which nothing else is known.
pub(crate) fn blank() -> Model {
    let text = Modalities { text: true, ..Modalities::default() };
    let mut model = Model::default();
    model.capabilities.toolcall = true;
    model.capabilities.input = text.clone();
    model.capabilities.output = text;
    model.capabilities.interleaved = false.into();
    model
}
