//! The table that `--columnar-embed` names: where its rows are, and how sure that is. Looking into
//! containers is columnar-embed's work, knots are gkq-v2's; which of them serves the model, the
//! resolver's. Specification: docs/format/row-store.md, "Rows without conversion".

use crate::cli::Verify;
use crate::error::Error;
use crate::knot::{OpenKnot, read_front};
use crate::locator::Locator;
use crate::matrix::EMBED_TOKENS;
use crate::resolver::{LocatedTable, Table};
use crate::traffic::{Kind, Traffic};
use columnar_embed::locate::{
    Container, Evidence, Found, LocateOptions, Located, LocationHint, Wanted, assume,
    expect_length, locate,
};
use columnar_embed::{RowLayout, RowMap, Sidecar};
use gkq_v2::{Block, Columnar, Knot, SectionKind};
use helix_transport::{ErrorKind, RangeSource};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The named object and what is known of it.
#[derive(Debug)]
pub struct RowTable {
    locator: Locator,
    source: Arc<dyn RangeSource>,
    /// Where the knot declares rows of several kinds: which each row has.
    sidecar: Option<Arc<Sidecar>>,
    verify: Verify,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
enum State {
    /// Nobody has looked.
    Unread,
    At(Located),
    /// A row file of several kinds of rows, which the first reply must prove by its length.
    Mixed(Arc<dyn RangeSource>),
    /// It is another table, or none, for this reason.
    Unfit(String),
}

/// The rows in one piece, for whoever needs all of them.
#[derive(Debug)]
pub enum WholeTable {
    /// Bytes of a file of this machine.
    File(PathBuf, Range<u64>),
    /// Bytes of an object.
    Object(Arc<dyn RangeSource>, Range<u64>),
}

impl RowTable {
    /// The object at `locator`. Nothing remote is read.
    ///
    /// # Errors
    /// [`Error::Origin`] for a file that cannot be opened or a URL that cannot be asked, [`Error::Rows`]
    /// for a knot whose sidecar is none of its matrix.
    pub fn open(locator: &Locator, knot: &OpenKnot, verify: Verify) -> Result<Self, Error> {
        Ok(Self {
            source: knot.origins().open(locator)?,
            locator: locator.clone(),
            sidecar: sidecar(knot)?,
            verify,
            state: Mutex::new(State::Unread),
        })
    }

    /// The object's place.
    #[must_use]
    pub fn locator(&self) -> &Locator {
        &self.locator
    }

    /// What the resolver is to know.
    #[must_use]
    pub fn table(&self, section: &Columnar) -> Table {
        let object = self.locator.to_string();
        let located = match self.state() {
            State::Unread => return Table::Unread { object },
            State::Unfit(reason) => return Table::Unfit { object, reason },
            State::At(located) => located,
            State::Mixed(source) => {
                return match (source.version(), &self.sidecar) {
                    (Some(_), Some(sidecar)) => Table::Located {
                        object,
                        table: LocatedTable {
                            container: "rows of several kinds".to_owned(),
                            rows: sidecar.rows(),
                            row_bytes: u64::from(sidecar.matrix_row_bytes()),
                            dtype: section.dtype.name(),
                            base_bytes: 0,
                        },
                    },
                    _ => Table::Unread { object },
                };
            }
        };
        // An assumption about an object that no reply has come of is none yet.
        if located.evidence == Evidence::Assumed && located.source.version().is_none() {
            return Table::Unread { object };
        }
        Table::Located {
            object,
            table: LocatedTable {
                container: located.container.to_string(),
                rows: located.layout.rows(),
                row_bytes: u64::from(located.layout.row_bytes()),
                dtype: section.dtype.name(),
                base_bytes: located.layout.base_bytes(),
            },
        }
    }

    /// Where the rows are, once [`RowTable::locate`] has found them.
    #[must_use]
    pub fn rows(&self) -> Option<(Arc<dyn RangeSource>, RowMap)> {
        match self.state() {
            State::At(located) => Some((located.source, located.layout.into())),
            State::Mixed(source) => Some((source, Arc::clone(self.sidecar.as_ref()?).into())),
            State::Unread | State::Unfit(_) => None,
        }
    }

    /// Which kind each row has, where the knot declares several.
    #[must_use]
    pub fn sidecar(&self) -> Option<&Arc<Sidecar>> {
        self.sidecar.as_ref()
    }

    /// The rows in one piece, once they are located.
    #[must_use]
    pub fn whole(&self) -> Option<WholeTable> {
        let (source, map) = self.rows()?;
        let range = map.base_bytes()..map.end_bytes();
        // A shard is another file than the one that was named.
        let is_shard = matches!(
            self.state(),
            State::At(located) if located.container == Container::ShardedIndex
        );
        Some(match &self.locator {
            Locator::File(path) if !is_shard => WholeTable::File(path.clone(), range),
            _ => WholeTable::Object(source, range),
        })
    }

