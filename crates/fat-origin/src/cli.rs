//! The command line as the user writes it: names, help, environment variables, nothing resolved.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::pack::{BlockDtype, EmbedDtype};
use crate::tokenize::TokenizeArgs;

const EXIT_CODES: &str = "\
Exit codes:
    0  the work is done
    1  any other failure
    2  the command line could not be understood
   64  configuration: a checkpoint, knot or option that cannot work as asked
   66  integrity: bytes that are not what the knot says
  130  ended by SIGINT (Ctrl-C)        143  ended by SIGTERM

Results go to stdout, everything else to stderr.";

/// The publishing side: pack checkpoints into knots and row files, inspect, verify, serve.
#[derive(Debug, Parser)]
#[command(name = "fat-origin", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Turn a Hugging Face directory or a GGUF file into NAME.gkq and NAME.rows
    Pack(PackArgs),
    /// Print what a knot holds, from its front alone
    Inspect(InspectArgs),
    /// Check every digest of a knot, its row tree, and that a row file equals its matrix
    Verify(VerifyArgs),
    /// Serve a directory by byte ranges: HTTP/1.1 and HTTP/2, cleartext or TLS
    Serve(ServeArgs),
    /// Print the ids of a text under a knot's, a checkpoint's or a compact tokenizer
    Tokenize(TokenizeArgs),
}

/// Flags of `pack`.
#[derive(Debug, Args)]
pub struct PackArgs {
    /// A directory with config.json, safetensors and tokenizer.json, or a GGUF file
    pub source: PathBuf,
    /// The directory that gets the two files
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The files' stem [default: the source's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Element type of the vocabulary matrix: in the knot, in the rows and so in a tied head
    #[arg(long, value_enum, default_value_t)]
    pub embed_dtype: EmbedDtype,
    /// Element type of the layers' matrices
    #[arg(long, value_enum, default_value_t)]
    pub block_dtype: BlockDtype,
    /// Store a matrix of a layer as low-rank factors where that is smaller and its relative error
    /// (Frobenius) is at most this
    #[arg(long, value_name = "ERROR")]
    pub spectral_tolerance: Option<f64>,
    /// Leave the vocabulary matrix out of the knot: only the row file has it
    #[arg(long)]
    pub without_matrix: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Flags of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// The knot
    pub knot: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Flags of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The knot
    pub knot: PathBuf,
    /// The row file of its vocabulary matrix
    #[arg(long, value_name = "ROWS")]
    pub rows: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The directory; nothing outside it is served, hidden files neither
    pub dir: PathBuf,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Allow an address that is not loopback: anyone who reaches it can read the directory
    #[arg(long)]
    pub public: bool,
    /// Append one JSON object per reply to this file
    #[arg(long, value_name = "FILE")]
    pub access_log: Option<PathBuf>,
    /// Certificate chain in PEM; needs --tls-key
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key in PEM; needs --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

impl ValueEnum for EmbedDtype {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Keep, Self::F32, Self::F16, Self::Bf16]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

impl ValueEnum for BlockDtype {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Keep, Self::Q8_0]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}
