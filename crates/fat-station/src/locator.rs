//! A place bytes come from, as the user names it: an http(s) or file URL, or a path.
//! It opens nothing. Its text form never carries a query, a fragment or user information.

use crate::error::Error;
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use url::Url;

/// Where an object is.
#[derive(Clone, PartialEq, Eq)]
pub enum Locator {
    /// A file of this machine.
    File(PathBuf),
    /// An object behind http or https.
    Http(Url),
}

impl Locator {
    /// Reads a locator: what begins with a scheme and `://` is a URL, the rest is a path.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL that does not parse or has another scheme.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::config("an object's place must not be empty"));
        }
        let split = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
        let Some((scheme, rest)) = split else {
            return Ok(Self::File(PathBuf::from(text)));
        };
        if !rest.starts_with("//") {
            let scheme = scheme.to_ascii_lowercase();
            if ["http", "https", "file"].contains(&scheme.as_str()) {
                return Err(Error::config(format!(
                    "a {scheme}: URL is malformed: // is missing after {scheme}:"
                )));
            }
            return Ok(Self::File(PathBuf::from(text)));
        }
        let url = Url::parse(text)
            .map_err(|error| Error::config(format!("a {scheme}:// URL is malformed: {error}")))?;
        match url.scheme() {
            "http" | "https" => Ok(Self::Http(url)),
            "file" => url.to_file_path().map(Self::File).map_err(|()| {
                Error::config("a file:// URL must name an absolute path of this machine")
            }),
            other => Err(Error::config(format!(
                "scheme {other}:// is not supported: http, https, file, hf or a path"
            ))),
        }
    }

    /// The object `<stem>.<extension>` in the same folder, without this object's query.
    /// `None` where the locator names no file.
    #[must_use]
    pub fn sibling(&self, extension: &str) -> Option<Self> {
        match self {
            Self::File(path) => {
                let stem = path.file_stem()?.to_str()?;
                Some(Self::File(
                    path.with_file_name(format!("{stem}.{extension}")),
                ))
            }
            Self::Http(url) => {
                let name = url
                    .path_segments()?
                    .next_back()
                    .filter(|name| !name.is_empty())?;
                let stem = Path::new(name).file_stem()?.to_str()?;
                let mut sibling = url.clone();
                sibling.set_query(None);
                sibling.set_fragment(None);
                // The segment is percent-encoded already; pushing it would encode it again.
                let folder = url.path().strip_suffix(name)?;
                sibling.set_path(&format!("{folder}{stem}.{extension}"));
                Some(Self::Http(sibling))
            }
        }
    }

    /// The object `relative` of this object's folder, without this object's query. `relative` is a
    /// path of plain names, which the caller has checked.
    #[must_use]
    pub fn below(&self, relative: &str) -> Self {
        match self {
            Self::File(path) => Self::File(path.with_file_name(relative)),
            Self::Http(url) => {
                let mut below = url.clone();
                below.set_query(None);
                below.set_fragment(None);
                let folder = url.path().rfind('/').map_or("/", |at| &url.path()[..=at]);
                below.set_path(&format!("{folder}{relative}"));
                Self::Http(below)
            }
        }
    }

    /// The object's file name; empty where it names a folder. What is percent-encoded stays so.
    #[must_use]
    pub fn file_name(&self) -> String {
        match self {
            Self::File(path) => {
                let name = path.file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
            Self::Http(url) => {
                let name = url.path().rsplit('/').next();
                name.unwrap_or_default().to_owned()
            }
        }
    }

    /// The object's file name without its extension, for reports.
    #[must_use]
    pub fn stem(&self) -> String {
        let path = match self {
            Self::File(path) => path.clone(),
            Self::Http(url) => PathBuf::from(url.path()),
        };
        path.file_stem().map_or_else(
            || self.to_string(),
            |stem| stem.to_string_lossy().into_owned(),
        )
    }
}

/// RFC 3986, section 3.1.
fn is_scheme(text: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(rest)
}

/// A text as it may be echoed: where it could be meant as a URL, however it is mistyped, all that
/// could be user information, query or fragment is left out.
pub(crate) fn redacted(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    let start = if lower.starts_with("http") {
        Some(0)
    } else {
        let marks = ["=http", "http:", "https:", "file:", "://"];
        marks.iter().filter_map(|mark| lower.find(mark)).min()
    };
    let Some(start) = start else {
        return Cow::Borrowed(text);
    };
    let (before, url) = text.split_at(start);
    let (place, rest) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    let (user, place) = match place.rsplit_once('@') {
        Some((user, place)) => (user, place),
        None => ("", place),
    };
    let scheme = user.find('/').map_or(0, |slash| {
        slash
            + user[slash..]
                .bytes()
                .take_while(|&byte| byte == b'/')
                .count()
    });
    if user.is_empty() && rest.is_empty() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{before}{}{place}", &user[..scheme]))
}

