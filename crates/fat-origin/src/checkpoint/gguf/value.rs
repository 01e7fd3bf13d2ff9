//! The typed values of GGUF metadata. Arrays of arrays are refused: no writer makes them.

use super::cursor::Cursor;
use crate::Error;

/// A metadata value with the type it has in the file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GgufValue {
    /// Type 0.
    U8(u8),
    /// Type 1.
    I8(i8),
    /// Type 2.
    U16(u16),
    /// Type 3.
    I16(i16),
    /// Type 4.
    U32(u32),
    /// Type 5.
    I32(i32),
    /// Type 6.
    F32(f32),
    /// Type 7.
    Bool(bool),
    /// Type 8.
    String(String),
    /// Type 9.
    Array(GgufArray),
    /// Type 10.
    U64(u64),
    /// Type 11.
    I64(i64),
    /// Type 12.
    F64(f64),
}

/// An array of one element type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the variants are the element types")]
pub enum GgufArray {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl GgufValue {
    /// The number, if it is an integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Self::U8(number) => Some((*number).into()),
            Self::U16(number) => Some((*number).into()),
            Self::U32(number) => Some((*number).into()),
            Self::U64(number) => Some(*number),
            Self::I8(number) => u64::try_from(*number).ok(),
            Self::I16(number) => u64::try_from(*number).ok(),
            Self::I32(number) => u64::try_from(*number).ok(),
            Self::I64(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The number, if it is a floating-point one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::F32(number) => Some((*number).into()),
            Self::F64(number) => Some(*number),
            _ => None,
        }
    }

    /// A short rendering for messages: long strings are cut, arrays are counted.
    pub fn summary(&self) -> String {
        match self {
            Self::String(text) => format!("string {:?}", text.chars().take(40).collect::<String>()),
            Self::Array(array) => format!("array of {} {}", array.len(), array.element_type()),
            scalar => format!("{scalar:?}"),
        }
    }
}

impl GgufArray {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(all) => all.len(),
            Self::I8(all) => all.len(),
            Self::U16(all) => all.len(),
            Self::I16(all) => all.len(),
            Self::U32(all) => all.len(),
            Self::I32(all) => all.len(),
            Self::F32(all) => all.len(),
            Self::Bool(all) => all.len(),
            Self::String(all) => all.len(),
            Self::U64(all) => all.len(),
            Self::I64(all) => all.len(),
            Self::F64(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element type's name.
    pub fn element_type(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
        }
    }
}

pub(super) fn read(cursor: &mut Cursor<'_>, key: &str) -> Result<GgufValue, Error> {
    let part = format!("metadata key `{key}`");
    let code = cursor.u32(&part)?;
    Ok(match code {
        0 => GgufValue::U8(u8::from_le_bytes(cursor.array(&part)?)),
        1 => GgufValue::I8(i8::from_le_bytes(cursor.array(&part)?)),
        2 => GgufValue::U16(u16::from_le_bytes(cursor.array(&part)?)),
        3 => GgufValue::I16(i16::from_le_bytes(cursor.array(&part)?)),
        4 => GgufValue::U32(cursor.u32(&part)?),
        5 => GgufValue::I32(i32::from_le_bytes(cursor.array(&part)?)),
        6 => GgufValue::F32(f32::from_le_bytes(cursor.array(&part)?)),
        7 => {
            let [byte] = cursor.array(&part)?;
            GgufValue::Bool(boolean(cursor, &part, byte)?)
        }
        8 => GgufValue::String(cursor.string(&part)?),
        9 => GgufValue::Array(array(cursor, &part)?),
        10 => GgufValue::U64(cursor.u64(&part)?),
        11 => GgufValue::I64(i64::from_le_bytes(cursor.array(&part)?)),
        12 => GgufValue::F64(f64::from_le_bytes(cursor.array(&part)?)),
        other => {
            let expected = "a value type from 0 to 12";
            return Err(Error::malformed(
                cursor.path(),
                part,
                expected,
                other.to_string(),
            ));
        }
    })
}

fn boolean(cursor: &Cursor<'_>, part: &str, byte: u8) -> Result<bool, Error> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::malformed(
            cursor.path(),
            part,
            "a bool, 0 or 1",
            other.to_string(),
        )),
    }
}

fn array(cursor: &mut Cursor<'_>, part: &str) -> Result<GgufArray, Error> {
    let code = cursor.u32(part)?;
    Ok(match code {
        0 => GgufArray::U8(numbers(cursor, part, u8::from_le_bytes)?),
        1 => GgufArray::I8(numbers(cursor, part, i8::from_le_bytes)?),
        2 => GgufArray::U16(numbers(cursor, part, u16::from_le_bytes)?),
        3 => GgufArray::I16(numbers(cursor, part, i16::from_le_bytes)?),
        4 => GgufArray::U32(numbers(cursor, part, u32::from_le_bytes)?),
        5 => GgufArray::I32(numbers(cursor, part, i32::from_le_bytes)?),
        6 => GgufArray::F32(numbers(cursor, part, f32::from_le_bytes)?),
        7 => {
            let bytes = numbers(cursor, part, u8::from_le_bytes)?;
            let all: Result<_, _> = bytes
                .into_iter()
                .map(|byte| boolean(cursor, part, byte))
                .collect();
            GgufArray::Bool(all?)
        }
        8 => {
            // A string takes at least its length field.
            let count = cursor.count(&format!("array length of {part}"), 8)?;
            let mut all = Vec::new();
            for _ in 0..count {
                all.push(cursor.string(part)?);
            }
            GgufArray::String(all)
        }
        10 => GgufArray::U64(numbers(cursor, part, u64::from_le_bytes)?),
        11 => GgufArray::I64(numbers(cursor, part, i64::from_le_bytes)?),
        12 => GgufArray::F64(numbers(cursor, part, f64::from_le_bytes)?),
        other => {
            let expected = "an array element type from 0 to 8 or 10 to 12";
            return Err(Error::malformed(
                cursor.path(),
                part,
                expected,
                other.to_string(),
            ));
        }
    })
}

fn numbers<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    part: &str,
    from_bytes: fn([u8; N]) -> T,
) -> Result<Vec<T>, Error> {
    let count = cursor.count(&format!("array length of {part}"), N as u64)?;
    // The count was compared with the bytes left, so the product is within the file's length.
    let bytes = cursor.bytes(part, count * N as u64)?;
    let (chunks, _) = bytes.as_chunks::<N>();
    Ok(chunks.iter().map(|chunk| from_bytes(*chunk)).collect())
}

/// ggml's name of a tensor type, for types that a knot does not have.
pub(super) fn ggml_type_name(code: u32) -> String {
    let name = match code {
        9 => "q8_1",
        15 => "q8_k",
        16 => "iq2_xxs",
        17 => "iq2_xs",
        18 => "iq3_xxs",
        19 => "iq1_s",
        20 => "iq4_nl",
        21 => "iq3_s",
        22 => "iq2_s",
        23 => "iq4_xs",
        24 => "i8",
        25 => "i16",
        26 => "i32",
        27 => "i64",
        28 => "f64",
        29 => "iq1_m",
        34 => "tq1_0",
        35 => "tq2_0",
        39 => "mxfp4",
        _ => return format!("ggml type {code}"),
    };
    name.to_owned()
}
