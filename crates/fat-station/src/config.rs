//! What the flags mean together: places parsed, defaults filled in, contradictions refused.
//! It opens nothing and asks nobody: where a knot lies that was not named, and which commit of a
//! repository is meant, [`crate::places`] finds out.

use crate::cli::{KvCacheArg, OnFailure, ServerArgs, StationArgs, Verify};
use crate::error::Error;
use crate::hub::{HubRef, HubSettings};
use crate::locator::Locator;
use decoder_models::KvPrecision;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the station is to do, ready to act on.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the embedding rows are; the knot's own matrix where absent.
    pub rows: Option<Locator>,
    /// The knot, where it was named; [`crate::places`] knows where else to look.
    pub knot: Option<Locator>,
    /// What was named on a Hugging Face hub instead, and how the hub is reached.
    pub hub: HubConfig,
    /// Capacity of the row cache, in rows.
    pub embed_cache_rows: u64,
    /// Directory of the rows kept on disk; none are where absent.
    pub embed_cache_dir: Option<PathBuf>,
    /// Rows of the knot's hot-id list that are fetched once the prompt's are there.
    pub embed_warm_rows: u64,
    /// Directory of the block cache; absent where no place is known. A local knot needs none.
    pub cache_dir: Option<PathBuf>,
    /// Most bytes of the block cache; none where absent.
    pub cache_limit_bytes: Option<u64>,
    /// What becomes of rows whose origin cannot be reached.
    pub on_failure: OnFailure,
    /// Whether rows are read from the head's matrix once that is resident.
    pub residency: Residency,
    /// How `http://` origins are spoken to.
    pub cleartext: Cleartext,
    /// How rows are checked.
    pub verify: Verify,
    /// Upper bound of the context, in tokens; the model's own where absent.
    pub max_context: Option<usize>,
    /// How keys and values are stored.
    pub kv_precision: KvPrecision,
}

/// References that a hub has to be asked about.
#[derive(Debug, Clone, Default)]
pub struct HubConfig {
    /// How the hub is reached.
    pub settings: HubSettings,
    /// Where the embedding rows are.
    pub rows: Option<HubRef>,
    /// The knot.
    pub knot: Option<HubRef>,
}

/// Where the rows of a tied matrix are read once its head is resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// From the resident matrix.
    ReadResident,
    /// Still from the row store, so that its traffic can be measured.
    AlwaysRemote,
}

/// Protocol of `http://` origins; `https://` negotiates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleartext {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
}

