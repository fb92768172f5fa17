//! Records: conditional writes, pages of a range of keys, and expiry.

use std::ops::Bound;

use crate::common::*;
use api::*;
use serde_json::json;
use trefoil_store::*;

#[tokio::test]
async fn a_conflict_in_one_of_several_writes_changes_nothing() {
    let temp = Temp::new();
    let store = temp.open();
    let mut setup = batch().durable();
    for key in ["a", "b", "c"] {
        setup.record("a2a", key, Some(&json!(key)), Some(0));
    }
    let versions = store.commit(setup).await.unwrap().versions;
    let all = store.records_page("a2a", .., 10, 0).unwrap();
    // Whichever of the writes conflicts.
    for stale in 0..3 {
        let mut change = batch().durable();
        for (i, key) in ["a", "b", "c"].into_iter().enumerate() {
            let expect = if i == stale { versions[i] + 1000 } else { versions[i] };
            let value = json!("changed");
            change.record("a2a", key, (i != 1).then_some(&value), Some(expect));
        }
        change.record("a2a", "new", Some(&json!(1)), Some(0));
        change.event(toast("changed"));
        let error = store.commit(change).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { found, .. } if found == versions[stale]), "{error:?}");
        assert_eq!(store.records_page("a2a", .., 10, 0).unwrap(), all);
    }
    assert_eq!(store.stats().unwrap().events, 0);
    let mut change = batch().durable();
    for (key, version) in ["a", "b", "c"].into_iter().zip(&versions) {
        change.record("a2a", key, Some(&json!("changed")), Some(*version));
    }
    assert_eq!(store.commit(change).await.unwrap().versions.len(), 3);
}

fn key(number: usize) -> String {
    format!("task/{number:05}")
}

#[tokio::test]
async fn many_records_are_read_in_pages() {
    const RECORDS: usize = 10_000;
    let temp = Temp::new();
    let store = temp.open();
    let mut many = batch();
    for number in 0..RECORDS {
        many.record("a2a", &key(number), Some(&json!({ "number": number })), None);
    }
    // Neighbours that must not be listed.
    many.record("a2", &key(1), Some(&json!(0)), None);
    many.record("a2a2", &key(1), Some(&json!(0)), None);
    many.record("a2a", "other", Some(&json!(0)), None);
    store.commit(many).await.unwrap();

    for limit in [1000, 777, usize::MAX] {
        let (mut read, mut last) = (Vec::new(), None::<String>);
        loop {
            let from = last.as_deref().map_or(Bound::Included("task/"), Bound::Excluded);
            let page = store.records_page("a2a", (from, Bound::Excluded("task0")), limit, 0).unwrap();
            assert!(page.records.len() <= limit.min(RECORD_PAGE_MAX));
            last = page.records.last().map(|(key, _)| key.clone());
            read.extend(page.records);
            if !page.has_more {
                break;
            }
        }
        assert_eq!(read.len(), RECORDS);
        for (number, (found, record)) in read.iter().enumerate() {
            assert_eq!((found, &record.value), (&key(number), &json!({ "number": number })));
        }
    }

    let keys = |page: RecordPage| page.records.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    let (from, to) = (key(7), key(9));
    let (from, to) = (from.as_str(), to.as_str());
    assert_eq!(keys(store.records_page("a2a", from..to, 10, 0).unwrap()), [key(7), key(8)]);
    assert_eq!(keys(store.records_page("a2a", from..=to, 10, 0).unwrap()), [key(7), key(8), key(9)]);
    let page = store.records_page("a2a", from.., 1, 0).unwrap();
    assert!(page.has_more);
    assert_eq!(keys(page), [key(7)]);
    assert_eq!(keys(store.records_page("a2a", ..from, 2, 0).unwrap()), ["other".to_owned(), key(0)]);
    assert_eq!(store.records_page("none", .., 10, 0).unwrap(), RecordPage::default());
}

#[tokio::test]
async fn a_page_of_large_records_ends_early() {
    let temp = Temp::new();
    let store = temp.open();
    let large = json!("x".repeat(200_000));
    let mut many = batch();
    (0..10).for_each(|number| many.record("a2a", &key(number), Some(&large), None));
    store.commit(many).await.unwrap();
    let page = store.records_page("a2a", .., 10, 0).unwrap();
    assert!(page.has_more);
    assert_eq!(page.records.len(), 3, "it ends with the record that reaches 512 KB");
}

