//! The fields of a knot by name, from the tables of the format page and not from the crate's
//! layout: they annotate the goldens and let defects be written as `block[0].dtype`.

use std::ops::Range;

/// A named stretch of a knot.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) range: Range<usize>,
}

const HEADER: [(&str, usize); 10] = [
    ("magic", 8),
    ("version", 4),
    ("flags", 4),
    ("object_bytes", 8),
    ("front_bytes", 8),
    ("block_count", 4),
    ("section_count", 4),
    ("names_bytes", 4),
    ("reserved", 52),
    ("front_blake3", 32),
];

const BLOCK: [(&str, usize); 17] = [
    ("name_bytes", 4),
    ("kind", 4),
    ("dtype", 4),
    ("flags", 4),
    ("dims", 4),
    ("rank", 4),
    ("source_dtype", 4),
    ("reserved_word", 4),
    ("shape[0]", 8),
    ("shape[1]", 8),
    ("shape[2]", 8),
    ("shape[3]", 8),
    ("payload_offset", 8),
    ("payload_bytes", 8),
    ("error", 8),
    ("reserved_tail", 8),
    ("blake3", 32),
];

const SECTION: [(&str, usize); 7] = [
    ("kind", 4),
    ("flags", 4),
    ("block", 4),
    ("reserved", 4),
    ("body_offset", 8),
    ("body_bytes", 8),
    ("blake3", 32),
];

const COLUMNAR: [(&str, usize); 8] = [
    ("rows", 8),
    ("row_bytes", 4),
    ("dtype", 4),
    ("rows_blake3", 32),
    ("tree_root", 16),
    ("pinned_level", 4),
    ("path_bytes_per_row", 4),
    ("reserved", 8),
];

/// Every stretch of a good knot, in file order and without holes.
pub(crate) fn spans(file: &[u8]) -> Vec<Span> {
    let mut walk = Walk {
        spans: Vec::new(),
        cursor: 0,
    };
    walk.record("header", &HEADER);
    let block_count = number(file, 32, 4);
    let section_count = number(file, 36, 4);
    for index in 0..block_count {
        walk.record(&format!("block[{index}]"), &BLOCK);
    }
    for index in 0..section_count {
        walk.record(&format!("section[{index}]"), &SECTION);
    }
    for index in 0..block_count {
        walk.add(format!("name[{index}]"), number(file, 128 + 128 * index, 4));
    }
    let mut bodies: Vec<(usize, usize, String)> = Vec::new();
    for index in 0..section_count {
        let entry = 128 + 128 * block_count + 64 * index;
        let (start, bytes) = (number(file, entry + 16, 8), number(file, entry + 24, 8));
        bodies.push((start, bytes, format!("body[{index}]")));
    }
    for index in 0..block_count {
        let entry = 128 + 128 * index;
        let (start, bytes) = (number(file, entry + 64, 8), number(file, entry + 72, 8));
        bodies.push((start, bytes, format!("payload[{index}]")));
    }
    bodies.sort();
    let front_bytes = number(file, 24, 8);
    let columnar = (0..section_count)
        .find(|index| number(file, 128 + 128 * block_count + 64 * index, 4) == 16)
        .map(|index| format!("body[{index}]"));
    for (start, bytes, name) in bodies.into_iter().filter(|(_, bytes, _)| *bytes > 0) {
        if start >= front_bytes && walk.cursor < front_bytes {
            walk.pad_to(front_bytes);
        }
        walk.pad_to(start);
        if Some(&name) == columnar.as_ref() {
            walk.record(&name, &COLUMNAR);
        } else {
            walk.add(name, bytes);
        }
    }
    walk.pad_to(file.len());
    walk.spans
}

/// Where the field of this name lies.
#[track_caller]
pub(crate) fn find(file: &[u8], name: &str) -> Range<usize> {
    let found = spans(file).into_iter().find(|span| span.name == name);
    found
        .unwrap_or_else(|| panic!("no field is named {name:?}"))
        .range
}

struct Walk {
    spans: Vec<Span>,
    cursor: usize,
}

impl Walk {
    fn add(&mut self, name: String, bytes: usize) {
        let range = self.cursor..self.cursor + bytes;
        self.cursor = range.end;
        self.spans.push(Span { name, range });
    }

    fn record(&mut self, record: &str, fields: &[(&str, usize)]) {
        for (field, bytes) in fields {
            self.add(format!("{record}.{field}"), *bytes);
        }
    }

    fn pad_to(&mut self, offset: usize) {
        if offset > self.cursor {
            self.add("padding".to_owned(), offset - self.cursor);
        }
    }
}

/// The little-endian number of `bytes` bytes at `offset`.
fn number(file: &[u8], offset: usize, bytes: usize) -> usize {
    let digits = file[offset..offset + bytes].iter().rev();
    digits.fold(0, |value, &byte| value << 8 | usize::from(byte))
}
