//! A publisher that is cut at every single operation of its store: the old version stays whole, the
//! next run finishes, and parts that arrived and were noted are not sent again.

use std::sync::Arc;

use fat_origin::publish::StoreFault;
use object_store::memory::InMemory;

use super::store::{Fault, TestStore};
use super::*;

/// Parts that may be on their way when a publisher is cut, which it cannot know of.
const PARTS_IN_FLIGHT: usize = 4;

/// Publishes until the end or the fault; `None` if the fault killed it.
async fn until_cut(model: &Packed, store: &Arc<TestStore>) -> Option<Result<PublishReport, Error>> {
    tokio::select! {
        done = publish_to(model, store) => Some(done),
        () = store.died() => None,
    }
}

#[tokio::test]
async fn killed_at_every_operation_the_old_version_stays_and_the_next_run_finishes() {
    let (old, new) = (model(1), model(2));
    let parts = (
        new.rows.len().div_ceil(4096),
        new.bytes.len().div_ceil(4096),
    );
    let mut kills = 0;
    for fault in [Fault::DieBefore, Fault::DieAfter] {
        for at in 0.. {
            let inner = Arc::new(InMemory::new());
            publish_to(&old, &TestStore::over(&inner, None))
                .await
                .unwrap();
            let before = assert_store_is_whole(&inner).await;
            let cut = TestStore::over(&inner, Some((at, fault)));
            if let Some(done) = until_cut(&new, &cut).await {
                done.unwrap();
                break;
            }
            kills += 1;
            let now = assert_store_is_whole(&inner).await;
            let last = cut.asked().last().unwrap().clone();
            let flipped =
                fault == Fault::DieAfter && last.operation == "put" && last.key == "manifest.json";
            assert_eq!(now == before, !flipped, "{fault:?} at {at}, {last:?}");

            let again = TestStore::over(&inner, None);
            publish_to(&new, &again).await.unwrap();
            assert_store_is_whole(&inner).await;
            assert!(journals(&new).is_empty());
            let sent = cut.of("part").len() + again.of("part").len();
            // Per object: all parts once, and what was on its way at the cut.
            assert!(
                sent <= parts.0 + parts.1 + PARTS_IN_FLIGHT,
                "{fault:?} at {at}: {sent} parts were sent for {parts:?}"
            );
        }
    }
    // Two of three: every part and each of the steps around them.
    assert!(kills > 2 * (parts.0 + parts.1), "{kills} kills");
}

