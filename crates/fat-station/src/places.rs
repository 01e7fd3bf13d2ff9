//! Where the knot and the rows are, once everything that flags may stand for is looked up: a hub's
//! commit, what a manifest names, and the places of a knot that nobody named. What an object holds
//! is found when it is opened. Specification: docs/format/row-store.md, "Rows without conversion".

use crate::config::Config;
use crate::error::Error;
use crate::hub::{self, HubRepository};
use crate::locator::Locator;
use crate::manifest::{self, Manifest};
use crate::origin::Origins;
use crate::traffic::{Kind, Traffic};
use helix_transport::read_whole;

/// Name of a manifest that lies beside what it names.
const MANIFEST: &str = "manifest.json";
/// Ending of a sharded checkpoint's index.
const INDEX_ENDING: &str = ".safetensors.index.json";

/// What a station opens.
#[derive(Debug)]
pub struct Places {
    /// Opens all of them, over shared connections.
    pub origins: Origins,
    /// The row table; the knot's own matrix where absent.
    pub rows: Option<Locator>,
    /// Places of the knot, in the order they are tried.
    pub knots: Vec<Candidate>,
    /// The manifest that was named instead of rows.
    manifest: Option<Manifest>,
}

/// One place of a knot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidate {
    /// The user named it: if it is not there, that is the error.
    Named(Locator),
    /// It is usual: if it is not there, or is no knot, the next one is tried.
    Usual(Locator),
    /// A manifest that may name it.
    Manifest(Locator),
}

/// A knot's place as far as it is known before it is opened.
#[derive(Debug)]
pub struct KnotPlace {
    /// Where it is.
    pub locator: Locator,
    /// Where its rows are, if rows were asked for.
    pub rows: Option<Locator>,
    /// What names it, and what it has to be.
    pub manifest: Option<Manifest>,
}

impl Places {
    /// Looks up what `config` names.
    ///
    /// # Errors
    /// Those of [`HubRepository::open`] and of the choice of a file in a repository.
    pub async fn find(config: &Config, traffic: &Traffic) -> Result<Self, Error> {
        let hub = &config.hub;
        let credentials = match (&hub.rows, &hub.knot) {
            (None, None) => None,
            _ => hub::credentials(&hub.settings)?,
        };
        let origins = Origins::new(config.cleartext)
            .with_credentials(credentials)
            .with_memory(config.cache_dir.as_deref());
        let open = |reference| HubRepository::open(reference, &hub.settings, &origins, traffic);
        let (mut rows, mut repository) = (config.rows.clone(), None);
        if let Some(reference) = &hub.rows {
            let opened = open(reference).await?;
            rows = Some(opened.rows(reference)?);
            repository = Some(opened);
        }
        let mut knots: Vec<Candidate> = config.knot.iter().cloned().map(Candidate::Named).collect();
        let mut manifest = None;
        if let Some(named) = rows.as_ref().filter(|rows| may_be_manifest(rows)) {
            manifest = read_manifest(&origins, named, traffic).await?;
        }
        if let Some(manifest) = &manifest {
            rows = Some(manifest.rows_locator().clone());
        }
        if let Some(reference) = &hub.knot {
            let same = repository.take().filter(|opened| opened.is_of(reference));
            let opened = match same {
                Some(opened) => opened,
                None => open(reference).await?,
            };
            knots.push(Candidate::Named(opened.knot(reference)?));
        } else if let (true, Some(manifest)) = (knots.is_empty(), &manifest) {
            knots.push(Candidate::Named(manifest.knot.object.locator.clone()));
        } else if let (true, Some(rows)) = (knots.is_empty(), &rows) {
            if let Some(opened) = &repository {
                knots.extend(opened.only_knot()?.map(Candidate::Usual));
            }
            knots.extend(beside(rows));
            knots.dedup();
        }
        Ok(Self {
            origins,
            rows,
            knots,
            manifest,
        })
    }

