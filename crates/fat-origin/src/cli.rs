//! The command line as the user writes it: names, help, environment variables, nothing resolved.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::pack::{BlockDtype, EmbedDtype, EmbedMix, HotIds};
use crate::publish::{
    DEFAULT_MANIFEST, DEFAULT_PART_BYTES, MAX_PART_BYTES, MIN_PART_BYTES, ReadBack,
};
use crate::tokenize::TokenizeArgs;

const EXIT_CODES: &str = "\
Exit codes:
    0  the work is done
    1  any other failure
    2  the command line could not be understood
   64  configuration: a checkpoint, knot or option that cannot work as asked
   65  destination or public URL unreachable, or a bucket or object that is not there
   66  integrity: bytes that are not what the knot says, or not what was published
   67  authorisation: credentials that are missing or refused
  130  ended by SIGINT (Ctrl-C)        143  ended by SIGTERM

Results go to stdout, everything else to stderr.";

/// The publishing side: pack checkpoints into knots and row files, inspect, verify, publish, serve.
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
    /// Put a knot and its row file where stations find them: a directory, S3, R2
    Publish(PublishArgs),
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
    /// Store some rows of the vocabulary matrix in fewer bits: KIND=ROWS, separated by commas, the first
    /// that names a row decides. KIND: f32, f16, bf16, fp8_e4m3, fp8_e5m2, int8, int8_zp, int4,
    /// int4_zp. ROWS: rarest:N, rarest:P%, FIRST..END, rest. Example: fp8_e4m3=rarest:50%. Adds
    /// NAME.embed-rows.idx
    #[arg(long, value_name = "SPEC")]
    pub embed_mix: Option<EmbedMix>,
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
    /// Put a sketch of the vocabulary matrix into the knot: this many components, an approximation
    /// that a station uses only if it is told to, and only for rows whose origin it cannot reach
    #[arg(long, value_name = "RANK")]
    pub embed_sketch: Option<u32>,
    /// The list of most frequent rows, which stations can fetch ahead: auto counts a text that this
    /// program carries, FILE is a JSON array of ids or a text to count instead, none leaves it out
    #[arg(long, value_name = "auto|none|FILE", default_value = "auto")]
    pub hot_ids: HotIds,
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

/// Flags of `publish`.
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The knot
    pub knot: PathBuf,
    /// A directory, or s3://BUCKET/PREFIX on S3, R2 or any compatible service; credentials, region
    /// and endpoint come from the AWS_* variables
    #[arg(value_name = "DEST")]
    pub destination: String,
    /// The row file [default: STEM.rows beside the knot, if it is there]
    #[arg(long, value_name = "ROWS")]
    pub rows: Option<PathBuf>,
    /// The sidecar of a row file with rows of several kinds: which kind each row has, and where it lies
    #[arg(long, value_name = "FILE", requires = "rows")]
    pub sidecar: Option<PathBuf>,
    /// The model's name in the manifest [default: the knot's stem]
    #[arg(long)]
    pub name: Option<String>,
    /// File name of the manifest: give each model of a folder its own
    #[arg(long, value_name = "NAME", default_value = DEFAULT_MANIFEST)]
    pub manifest: String,
    /// The http(s):// URL of the folder that the objects appear in: what was sent is read back
    /// through it
    #[arg(long, value_name = "URL")]
    pub public_url: Option<String>,
    /// Length of the parts of a large object; all but the last are equal
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_PART_BYTES, value_parser = clap::value_parser!(u64).range(MIN_PART_BYTES..=MAX_PART_BYTES))]
    pub part_bytes: u64,
    /// Rows that are read back and proved before the manifest is written, or `all`: every byte of
    /// every object
    #[arg(long, value_name = "ROWS|all", default_value_t = ReadBack::default())]
    pub read_back: ReadBack,
    /// Decides which rows and ranges are read back [default: others each time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Print the report as one JSON object
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
