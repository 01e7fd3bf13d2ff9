//! Which kernels run: chosen once per process from what the machine has, or forced for a
//! comparison. Deliberately not a compile-time feature: one binary serves every node.

use crate::Error;
use std::fmt;
use std::sync::OnceLock;

/// A family of kernels. Products are reproducible bit for bit within one, not between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum InstructionSet {
    /// Plain Rust, for every machine; also what the others are measured against.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// AVX2 and the 8-bit dot products of AVX-VNNI.
    AvxVnni,
    /// AVX-512 F, BW, VL, DQ and VNNI.
    Avx512Vnni,
    /// AArch64 with Advanced SIMD and its 8-bit dot products.
    Neon,
}

impl InstructionSet {
    /// Every set, on each architecture the slowest first.
    pub const ALL: [Self; 5] = [
        Self::Portable,
        Self::Avx2,
        Self::AvxVnni,
        Self::Avx512Vnni,
        Self::Neon,
    ];

    /// The name that `LOW_BIT_KERNELS_INSTRUCTION_SET` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avx-vnni",
            Self::Avx512Vnni => "avx512-vnni",
            Self::Neon => "neon",
        }
    }

    /// Whether this machine can run it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => crate::simd::has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni => crate::simd::has_avx_vnni(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => crate::simd::has_avx512_vnni(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => crate::simd::has_neon(),
            _ => false,
        }
    }

    /// The set in use: the best available, or the one named by the environment variable
    /// `LOW_BIT_KERNELS_INSTRUCTION_SET` when the process started (an unknown or unavailable name
    /// there is ignored: a node must not fail to start over a tuning aid).
    #[must_use]
    pub fn current() -> Self {
        static CHOSEN: OnceLock<InstructionSet> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let wanted = std::env::var("LOW_BIT_KERNELS_INSTRUCTION_SET").ok();
            let available = || Self::ALL.into_iter().rev().filter(|set| set.is_available());
            available()
                .find(|set| wanted.as_deref() == Some(set.name()))
                .or_else(|| available().next())
                .unwrap_or(Self::Portable)
        })
    }

    /// Refuses a set that this machine lacks.
    pub(crate) fn require(self) -> Result<Self, Error> {
        if self.is_available() {
            Ok(self)
        } else {
            Err(Error::NoInstructionSet {
                instruction_set: self,
            })
        }
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
