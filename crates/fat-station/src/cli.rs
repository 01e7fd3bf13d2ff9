//! The flags as the user writes them: names, help, environment variables, and nothing resolved.
//! What a combination of flags means is decided in [`crate::config`]; this file only parses.

use crate::locator::redacted;
use clap::builder::BoolishValueParser;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Without a subcommand the station serves on loopback: GET /health, POST /v1/completions.

Exit codes:
    0  the work is done
    1  any other failure
    2  the command line could not be understood
   64  configuration: a flag, file or knot that cannot work as asked
   65  origin unreachable: the object is missing, or the wire failed beyond its retries
   66  integrity: bytes that do not match their digest, or an object that changed while it was read
   67  authorisation: the origin refused the credentials
  130  ended by SIGINT (Ctrl-C)        143  ended by SIGTERM

The text goes to stdout, everything else to stderr.

Environment:
  FAT_STATION_FLAG             each flag, in capitals and with _ for -; the flag itself wins.
                               Flags of prefetch: FAT_STATION_PREFETCH_FLAG
  HTTPS_PROXY, HTTP_PROXY,     the proxy for https://, for http:// and for both, and the hosts that
  ALL_PROXY, NO_PROXY          are reached without one
  SSL_CERT_FILE, SSL_CERT_DIR  trust anchors, in place of the system's
  HF_ENDPOINT, HF_TOKEN,       for hf://: the hub, the token or the file it is in,
  HF_TOKEN_PATH, HF_HOME,      where downloads of the hub's own tools lie,
  HF_HUB_CACHE, HF_HUB_OFFLINE and whether only those are used
  XDG_CACHE_HOME               parent of the default --cache-dir";

/// The inference node: starts a language model on a few hundred embedding rows.
#[derive(Debug, Parser)]
#[command(name = "fat-station", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// Flags that every command shares.
    #[command(flatten)]
    pub station: StationArgs,
    /// Flags of the server, used without a subcommand.
    #[command(flatten)]
    pub server: ServerArgs,
    /// What to do; the server where it is absent.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Parses the process's arguments; ends it with code 2 where they cannot be understood, or 0
    /// after help. A URL in the wrong place is echoed without its secrets.
    #[must_use]
    pub fn from_process() -> Self {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        Self::try_parse_from(&arguments).unwrap_or_else(|error| {
            let shown = arguments.iter().map(|argument| match argument.to_str() {
                Some(text) => OsString::from(redacted(text).into_owned()),
                None => argument.clone(),
            });
            // The same mistake again, made of what may be shown.
            match Self::try_parse_from(shown) {
                Err(error) => error.exit(),
                Ok(_) => Self::command()
                    .error(error.kind(), "the command line could not be understood")
                    .exit(),
            }
        })
    }
}

