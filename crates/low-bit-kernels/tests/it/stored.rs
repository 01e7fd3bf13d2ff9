//! Random weight rows in every stored form, without a quantiser: random bits with sane scales.

use low_bit_kernels::{InstructionSet, WeightType};

/// A small generator, so that a case is its seed.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In -1..1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.unit()).collect()
    }
}

/// Where a block keeps its f16 fields.
fn f16_fields(weight_type: WeightType) -> &'static [usize] {
    match weight_type {
        WeightType::Q4_0 | WeightType::Q5_0 | WeightType::Q8_0 => &[0],
        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4K | WeightType::Q5K => &[0, 2],
        WeightType::Q2K => &[80, 82],
        WeightType::Q3K => &[108],
        WeightType::Q6K => &[208],
        _ => &[],
    }
}

pub(crate) fn random_rows(
    weight_type: WeightType,
    rows: usize,
    cols: usize,
    noise: &mut Noise,
) -> Vec<u8> {
    let values = rows * cols;
    let mut bytes = Vec::new();
    match weight_type {
        WeightType::F32 => (0..values).for_each(|_| bytes.extend(noise.unit().to_le_bytes())),
        WeightType::F16 => {
            (0..values).for_each(|_| bytes.extend(half::f16::from_f32(noise.unit()).to_le_bytes()))
        }
        WeightType::Bf16 => {
            (0..values).for_each(|_| bytes.extend(half::bf16::from_f32(noise.unit()).to_le_bytes()))
        }
        _ => {
            for _ in 0..values / weight_type.values_per_block() {
                let mut block: Vec<u8> = (0..weight_type.bytes_per_block())
                    .map(|_| noise.bits() as u8)
                    .collect();
                for &at in f16_fields(weight_type) {
                    let scale = half::f16::from_f32(noise.unit() / 64.0);
                    block[at..at + 2].copy_from_slice(&scale.to_le_bytes());
                }
                bytes.extend(block);
            }
        }
    }
    bytes
}

pub(crate) fn available() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::ALL
        .into_iter()
        .filter(|set| set.is_available())
}

pub(crate) fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}
