//! Real servers in the tests: each started on loopback by its own file below, with a configuration of its own.
//!
//! It is no deployment: a server lives for one test, in a folder under `target/servers/`.

mod access_log;
mod apache;
mod ask;
mod behaviour;
mod caddy;
mod catalogue;
mod fat_origin;
pub(crate) mod install;
mod lighttpd;
mod nginx;
mod presign;
pub(crate) mod process;
mod python;
mod running;
pub(crate) mod s3s;
mod template;
mod varnish;
