//! Tests of what a destination's text and environment mean.

use super::*;

const KEYS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", "SECRET-KEY"),
];

fn open(text: &str, variables: &[(&str, &str)]) -> Result<Destination, Error> {
    Destination::open(text, |name| {
        let found = variables.iter().find(|(key, _)| *key == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

#[track_caller]
fn refuses(text: &str, variables: &[(&str, &str)], part: &str) -> Error {
    let error = open(text, variables).unwrap_err();
    let shown = error.to_string();
    assert!(shown.contains(part), "{text}: {shown}");
    assert!(!shown.contains("SECRET-KEY"), "{text}: {shown}");
    error
}

#[test]
fn a_bucket_and_its_prefix_are_read() {
    let destination = open("s3://models/qwen/v1/", &KEYS).unwrap();
    assert_eq!(destination.name(), "s3://models/qwen/v1");
    assert_eq!(destination.key("a.bin").as_ref(), "qwen/v1/a.bin");
    let root = open("s3://models", &KEYS).unwrap();
    assert_eq!(root.key("a.bin").as_ref(), "a.bin");
    assert!(!format!("{root:?}").contains("SECRET-KEY"));
}

#[test]
fn what_cannot_work_is_refused_by_name() {
    refuses("s3:///x", &KEYS, "s3://BUCKET/PREFIX");
    refuses("s3://id:SECRET-KEY@bucket/x", &KEYS, "AWS_* variables");
    refuses("s3://bucket/a//b", &KEYS, "prefix of s3://bucket");
    refuses("gs://bucket/x", &KEYS, "gs://");
    let plain = [KEYS[0], KEYS[1], ("AWS_ENDPOINT_URL", "http://h:1")];
    refuses("s3://bucket/x", &plain, "AWS_ALLOW_HTTP=true");
    let odd = [KEYS[0], KEYS[1], ("AWS_ENDPOINT_URL", "h:1")];
    refuses("s3://bucket/x", &odd, "must begin with https://");
}

#[test]
fn without_credentials_nothing_is_asked() {
    let error = refuses("s3://bucket/x", &[], "AWS_ACCESS_KEY_ID is not set");
    assert!(
        matches!(
            error,
            Error::Store {
                fault: StoreFault::Credentials,
                ..
            }
        ),
        "{error:?}"
    );
    refuses(
        "s3://bucket/x",
        &KEYS[..1],
        "AWS_SECRET_ACCESS_KEY is not set",
    );
    let role = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")];
    // Whether the role works is the service's to say.
    assert!(!matches!(
        open("s3://bucket/x", &role),
        Err(Error::Store {
            fault: StoreFault::Credentials,
            ..
        })
    ));
}

#[test]
fn a_directory_has_one_publisher_and_loses_left_overs() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("site");
    let text = path.to_str().unwrap();
    let first = open(text, &[]).unwrap();
    assert!(path.is_dir(), "made");
    let error = open(text, &[]).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    drop(first);
    let object = format!("rows-{}.bin", "ab".repeat(32));
    for name in [
        format!("{object}#1"),
        "manifest.json#2".to_owned(),
        "notes#1".to_owned(),
        object.clone(),
    ] {
        std::fs::write(path.join(name), b"x").unwrap();
    }
    open(text, &[]).unwrap();
    let mut left: Vec<_> = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["notes#1".into(), std::ffi::OsString::from(object)]);
}

#[test]
fn queries_are_cut_from_texts() {
    assert_eq!(
        without_query("error at https://h/x?sig=SECRET now"),
        "error at https://h/x now"
    );
    assert_eq!(without_query("really?"), "really?");
}