impl fmt::Display for Locator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => formatter.write_str(&redacted(&path.to_string_lossy())),
            Self::Http(url) => {
                write!(
                    formatter,
                    "{}://{}",
                    url.scheme(),
                    url.host_str().unwrap_or_default()
                )?;
                if let Some(port) = url.port() {
                    write!(formatter, ":{port}")?;
                }
                formatter.write_str(url.path())
            }
        }
    }
}

// A derived form would print the query of a signed URL.
impl fmt::Debug for Locator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Locator({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_paths_are_told_apart() {
        assert_eq!(
            Locator::parse("a/b.rows").unwrap(),
            Locator::File("a/b.rows".into())
        );
        assert_eq!(
            Locator::parse("file:///a/b.rows").unwrap(),
            Locator::File("/a/b.rows".into())
        );
        assert!(matches!(
            Locator::parse("https://h/x").unwrap(),
            Locator::Http(_)
        ));
        for (text, part) in [
            ("ftp://h/x", "ftp"),
            ("http://", "malformed"),
            ("HTTP:/h/x?sig=SECRET", "// is missing"),
            ("https:user:SECRET@h/x", "// is missing"),
            ("", "empty"),
        ] {
            let error = Locator::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains("SECRET"), "{text}: {error}");
        }
    }

    #[test]
    fn a_sibling_keeps_the_folder_and_drops_the_query() {
        let rows = Locator::parse("https://user:pw@h:8/m%20x/q.b.rows?sig=secret#f").unwrap();
        assert_eq!(
            rows.sibling("gkq").unwrap().to_string(),
            "https://h:8/m%20x/q.b.gkq"
        );
        let Locator::Http(url) = rows.sibling("gkq").unwrap() else {
            panic!("a URL")
        };
        assert_eq!(url.query(), None);
        assert_eq!(
            url.username(),
            "user",
            "the same host gets the same credentials"
        );
        let path = Locator::parse("dir/q.rows").unwrap();
        assert_eq!(
            path.sibling("gkq").unwrap(),
            Locator::File("dir/q.gkq".into())
        );
        assert_eq!(
            Locator::parse("https://h/folder/").unwrap().sibling("gkq"),
            None
        );
    }

    #[test]
    fn shards_are_found_in_the_folder_of_their_index() {
        let index =
            Locator::parse("https://h/m/resolve/main/model.safetensors.index.json?s=SECRET");
        let index = index.unwrap();
        assert_eq!(index.file_name(), "model.safetensors.index.json");
        let shard = index.below("part/model-00001-of-00002.safetensors");
        assert_eq!(
            shard.to_string(),
            "https://h/m/resolve/main/part/model-00001-of-00002.safetensors"
        );
        let Locator::Http(url) = shard else {
            panic!("a URL")
        };
        assert_eq!(url.query(), None);
        let local = Locator::parse("dir/index.json").unwrap();
        assert_eq!(local.below("a/b"), Locator::File("dir/a/b".into()));
        assert_eq!(Locator::parse("https://h/m/").unwrap().file_name(), "");
    }

    #[test]
    fn mistyped_urls_are_echoed_without_secrets() {
        for (text, shown) in [
            ("https//u:SECRET@h/x.rows?sig=SECRET", "https//h/x.rows"),
            ("httpsx/u:SECRET@h/x", "httpsx/h/x"),
            ("--knot=https://u:SECRET@h/x?s=SECRET", "--knot=https://h/x"),
            ("://h/x#SECRET", "://h/x"),
            ("http:SECRET@h", "h"),
            ("/models/what?.gkq", "/models/what?.gkq"),
            ("a@b.rows", "a@b.rows"),
            ("/srv/http/a@b.rows", "/srv/http/a@b.rows"),
            ("https://h/x", "https://h/x"),
        ] {
            assert_eq!(redacted(text), shown);
        }
        let path = Locator::parse("https//h/x.rows?sig=SECRET").unwrap();
        assert_eq!(path.to_string(), "https//h/x.rows");
        assert_eq!(Locator::parse("a:b").unwrap(), Locator::File("a:b".into()));
    }

    #[test]
    fn text_forms_are_redacted() {
        let rows = Locator::parse("https://user:pw@h/q.rows?sig=secret").unwrap();
        for text in [rows.to_string(), format!("{rows:?}")] {
            assert!(!text.contains("secret") && !text.contains("pw"), "{text}");
        }
    }
}
