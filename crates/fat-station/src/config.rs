//! What the flags mean together: places parsed, defaults filled in, contradictions refused.
//! It opens nothing; the knot's default place is decided here, whether it exists is found later.

use crate::cli::{ServerArgs, StationArgs, Verify};
use crate::error::Error;
use crate::locator::Locator;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the station is to do, ready to act on.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the embedding rows are; the knot's own matrix where absent.
    pub rows: Option<Locator>,
    /// Places of the knot, in the order they are tried.
    pub knots: Vec<Locator>,
    /// Capacity of the row cache, in rows.
    pub embed_cache_rows: u64,
    /// Directory of the block cache; absent where no place is known. A local knot needs none.
    pub cache_dir: Option<PathBuf>,
    /// Whether rows are read from the head's matrix once that is resident.
    pub residency: Residency,
    /// How `http://` origins are spoken to.
    pub cleartext: Cleartext,
    /// How rows are checked.
    pub verify: Verify,
    /// Upper bound of the context, in tokens; the model's own where absent.
    pub max_context: Option<usize>,
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
    /// Resolves `args`; `environment` looks up XDG_CACHE_HOME and HOME.
    ///
    /// # Errors
    /// [`Error::Config`] where the flags cannot work together.
    pub fn resolve(
        args: &StationArgs,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Error> {
        let rows = args
            .columnar_embed
            .as_deref()
            .map(Locator::parse)
            .transpose()?;
        let knots = match (args.knot.as_deref(), &rows) {
            (Some(knot), _) => vec![Locator::parse(knot)?],
            (None, Some(rows)) => beside(rows)?,
            (None, None) => {
                return Err(Error::config(
                    "no model named: give --columnar-embed, --knot or both",
                ));
            }
        };
        if args.embed_cache_rows == 0 {
            return Err(Error::config(
                "--embed-cache-rows must be at least 1, found 0",
            ));
        }
        if args.max_context == Some(0) {
            return Err(Error::config("--max-context must be at least 1, found 0"));
        }
        Ok(Self {
            rows,
            knots,
            embed_cache_rows: args.embed_cache_rows,
            cache_dir: cache_dir(args, environment),
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
        })
    }
}

/// Places of a knot that was not named. A signed URL's query is not reused for other names.
fn beside(rows: &Locator) -> Result<Vec<Locator>, Error> {
    let knot = rows.sibling("gkq").ok_or_else(|| {
        Error::config(format!(
            "{rows} names no file to find a knot beside; give --knot"
        ))
    })?;
    Ok(vec![knot])
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
        assert_eq!(config.knots, [Locator::parse("https://h/m/q.gkq").unwrap()]);
        let config = resolve(&["--columnar-embed", "https://h/q.rows", "--knot", "k.gkq"]).unwrap();
        assert_eq!(config.knots, [Locator::parse("k.gkq").unwrap()]);
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
