//! `fat-origin serve`, beside the others.

use anyhow::Result;

use super::access_log::{AccessLog, Form};
use super::running::{Engine, Place, Running};

pub(super) fn plain(place: Place<'_>) -> Result<Running> {
    let origin = place.origin()?;
    Ok(Running {
        base_url: format!("http://{}", origin.address()),
        access_log: AccessLog {
            path: origin.log().to_path_buf(),
            form: Form::FatOrigin,
        },
        engine: Engine::FatOrigin(origin),
        root_certificate: None,
        upstream: None,
        print_log: None,
    })
}