    /// Finds the rows, unless they were found before. A name that suggests a bare row file, or the
    /// file that the knot was packed from, is believed at first: the first batch is then the first
    /// request, and [`RowTable::look_again`] follows where it was wrong.
    ///
    /// # Errors
    /// [`Error::Rows`] where the object could not be read; one that does not fit is no error here.
    pub async fn locate(
        &self,
        knot: &OpenKnot,
        section: &Columnar,
        traffic: &Traffic,
    ) -> Result<(), Error> {
        if !matches!(self.state(), State::Unread) {
            return Ok(());
        }
        if let Some(sidecar) = &self.sidecar {
            self.set(self.assume_mixed(knot, sidecar));
            return Ok(());
        }
        if &self.locator == knot.locator() {
            // The knot is at hand: its own block is the table.
            return self.settle(Ok(Found::Knot), knot, section, traffic).await;
        }
        let wanted = wanted(section);
        let hint = hint(knot.front(), section, self.verify);
        if self.source.version().is_some() {
            // A local object: looking into it costs nothing.
            return self.search(knot, section, hint, traffic).await;
        }
        let name = self.locator.file_name();
        let assumed = assume(&self.source, &name, &wanted, hint.as_ref());
        match assumed.map_err(|error| Error::rows(&self.locator, error))? {
            Some(located) => {
                self.set(State::At(located));
                Ok(())
            }
            None => self.search(knot, section, hint, traffic).await,
        }
    }

    /// After rows could not be had: looks into the object where their place was only assumed, and
    /// tells whether that changed anything.
    ///
    /// # Errors
    /// As [`RowTable::locate`].
    pub async fn look_again(
        &self,
        knot: &OpenKnot,
        section: &Columnar,
        traffic: &Traffic,
    ) -> Result<bool, Error> {
        let before = match (self.state(), &self.sidecar) {
            (State::At(before), _) => before,
            (State::Mixed(_), Some(sidecar)) => {
                let now = self.assume_mixed(knot, sidecar);
                let changed = matches!(now, State::Unfit(_));
                self.set(now);
                return Ok(changed);
            }
            _ => return Ok(false),
        };
        if before.evidence != Evidence::Assumed {
            return Ok(false);
        }
        // The hint that was wrong is not tried again; one that the length suggests now may be. An
        // object that is too short for every row that was asked has not even told its length.
        let version = before.source.version();
        let len_bytes = version.map(|version| version.len_bytes);
        let hint = hint(knot.front(), section, self.verify)
            .filter(|hint| len_bytes == Some(hint.object_bytes))
            .filter(|hint| hint.base_bytes != before.layout.base_bytes());
        tracing::warn!(
            object = before.source.name(),
            bytes = len_bytes,
            "rows are not where they were assumed: looking into the object"
        );
        self.search(knot, section, hint, traffic).await?;
        Ok(match self.state() {
            State::At(now) => {
                now.layout != before.layout || now.source.name() != before.source.name()
            }
            State::Unread | State::Unfit(_) | State::Mixed(_) => true,
        })
    }

    /// The row file of a knot whose rows are of several kinds. Its length is all there is to know it
    /// by, as its rows are proved one by one; no container holds such rows.
    fn assume_mixed(&self, knot: &OpenKnot, sidecar: &Sidecar) -> State {
        let expected = sidecar.table_bytes();
        let unfit = |found: String| {
            State::Unfit(format!(
                "its rows are {found}, those of the knot's row file are of several kinds, {expected} bytes"
            ))
        };
        if &self.locator == knot.locator() {
            return unfit("all of one kind".to_owned());
        }
        match self.source.version() {
            Some(version) if version.len_bytes != expected => {
                unfit(format!("{} bytes", version.len_bytes))
            }
            _ => State::Mixed(expect_length(&self.source, expected)),
        }
    }

    async fn search(
        &self,
        knot: &OpenKnot,
        section: &Columnar,
        hint: Option<LocationHint>,
        traffic: &Traffic,
    ) -> Result<(), Error> {
        let read = traffic.streaming(Kind::Probe);
        let (index, origins) = (self.locator.clone(), knot.origins().clone());
        let open_shard = move |name: &str| {
            let at = index.below(name);
            origins.open_source(&at)
        };
        let options = LocateOptions {
            read: &read,
            hint: hint.as_ref(),
            open_shard: &open_shard,
        };
        let found = locate(&self.source, &wanted(section), &options).await;
        self.settle(found, knot, section, traffic).await
    }

    async fn settle(
        &self,
        found: Result<Found, columnar_embed::Error>,
        knot: &OpenKnot,
        section: &Columnar,
        traffic: &Traffic,
    ) -> Result<(), Error> {
        let state = match found {
            Ok(Found::Rows(located)) => State::At(located),
            Ok(Found::Knot) => self.in_knot(knot, section, traffic).await?,
            Ok(Found::Manifest(_)) => State::Unfit(format!(
                "{} is a manifest, which names a row file; with --knot, name that file",
                self.locator
            )),
            Err(error @ columnar_embed::Error::Read { .. }) => {
                return Err(Error::rows(&self.locator, error));
            }
            Err(error) => State::Unfit(error.to_string()),
        };
        if let State::At(located) = &state {
            tracing::debug!(
                container = %located.container,
                base_bytes = located.layout.base_bytes(),
                "rows located"
            );
        }
        self.set(state);
        Ok(())
    }

