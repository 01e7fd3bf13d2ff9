//! The `fat-station` binary: parses the command line, starts the runtime, hands over.

use fat_station::{cli::Cli, command, telemetry};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let started = Instant::now();
    let cli = Cli::from_process();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            telemetry::say(&format!("fat-station: starting the runtime: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(command::execute(cli, started));
    // A thread that is still computing must not keep an interrupted process alive.
    runtime.shutdown_timeout(Duration::from_millis(200));
    code
}
