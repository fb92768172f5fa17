//! Signatures of cards: JSON Web Signatures over the canonical form of the fields that an SDK of a line knows.
//!
//! SDKs parse a card before they verify it, and forget what their line does not know; so a signature over the whole document
//! would fail everywhere. What each leaves out besides is in `known`.

use api::Json;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::json;

use super::canonical::{Escapes, write_all};
use super::known;
use crate::Line;

/// A private key that signs cards.
pub struct CardKey {
    pair: KeyPair,
    id: String,
    url: Option<String>,
}

enum KeyPair {
    P256(EcdsaKeyPair),
    // Larger than the others by its numbers.
    Rsa(Box<RsaKeyPair>),
    Ed25519(Ed25519KeyPair),
}

/// Why a key cannot sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CardKeyError(String);

impl CardKeyError {
    fn new(problem: &str) -> Self {
        Self(problem.to_owned())
    }
}

const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
const CONVERT: &str = "; convert it with: openssl pkcs8 -topk8 -nodes -in KEY -out KEY.pkcs8";

impl CardKey {
    /// Reads a PKCS#8 key. `id` is its `kid`, `url` the address of its public half, if that is published.
    pub fn from_pem(pem: &str, id: &str, url: Option<&str>) -> Result<Self, CardKeyError> {
        let body = pem.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(body, _)| body);
        let Some(body) = body else {
            return Err(CardKeyError(match pem {
                pem if pem.contains("BEGIN ENCRYPTED PRIVATE KEY") => format!("the key is encrypted{CONVERT}"),
                pem if pem.contains(" PRIVATE KEY-----") => format!("the key is not in PKCS#8{CONVERT}"),
                pem if pem.contains("BEGIN PUBLIC KEY") => {
                    "the file has a public key, and a private one signs".to_owned()
                }
                _ => "the file has no private key in PEM".to_owned(),
            }));
        };
        let body: String = body.split_ascii_whitespace().collect();
        let bytes = STANDARD.decode(body).map_err(|_| CardKeyError::new("the key is no valid base64"))?;
        let pair = KeyPair::read(&bytes).ok_or_else(|| {
            CardKeyError::new("the key is none of: ECDSA on P-256, RSA of 2048 to 4096 bits, Ed25519")
        })?;
        Ok(Self { pair, id: id.to_owned(), url: url.map(str::to_owned) })
    }

    /// A signature of a canonical card.
    fn sign(&self, payload: &str) -> Result<Json, CardKeyError> {
        let mut header = json!({ "alg": self.pair.algorithm(), "kid": self.id, "typ": "JOSE" });
        if let Some(url) = &self.url {
            header["jku"] = url.as_str().into();
        }
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        let message = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload));
        let signature = self.pair.sign(message.as_bytes()).ok_or_else(|| CardKeyError::new("signing failed"))?;
        Ok(json!({ "protected": protected, "signature": URL_SAFE_NO_PAD.encode(signature) }))
    }
}

impl KeyPair {
    /// Keys say themselves what they are, so each reader refuses those of the others.
    fn read(pkcs8: &[u8]) -> Option<Self> {
        let p256 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new());
        if let Ok(pair) = p256 {
            return Some(Self::P256(pair));
        }
        if let Ok(pair) = RsaKeyPair::from_pkcs8(pkcs8) {
            return Some(Self::Rsa(Box::new(pair)));
        }
        // Other programs write these keys without their public half.
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).ok().map(Self::Ed25519)
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::Rsa(_) => "RS256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::P256(pair) => {
                pair.sign(&SystemRandom::new(), message).ok().map(|signature| signature.as_ref().to_vec())
            }
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).ok()?;
                Some(signature)
            }
            Self::Ed25519(pair) => Some(pair.sign(message).as_ref().to_vec()),
        }
    }
}

/// Adds one signature for each line.
pub fn sign(card: &mut Json, key: &CardKey) -> Result<(), CardKeyError> {
    let signatures: Vec<Json> =
        payloads(card).iter().map(|payload| key.sign(payload)).collect::<Result<_, CardKeyError>>()?;
    card["signatures"] = signatures.into();
    Ok(())
}

/// What is signed. Verifiers take a card if one signature is theirs.
pub(super) fn payloads(card: &Json) -> Vec<String> {
    let mut payloads: Vec<String> = Vec::new();
    for (line, escapes) in
        // The SDK of 0.3 escapes what is beyond ASCII, which the canonical form forbids; where there is such, both are signed.
        [(Line::V10, Escapes::None), (Line::V03, Escapes::BeyondAscii), (Line::V03, Escapes::None)]
    {
        let payload = write_all(&known::fields(card, line), escapes);
        if known::has_line(card, line) && !payloads.contains(&payload) {
            payloads.push(payload);
        }
    }
    payloads
}