/// Where the model comes from and how the station keeps and reports it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub struct StationArgs {
    /// Rows of the vocabulary matrix.
    #[arg(
        help = "Rows of the vocabulary matrix, in bare rows, safetensors or its index, a GGUF, a knot or a manifest: an http(s):// or file:// URL, a path, or hf://ORG/NAME[@REV][/path]; absent, the knot's own matrix is used",
        long,
        value_name = "URL",
        env = "FAT_STATION_COLUMNAR_EMBED",
        hide_env_values = true,
        global = true
    )]
    pub columnar_embed: Option<String>,
    /// Rows that stay in memory
    #[arg(
        long,
        value_name = "ROWS",
        default_value_t = 8192,
        env = "FAT_STATION_EMBED_CACHE_ROWS",
        global = true
    )]
    pub embed_cache_rows: u64,
    /// Directory that keeps fetched rows, shared by the stations of this machine; the default keeps them in memory alone
    #[arg(
        long,
        value_name = "DIR",
        env = "FAT_STATION_EMBED_CACHE_DIR",
        global = true
    )]
    pub embed_cache_dir: Option<PathBuf>,
    /// Fetch this many of the model's most frequent rows in the background once the prompt's are there
    #[arg(
        long,
        value_name = "ROWS",
        default_value_t = 0,
        env = "FAT_STATION_EMBED_WARM",
        global = true
    )]
    pub embed_warm: u64,
    /// Knot of the model.
    #[arg(
        help = "Knot of the model: a path, a URL or hf://ORG/NAME[@REV][/path]; the default is what a manifest names, or STEM.gkq beside the rows",
        long,
        value_name = "PATH|URL",
        env = "FAT_STATION_KNOT",
        hide_env_values = true,
        global = true
    )]
    pub knot: Option<String>,
    /// Directory for the blocks of remote knots, named by digest; the default is fat-station in the user's cache directory
    #[arg(long, value_name = "DIR", env = "FAT_STATION_CACHE_DIR", global = true)]
    pub cache_dir: Option<PathBuf>,
    /// Most bytes that --cache-dir may hold: 5000000000, 5GB and 4.7GiB are the same; what was unused for longest goes first, what a running station uses stays
    #[arg(long, value_name = "BYTES", value_parser = bytes, env = "FAT_STATION_CACHE_LIMIT", global = true)]
    pub cache_limit: Option<u64>,
    /// What becomes of rows whose origin cannot be reached
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnFailure::Error, env = "FAT_STATION_EMBED_ON_FAILURE", global = true)]
    pub embed_on_failure: OnFailure,
    /// Read every row from the row store, also when a tied head is resident
    #[arg(long, env = "FAT_STATION_EMBED_ALWAYS_REMOTE", value_parser = BoolishValueParser::new(), global = true)]
    pub embed_always_remote: bool,
    /// Speak HTTP/2 without TLS to http:// origins
    #[arg(long, env = "FAT_STATION_HTTP2_PRIOR_KNOWLEDGE", value_parser = BoolishValueParser::new(), global = true)]
    pub http2_prior_knowledge: bool,
    /// Check of fetched rows against the knot's row tree
    #[arg(long, value_name = "MODE", value_enum, default_value_t = Verify::Auto, env = "FAT_STATION_VERIFY", global = true)]
    pub verify: Verify,
    /// Longest context in tokens; the default and upper bound is the model's own
    #[arg(
        long = "max-context",
        value_name = "TOKENS",
        env = "FAT_STATION_MAX_CONTEXT",
        global = true
    )]
    pub max_context: Option<usize>,
    /// How keys and values are stored
    #[arg(long, value_name = "TYPE", value_enum, default_value_t = KvCacheArg::F16, env = "FAT_STATION_KV_CACHE", global = true)]
    pub kv_cache: KvCacheArg,
    /// Form of the log on stderr
    #[arg(long, value_name = "FORM", value_enum, default_value_t = LogFormat::Text, env = "FAT_STATION_LOG_FORMAT", global = true, help_heading = "Reports")]
    pub log_format: LogFormat,
    /// What is logged: a level, or targets with levels such as fat_station=debug
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "warn,fat_station=info",
        env = "FAT_STATION_LOG",
        global = true,
        help_heading = "Reports"
    )]
    pub log: String,
    /// Also write the end-of-run summary to this file, as JSON
    #[arg(
        long,
        value_name = "FILE",
        env = "FAT_STATION_SUMMARY_FILE",
        global = true,
        help_heading = "Reports"
    )]
    pub summary_file: Option<PathBuf>,
}

/// Flags of the server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Address to listen on
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8080",
        env = "FAT_STATION_LISTEN"
    )]
    pub listen: SocketAddr,
    /// Allow an address that is not loopback although the server asks for no key
    #[arg(long, env = "FAT_STATION_INSECURE_NO_AUTH", value_parser = BoolishValueParser::new())]
    pub insecure_no_auth: bool,
    /// Requests that may wait for the one that runs; more are answered with 503
    #[arg(
        long,
        value_name = "REQUESTS",
        default_value_t = 16,
        env = "FAT_STATION_QUEUE"
    )]
    pub queue: usize,
}

