//! Fronts of GGUF files, written number by number, sound and hostile.

use super::{NAME, ROWS, TABLE_BYTES, read_table, rows, search, search_with, table, wanted};
use columnar_embed::locate::{Container, Wanted};
use proptest::prelude::*;

const STRING: u32 = 8;
const ARRAY: u32 = 9;
const F32: u32 = 6;
const BF16: u32 = 30;

/// A GGUF being written.
#[derive(Clone)]
pub(super) struct Gguf {
    version: u32,
    tensor_count: Option<u64>,
    entry_count: Option<u64>,
    entries: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
    alignment: usize,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn numbers(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

impl Gguf {
    fn empty() -> Self {
        Self {
            version: 3,
            tensor_count: None,
            entry_count: None,
            entries: Vec::new(),
            tensors: Vec::new(),
            data: Vec::new(),
            alignment: 32,
        }
    }

    /// Metadata of every kind, a norm, and the matrix at data offset 64.
    pub(super) fn sound() -> Self {
        let nested = [
            &ARRAY.to_le_bytes()[..],
            &numbers(&[2]),
            &STRING.to_le_bytes(),
            &numbers(&[1]),
            &text("deep"),
            &F32.to_le_bytes(),
            &numbers(&[2]),
            &[0; 8],
        ]
        .concat();
        Self::empty()
            .entry("general.architecture", STRING, &text("llama"))
            .entry("a.bool", 7, &[1])
            .entry("a.i64", 11, &[0; 8])
            .entry("a.nested", ARRAY, &nested)
            .strings("tokenizer.ggml.tokens", &["<s>", "é", ""])
            .tensor("output_norm.weight", &[16], 0, 0)
            .tensor("token_embd.weight", &[32, ROWS], BF16, 64)
            .data([&[1; 64][..], &table()].concat())
    }

    fn entry(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        let entry = [&text(key)[..], &kind.to_le_bytes(), value].concat();
        self.entries.push(entry);
        self
    }

    fn strings(self, key: &str, values: &[&str]) -> Self {
        let mut value = [&STRING.to_le_bytes()[..], &numbers(&[values.len() as u64])].concat();
        for one in values {
            value.extend(text(one));
        }
        self.entry(key, ARRAY, &value)
    }

    /// Dimensions innermost first, as the format has them.
    fn tensor(mut self, name: &str, dims: &[u64], code: u32, offset: u64) -> Self {
        let count = dims.len() as u32;
        let entry = [
            &text(name)[..],
            &count.to_le_bytes(),
            &numbers(dims),
            &code.to_le_bytes(),
            &offset.to_le_bytes(),
        ]
        .concat();
        self.tensors.push(entry);
        self
    }

    fn data(mut self, data: Vec<u8>) -> Self {
        self.data = data;
        self
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        let tensors = self.tensor_count.unwrap_or(self.tensors.len() as u64);
        let entries = self.entry_count.unwrap_or(self.entries.len() as u64);
        file.extend(numbers(&[tensors, entries]));
        file.extend(self.entries.concat());
        file.extend(self.tensors.concat());
        file.resize(file.len().next_multiple_of(self.alignment), 0);
        file.extend(&self.data);
        file
    }
}

#[test]
fn the_matrix_of_a_gguf_is_found() {
    for version in [2, 3] {
        let gguf = Gguf {
            version,
            ..Gguf::sound()
        };
        let file = gguf.bytes();
        let base = (file.len() - TABLE_BYTES) as u64;
        let located = rows(search(file).0);
        assert_eq!(located.container, Container::Gguf);
        assert_eq!(located.layout.base_bytes(), base);
        assert_eq!(read_table(&located), table());
    }
}

#[test]
fn alignment_is_the_files_own() {
    let gguf = Gguf {
        alignment: 256,
        ..Gguf::empty()
            .entry("general.alignment", 4, &256_u32.to_le_bytes())
            .tensor("token_embd.weight", &[32, ROWS], BF16, 256)
            .data([&[1; 256][..], &table()].concat())
    };
    assert_eq!(read_table(&rows(search(gguf.bytes()).0)), table());
}

/// Rows of quantised types are whole blocks, and their names those of a knot.
#[test]
fn quantised_rows_are_found() {
    for (code, dtype, cols, row_bytes) in [
        (8, "q8_0", 64, 68),
        (2, "q4_0", 64, 36),
        (14, "q6_k", 256, 210),
        (0, "f32", 5, 20),
    ] {
        let data = vec![3; 10 * row_bytes as usize];
        let gguf = Gguf::empty()
            .tensor("token_embd.weight", &[cols, ROWS], code, 0)
            .data(data.clone());
        let wanted = Wanted::vocabulary(ROWS, row_bytes, dtype);
        let (found, _) = search_with(gguf.bytes(), &wanted, None);
        assert_eq!(read_table(&rows(found)), data, "{dtype}");
        let other = Wanted::vocabulary(ROWS, row_bytes, "f16");
        let error = search_with(gguf.bytes(), &other, None)
            .0
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("[10, {cols}] {dtype}")), "{error}");
    }
}

