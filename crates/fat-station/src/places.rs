//! Where the knot and the rows are, once everything that flags may stand for is looked up: a hub's
//! commit, and the places of a knot that nobody named. What an object holds is found when it is
//! opened. Specification: docs/format/row-store.md, "Rows without conversion".

use crate::config::Config;
use crate::error::Error;
use crate::hub::{self, HubRepository};
use crate::locator::Locator;
use crate::origin::Origins;
use crate::traffic::Traffic;

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
}

/// One place of a knot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidate {
    /// The user named it: if it is not there, that is the error.
    Named(Locator),
    /// It is usual: if it is not there, or is no knot, the next one is tried.
    Usual(Locator),
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
        let origins = Origins::new(config.cleartext).with_credentials(credentials);
        let open = |reference| HubRepository::open(reference, &hub.settings, &origins, traffic);
        let (mut rows, mut repository) = (config.rows.clone(), None);
        if let Some(reference) = &hub.rows {
            let opened = open(reference).await?;
            rows = Some(opened.rows(reference)?);
            repository = Some(opened);
        }
        let mut knots: Vec<Candidate> =
            config.knots.iter().cloned().map(Candidate::Named).collect();
        if let Some(reference) = &hub.knot {
            let same = repository.take().filter(|opened| opened.is_of(reference));
            let opened = match same {
                Some(opened) => opened,
                None => open(reference).await?,
            };
            knots.push(Candidate::Named(opened.knot(reference)?));
        } else if let (true, Some(rows)) = (knots.is_empty(), &rows) {
            if let Some(opened) = &repository {
                knots.extend(opened.only_knot()?.map(Candidate::Usual));
            }
            knots.extend(beside(rows).into_iter().map(Candidate::Usual));
            knots.dedup();
        }
        Ok(Self {
            origins,
            rows,
            knots,
        })
    }
}

/// Where a knot usually is when rows alone were named. A signed URL's query is not reused.
fn beside(rows: &Locator) -> Vec<Locator> {
    let mut places = Vec::new();
    if let Some(stem) = rows.file_name().strip_suffix(INDEX_ENDING) {
        places.push(rows.below(&format!("{stem}.gkq")));
    } else {
        places.extend(rows.sibling("gkq"));
    }
    // Last, the object itself: a knot that was given as its own row store.
    if !places.contains(rows) {
        places.push(rows.clone());
    }
    places
}

impl Candidate {
    /// The place.
    #[must_use]
    pub fn locator(&self) -> &Locator {
        match self {
            Self::Named(locator) | Self::Usual(locator) => locator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knot_is_looked_for_beside_the_rows_and_in_them() {
        for (rows, expected) in [
            (
                "https://h/m/q.rows?sig=s",
                vec!["https://h/m/q.gkq", "https://h/m/q.rows?sig=s"],
            ),
            ("https://h/m/q.gkq", vec!["https://h/m/q.gkq"]),
            (
                "m/model.safetensors.index.json",
                vec!["m/model.gkq", "m/model.safetensors.index.json"],
            ),
        ] {
            let rows = Locator::parse(rows).unwrap();
            let expected: Vec<_> = expected
                .into_iter()
                .map(|place| Locator::parse(place).unwrap())
                .collect();
            assert_eq!(beside(&rows), expected);
        }
    }
}
