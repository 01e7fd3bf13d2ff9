//! Opens arbitrary bytes as a knot, as they are and with the digest of the front put right, for the
//! digest would stop every mutation at the door. Seeds: the goldens of `fixtures/gkq-v2/v2`.
//! Run: `cargo fuzz run -s none open` in `crates/gkq-v2` (without `-s none` on a nightly toolchain).
#![no_main]

use gkq_v2::{HEADER_BYTES, Knot};
use libfuzzer_sys::fuzz_target;

/// Where the header keeps the digest of the front.
const DIGEST: std::ops::Range<usize> = 96..128;

fuzz_target!(|bytes: &[u8]| {
    open(bytes);
    let mut sealed = bytes.to_vec();
    if let Ok(front_bytes) = Knot::front_len(bytes)
        && let Ok(front_bytes) = usize::try_from(front_bytes)
        && front_bytes >= HEADER_BYTES
        && front_bytes <= sealed.len()
    {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(&sealed[..DIGEST.start])
            .update(&sealed[DIGEST.end..front_bytes]);
        sealed[DIGEST].copy_from_slice(hasher.finalize().as_bytes());
        open(&sealed);
    }
});

/// What opens keeps its promises.
fn open(bytes: &[u8]) {
    let Ok(knot) = Knot::parse(bytes, bytes.len() as u64) else {
        return;
    };
    for block in knot.blocks() {
        assert!(block.payload.end <= knot.object_bytes());
        assert!(
            knot.block(&block.name)
                .is_some_and(|found| std::ptr::eq(found, block))
        );
        assert_eq!(block.is_columnar_eligible(), block.columnar.is_some());
        let payload = &bytes[block.payload.start as usize..block.payload.end as usize];
        let _ = knot.verify_payload(block, payload);
    }
    for section in knot.sections() {
        let body = &bytes[section.range.start as usize..section.range.end as usize];
        let _ = knot.verify_section(section, body);
        let _ = knot.text(section.kind);
    }
}
