//! References as users write them, and a repository in the local cache. The wire is tested with a
//! hub on a real socket, in `tests/it/hub.rs`.

use super::*;

fn parsed(text: &str) -> HubRef {
    HubRef::parse(text).unwrap().unwrap()
}

#[test]
fn references_are_taken_apart() {
    for (text, shown) in [
        ("hf://org/name", "hf://org/name@main"),
        ("HF://org/name", "hf://org/name@main"),
        ("hf://org/name/sub/f.gguf", "hf://org/name@main/sub/f.gguf"),
        ("hf://org/name@v1.0/f.gguf", "hf://org/name@v1.0/f.gguf"),
        ("hf://org/name@refs/pr/7/f", "hf://org/name@refs/pr/7/f"),
        ("hf://org/name@refs%2Fpr%2F7", "hf://org/name@refs/pr/7"),
        ("hf://org/name@feature%2Fx/f", "hf://org/name@feature/x/f"),
    ] {
        assert_eq!(parsed(text).to_string(), shown, "{text}");
    }
    assert!(HubRef::parse("https://h/x").unwrap().is_none());
    assert!(HubRef::parse("model.rows").unwrap().is_none());
    assert!(parsed("hf://o/n@0123456789abcdef0123456789abcdef01234567").is_commit());
}

#[test]
fn references_that_cannot_be_are_refused_without_an_echo() {
    for text in [
        "hf://",
        "hf://org",
        "hf://org/",
        "hf:///name",
        "hf://org/na me",
        "hf://org/name?token=SECRET",
        "hf://user:SECRET@org/name",
        "hf://../name",
        "hf://org/..",
        "hf://org/name@",
        "hf://org/name@..%2F..%2Fsecret",
        "hf://org/name/../../etc/passwd",
        "hf://org/name//x",
        "hf://org/name/a%2F..%2Fb",
        "hf://org/name/C:\\x",
    ] {
        let error = HubRef::parse(text).unwrap_err().to_string();
        assert!(
            error.contains("expected hf://ORG/NAME[@REV][/path]"),
            "{error}"
        );
        assert!(!error.contains("SECRET"), "{error}");
    }
}

fn settings(pairs: &[(&str, &str)]) -> HubSettings {
    HubSettings::from_environment(&|name: &str| {
        let pair = pairs.iter().find(|(key, _)| *key == name);
        pair.map(|(_, value)| value.into())
    })
}

#[test]
fn the_environment_is_read_as_huggingface_hub_reads_it() {
    let endpoint = |pairs: &[(&str, &str)]| settings(pairs).endpoint().map(|it| it.to_string());
    assert_eq!(endpoint(&[]).unwrap(), "https://huggingface.co");
    assert_eq!(
        endpoint(&[("HF_ENDPOINT", "http://mirror:8080/hub/")]).unwrap(),
        "http://mirror:8080/hub"
    );
    for wrong in [
        "ftp://h",
        "mirror",
        "https://u:SECRET@h",
        "https://h/?k=SECRET",
    ] {
        let error = endpoint(&[("HF_ENDPOINT", wrong)]).unwrap_err().to_string();
        assert!(
            error.contains("HF_ENDPOINT") && !error.contains("SECRET"),
            "{error}"
        );
    }
    for (value, offline) in [
        ("1", true),
        ("TRUE", true),
        ("on", true),
        ("0", false),
        ("", false),
    ] {
        assert_eq!(
            settings(&[("HF_HUB_OFFLINE", value)]).offline(),
            offline,
            "{value}"
        );
    }
    let cache = |pairs: &[(&str, &str)]| settings(pairs).repository_cache("o", "n").unwrap();
    assert_eq!(
        cache(&[("HOME", "/h")]),
        Path::new("/h/.cache/huggingface/hub/models--o--n")
    );
    assert_eq!(
        cache(&[("HF_HOME", "/f")]),
        Path::new("/f/hub/models--o--n")
    );
    assert_eq!(
        cache(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/c")]),
        Path::new("/c/models--o--n")
    );
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().to_str().unwrap();
    std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
    assert_eq!(
        settings(&[("HF_HOME", home)]).token().unwrap().as_deref(),
        Some("hf_file")
    );
    let both = settings(&[("HF_HOME", home), ("HF_TOKEN", " hf_environment ")]);
    assert_eq!(both.token().unwrap().as_deref(), Some("hf_environment"));
    assert!(!format!("{both:?}").contains("hf_environment"));
    assert_eq!(settings(&[("HF_HOME", "/nowhere")]).token().unwrap(), None);
}

#[tokio::test]
async fn offline_a_repository_is_read_from_the_local_cache() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let offline = settings(&[("HF_HUB_CACHE", cache), ("HF_HUB_OFFLINE", "1")]);
    let traffic = Traffic::default();
    let origins = Origins::new(crate::config::Cleartext::Http1);
    let reference = parsed("hf://org/name");
    let open = || HubRepository::open(&reference, &offline, &origins, &traffic);
    let error = open().await.unwrap_err().to_string();
    for part in ["hf://org/name@main", "HF_HUB_OFFLINE", "refs/main"] {
        assert!(error.contains(part), "{error}");
    }
    let repository = folder.path().join("models--org--name");
    let snapshot = repository.join("snapshots/abc123");
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::create_dir_all(repository.join("refs")).unwrap();
    std::fs::write(repository.join("refs/main"), "abc123").unwrap();
    std::fs::write(snapshot.join("model.safetensors.index.json"), "{}").unwrap();
    let opened = open().await.unwrap();
    let index = snapshot.join("model.safetensors.index.json");
    assert_eq!(opened.rows(&reference).unwrap(), Locator::File(index));
    let named = opened.rows(&parsed("hf://org/name/sub/f.gguf")).unwrap();
    assert_eq!(named, Locator::File(snapshot.join("sub/f.gguf")));
    let error = opened.knot(&reference).unwrap_err().to_string();
    assert!(
        error.contains(".gkq") && error.contains("model.safetensors.index.json"),
        "{error}"
    );
    std::fs::write(snapshot.join("m.gkq"), "").unwrap();
    let opened = open().await.unwrap();
    assert_eq!(
        opened.knot(&reference).unwrap(),
        Locator::File(snapshot.join("m.gkq"))
    );
    // A reference that points out of the cache is not followed.
    std::fs::write(repository.join("refs/main"), "../../../etc").unwrap();
    assert!(open().await.is_err());
    assert_eq!(traffic.probe.snapshot().requests, 0);
}