/// What the station does instead of serving.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Answer one prompt on stdout
    Run(RunArgs),
    /// Measure the perplexity of a text, in windows as llama.cpp's perplexity takes them
    Perplexity(PerplexityArgs),
    /// Print the token ids of a text as JSON
    Tokenize(TokenizeArgs),
    /// Fetch embedding rows into --embed-cache-dir, without loading the model
    Prefetch(PrefetchArgs),
}

/// Flags of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The prompt; - reads it from stdin
    #[arg(value_name = "PROMPT")]
    pub prompt: String,
    /// Give the prompt to the model as it is, without its chat template
    #[arg(long, env = "FAT_STATION_RAW", value_parser = BoolishValueParser::new())]
    pub raw: bool,
    /// Most tokens to generate
    #[arg(long, value_name = "TOKENS", env = "FAT_STATION_MAX_TOKENS")]
    pub max_tokens: Option<usize>,
    /// End before this text appears; may be given more than once
    #[arg(long, value_name = "TEXT", env = "FAT_STATION_STOP")]
    pub stop: Vec<String>,
    /// How tokens are chosen
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Do not stop at the end-of-sequence token
    #[arg(long, env = "FAT_STATION_IGNORE_EOS", value_parser = BoolishValueParser::new(), help_heading = "Acceptance runs")]
    pub ignore_eos: bool,
    /// Write the chosen token ids to this file, as a JSON array
    #[arg(
        long,
        value_name = "FILE",
        env = "FAT_STATION_TOKENS_FILE",
        help_heading = "Acceptance runs"
    )]
    pub tokens_file: Option<PathBuf>,
    /// Write the logits of every step to this file, as raw little-endian f32 [steps, vocabulary]
    #[arg(
        long,
        value_name = "FILE",
        env = "FAT_STATION_LOGITS_FILE",
        help_heading = "Acceptance runs"
    )]
    pub logits_file: Option<PathBuf>,
    /// Feed these ids (a JSON array) instead of the chosen ones, up to --max-tokens
    #[arg(
        long,
        value_name = "FILE",
        env = "FAT_STATION_FORCE_CONTINUATION",
        help_heading = "Acceptance runs"
    )]
    pub force_continuation: Option<PathBuf>,
}

/// How the next token is chosen: temperature, then top-k, top-p, min-p.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Divides the logits; 0 always takes the most likely token
    #[arg(
        long,
        value_name = "T",
        default_value_t = 0.0,
        env = "FAT_STATION_TEMPERATURE",
        allow_negative_numbers = true
    )]
    pub temperature: f32,
    /// Keep the K most likely tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 0, env = "FAT_STATION_TOP_K")]
    pub top_k: usize,
    /// Keep the most likely tokens that together reach this probability
    #[arg(
        long,
        value_name = "P",
        default_value_t = 1.0,
        env = "FAT_STATION_TOP_P",
        allow_negative_numbers = true
    )]
    pub top_p: f32,
    /// Keep tokens at least this share as likely as the most likely one
    #[arg(
        long,
        value_name = "P",
        default_value_t = 0.0,
        env = "FAT_STATION_MIN_P",
        allow_negative_numbers = true
    )]
    pub min_p: f32,
    /// Seed of the draw; the default is a fresh one each run
    #[arg(long, value_name = "SEED", env = "FAT_STATION_SEED")]
    pub seed: Option<u64>,
}

/// Flags of `perplexity`.
#[derive(Debug, Clone, Args)]
pub struct PerplexityArgs {
    /// UTF-8 text to measure
    #[arg(long, value_name = "FILE", env = "FAT_STATION_FILE")]
    pub file: PathBuf,
    /// Window in tokens; the second half of each is scored
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 512,
        env = "FAT_STATION_CONTEXT"
    )]
    pub context: usize,
    /// Score at most this many windows
    #[arg(long, value_name = "WINDOWS", env = "FAT_STATION_CHUNKS")]
    pub chunks: Option<usize>,
}

