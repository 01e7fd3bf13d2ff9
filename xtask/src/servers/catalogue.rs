//! The servers under test: what each is called, what it needs, how it is started, and its recipe.

use anyhow::Result;

use super::running::{Place, Running};
use super::{apache, caddy, fat_origin, install, lighttpd, nginx, python, s3s, varnish};

/// A recipe of the page: a template, and what it is.
pub(super) struct Recipe {
    pub(super) template: &'static str,
    /// The language of the block on the page.
    pub(super) language: &'static str,
    /// What the reader should know before and after.
    pub(super) note: &'static str,
}

/// What stands in front of the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Reads the site itself.
    Files,
    /// Asks `fat-origin serve` for the site and keeps what it got.
    Cache,
    /// Knows no ranges: nothing can be read from it.
    Refused,
}

/// One server in one configuration.
pub(super) struct ServerUnderTest {
    /// Name of its folder and of `--only`.
    pub(super) key: &'static str,
    /// Name on the page.
    pub(super) title: &'static str,
    pub(super) role: Role,
    /// Whether it reads a whole object for each request, which only small ones bear.
    pub(super) reads_whole_objects: bool,
    /// Whether it answers several ranges otherwise while it fetches an object: what a station learns of it then depends on
    /// the moment, and the page leaves the figures out.
    pub(super) varies: bool,
    /// The program it needs; `None` for the project's own.
    pub(super) program: Option<&'static str>,
    pub(super) start: fn(Place<'_>) -> Result<Running>,
    pub(super) recipe: Option<Recipe>,
}

impl ServerUnderTest {
    /// Whether it can be started on this machine.
    pub(super) fn is_installed(&self) -> bool {
        match self.program {
            None => true,
            Some("s3s-fs") => install::s3s_fs().is_some(),
            Some(program) => install::on_path(program).is_some(),
        }
    }
}

/// All of them, in the order of the page.
pub(super) const SERVERS: &[ServerUnderTest] = &[
    ServerUnderTest {
        key: "fat-origin",
        title: "fat-origin serve",
        role: Role::Files,
        reads_whole_objects: false,
        varies: false,
        program: None,
        start: fat_origin::plain,
        recipe: None,
    },
    ServerUnderTest {
        key: "nginx",
        title: "nginx",
        role: Role::Files,
        reads_whole_objects: false,
        varies: false,
        program: Some("nginx"),
        start: nginx::plain,
        recipe: Some(Recipe {
            template: nginx::PLAIN,
            language: "nginx",
            note: "A folder on any machine. `max_ranges` stays at its default: a limit below 64 turns several \
                   ranges of one request into single ones, which costs requests, not rows.",
        }),
    },
    ServerUnderTest {
        key: "nginx-gzip",
        title: "nginx, gzip on",
        role: Role::Files,
        reads_whole_objects: false,
        varies: false,
        program: Some("nginx"),
        start: nginx::gzip,
        recipe: None,
    },
    ServerUnderTest {
        key: "nginx-slice",
        title: "nginx, slice + proxy_cache",
        role: Role::Cache,
        reads_whole_objects: false,
        varies: false,
        program: Some("nginx"),
        start: nginx::slice,
        recipe: Some(Recipe {
            template: nginx::SLICE,
            language: "nginx",
            note: "A site cache: stations of one site ask it, and the origin sends each slice once. The way to go \
                   where the line to the origin is thin: nothing but the slices of asked rows crosses it. Slices of 1 MiB, \
                   the usual advice, would bring hundreds of rows for each one asked.",
        }),
    },
    ServerUnderTest {
        key: "nginx-cache",
        title: "nginx, proxy_cache",
        role: Role::Cache,
        reads_whole_objects: false,
        varies: true,
        program: Some("nginx"),
        start: nginx::cache,
        recipe: Some(Recipe {
            template: nginx::CACHE,
            language: "nginx",
            note: "A site cache of whole objects, without the `slice` module: the first row brings the whole row \
                   file, and waits for it. Only for a fast line to the origin.",
        }),
    },
    ServerUnderTest {
        key: "apache",
        title: "Apache",
        role: Role::Files,
        reads_whole_objects: false,
        varies: false,
        program: Some("apache2"),
        start: apache::plain,
        recipe: Some(Recipe {
            template: apache::PLAIN,
            language: "apache",
            note: "Needs mod_headers. `MaxRanges` stays at its default of 200.",
        }),
    },
    ServerUnderTest {
        key: "apache-deflate",
        title: "Apache, deflate on",
        role: Role::Files,
        reads_whole_objects: false,
        varies: false,
        program: Some("apache2"),
        start: apache::deflate,
        recipe: None,
    },
    ServerUnderTest {
        key: "lighttpd",
        title: "lighttpd",
        role: Role::Files,
        reads_whole_objects: false,
        varies: false,
        program: Some("lighttpd"),
        start: lighttpd::plain,
        recipe: Some(Recipe {
            template: lighttpd::PLAIN,
            language: "text",
            note: "It ignores `If-Match`; a replaced file is noticed by its tag and length in each reply.",
        }),
    },
    ServerUnderTest {
        key: "caddy",
        title: "Caddy",
        role: Role::Files,
        reads_whole_objects: false,
        varies: false,
        program: Some("caddy"),
        start: caddy::plain,
        recipe: Some(Recipe {
            template: caddy::PLAIN,
            language: "text",
            note: "The blocks of the Caddyfile are indented with tabs, as `caddy fmt` writes them.",
        }),
    },
    ServerUnderTest {
        key: "caddy-tls",
        title: "Caddy, TLS",
        role: Role::Files,
        reads_whole_objects: false,
        varies: false,
        program: Some("caddy"),
        start: caddy::tls,
        recipe: Some(Recipe {
            template: caddy::TLS,
            language: "text",
            note: "TLS brings HTTP/2, and with it all ranges of a batch at once on one connection. For an \
                   authority of your own, stations take `SSL_CERT_FILE`; the certificate is \
                   `pki/authorities/local/root.crt` in Caddy's data folder.",
        }),
    },
    ServerUnderTest {
        key: "varnish",
        title: "Varnish",
        role: Role::Cache,
        reads_whole_objects: false,
        varies: false,
        program: Some("varnishd"),
        start: varnish::cache,
        recipe: Some(Recipe {
            template: varnish::VCL,
            language: "vcl",
            note: "A site cache of whole objects: give it storage for them (`-s file,/var/cache/varnish.bin,20g`). \
                   Like nginx without `slice`, the first row brings the whole file.",
        }),
    },
    ServerUnderTest {
        key: "s3s-fs",
        title: "s3s-fs (S3, presigned)",
        role: Role::Files,
        // The tag is the MD5 of the object, taken anew for each reply.
        reads_whole_objects: true,
        varies: false,
        program: Some("s3s-fs"),
        start: s3s::bucket,
        recipe: None,
    },
    ServerUnderTest {
        key: "python",
        title: "python3 -m http.server",
        role: Role::Refused,
        reads_whole_objects: false,
        varies: false,
        program: Some("python3"),
        start: python::plain,
        recipe: None,
    },
];