#[tokio::test]
async fn a_reset_at_every_operation_is_an_honest_error_or_harmless() {
    let (old, new) = (model(1), model(2));
    let mut refused = 0;
    for at in 0.. {
        let inner = Arc::new(InMemory::new());
        publish_to(&old, &TestStore::over(&inner, None))
            .await
            .unwrap();
        let before = assert_store_is_whole(&inner).await;
        let store = TestStore::over(&inner, Some((at, Fault::Reset)));
        let done = publish_to(&new, &store).await;
        let now = assert_store_is_whole(&inner).await;
        match done {
            Err(error) => {
                refused += 1;
                assert_eq!(now, before, "at {at}: {error}");
                publish_to(&new, &TestStore::over(&inner, None))
                    .await
                    .unwrap();
                assert_ne!(assert_store_is_whole(&inner).await, before);
            }
            Ok(_) => {
                assert_ne!(now, before, "at {at}");
                if at > store.asked().len() {
                    break;
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

#[tokio::test]
async fn a_full_disk_is_said_as_such() {
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    let count = TestStore::over(&inner, None);
    publish_to(&model, &count).await.unwrap();
    let first_part = count
        .asked()
        .iter()
        .position(|asked| asked.operation == "part")
        .unwrap();
    let inner = Arc::new(InMemory::new());
    let store = TestStore::over(&inner, Some((first_part, Fault::StorageFull)));
    let error = publish_to(&model, &store).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Store {
                fault: StoreFault::FileSystem,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("no storage space"), "{error}");
    assert!(store.object("manifest.json").await.is_none());
}

#[tokio::test]
async fn an_upload_that_the_store_forgot_begins_anew() {
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    let cut = TestStore::over(&inner, Some((12, Fault::DieBefore)));
    assert!(until_cut(&model, &cut).await.is_none());
    assert_eq!(journals(&model).len(), 1);
    // Another service with the same name does not know the upload.
    let other = Arc::new(InMemory::new());
    let store = TestStore::over(&other, None);
    let report = publish_to(&model, &store).await.unwrap();
    assert_store_is_whole(&other).await;
    assert_eq!(
        serde_json::to_value(report.objects[0].outcome).unwrap(),
        "sent"
    );
    assert!(journals(&model).is_empty());
}

#[tokio::test]
async fn a_damaged_journal_is_an_empty_one() {
    let model = model(1);
    for damage in [
        &b""[..],
        b"{",
        b"\xff\xfe\n",
        b"{\"format\":\"fat-origin upload\"}\n",
        b"[]\n[]\n",
    ] {
        let inner = Arc::new(InMemory::new());
        let cut = TestStore::over(&inner, Some((12, Fault::DieBefore)));
        assert!(until_cut(&model, &cut).await.is_none());
        let journal = journals(&model).remove(0);
        std::fs::write(&journal, damage).unwrap();
        publish_to(&model, &TestStore::over(&inner, None))
            .await
            .unwrap();
        assert_store_is_whole(&inner).await;
        assert!(journals(&model).is_empty());
    }
}

#[tokio::test]
async fn a_torn_last_line_costs_one_part() {
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    let cut = TestStore::over(&inner, Some((10, Fault::DieBefore)));
    assert!(until_cut(&model, &cut).await.is_none());
    let journal = journals(&model).remove(0);
    let text = std::fs::read(&journal).unwrap();
    let noted = text.iter().filter(|&&byte| byte == b'\n').count() - 1;
    assert!(noted >= 2, "{noted}");
    std::fs::write(&journal, &text[..text.len() - 3]).unwrap();
    let report = publish_to(&model, &TestStore::over(&inner, None))
        .await
        .unwrap();
    assert_eq!(report.objects[0].skipped_parts, noted as u64 - 1);
    assert_store_is_whole(&inner).await;
}

#[tokio::test]
async fn parts_of_another_length_are_not_mixed() {
    let (model, inner) = (model(1), Arc::new(InMemory::new()));
    let cut = TestStore::over(&inner, Some((10, Fault::DieBefore)));
    assert!(until_cut(&model, &cut).await.is_none());
    let other = PublishOptions {
        part_bytes: 5000,
        ..options(&model)
    };
    let store = TestStore::over(&inner, None);
    let report = publish(&other, &destination(&store)).await.unwrap();
    assert_eq!(report.objects[0].skipped_parts, 0);
    assert_eq!(store.of("abort").len(), 1, "the old parts are given up");
    assert_store_is_whole(&inner).await;
}

#[tokio::test]
async fn uploads_of_what_is_not_published_any_more_are_abandoned() {
    let (model, other, inner) = (model(1), model(2), Arc::new(InMemory::new()));
    let cut = TestStore::over(&inner, Some((10, Fault::DieBefore)));
    assert!(until_cut(&model, &cut).await.is_none());
    // The model is packed again, with other rows, into the same files.
    std::fs::copy(other.rows_path(), model.rows_path()).unwrap();
    std::fs::copy(other.knot_path(), model.knot_path()).unwrap();
    let store = TestStore::over(&inner, None);
    let report = publish_to(&model, &store).await.unwrap();
    assert_eq!(report.abandoned_uploads, 1);
    assert_eq!(store.of("abort").len(), 1);
    assert!(journals(&model).is_empty());
    assert_store_is_whole(&inner).await;
}
