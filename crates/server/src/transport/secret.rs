//! Tokens that nobody can guess.

use crate::error::Error;

/// A new token: 192 random bits in hexadecimal.
pub fn generate() -> Result<String, Error> {
    let mut bytes = [0; 24];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled.map_err(Error::internal)? < bytes.len() {
        return Err(Error::internal("the system returned too few random bytes"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
