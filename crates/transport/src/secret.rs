//! Tokens that nobody can guess, and comparing them.

use std::io;

/// A new token: 192 random bits in hexadecimal.
pub fn generate() -> io::Result<String> {
    let mut bytes = [0; 24];
    if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())? < bytes.len() {
        return Err(io::Error::other("the system returned too few random bytes"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Compares two secrets in constant time.
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    let differences = left.iter().zip(right).fold(0, |all, (left, right)| all | (left ^ right));
    left.len() == right.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_are_compared_as_a_whole() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        assert_eq!(one.len(), 48);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(constant_time_eq(one.as_bytes(), one.as_bytes()));
        assert!(!constant_time_eq(one.as_bytes(), other.as_bytes()));
        assert!(!constant_time_eq(one.as_bytes(), &one.as_bytes()[..47]));
        assert!(!constant_time_eq(b"", b"x") && constant_time_eq(b"", b""));
    }
}