    /// The knot's place behind `candidate`; `None` for a manifest that does not name the rows.
    ///
    /// # Errors
    /// [`Error::Origin`] where a manifest could not be read, [`Error::Config`] for a malformed one.
    pub async fn knot(
        &self,
        candidate: &Candidate,
        traffic: &Traffic,
    ) -> Result<Option<KnotPlace>, Error> {
        let at = match candidate {
            Candidate::Named(locator) | Candidate::Usual(locator) => {
                let named = |manifest: &&Manifest| &manifest.knot.object.locator == locator;
                return Ok(Some(KnotPlace {
                    locator: locator.clone(),
                    rows: self.rows.clone(),
                    manifest: self.manifest.as_ref().filter(named).cloned(),
                }));
            }
            Candidate::Manifest(at) => at,
        };
        let Some(manifest) = read_manifest(&self.origins, at, traffic).await? else {
            return Ok(None);
        };
        // The rows themselves may turn out to be a manifest; one beside them has to name them.
        let is_rows = self.rows.as_ref() == Some(at);
        let names = |rows: &Locator| manifest.names_rows(rows) || manifest.names_knot(rows);
        if !is_rows && !self.rows.as_ref().is_some_and(names) {
            return Ok(None);
        }
        let rows = if is_rows {
            Some(manifest.rows_locator().clone())
        } else {
            self.rows.clone()
        };
        Ok(Some(KnotPlace {
            locator: manifest.knot.object.locator.clone(),
            rows,
            manifest: Some(manifest),
        }))
    }
}

/// By its name, a manifest: it is looked into first, since a knot beside it may be another one.
fn may_be_manifest(rows: &Locator) -> bool {
    let name = rows.file_name();
    name.ends_with(".json") && !name.ends_with(INDEX_ENDING)
}

/// The manifest at `locator`, or `None` for an object that is none. It is read once a start, past
/// every cache of the station's own: all that it names is of one version.
async fn read_manifest(
    origins: &Origins,
    locator: &Locator,
    traffic: &Traffic,
) -> Result<Option<Manifest>, Error> {
    let failed = |source| Error::origin(locator, source);
    let source = origins.open_source(locator).map_err(failed)?;
    let options = traffic.streaming(Kind::Probe);
    options.meter.add_waves(1);
    let bytes = match read_whole(source.as_ref(), manifest::MAX_BYTES, &options).await {
        Err(helix_transport::Error::TooLarge { .. }) => return Ok(None),
        read => read.map_err(failed)?,
    };
    if !Manifest::is_manifest(&bytes) {
        return Ok(None);
    }
    options.meter.add_useful(bytes.len() as u64);
    Manifest::parse(&bytes, locator).map(Some)
}

/// Where a knot usually is when rows alone were named. A signed URL's query is not reused.
fn beside(rows: &Locator) -> Vec<Candidate> {
    let knot = match rows.file_name().strip_suffix(INDEX_ENDING) {
        Some(stem) => Some(rows.below(&format!("{stem}.gkq"))),
        None => rows.sibling("gkq"),
    };
    let own = knot.as_ref() == Some(rows);
    let mut places: Vec<Candidate> = knot.into_iter().map(Candidate::Usual).collect();
    places.push(Candidate::Manifest(rows.below(MANIFEST)));
    // Last, the object itself: a knot that was given as its own row store, or a manifest.
    if !own {
        places.push(Candidate::Usual(rows.clone()));
        places.push(Candidate::Manifest(rows.clone()));
    }
    places
}

impl Candidate {
    /// The place.
    #[must_use]
    pub fn locator(&self) -> &Locator {
        match self {
            Self::Named(locator) | Self::Usual(locator) | Self::Manifest(locator) => locator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Locator {
        Locator::parse(text).unwrap()
    }

    #[test]
    fn a_knot_is_looked_for_beside_the_rows_and_in_them() {
        use Candidate::{Manifest, Usual};
        assert_eq!(
            beside(&at("https://h/m/q.rows?sig=s")),
            [
                Usual(at("https://h/m/q.gkq")),
                Manifest(at("https://h/m/manifest.json")),
                Usual(at("https://h/m/q.rows?sig=s")),
                Manifest(at("https://h/m/q.rows?sig=s")),
            ]
        );
        assert_eq!(
            beside(&at("https://h/m/q.gkq")),
            [
                Usual(at("https://h/m/q.gkq")),
                Manifest(at("https://h/m/manifest.json")),
            ]
        );
        let index = beside(&at("m/model.safetensors.index.json"));
        assert_eq!(index[0], Usual(at("m/model.gkq")));
        assert!(!may_be_manifest(&at("m/model.safetensors.index.json")));
        assert!(may_be_manifest(&at("https://h/m/latest.json?sig=s")));
    }
}
