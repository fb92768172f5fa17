//! The fields of a card that an SDK of a line knows, and what it leaves out of what it verifies.

use api::{Json, JsonMap};

use crate::Line;

/// What is known below a value.
enum Shape {
    /// All of it.
    Any,
    /// These fields of an object.
    Fields(&'static [(&'static str, Shape)]),
    /// The same in each item of a list, or in each value of a map.
    Each(&'static Shape),
    /// All of it, unless it is this text, which is the default.
    Unless(&'static str),
    /// A switch that is only there if it is on.
    OnlyOn,
    /// Nothing.
    Nothing,
}

use Shape::{Any, Each, Fields, Nothing, OnlyOn, Unless};

const PROVIDER: Shape = Fields(&[("organization", Any), ("url", Any)]);

/// Pydantic leaves out what has its default.
static OLD_CARD: Shape = Fields(&[
    ("additionalInterfaces", Each(&Fields(&[("transport", Any), ("url", Any)]))),
    (
        "capabilities",
        Fields(&[
            ("extensions", Each(&Fields(&[("description", Any), ("params", Any), ("required", Any), ("uri", Any)]))),
            ("pushNotifications", Any),
            ("stateTransitionHistory", Any),
            ("streaming", Any),
        ]),
    ),
    ("defaultInputModes", Any),
    ("defaultOutputModes", Any),
    ("description", Any),
    ("documentationUrl", Any),
    ("iconUrl", Any),
    ("name", Any),
    ("preferredTransport", Unless("JSONRPC")),
    ("protocolVersion", Unless("0.3.0")),
    ("provider", PROVIDER),
    ("security", Any),
    (
        "securitySchemes",
        Each(&Fields(&[("bearerFormat", Any), ("description", Any), ("scheme", Any), ("type", Nothing)])),
    ),
    (
        "skills",
        Each(&Fields(&[
            ("description", Any),
            ("examples", Any),
            ("id", Any),
            ("inputModes", Any),
            ("name", Any),
            ("outputModes", Any),
            ("security", Any),
            ("tags", Any),
        ])),
    ),
    ("supportsAuthenticatedExtendedCard", Any),
    ("url", Any),
    ("version", Any),
]);

/// Protocol buffers leave out switches that are off, where they cannot be absent.
static NEW_CARD: Shape = Fields(&[
    (
        "capabilities",
        Fields(&[
            ("extendedAgentCard", Any),
            ("extensions", Each(&Fields(&[("description", Any), ("params", Any), ("required", OnlyOn), ("uri", Any)]))),
            ("pushNotifications", Any),
            ("streaming", Any),
        ]),
    ),
    ("defaultInputModes", Any),
    ("defaultOutputModes", Any),
    ("description", Any),
    ("documentationUrl", Any),
    ("iconUrl", Any),
    ("name", Any),
    ("provider", PROVIDER),
    ("securityRequirements", Each(&Fields(&[("schemes", Each(&Fields(&[("list", Any)])))]))),
    (
        "securitySchemes",
        Each(&Fields(&[(
            "httpAuthSecurityScheme",
            Fields(&[("bearerFormat", Any), ("description", Any), ("scheme", Any)]),
        )])),
    ),
    (
        "skills",
        Each(&Fields(&[
            ("description", Any),
            ("examples", Any),
            ("id", Any),
            ("inputModes", Any),
            ("name", Any),
            ("outputModes", Any),
            ("securityRequirements", Each(&Fields(&[("schemes", Each(&Fields(&[("list", Any)])))]))),
            ("tags", Any),
        ])),
    ),
    (
        "supportedInterfaces",
        Each(&Fields(&[("protocolBinding", Any), ("protocolVersion", Any), ("tenant", Any), ("url", Any)])),
    ),
    ("version", Any),
]);

/// The known fields of a card, without its signatures and without what is empty: SDKs of both lines drop that.
pub(super) fn fields(card: &Json, line: Line) -> Json {
    let shape = match line {
        Line::V03 => &OLD_CARD,
        Line::V10 => &NEW_CARD,
    };
    known(card, shape).unwrap_or_else(|| Json::Object(JsonMap::new()))
}

/// Whether a card is one for clients of a line.
pub(super) fn has_line(card: &Json, line: Line) -> bool {
    let field = match line {
        Line::V03 => "url",
        Line::V10 => "supportedInterfaces",
    };
    card.get(field).is_some()
}

/// What is known and not empty of a value. Cards are as deep as this program makes them.
fn known(value: &Json, shape: &'static Shape) -> Option<Json> {
    match (shape, value) {
        (Nothing, _) | (_, Json::Null) | (OnlyOn, Json::Bool(false)) => None,
        (Unless(default), Json::String(text)) if text == default => None,
        (_, Json::String(text)) if text.is_empty() => None,
        (Fields(names), Json::Object(map)) => {
            let member = |(name, shape): &'static (&'static str, Shape)| {
                Some(((*name).to_owned(), known(map.get(*name)?, shape)?))
            };
            filled(names.iter().filter_map(member).collect())
        }
        (_, Json::Object(map)) => {
            let below = below(shape);
            let members = map.iter().filter_map(|(name, value)| Some((name.clone(), known(value, below)?)));
            filled(members.collect())
        }
        (_, Json::Array(items)) => {
            let below = below(shape);
            let items: Vec<Json> = items.iter().filter_map(|item| known(item, below)).collect();
            (!items.is_empty()).then_some(Json::Array(items))
        }
        (_, value) => Some(value.clone()),
    }
}

fn below(shape: &'static Shape) -> &'static Shape {
    match shape {
        Each(shape) => shape,
        _ => &Any,
    }
}

fn filled(map: JsonMap) -> Option<Json> {
    (!map.is_empty()).then_some(Json::Object(map))
}
