//! Signatures, verified over what independent knowledge of each line makes of a card.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};

use super::super::canonical::{Escapes, write_all};
use super::super::sign::payloads;
use super::*;

const P256: &str = include_str!("../../../tests/fixtures/card-key-ec.txt");
const RSA: &str = include_str!("../../../tests/fixtures/card-key-rsa.txt");
const ED25519_KEY: &str = include_str!("../../../tests/fixtures/card-key-ed25519.txt");

fn pem(base64: &str) -> String {
    format!("a comment\n-----BEGIN PRIVATE KEY-----\n{base64}-----END PRIVATE KEY-----\n")
}

fn signed(base64: &str) -> Json {
    let mut card = extended_card(&input(&Settings::default()));
    sign(&mut card, &CardKey::from_pem(&pem(base64), "key-1", None).unwrap()).unwrap();
    card
}

fn is_valid(signature: &Json, payload: &str, algorithm: &'static dyn VerificationAlgorithm, public: &[u8]) -> bool {
    let text = |name: &str| signature[name].as_str().unwrap().to_owned();
    let message = format!("{}.{}", text("protected"), URL_SAFE_NO_PAD.encode(payload));
    let bytes = URL_SAFE_NO_PAD.decode(text("signature")).unwrap();
    UnparsedPublicKey::new(algorithm, public).verify(message.as_bytes(), &bytes).is_ok()
}

/// Without what is empty, as SDKs clean what they verify.
fn clean(value: &Json) -> Option<Json> {
    match value {
        Json::Null => None,
        Json::String(text) if text.is_empty() => None,
        Json::Object(map) => {
            let map: JsonMap = map.iter().filter_map(|(name, value)| Some((name.clone(), clean(value)?))).collect();
            (!map.is_empty()).then_some(Json::Object(map))
        }
        Json::Array(items) => {
            let items: Vec<Json> = items.iter().filter_map(clean).collect();
            (!items.is_empty()).then_some(Json::Array(items))
        }
        value => Some(value.clone()),
    }
}

/// What the official types of 1.0 keep of a card.
fn official(card: &Json) -> String {
    let mut card: a2a::AgentCard = serde_json::from_value(card.clone()).unwrap();
    card.signatures = None;
    write_all(&clean(&serde_json::to_value(card).unwrap()).unwrap(), Escapes::None)
}

/// What the published schema of 0.3 has of a card; without `type`, whose value is the default of its class.
fn published(card: &Json) -> String {
    fn keep(value: &Json, schema: &Json, all: &Json) -> Json {
        let schema = match schema["$ref"].as_str() {
            Some("#/definitions/SecurityScheme") => &all["definitions"]["HTTPAuthSecurityScheme"],
            Some(reference) => all.pointer(&reference[1..]).unwrap(),
            None => schema,
        };
        match value {
            Json::Object(map) if schema["properties"].is_object() => {
                let known = map.iter().filter(|(name, _)| schema["properties"].get(*name).is_some());
                let known = known.filter(|(name, _)| *name != "type" && *name != "signatures");
                known.map(|(name, value)| (name.clone(), keep(value, &schema["properties"][name], all))).collect()
            }
            Json::Object(map) if schema["additionalProperties"]["$ref"].is_string() => map
                .iter()
                .map(|(name, value)| (name.clone(), keep(value, &schema["additionalProperties"], all)))
                .collect(),
            Json::Array(items) => items.iter().map(|item| keep(item, &schema["items"], all)).collect(),
            value => value.clone(),
        }
    }
    let all: Json = serde_json::from_str(include_str!("../../../tests/fixtures/schema-0.3.json")).unwrap();
    let card = keep(card, &json!({ "$ref": "#/definitions/AgentCard" }), &all);
    write_all(&clean(&card).unwrap(), Escapes::BeyondAscii)
}

#[test]
fn each_line_verifies_its_signature() {
    let key = |base64: &str| STANDARD.decode(base64.replace('\n', "")).unwrap();
    let rng = ring::rand::SystemRandom::new();
    let algorithm = &ring::signature::ECDSA_P256_SHA256_FIXED_SIGNING;
    let p256 = EcdsaKeyPair::from_pkcs8(algorithm, &key(P256), &rng).unwrap().public_key().as_ref().to_vec();
    let rsa = RsaKeyPair::from_pkcs8(&key(RSA)).unwrap().public_key().as_ref().to_vec();
    let ed25519 = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key(ED25519_KEY)).unwrap().public_key().as_ref().to_vec();
    let keys: [(&str, &str, &'static dyn VerificationAlgorithm, &[u8]); 3] = [
        (P256, "ES256", &ECDSA_P256_SHA256_FIXED, &p256),
        (RSA, "RS256", &RSA_PKCS1_2048_8192_SHA256, &rsa),
        (ED25519_KEY, "EdDSA", &ED25519, &ed25519),
    ];
    for (private, name, algorithm, public) in keys {
        let card = signed(private);
        let signatures = card["signatures"].as_array().unwrap();
        assert_eq!(signatures.len(), 2, "{name}");
        assert!(is_valid(&signatures[0], &official(&card), algorithm, public), "{name} in 1.0");
        assert!(is_valid(&signatures[1], &published(&card), algorithm, public), "{name} in 0.3");
        assert!(!is_valid(&signatures[0], &official(&card).replace("Coding", "Codinh"), algorithm, public), "{name}");
        let header = signatures[0]["protected"].as_str().unwrap();
        let header: Json = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
        assert_eq!(header, json!({ "alg": name, "kid": "key-1", "typ": "JOSE" }));
    }
}

#[test]
fn text_beyond_ascii_is_signed_in_both_manners_of_0_3() {
    let settings = Settings { title: "Träume \u{1f340}".into(), ..Settings::default() };
    let card = public_card(&input(&settings));
    let payloads = payloads(&card);
    assert_eq!(payloads.len(), 3);
    assert_eq!(payloads[0], official(&card));
    assert_eq!(payloads[1], published(&card));
    assert!(payloads[1].contains("Tr\\u00e4ume \\ud83c\\udf40") && payloads[2].contains("Träume \u{1f340}"));
}

#[test]
fn a_card_of_one_line_has_one_signature() {
    for line in Line::ALL {
        let settings = Settings { lines: vec![line], default_line: line, ..Settings::default() };
        let card = public_card(&input(&settings));
        let want = if line == Line::V03 { 2 } else { 1 };
        assert_eq!(payloads(&card).len(), want, "interfaces of 0.3 are read by clients of 1.0, too");
    }
}

#[test]
fn signed_cards_stay_valid() {
    let card = signed(P256);
    let official: a2a::AgentCard = serde_json::from_value(card).unwrap();
    assert_eq!(official.signatures.unwrap().len(), 2);
}

#[test]
fn other_keys_are_refused_with_what_to_do() {
    let refused = |pem: &str| CardKey::from_pem(pem, "k", None).err().unwrap().to_string();
    for (pem, want) in [
        ("", "no private key"),
        ("-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----", "openssl pkcs8"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----", "encrypted"),
        ("-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----", "public"),
        ("-----BEGIN PRIVATE KEY-----\n!!\n-----END PRIVATE KEY-----", "base64"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "P-256"),
    ] {
        assert!(refused(pem).contains(want), "{pem}: {}", refused(pem));
    }
}
