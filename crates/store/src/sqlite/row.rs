//! Conversions between SQLite's columns and our types.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};

use crate::error::StoreError;

/// Converts a number for SQLite.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number from SQLite, where none is negative.
pub(crate) fn uint(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Parses a JSON column.
pub(crate) fn json<T: DeserializeOwned>(table: &'static str, id: &str, json: &str) -> Result<T, StoreError> {
    serde_json::from_str(json).map_err(|error| unreadable(table, id, &error))
}

/// The error for a row that cannot be parsed.
pub(crate) fn unreadable(table: &'static str, id: &str, error: &serde_json::Error) -> StoreError {
    StoreError::Row { table, id: id.to_owned(), detail: error.to_string() }
}

/// Parses an id column. It goes through serde, so that every id that could be written can be read.
pub(crate) fn id<T: DeserializeOwned>(table: &'static str, text: &str) -> Result<T, StoreError> {
    let deserializer: StrDeserializer<'_, Error> = text.into_deserializer();
    T::deserialize(deserializer).map_err(|error| StoreError::Row {
        table,
        id: text.to_owned(),
        detail: error.to_string(),
    })
}
