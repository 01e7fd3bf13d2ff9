//! Read-back through the URL that stations will use: what it cannot show right is not announced.

use fat_origin::serve::{ServeOptions, Server};

use super::*;

fn through(model: &Packed, url: &str) -> PublishOptions {
    PublishOptions {
        public_url: Some(url.to_owned()),
        ..options(model)
    }
}

fn open(site: &Path) -> Destination {
    Destination::open(site.to_str().unwrap(), |_| None).unwrap()
}

#[tokio::test]
async fn rows_come_back_through_the_url_before_the_manifest_is_written() {
    let (model, site) = (model(1), tempfile::tempdir().unwrap());
    let server = Server::start(ServeOptions::new(site.path())).await.unwrap();
    let url = server.base_url();
    for url in [url.clone(), format!("{url}/")] {
        let report = publish(&through(&model, &url), &open(site.path()))
            .await
            .unwrap();
        assert_eq!(
            (report.read_back.through, report.read_back.rows),
            ("public URL", 32)
        );
        assert_eq!(
            report.manifest_url.unwrap(),
            format!("{}/manifest.json", server.base_url())
        );
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_url_of_another_folder_or_with_other_bytes_keeps_the_old_manifest() {
    let (model, site, elsewhere) = (
        model(1),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let server = Server::start(ServeOptions::new(elsewhere.path()))
        .await
        .unwrap();
    let url = server.base_url();
    let error = publish(&through(&model, &url), &open(site.path()))
        .await
        .unwrap_err();
    let Error::ReadBackFailed { source } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(source.kind(), helix_transport::ErrorKind::NotFound);
    assert!(!site.path().join("manifest.json").exists());

    // The right names, one byte of every row wrong, as a cache that recodes would have it.
    for name in super::super::packed::files(site.path()) {
        let mut bytes = std::fs::read(site.path().join(&name)).unwrap();
        if name.starts_with("rows-") {
            bytes.iter_mut().step_by(64).for_each(|byte| *byte ^= 1);
        }
        std::fs::write(elsewhere.path().join(&name), bytes).unwrap();
    }
    let error = publish(&through(&model, &url), &open(site.path()))
        .await
        .unwrap_err();
    let Error::RowsBack { source, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(source.kind(), helix_transport::ErrorKind::Corrupt);
    assert!(!site.path().join("manifest.json").exists());

    let knot = blake3_name("knot", &model.bytes, "gkq");
    let mut bytes = model.bytes.clone();
    bytes[100] ^= 1;
    std::fs::write(elsewhere.path().join(knot), bytes).unwrap();
    let error = publish(&through(&model, &url), &open(site.path()))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::ReadBack { .. }), "{error:?}");
    assert!(!site.path().join("manifest.json").exists());
    server.shutdown().await;
}

#[tokio::test]
async fn a_url_that_is_no_folder_is_refused_before_anything_is_sent() {
    let (model, site) = (model(1), tempfile::tempdir().unwrap());
    for url in [
        "",
        "ftp://h/x",
        "s3://bucket/x",
        "https://h/x?sig=SECRET",
        "https://h/x#f",
    ] {
        let error = publish(&through(&model, url), &open(site.path()))
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::Option {
                    option: "--public-url",
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
    assert!(super::super::packed::files(site.path()).is_empty());
}
