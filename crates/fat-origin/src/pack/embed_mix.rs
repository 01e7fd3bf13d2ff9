//! `--embed-mix`: which rows of the vocabulary matrix are stored in which kind. Parsing and choosing
//! only; `mixed` encodes. Which rows are rare is `hot_ids`' answer.
//!
//! `fp8_e4m3=rarest:50%` stores the rarer half of the rows in fp8. Items are separated by commas and
//! read in order: the first one that names a row decides, and a row that none names stays as the
//! matrix has it. So `int8=rarest:25%,fp8_e4m3=rarest:75%` keeps the most frequent quarter, stores the
//! next half in fp8 and the rarest quarter in int8.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use columnar_embed::{FloatKind, RowKind, SidecarBuilder};
use compact_tokenizer::TokenizerSpec;
use gkq_v2::Dtype;

use super::selection::Selected;
use crate::Error;
use crate::checkpoint::EMBEDDING;

/// Rows by kind, as the user asked.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedMix {
    items: Vec<(RowKind, Rows)>,
}

/// Which rows an item names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rows {
    /// The last ones in order of frequency: so many.
    Rarest(u64),
    /// As above, in hundredths of a percent of all rows.
    RarestShare(u64),
    /// Ids from the first up to and without the second.
    Ids(u64, u64),
    /// All.
    Rest,
}

/// A `--embed-mix` that could not be understood, with what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{item}` is no part of a mix: {reason}; expected KIND=ROWS with KIND one of {}, and ROWS \
     rarest:N, rarest:P%, FIRST..END or rest",
    kinds()
)]
pub struct MixSyntax {
    item: String,
    reason: &'static str,
}

fn kinds() -> String {
    RowKind::ALL.map(RowKind::name).join(", ")
}

impl FromStr for EmbedMix {
    type Err = MixSyntax;

    fn from_str(text: &str) -> Result<Self, MixSyntax> {
        let items: Result<Vec<_>, _> = text.split(',').map(item).collect();
        Ok(Self { items: items? })
    }
}

fn item(text: &str) -> Result<(RowKind, Rows), MixSyntax> {
    let text = text.trim();
    let refuse = |reason| MixSyntax {
        item: text.to_owned(),
        reason,
    };
    let (kind, rows) = text
        .split_once('=')
        .ok_or_else(|| refuse("there is no `=`"))?;
    let kind = RowKind::from_name(kind.trim()).ok_or_else(|| refuse("no such kind of row"))?;
    let rows = rows.trim();
    let number = |digits: &str| digits.trim().parse::<u64>().ok();
    if rows == "rest" {
        return Ok((kind, Rows::Rest));
    }
    if let Some(count) = rows.strip_prefix("rarest:") {
        let rows = match count.trim().strip_suffix('%') {
            Some(percent) => Rows::RarestShare(
                hundredths(percent.trim()).ok_or_else(|| refuse("a share is 0% to 100%"))?,
            ),
            None => Rows::Rarest(number(count).ok_or_else(|| refuse("not a number of rows"))?),
        };
        return Ok((kind, rows));
    }
    let (first, end) = rows
        .split_once("..")
        .ok_or_else(|| refuse("these rows are not known"))?;
    match (number(first), number(end)) {
        (Some(first), Some(end)) if first < end => Ok((kind, Rows::Ids(first, end))),
        _ => Err(refuse("a range of ids is FIRST..END with FIRST below END")),
    }
}

/// Hundredths of a percent from `12`, `12.5` or `12.25`: decimal arithmetic, so that the same text
/// names the same rows everywhere.
fn hundredths(percent: &str) -> Option<u64> {
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, ""));
    if fraction.len() > 2 || !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(100)?;
    let part = format!("{fraction:0<2}").parse::<u64>().ok()?;
    whole.checked_add(part).filter(|&share| share <= 10_000)
}

impl fmt::Display for EmbedMix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (kind, rows)) in self.items.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}{kind}=")?;
            match rows {
                Rows::Rarest(count) => write!(out, "rarest:{count}")?,
                Rows::RarestShare(share) => {
                    write!(out, "rarest:{}.{:02}%", share / 100, share % 100)?;
                }
                Rows::Ids(first, end) => write!(out, "{first}..{end}")?,
                Rows::Rest => write!(out, "rest")?,
            }
        }
        Ok(())
    }
}

/// The kind of every row, decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) matrix: FloatKind,
    /// The kinds that rows have, the matrix's own first if any has it.
    pub(super) palette: Vec<RowKind>,
    /// For each row its place in `palette`.
    of_row: Vec<u8>,
}

impl Assignment {
    /// The sidecar of these rows, before the first one is told.
    pub(super) fn sidecar(&self, embedding: &Selected) -> Result<SidecarBuilder, Error> {
        let (rows, cols) = match *embedding.shape.as_slice() {
            [rows, cols] => (rows, cols),
            _ => (0, 0),
        };
        SidecarBuilder::new(self.matrix, rows, cols, &self.palette).map_err(|source| {
            Error::Option {
                option: "--embed-mix",
                reason: format!("tensor `{EMBEDDING}`: {source}"),
            }
        })
    }