impl Config {
    /// Resolves `args`; `environment` looks up what no flag of the station's says: `XDG_CACHE_HOME` and
    /// `HOME` for the cache, the `HF_*` variables for the hub. Proxies and trust anchors are the
    /// transport's to look up.
    ///
    /// # Errors
    /// [`Error::Config`] where the flags cannot work together.
    pub fn resolve(
        args: &StationArgs,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Error> {
        let (rows, hub_rows) = place(args.columnar_embed.as_deref())?;
        let (knot, hub_knot) = place(args.knot.as_deref())?;
        match (&rows, &hub_rows, &knot, &hub_knot) {
            (None, None, None, None) => {
                return Err(Error::config(
                    "no model named: give --columnar-embed, --knot or both",
                ));
            }
            (Some(rows), _, None, None) if rows.file_name().is_empty() => {
                return Err(Error::config(format!(
                    "{rows} names no file to find a knot beside; give --knot"
                )));
            }
            _ => {}
        }
        let hub = HubConfig {
            settings: HubSettings::from_environment(&environment),
            rows: hub_rows,
            knot: hub_knot,
        };
        if args.embed_cache_rows == 0 {
            return Err(Error::config(
                "--embed-cache-rows must be at least 1, found 0",
            ));
        }
        if args.embed_on_failure == OnFailure::Sketch && rows.is_none() && hub.rows.is_none() {
            return Err(Error::config(
                "--embed-on-failure sketch is for rows that come from --columnar-embed; without it \
                 they come from the knot, which has none that are missing",
            ));
        }
        if args.embed_warm > args.embed_cache_rows {
            return Err(Error::config(format!(
                "--embed-warm {} is more than the {} rows of --embed-cache-rows: the first would leave \
                 again before the last are there",
                args.embed_warm, args.embed_cache_rows
            )));
        }
        if args.max_context == Some(0) {
            return Err(Error::config("--max-context must be at least 1, found 0"));
        }
        Ok(Self {
            rows,
            knot,
            hub,
            embed_cache_rows: args.embed_cache_rows,
            embed_cache_dir: args.embed_cache_dir.clone(),
            embed_warm_rows: args.embed_warm,
            cache_dir: cache_dir(args, environment),
            cache_limit_bytes: args.cache_limit,
            on_failure: args.embed_on_failure,
            residency: if args.embed_always_remote {
                Residency::AlwaysRemote
            } else {
                Residency::ReadResident
            },
            cleartext: if args.http2_prior_knowledge {
                Cleartext::Http2
            } else {
                Cleartext::Http1
            },
            verify: args.verify,
            max_context: args.max_context,
            kv_precision: match args.kv_cache {
                KvCacheArg::F16 => KvPrecision::F16,
                KvCacheArg::F32 => KvPrecision::F32,
            },
        })
    }
}

/// A place as the user writes it: an object, or a reference to a hub.
fn place(text: Option<&str>) -> Result<(Option<Locator>, Option<HubRef>), Error> {
    let Some(text) = text else {
        return Ok((None, None));
    };
    match HubRef::parse(text)? {
        Some(reference) => Ok((None, Some(reference))),
        None => Ok((Some(Locator::parse(text)?), None)),
    }
}

fn cache_dir(
    args: &StationArgs,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    if let Some(directory) = &args.cache_dir {
        return Some(directory.clone());
    }
    // The XDG specification has relative paths ignored.
    let set = |name: &str| {
        environment(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    Some(base?.join("fat-station"))
}

/// Refuses to serve the world without a key.
///
/// # Errors
/// [`Error::Config`] for an address that is not loopback, unless it was allowed.
pub fn check_listen(args: &ServerArgs) -> Result<SocketAddr, Error> {
    if args.listen.ip().is_loopback() || args.insecure_no_auth {
        return Ok(args.listen);
    }
    Err(Error::config(format!(
        "{} is not a loopback address and the server asks for no key; put a proxy with \
         authorisation in front, or allow it with --insecure-no-auth",
        args.listen
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser as _;
    use std::path::Path;

    fn resolve(flags: &[&str]) -> Result<Config, Error> {
        let cli = Cli::parse_from([&["fat-station"], flags].concat());
        Config::resolve(&cli.station, |name| {
            (name == "HOME").then(|| "/home/o".into())
        })
    }

    #[test]
    fn the_knot_is_looked_for_beside_the_rows() {
        let config = resolve(&["--columnar-embed", "https://h/m/q.rows?sig=s"]).unwrap();
        assert_eq!(config.knot, None, "`places` looks");
        let config = resolve(&["--columnar-embed", "hf://org/name"]).unwrap();
        assert_eq!(config.rows, None);
        assert_eq!(config.hub.rows.unwrap().to_string(), "hf://org/name@main");
        let config = resolve(&["--columnar-embed", "https://h/q.rows", "--knot", "k.gkq"]).unwrap();
        assert_eq!(config.knot, Some(Locator::parse("k.gkq").unwrap()));
        let error = resolve(&["--columnar-embed", "https://h/"])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("https://h/") && error.contains("--knot"),
            "{error}"
        );
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        for (flags, part) in [
            (vec![], "no model"),
            (
                vec!["--knot", "k", "--embed-cache-rows", "0"],
                "--embed-cache-rows",
            ),
            (vec!["--knot", "k", "--max-context", "0"], "--max-context"),
            (
                vec![
                    "--knot",
                    "k",
                    "--embed-warm",
                    "9",
                    "--embed-cache-rows",
                    "8",
                ],
                "--embed-warm 9",
            ),
            (vec!["--knot", "s3://b/k"], "s3://"),
        ] {
            let error = resolve(&flags).unwrap_err().to_string();
            assert!(error.contains(part), "{flags:?}: {error}");
        }
    }

    #[test]
    fn the_cache_directory_follows_xdg() {
        let cli = Cli::parse_from(["fat-station", "--knot", "k"]);
        let found = |pairs: &'static [(&str, &str)]| {
            Config::resolve(&cli.station, |name| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value.into())
            })
            .unwrap()
            .cache_dir
        };
        assert_eq!(
            found(&[("HOME", "/home/o")]).as_deref(),
            Some(Path::new("/home/o/.cache/fat-station"))
        );
        assert_eq!(
            found(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/home/o")]).as_deref(),
            Some(Path::new("/c/fat-station"))
        );
        assert_eq!(
            found(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/h")]).as_deref(),
            Some(Path::new("/h/.cache/fat-station"))
        );
        assert_eq!(found(&[]), None, "a local knot needs no cache");
    }

    #[test]
    fn only_loopback_is_served_unless_told() {
        let listen = |flags: &[&str]| {
            let cli = Cli::parse_from([&["fat-station"], flags].concat());
            check_listen(&cli.server)
        };
        assert!(listen(&[]).unwrap().ip().is_loopback());
        assert!(listen(&["--listen", "[::1]:0"]).is_ok());
        let error = listen(&["--listen", "0.0.0.0:80"]).unwrap_err().to_string();
        assert!(
            error.contains("0.0.0.0:80") && error.contains("--insecure-no-auth"),
            "{error}"
        );
        assert!(listen(&["--listen", "0.0.0.0:80", "--insecure-no-auth"]).is_ok());
    }
}
