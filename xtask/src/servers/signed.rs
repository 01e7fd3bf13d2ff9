//! Presigned URLs against a server that checks them: a good one reads rows; an expired one, a changed one and none at
//! all are authorisation failures; and nothing of a URL's query is ever written.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use super::material::{self, Site};
use super::measure::EXIT_AUTHORISATION;
use super::reader::{Outcome, Reader, Source, Wanted};
use super::running::BUCKET;
use super::s3s::S3Server;

/// How long each URL is good.
const HOUR: Duration = Duration::from_secs(3_600);

/// Tries each kind of URL.
///
/// # Errors
/// The first URL that was treated otherwise, or whose query was written.
pub(super) fn try_all(server: &S3Server, site: &Site, dir: &Path) -> Result<()> {
    let now = SystemTime::now();
    let name = material::SIGNED;
    let good = server.presigned(BUCKET, name, now, HOUR)?;
    let expired = server.presigned(BUCKET, name, now - 2 * HOUR, HOUR)?;
    // The last digit of the signature is the last letter of the URL.
    let changed = if good.ends_with('0') { "1" } else { "0" };
    let changed = format!(
        "{}{changed}",
        good.get(..good.len() - 1).context("an empty URL")?
    );
    let unsigned = format!("{}/{BUCKET}/{name}", server.endpoint());
    for (what, url) in [
        ("an expired", expired),
        ("a changed", changed),
        ("an unsigned", unsigned),
    ] {
        refused(&url, site, dir).with_context(|| format!("{what} URL"))?;
    }
    Ok(())
}

fn refused(url: &str, site: &Site, dir: &Path) -> Result<()> {
    let source = Source {
        url,
        knot: &site.table.knot(),
        verify: "auto",
        root_certificate: None,
    };
    let mut reader = Reader::start(source, &dir.join("signed.reader"))?;
    reader.ask(&Wanted::Ids(vec![1, 2, 3]), &dir.join("signed.read"))?;
    let Outcome::Refused(refusal) = reader.answer()? else {
        bail!("rows came although the server was to refuse");
    };
    ensure!(
        refusal.code == EXIT_AUTHORISATION,
        "it ended with exit code {} and: {}",
        refusal.code,
        refusal.text
    );
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let secrets = query.split('&').filter_map(|pair| pair.split_once('='));
    for (name, value) in secrets {
        ensure!(
            !refusal.output.contains(name) && (value.len() <= 8 || !refusal.output.contains(value)),
            "{name} of a presigned URL was written"
        );
    }
    Ok(())
}