    /// The dense block of a knot as a table: its rows lie there as in any container.
    async fn in_knot(
        &self,
        own: &OpenKnot,
        section: &Columnar,
        traffic: &Traffic,
    ) -> Result<State, Error> {
        let other;
        let front = if &self.locator == own.locator() {
            own.front()
        } else {
            let read = read_front(&self.locator, self.source.as_ref(), traffic).await?;
            match read {
                Ok(front) => {
                    other = front;
                    &other
                }
                Err(error) => return Ok(State::Unfit(format!("knot {}: {error}", self.locator))),
            }
        };
        let unfit = |what: String| Ok(State::Unfit(format!("knot {} {what}", self.locator)));
        let Some(block) = front.block(EMBED_TOKENS) else {
            return unfit(format!("has no tensor {EMBED_TOKENS}"));
        };
        if block.is_external() {
            return unfit(format!("was packed without {EMBED_TOKENS}"));
        }
        let expected = block_rows(block);
        if expected != Some((section.rows, u64::from(section.row_bytes)))
            || block.dtype() != section.dtype
        {
            return unfit(format!(
                "has {EMBED_TOKENS} of shape {:?} in {}",
                block.shape,
                block.dtype()
            ));
        }
        let layout = RowLayout::new(block.payload.start, section.rows, section.row_bytes);
        let layout = layout.map_err(|error| Error::rows(&self.locator, error))?;
        // The station's own remote knot is read over the source that read its front, so that both
        // are of one version.
        let source = own.source().filter(|_| &self.locator == own.locator());
        Ok(State::At(Located {
            source: source.unwrap_or_else(|| Arc::clone(&self.source)),
            layout,
            container: Container::Knot,
            evidence: Evidence::Header,
        }))
    }

    fn state(&self) -> State {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

/// The sidecar of the matrix's rows, if the knot has one. It lies in the front, whose digest was
/// checked, so a fault in it is the publisher's.
fn sidecar(knot: &OpenKnot) -> Result<Option<Arc<Sidecar>>, Error> {
    let front = knot.front();
    let block = front.block(EMBED_TOKENS);
    let Some((block, columnar)) = block.and_then(|block| Some((block, block.columnar.as_ref()?)))
    else {
        return Ok(None);
    };
    let Some(range) = &columnar.row_sidecar else {
        return Ok(None);
    };
    let bytes = front.front_slice(range).unwrap_or_default();
    let sidecar = Sidecar::parse(bytes).map_err(|error| Error::rows(knot.locator(), error))?;
    let found = (
        sidecar.rows(),
        sidecar.cols() as u64,
        sidecar.matrix().name(),
    );
    let cols = block.shape.last().copied().unwrap_or(0);
    let (rows, dtype) = (columnar.rows, columnar.dtype.name());
    if found != (rows, cols, dtype) {
        let (found_rows, found_cols, found_dtype) = found;
        return Err(Error::config(format!(
            "the sidecar of knot {} is of {found_rows} rows of {found_cols} values {found_dtype}, \
             {EMBED_TOKENS} has {rows} of {cols} values {dtype}: the knot must be packed again",
            knot.locator()
        )));
    }
    Ok(Some(Arc::new(sidecar)))
}

/// Rows and bytes of a row of a dense matrix as it is stored.
fn block_rows(block: &Block) -> Option<(u64, u64)> {
    match block.shape.as_slice() {
        &[rows, cols] if block.stored_bytes().is_some() => {
            Some((rows, block.dtype().row_bytes(cols)?))
        }
        _ => None,
    }
}

fn wanted(section: &Columnar) -> Wanted {
    Wanted::vocabulary(section.rows, section.row_bytes, section.dtype.name())
}

/// Where `fat-origin pack` saw the matrix, where it noted that and rows are verified: without
/// verification a file of the same length would pass for the one that was packed.
fn hint(front: &Knot, section: &Columnar, verify: Verify) -> Option<LocationHint> {
    if verify == Verify::Off {
        return None;
    }
    let text = front.text(SectionKind::Provenance)?;
    let provenance: serde_json::Value = serde_json::from_str(text).ok()?;
    let embedding = provenance.get("embedding")?;
    let hint = LocationHint {
        file: embedding.get("file")?.as_str()?.to_owned(),
        object_bytes: embedding.get("file_bytes")?.as_u64()?,
        base_bytes: embedding.get("base_bytes")?.as_u64()?,
    };
    // One that contradicts itself is none.
    let layout = RowLayout::new(hint.base_bytes, section.rows, section.row_bytes).ok()?;
    (layout.end_bytes() <= hint.object_bytes).then_some(hint)
}

/// Whether a failed read may be the fault of a place that was only assumed: bytes that are others,
/// or an object of another length. A wire that failed says nothing about the place.
#[must_use]
pub fn may_be_misplaced(error: &Error) -> bool {
    match error {
        Error::Rows { source, .. } => matches!(
            source.kind(),
            ErrorKind::Changed | ErrorKind::Corrupt | ErrorKind::Unsupported
        ),
        _ => false,
    }
}