#[tokio::test]
async fn an_expired_record_is_missing_and_then_deleted() {
    const EXPIRING: usize = 1300;
    let temp = Temp::new();
    let store = temp.open();
    // The time that counts is the one that this test passes; it is later than that of the writes.
    let end = api::now() + 3_600_000;
    let mut many = batch();
    (0..EXPIRING).for_each(|number| many.record_until("tokens", &key(number), &json!(number), None, end));
    many.record_until("tokens", "later", &json!(1), None, end + 1);
    many.record("tokens", "stays", Some(&json!(1)), None);
    store.commit(many).await.unwrap();

    let count = |now| {
        let (first, second) = (.."task/00500", "task/00500"..);
        let counted = store.records_page("tokens", first, 1000, now).unwrap().records.len();
        counted + store.records_page("tokens", second, 1000, now).unwrap().records.len()
    };
    assert_eq!(store.record_at("tokens", &key(0), end - 1).unwrap().unwrap().value, json!(0));
    assert_eq!(store.record_at("tokens", &key(0), end).unwrap(), None);
    assert_eq!((count(end - 1), count(end), count(end + 1)), (EXPIRING + 2, 2, 1));

    store.sweep_records(end - 1).await.unwrap();
    assert_eq!(count(end - 1), EXPIRING + 2, "nothing has expired yet");
    store.sweep_records(end).await.unwrap();
    assert_eq!(count(0), 2, "in several steps, all that had expired are gone");
    assert_eq!(store.record("tokens", "stays").unwrap().unwrap().value, json!(1));
}

#[tokio::test]
async fn expired_records_do_not_pile_up() {
    let temp = Temp::new();
    let store = temp.open();
    let long_ago = 1;
    for number in 0..100 {
        let mut batch = batch();
        batch.record_until("tokens", &key(number), &json!(number), Some(0), long_ago);
        store.commit(batch).await.unwrap();
    }
    // As it was before they expired.
    let left = store.records_page("tokens", .., 1000, 0).unwrap().records;
    assert_eq!(left.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [key(99)]);
}

#[tokio::test]
async fn an_expired_record_does_not_exist_for_conditional_writes() {
    let temp = Temp::new();
    let store = temp.open();
    let write = async |expect: Option<u64>, expires: Option<Timestamp>| {
        let mut batch = batch();
        match expires {
            Some(expires) => batch.record_until("tokens", "a", &json!("a"), expect, expires),
            None => batch.record("tokens", "a", Some(&json!("a")), expect),
        }
        store.commit(batch).await.map(|committed| committed.versions[0])
    };
    let long_ago = 1;
    let expired = write(Some(0), Some(long_ago)).await.unwrap();
    assert_eq!((store.record("tokens", "a").unwrap(), store.records("tokens").unwrap()), (None, Vec::new()));
    let error = write(Some(expired), None).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { found: 0, .. }), "{error:?}");
    let version = write(Some(0), None).await.unwrap();
    assert!(version > expired);
    // A plain write does not expire, whatever was there before.
    assert_eq!(store.record("tokens", "a").unwrap(), Some(Record { value: json!("a"), version }));
    write(Some(version), Some(long_ago)).await.unwrap();
    let mut same = batch();
    same.record_if_changed("tokens", "a", &json!("a"));
    store.commit(same).await.unwrap();
    assert!(store.record("tokens", "a").unwrap().is_some(), "the same value that had expired is written again");
}

#[tokio::test]
async fn a_deletion_expects_a_version_too() {
    let temp = Temp::new();
    let store = temp.open();
    let delete = async |expect: u64| {
        let mut batch = batch();
        batch.record("tokens", "a", None, Some(expect));
        store.commit(batch).await.map(|committed| committed.versions)
    };
    let write = async |expires: Option<Timestamp>| {
        let mut batch = batch();
        match expires {
            Some(expires) => batch.record_until("tokens", "a", &json!(1), None, expires),
            None => batch.record("tokens", "a", Some(&json!(1)), None),
        }
        store.commit(batch).await.unwrap().versions[0]
    };
    assert_eq!(delete(0).await.unwrap(), [0_u64; 0], "there is none, as expected");
    let version = write(None).await;
    for wrong in [0, version + 1] {
        let error = delete(wrong).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { found, expected, .. } if (found, expected) == (version, wrong)));
    }
    delete(version).await.unwrap();
    let expired = write(Some(1)).await;
    let error = delete(expired).await.unwrap_err();
    assert!(matches!(error, StoreError::Conflict { found: 0, .. }), "{error:?}");
    delete(0).await.unwrap();
    assert_eq!(store.records_page("tokens", .., 10, 0).unwrap(), RecordPage::default(), "what had expired is gone");
}
