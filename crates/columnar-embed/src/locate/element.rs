//! Element types as containers name them, and the bytes of a row of them. Nothing of their values.
//! Specification: the type tables of safetensors and of ggml.

/// Values that are stored together, and the bytes they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    /// As `gkq-v2` names it.
    pub(super) name: &'static str,
    /// ggml's number.
    code: u32,
    values: u64,
    bytes: u64,
}

const fn element(name: &'static str, code: u32, values: u64, bytes: u64) -> Element {
    Element {
        name,
        code,
        values,
        bytes,
    }
}

const ELEMENTS: [Element; 14] = [
    element("f32", 0, 1, 4),
    element("f16", 1, 1, 2),
    element("q4_0", 2, 32, 18),
    element("q4_1", 3, 32, 20),
    element("q5_0", 6, 32, 22),
    element("q5_1", 7, 32, 24),
    element("q8_0", 8, 32, 34),
    element("q2_k", 10, 256, 84),
    element("q3_k", 11, 256, 110),
    element("q4_k", 12, 256, 144),
    element("q5_k", 13, 256, 176),
    element("q6_k", 14, 256, 210),
    element("q8_k", 15, 256, 292),
    element("bf16", 30, 1, 2),
];

impl Element {
    pub(super) fn named(name: &str) -> Option<Self> {
        ELEMENTS.into_iter().find(|element| element.name == name)
    }

    /// The type with ggml's number `code`.
    pub(super) fn of_ggml(code: u32) -> Option<Self> {
        ELEMENTS.into_iter().find(|element| element.code == code)
    }

    /// Bytes of one value of a safetensors type and its name here; `None` for a type that this
    /// reader has not heard of.
    pub(super) fn of_safetensors(name: &str) -> Option<(u64, &'static str)> {
        Some(match name {
            "F32" => (4, "f32"),
            "F16" => (2, "f16"),
            "BF16" => (2, "bf16"),
            "F8_E4M3" => (1, "f8_e4m3"),
            "F8_E5M2" => (1, "f8_e5m2"),
            "F64" => (8, "f64"),
            "I64" | "U64" | "C64" => (8, "64-bit"),
            "I32" | "U32" => (4, "32-bit"),
            "I16" | "U16" => (2, "16-bit"),
            "BOOL" | "U8" | "I8" | "F8_E8M0" => (1, "8-bit"),
            _ => return None,
        })
    }

    /// Values in a row of `row_bytes` bytes; `None` where it is not whole blocks.
    pub(super) fn cols(self, row_bytes: u32) -> Option<u64> {
        let row_bytes = u64::from(row_bytes);
        if !row_bytes.is_multiple_of(self.bytes) {
            return None;
        }
        row_bytes.checked_div(self.bytes)?.checked_mul(self.values)
    }

    /// Bytes of a tensor of this shape, outermost dimension first; `None` where a row is not whole
    /// blocks or the product does not fit 64 bits.
    pub(super) fn tensor_bytes(self, shape: &[u64]) -> Option<u64> {
        let (&cols, outer) = shape.split_last()?;
        if !cols.is_multiple_of(self.values) {
            return None;
        }
        let row = cols.checked_div(self.values)?.checked_mul(self.bytes)?;
        outer
            .iter()
            .try_fold(row, |bytes, &dim| bytes.checked_mul(dim))
    }
}