    /// The kind of row `row`, or `None` behind the last one.
    pub(super) fn kind(&self, row: u64) -> Option<RowKind> {
        let index = *self.of_row.get(usize::try_from(row).ok()?)?;
        self.palette.get(usize::from(index)).copied()
    }
}

/// The floating-point type of a matrix that can have a mix.
fn float_kind(dtype: Dtype) -> Option<FloatKind> {
    Some(match dtype {
        Dtype::F32 => FloatKind::F32,
        Dtype::F16 => FloatKind::F16,
        Dtype::Bf16 => FloatKind::Bf16,
        _ => return None,
    })
}

impl EmbedMix {
    /// Decides for a matrix of `hottest.len()` rows of `dtype`. `hottest` has every row once, the most
    /// frequent first.
    pub(super) fn assign(&self, dtype: Dtype, hottest: &[u32]) -> Result<Assignment, Error> {
        let refuse = |reason| Error::Option {
            option: "--embed-mix",
            reason,
        };
        let Some(matrix) = float_kind(dtype) else {
            return Err(refuse(format!(
                "a matrix of {dtype} is kept as it is; --embed-dtype f32, f16 or bf16 makes one that \
                 can be mixed"
            )));
        };
        if let Some((kind, _)) = self.items.iter().find(|(kind, _)| !kind.fits(matrix)) {
            return Err(refuse(format!(
                "rows of {kind} save nothing over a matrix of {dtype}"
            )));
        }
        let rows = hottest.len();
        let mut chosen: Vec<Option<RowKind>> = vec![None; rows];
        for &(kind, named) in &self.items {
            let mut name = |row: usize| {
                if let Some(chosen) = chosen.get_mut(row) {
                    chosen.get_or_insert(kind);
                }
            };
            match named {
                Rows::Rest => (0..rows).for_each(name),
                Rows::Ids(first, end) => {
                    if end > rows as u64 {
                        return Err(refuse(format!(
                            "{first}..{end} ends behind the last of {rows} rows"
                        )));
                    }
                    (as_index(first)..as_index(end)).for_each(name);
                }
                Rows::Rarest(_) | Rows::RarestShare(_) => {
                    let count = named.count(rows as u64);
                    if count > rows as u64 {
                        return Err(refuse(format!("rarest:{count} are more than {rows} rows")));
                    }
                    let rarest = hottest.iter().rev().take(as_index(count));
                    rarest.for_each(|&row| name(as_index(row.into())));
                }
            }
        }
        let assignment = Assignment::new(matrix, &chosen);
        if assignment.palette == [matrix.kind()] {
            return Err(refuse(format!(
                "{self} leaves all {rows} rows as they are; no row is stored in another kind"
            )));
        }
        Ok(assignment)
    }
}

/// Row ids, the most frequent first: tokens that were added by hand, which stand in every chat's
/// prompt whatever their ids are, then the hot ids of the knot, then ids ascending, which is the
/// order in which a BPE vocabulary was learnt. Rows without a token come last.
pub(super) fn by_frequency(tokenizer: &TokenizerSpec, hot_ids: &[u32], rows: u64) -> Vec<u32> {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    let added = tokenizer.added.iter().map(|token| token.id);
    let mut seen = HashSet::new();
    let order = added.chain(hot_ids.iter().copied()).chain(0..rows);
    order.filter(|id| *id < rows && seen.insert(*id)).collect()
}

impl Rows {
    fn count(self, rows: u64) -> u64 {
        match self {
            // Rounded down: a share never takes a row too many.
            Self::RarestShare(share) => rows.saturating_mul(share) / 10_000,
            Self::Rarest(count) => count,
            Self::Ids(first, end) => end - first,
            Self::Rest => rows,
        }
    }
}

impl Assignment {
    fn new(matrix: FloatKind, chosen: &[Option<RowKind>]) -> Self {
        let own = matrix.kind();
        let mut palette = Vec::new();
        if chosen.iter().any(|kind| kind.unwrap_or(own) == own) {
            palette.push(own);
        }
        let of_row = chosen.iter().map(|kind| {
            let kind = kind.unwrap_or(own);
            let known = palette.iter().position(|&other| other == kind);
            let index = known.unwrap_or_else(|| {
                palette.push(kind);
                palette.len() - 1
            });
            // There are nine kinds in all.
            u8::try_from(index).unwrap_or(u8::MAX)
        });
        let of_row = of_row.collect();
        Self {
            matrix,
            palette,
            of_row,
        }
    }
}

/// An index into what is in memory; what does not fit is behind its end.
fn as_index(row: u64) -> usize {
    usize::try_from(row).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
