//! Changes of [records](crate::Record), as part of a batch.

use api::{Json, Timestamp};

use crate::batch::{Batch, Op};

/// A change of one record.
#[derive(Debug)]
pub(crate) struct RecordOp {
    pub namespace: String,
    pub key: String,
    pub change: RecordChange,
    /// The version that the record must have; 0 if it must not exist.
    pub expect: Option<u64>,
}

/// What becomes of a record. Values are JSON.
#[derive(Debug)]
pub(crate) enum RecordChange {
    Put { value: String, expires: Option<Timestamp> },
    PutIfChanged { value: String },
    Delete,
}

impl Batch {
    /// Writes or deletes a [record](crate::Record). With `expect`, the whole batch fails with
    /// [`StoreError::Conflict`](crate::StoreError::Conflict) if the record has another version; 0 means that it must
    /// not exist.
    pub fn record(&mut self, namespace: &str, key: &str, value: Option<&Json>, expect: Option<u64>) {
        let put = |value: &Json| RecordChange::Put { value: value.to_string(), expires: None };
        self.record_op(namespace, key, value.map_or(RecordChange::Delete, put), expect);
    }

    /// Like [`record`](Self::record), for a record that counts as missing from `expires` on.
    pub fn record_until(&mut self, namespace: &str, key: &str, value: &Json, expect: Option<u64>, expires: Timestamp) {
        let change = RecordChange::Put { value: value.to_string(), expires: Some(expires) };
        self.record_op(namespace, key, change, expect);
    }

    /// Writes a record unless it already has this value.
    pub fn record_if_changed(&mut self, namespace: &str, key: &str, value: &Json) {
        self.record_op(namespace, key, RecordChange::PutIfChanged { value: value.to_string() }, None);
    }

    fn record_op(&mut self, namespace: &str, key: &str, change: RecordChange, expect: Option<u64>) {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.ops.push(Op::Record(Box::new(RecordOp { namespace, key, change, expect })));
    }
}