/// Flags of `tokenize`.
#[derive(Debug, Clone, Args)]
pub struct TokenizeArgs {
    /// The text, as `run` would be given it; - reads it from stdin
    #[arg(value_name = "TEXT", required_unless_present = "file")]
    pub text: Option<String>,
    /// Read the text from this file instead
    #[arg(
        long,
        value_name = "FILE",
        env = "FAT_STATION_FILE",
        conflicts_with = "text"
    )]
    pub file: Option<PathBuf>,
    /// Take the text as it is, without the chat template
    #[arg(long, env = "FAT_STATION_RAW", value_parser = BoolishValueParser::new())]
    pub raw: bool,
    /// Leave out the tokens that the model adds around a raw text
    #[arg(long, env = "FAT_STATION_NO_SPECIAL", value_parser = BoolishValueParser::new(), requires = "raw")]
    pub no_special: bool,
}

/// Flags of `prefetch`. Their variables carry the command's name: `FAT_STATION_WARM` would be taken for
/// `--embed-warm`, and a name that says where `run` writes must not say what `prefetch` reads.
#[derive(Debug, Clone, Args)]
pub struct PrefetchArgs {
    /// Rows of these ids: a JSON array
    #[arg(long, value_name = "FILE", env = "FAT_STATION_PREFETCH_IDS_FILE")]
    pub ids_file: Option<PathBuf>,
    /// Rows of this UTF-8 text's tokens; - reads it from stdin
    #[arg(long, value_name = "FILE", env = "FAT_STATION_PREFETCH_TEXT")]
    pub text: Option<PathBuf>,
    /// This many of the model's most frequent rows, from the knot's hot-id list
    #[arg(long, value_name = "ROWS", env = "FAT_STATION_PREFETCH_WARM")]
    pub warm: Option<u64>,
    /// Every row: the directory then holds the row file itself
    #[arg(long, env = "FAT_STATION_PREFETCH_ALL", value_parser = BoolishValueParser::new())]
    pub all: bool,
    /// Print one JSON object
    #[arg(long, env = "FAT_STATION_PREFETCH_JSON", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// What becomes of rows whose origin cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// The request fails
    Error,
    /// They are approximated from the knot's sketch, counted, and every answer says so
    Sketch,
}

/// How keys and values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KvCacheArg {
    /// As halves: half the memory and half the traffic of a long context
    F16,
    /// As they are computed
    F32,
}

/// A number of bytes, with a unit or without: kB, MB, GB, TB are powers of 1000, KiB, MiB, GiB, TiB
/// of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|char: char| !char.is_ascii_digit() && char != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        other => {
            return Err(format!(
                "unknown unit {other}: use none, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
            ));
        }
    };
    let refused = || format!("{text} is no number of bytes below 2^64");
    let Some((whole, fraction)) = number.split_once('.') else {
        let number: u64 = number.parse().map_err(|_not_a_number| refused())?;
        return number.checked_mul(factor).ok_or_else(refused);
    };
    if fraction.is_empty() || fraction.len() > 9 {
        return Err(refused());
    }
    // In units of the last digit, so that no rounding comes in.
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let digits: u128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_not_a_number| refused())?;
    let bytes = digits
        .checked_mul(factor.into())
        .map(|bytes| bytes / scale)
        .and_then(|bytes| u64::try_from(bytes).ok());
    bytes.ok_or_else(refused)
}

/// How fetched rows are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// Check every row where the knot carries a row tree
    Auto,
    /// Check every row; refuse a knot without a row tree
    Require,
    /// Check nothing
    Off,
}

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line, spans with all their fields when they close
    Json,
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_take_units_and_refuse_what_is_no_number() {
        for (text, expected) in [
            ("0", 0),
            ("5000000000", 5_000_000_000),
            ("5GB", 5_000_000_000),
            ("1.5 GB", 1_500_000_000),
            ("4KiB", 4_096),
            ("0.5KiB", 512),
            ("2TiB", 2 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "x",
            "-1",
            "1.",
            ".",
            "1..2",
            "5gb",
            "1e3",
            "18446744073709551616",
            "99999999TiB",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
