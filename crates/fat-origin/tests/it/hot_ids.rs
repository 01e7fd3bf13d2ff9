//! The list of rows that are asked for most: what `pack` counts, what it takes from a file, and what
//! it refuses.

use std::path::Path;

use compact_tokenizer::AddSpecial;
use fat_origin::inspect::inspect;
use fat_origin::pack::{HotIds, PackOptions, pack};
use fat_origin::verify::verify;

use super::huggingface_source::{directory, tiny_tensors};
use super::packed::{Packed, packed};

const EMBEDDING: &str = "model.embed_tokens.weight";

fn options(hot_ids: HotIds) -> PackOptions {
    PackOptions {
        hot_ids,
        ..PackOptions::default()
    }
}

fn list(packed: &Packed) -> Option<Vec<u32>> {
    let columnar = packed.block(EMBEDDING).columnar.as_ref().unwrap();
    let range = columnar.hot_ids.clone()?;
    let body = &packed.bytes[range.start as usize..range.end as usize];
    Some(columnar.parse_hot_ids(body).unwrap())
}

fn file(directory: &Path, text: &str) -> HotIds {
    let path = directory.join("hot");
    std::fs::write(&path, text).unwrap();
    HotIds::File(path)
}

#[test]
fn by_default_every_token_is_in_the_list_by_its_frequency_in_the_corpus_then_by_id() {
    let source = directory(&tiny_tensors());
    let packed = packed(source.path(), PackOptions::default());
    let corpus = include_str!("../../../../fixtures/hot-ids/corpus.txt");
    let tokenizer = packed.tokenizer();
    // The slow way: one count a token.
    let tokens = tokenizer.encode(corpus, AddSpecial::Yes);
    let mut expected: Vec<u32> = (0..tokenizer.vocabulary_len()).collect();
    let count = |id: u32| tokens.iter().filter(|token| **token == id).count();
    expected.sort_by_key(|id| (std::cmp::Reverse(count(*id)), *id));
    let found = list(&packed).unwrap();
    assert_eq!(found, expected);
    assert!(count(found[0]) > count(found[1]) && count(found[0]) > 1_000);

    let summary = inspect(&packed.knot_path()).unwrap();
    let text = summary.to_string();
    assert!(
        text.contains(&format!("hot ids    {}", found.len())),
        "{text}"
    );
    let report = verify(&packed.knot_path(), Some(&packed.rows_path())).unwrap();
    assert_eq!(report.differences, []);
}

#[test]
fn a_file_of_ids_is_taken_as_it_is_and_a_text_is_counted() {
    let source = directory(&tiny_tensors());
    let scratch = tempfile::tempdir().unwrap();
    let given = packed(source.path(), options(file(scratch.path(), " [9, 3, 7]")));
    assert_eq!(list(&given), Some(vec![9, 3, 7]));
    let none = packed(source.path(), options(HotIds::Off));
    assert_eq!(list(&none), None);
    let text = "bbbbbbb aa";
    let counted = packed(source.path(), options(file(scratch.path(), text)));
    let tokens = counted.tokenizer().encode(text, AddSpecial::Yes);
    let found = list(&counted).unwrap();
    assert_eq!(found.len(), counted.tokenizer().vocabulary_len() as usize);
    let most = |id: u32| tokens.iter().filter(|token| **token == id).count();
    assert!(found.windows(2).all(|pair| {
        let (one, two) = (most(pair[0]), most(pair[1]));
        one > two || (one == two && pair[0] < pair[1])
    }));
    assert!(most(found[0]) >= 2);
}

#[test]
fn what_is_no_list_is_refused_by_name() {
    let source = directory(&tiny_tensors());
    let scratch = tempfile::tempdir().unwrap();
    for (text, part) in [
        ("[1, 2, 1]", "id 1 stands in the list twice"),
        ("[4000000000]", "id 4000000000 is no row"),
        ("[]", "the list is empty"),
        ("[1, -2]", "expected a JSON array of token ids"),
    ] {
        let out = scratch.path().join("out");
        let options = PackOptions {
            out: out.clone(),
            name: Some("tiny".to_owned()),
            ..options(file(scratch.path(), text))
        };
        let error = pack(source.path(), &options).unwrap_err().to_string();
        assert!(
            error.contains("--hot-ids") && error.contains(part),
            "{error}"
        );
        let left = std::fs::read_dir(&out).map_or(0, Iterator::count);
        assert_eq!(left, 0, "no file stays");
    }
}

#[test]
fn what_is_no_text_is_refused_as_the_option_it_is() {
    let source = directory(&tiny_tensors());
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(at("fifo"))
        .status();
    assert!(made.unwrap().success());
    std::fs::write(at("latin"), b"caf\xe9").unwrap();
    for (path, part) in [
        (at("fifo"), "not a regular file"),
        (scratch.path().to_path_buf(), "not a regular file"),
        ("/dev/null".into(), "not a regular file"),
        (at("none"), "No such file"),
        (at("latin"), "byte 3 is not UTF-8"),
    ] {
        let options = PackOptions {
            out: at("out"),
            name: Some("tiny".to_owned()),
            ..options(HotIds::File(path.clone()))
        };
        let error = pack(source.path(), &options).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(
                error,
                fat_origin::Error::Option {
                    option: "--hot-ids",
                    ..
                }
            ),
            "{text}"
        );
        assert!(
            text.contains(part) && text.contains(path.to_str().unwrap()),
            "{text}"
        );
    }
}