/// A vocabulary of megabytes: texts are passed in growing pieces, numbers are not fetched at all.
#[test]
fn a_large_front_is_read_once_and_number_arrays_are_stepped_over() {
    let words: Vec<String> = (0..200_000).map(|id| format!("token-{id}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let scores = 8_000_000_u64;
    let mut value = [&F32.to_le_bytes()[..], &numbers(&[scores])].concat();
    value.resize(value.len() + 4 * scores as usize, 0);
    let gguf = Gguf::empty()
        .strings("tokenizer.ggml.tokens", &words)
        .entry("tokenizer.ggml.scores", ARRAY, &value)
        .tensor("token_embd.weight", &[32, ROWS], BF16, 0)
        .data(table());
    let file = gguf.bytes();
    let words_bytes: usize = words.iter().map(|word| word.len() + 8).sum();
    let (found, cost) = search(file);
    assert_eq!(read_table(&rows(found)), table());
    let most = words_bytes as u64 + 2 * 2 * 1024 * 1024;
    assert!(
        cost.received_bytes <= most,
        "{cost:?}, {words_bytes} of words"
    );
    assert!(cost.requests <= 8, "{cost:?}");
    assert_eq!(cost.requests, cost.waves, "one after the other");
}

#[track_caller]
fn assert_rejects(gguf: &Gguf, parts: &[&str]) {
    assert_rejects_bytes(gguf.bytes(), parts);
}

#[track_caller]
pub(super) fn assert_rejects_bytes(bytes: Vec<u8>, parts: &[&str]) {
    let len = bytes.len() as u64;
    let (found, cost) = search(bytes);
    let error = found.unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(cost.received_bytes <= len, "{cost:?}");
}

/// llama.cpp#27203, #24759, #18674, candle#3714, candle#3533, gguf-tools#25, sparkinfer#25.
#[test]
fn one_defect_a_file() {
    let sound = Gguf::sound;
    let matrix = |dims: &[u64], code: u32, offset: u64| {
        Gguf::empty()
            .tensor("token_embd.weight", dims, code, offset)
            .data([&[1; 64][..], &table()].concat())
    };
    // 64 bytes that claim 2^32 of something.
    for (tensors, entries, what) in [
        (1_u64 << 32, 0, "tensor count"),
        (0, 1 << 32, "metadata count"),
    ] {
        let claims = Gguf {
            tensor_count: Some(tensors),
            entry_count: Some(entries),
            ..Gguf::empty().data(vec![0; 32])
        };
        assert_eq!(claims.bytes().len(), 64);
        assert_rejects(&claims, &[what, "4294967296"]);
    }
    assert_rejects(
        &Gguf {
            version: 1,
            ..sound()
        },
        &["version", "1"],
    );
    let big_endian = Gguf {
        version: 3_u32.swap_bytes(),
        ..sound()
    };
    assert_rejects(&big_endian, &["big-endian"]);
    assert_rejects(&matrix(&[32; 9], BF16, 0), &["token_embd.weight", "9"]);
    assert_rejects(&matrix(&[], BF16, 0), &["1 to 4 dimensions", "found 0"]);
    for dims in [
        [i64::MAX as u64, 2],
        [1 << 40, 1 << 40],
        [(1 << 42) + 1, ROWS],
        [0, ROWS],
    ] {
        assert_rejects(
            &matrix(&dims, BF16, 0),
            &["[10, 32] bf16", "token_embd.weight"],
        );
    }
    assert_rejects(&matrix(&[32, ROWS], 99, 0), &["ggml type 99", "bf16"]);
    assert_rejects(&matrix(&[ROWS, 32], BF16, 0), &["[32, 10] bf16"]);
    assert_rejects(
        &matrix(&[32, ROWS], BF16, 96),
        &["end by the file's end", "96"],
    );
    assert_rejects(
        &matrix(&[32, ROWS], BF16, u64::MAX - 31),
        &["end by the file's end"],
    );
    assert_rejects(
        &matrix(&[32, ROWS], BF16, 33),
        &["multiple of the alignment 32", "33"],
    );
    assert_rejects(
        &sound().tensor("b", &[8], 0, 96),
        &["bytes of its own", "tensor `b` at 96"],
    );
    let around = sound().tensor("b", &[1 << 50], 0, 0);
    assert_rejects(&around, &["bytes of its own", "tensor `b`"]);
    assert_rejects(
        &sound().tensor("token_embd.weight", &[1], 0, 0),
        &["to be there once"],
    );
    let none = Gguf::empty().tensor("blk.0.attn_q.weight", &[32, ROWS], BF16, 0);
    assert_rejects(&none.data(table()), &["no tensor named", NAME]);
    // Texts and arrays that claim more than there is.
    let long = [&u64::MAX.to_le_bytes()[..], b"x"].concat();
    assert_rejects(
        &Gguf::empty().entry("k", STRING, &long).data(vec![0; 64]),
        &["k", "at most"],
    );
    for (kind, least) in [(F32, 4), (STRING, 8), (ARRAY, 12), (0, 1)] {
        let claims = [&u32::to_le_bytes(kind)[..], &numbers(&[1 << 61])].concat();
        let gguf = Gguf::empty().entry("k", ARRAY, &claims).data(vec![0; 64]);
        assert_rejects(&gguf, &["k", "at most", &(1_u64 << 61).to_string()]);
        assert!(least > 0);
    }
    assert_rejects(
        &Gguf::empty().entry("k", 13, &[0; 8]).data(vec![0; 64]),
        &["value type", "13"],
    );
    let kinds = [&77_u32.to_le_bytes()[..], &numbers(&[1])].concat();
    assert_rejects(
        &Gguf::empty().entry("k", ARRAY, &kinds).data(vec![0; 64]),
        &["element type", "77"],
    );
    let mut deep = Vec::new();
    for _ in 0..100_000 {
        deep.extend(ARRAY.to_le_bytes());
        deep.extend(numbers(&[1]));
    }
    assert_rejects(
        &Gguf::empty().entry("k", ARRAY, &deep).data(vec![0; 64]),
        &["at most 4 deep"],
    );
    for (kind, value) in [
        (4, vec![0; 4]),
        (4, vec![3, 0, 0, 0]),
        (10, vec![32, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        let gguf = Gguf::empty().entry("general.alignment", kind, &value);
        assert_rejects(&gguf.data(vec![0; 64]), &["general.alignment"]);
    }
}

#[test]
fn every_prefix_is_an_error() {
    let whole = Gguf::sound().bytes();
    for end in 0..whole.len() {
        let (found, _) = search(whole[..end].to_vec());
        // 640 bytes would be a bare file: its rows would not verify.
        assert!(
            found.is_err() || end == TABLE_BYTES,
            "{end} of {} bytes",
            whole.len()
        );
    }
}

proptest! {
    /// Damage anywhere gives an error or the matrix of the declared geometry inside the object, and
    /// never more reads than the object has bytes.
    #[test]
    fn damage_never_panics(
        damage in prop::collection::vec((0_usize..400, any::<u8>()), 1..8),
        cut in 0_usize..2_000,
    ) {
        let mut bytes = Gguf::sound().bytes();
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut.max(16));
        let len = bytes.len() as u64;
        let (found, cost) = search(bytes);
        prop_assert!(cost.received_bytes <= len);
        if let Ok(columnar_embed::locate::Found::Rows(located)) = found {
            prop_assert!(located.layout.end_bytes() <= len);
            prop_assert_eq!(located.layout.rows(), wanted().rows);
        }
    }
}
