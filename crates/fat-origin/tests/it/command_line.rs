//! The program as a user meets it: help, output, exit codes, signals.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use expect_test::{Expect, expect};

use super::huggingface_source::{TestTensor, directory, tiny_tensors};
use super::packed::files;

fn origin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fat-origin"))
        .args(arguments)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn check(output: &Output, code: i32, expected: &Expect) {
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    expected.assert_eq(&text(&output.stdout));
}

/// Packs the tiny model into `out` by command line.
fn pack(source: &Path, out: &Path) -> Output {
    origin(&[
        "pack",
        source.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "--name",
        "tiny",
    ])
}

#[test]
fn help_is_as_documented() {
    check(
        &origin(&["--help"]),
        0,
        &expect![[r#"
            The publishing side: pack checkpoints into knots and row files, inspect, verify, publish, serve.

            Usage: fat-origin <COMMAND>

            Commands:
              pack      Turn a Hugging Face directory or a GGUF file into NAME.gkq and NAME.rows
              inspect   Print what a knot holds, from its front alone
              verify    Check every digest of a knot, its row tree, and that a row file equals its matrix
              publish   Put a knot and its row file where stations find them: a directory, S3, R2
              serve     Serve a directory by byte ranges: HTTP/1.1 and HTTP/2, cleartext or TLS
              tokenize  Print the ids of a text under a knot's, a checkpoint's or a compact tokenizer
              help      Print this message or the help of the given subcommand(s)

            Options:
              -h, --help     Print help
              -V, --version  Print version

            Exit codes:
                0  the work is done
                1  any other failure
                2  the command line could not be understood
               64  configuration: a checkpoint, knot or option that cannot work as asked
               65  destination or public URL unreachable, or a bucket or object that is not there
               66  integrity: bytes that are not what the knot says, or not what was published
               67  authorisation: credentials that are missing or refused
              130  ended by SIGINT (Ctrl-C)        143  ended by SIGTERM

            Results go to stdout, everything else to stderr.
        "#]],
    );
    check(
        &origin(&["pack", "--help"]),
        0,
        &expect![[r#"
            Turn a Hugging Face directory or a GGUF file into NAME.gkq and NAME.rows

            Usage: fat-origin pack [OPTIONS] --out <DIR> <SOURCE>

            Arguments:
              <SOURCE>  A directory with config.json, safetensors and tokenizer.json, or a GGUF file

            Options:
                  --out <DIR>                   The directory that gets the two files
                  --name <NAME>                 The files' stem [default: the source's name]
                  --embed-dtype <EMBED_DTYPE>   Element type of the vocabulary matrix: in the knot, in the rows
                                                and so in a tied head [default: keep] [possible values: keep,
                                                f32, f16, bf16]
                  --embed-mix <SPEC>            Store some rows of the vocabulary matrix in fewer bits:
                                                KIND=ROWS, separated by commas, the first that names a row
                                                decides. KIND: f32, f16, bf16, fp8_e4m3, fp8_e5m2, int8,
                                                int8_zp, int4, int4_zp. ROWS: rarest:N, rarest:P%, FIRST..END,
                                                rest. Example: fp8_e4m3=rarest:50%. Adds NAME.embed-rows.idx
                  --block-dtype <BLOCK_DTYPE>   Element type of the layers' matrices [default: keep] [possible
                                                values: keep, q8_0]
                  --spectral-tolerance <ERROR>  Store a matrix of a layer as low-rank factors where that is
                                                smaller and its relative error (Frobenius) is at most this
                  --without-matrix              Leave the vocabulary matrix out of the knot: only the row file
                                                has it
                  --embed-sketch <RANK>         Put a sketch of the vocabulary matrix into the knot: this many
                                                components, an approximation that a station uses only if it is
                                                told to, and only for rows whose origin it cannot reach
                  --hot-ids <auto|none|FILE>    The list of most frequent rows, which stations can fetch ahead:
                                                auto counts a text that this program carries, FILE is a JSON
                                                array of ids or a text to count instead, none leaves it out
                                                [default: auto]
                  --json                        Print the report as one JSON object
              -h, --help                        Print help
        "#]],
    );
    check(
        &origin(&["serve", "--help"]),
        0,
        &expect![[r#"
        Serve a directory by byte ranges: HTTP/1.1 and HTTP/2, cleartext or TLS

        Usage: fat-origin serve [OPTIONS] <DIR>

        Arguments:
          <DIR>  The directory; nothing outside it is served, hidden files neither

        Options:
              --listen <ADDR>      Address to listen on; port 0 takes a free one [default: 127.0.0.1:8080]
              --public             Allow an address that is not loopback: anyone who reaches it can read the
                                   directory
              --access-log <FILE>  Append one JSON object per reply to this file
              --tls-cert <FILE>    Certificate chain in PEM; needs --tls-key
              --tls-key <FILE>     Private key in PEM; needs --tls-cert
          -h, --help               Print help
    "#]],
    );
}

#[test]
fn pack_inspect_and_verify_print_results_on_stdout() {
    let source = directory(&tiny_tensors());
    let out = tempfile::tempdir().unwrap();
    let packed = pack(source.path(), out.path());
    assert_eq!(packed.status.code(), Some(0), "{}", text(&packed.stderr));
    assert_eq!(text(&packed.stderr), "", "no progress where nobody looks");
    assert_eq!(files(out.path()), ["tiny.gkq", "tiny.rows"]);
    let knot = out.path().join("tiny.gkq");
    let rows = out.path().join("tiny.rows");
    let (knot, rows) = (knot.to_str().unwrap(), rows.to_str().unwrap());

    check_inspection(knot);

    let verified = origin(&["verify", knot, "--rows", rows]);
    check(
        &verified,
        0,
        &expect![[r#"
            intact: 220936 bytes in payloads: 29, row trees: 1
        "#]],
    );

    let mut bytes = std::fs::read(rows).unwrap();
    bytes[700] ^= 1;
    std::fs::write(rows, bytes).unwrap();
    let broken = origin(&["verify", knot, "--rows", rows]);
    assert_eq!(broken.status.code(), Some(66));
    let told = text(&broken.stdout);
    assert!(
        told.contains("rows of `model.embed_tokens.weight`, row 5 differs at offset 700"),
        "{told}"
    );
}

/// What `inspect` prints of the packed tiny model.
#[track_caller]
fn check_inspection(knot: &str) {
    let inspected = origin(&["inspect", knot]);
    assert_eq!(inspected.status.code(), Some(0));
    expect![[r#"
        tiny.gkq: 201088 bytes, front 13824 bytes
        front blake3  <digest>
        model         qwen2, 2 layers, hidden size 64, tied head

        sections
          model-config                240 bytes
          tokenizer-config             23 bytes
          chat-template                14 bytes
          generation-config            35 bytes
          provenance                  268 bytes
          tokenizer                  3716 bytes
          columnar                     80 bytes  model.embed_tokens.weight
          pinned-nodes               8192 bytes  model.embed_tokens.weight
          hot-ids                    1028 bytes  model.embed_tokens.weight

        blocks
          model.layers.0.input_layernorm.weight              bf16              64          128 bytes
          model.layers.0.self_attn.q_proj.bias               bf16              64          128 bytes
          model.layers.0.self_attn.q_proj.weight             bf16         64 x 64         8192 bytes
          model.layers.0.self_attn.k_proj.bias               bf16              32           64 bytes
          model.layers.0.self_attn.k_proj.weight             bf16         32 x 64         4096 bytes
          model.layers.0.self_attn.v_proj.bias               bf16              32           64 bytes
          model.layers.0.self_attn.v_proj.weight             bf16         32 x 64         4096 bytes
          model.layers.0.self_attn.o_proj.weight             bf16         64 x 64         8192 bytes
          model.layers.0.post_attention_layernorm.weight     bf16              64          128 bytes
          model.layers.0.mlp.gate_proj.weight                bf16        128 x 64        16384 bytes
          model.layers.0.mlp.up_proj.weight                  bf16        128 x 64        16384 bytes
          model.layers.0.mlp.down_proj.weight                bf16        64 x 128        16384 bytes
          model.layers.1.input_layernorm.weight              bf16              64          128 bytes
          model.layers.1.self_attn.q_proj.bias               bf16              64          128 bytes
          model.layers.1.self_attn.q_proj.weight             bf16         64 x 64         8192 bytes
          model.layers.1.self_attn.k_proj.bias               bf16              32           64 bytes
          model.layers.1.self_attn.k_proj.weight             bf16         32 x 64         4096 bytes
          model.layers.1.self_attn.v_proj.bias               bf16              32           64 bytes
          model.layers.1.self_attn.v_proj.weight             bf16         32 x 64         4096 bytes
          model.layers.1.self_attn.o_proj.weight             bf16         64 x 64         8192 bytes
          model.layers.1.post_attention_layernorm.weight     bf16              64          128 bytes
          model.layers.1.mlp.gate_proj.weight                bf16        128 x 64        16384 bytes
          model.layers.1.mlp.up_proj.weight                  bf16        128 x 64        16384 bytes
          model.layers.1.mlp.down_proj.weight                bf16        64 x 128        16384 bytes
          model.norm.weight                                  bf16              64          128 bytes
          model.embed_tokens.weight                          bf16        264 x 64        33792 bytes  columnar-eligible

        rows of model.embed_tokens.weight
          264 rows of 128 bytes, 33792 in all
          blake3     <digest>
          tree root  <digest>, 0 bytes of hashes prove a row
          hot ids    257
    "#]].assert_eq(&without_digests(&text(&inspected.stdout)));

    let json: serde_json::Value =
        serde_json::from_slice(&origin(&["inspect", knot, "--json"]).stdout).unwrap();
    assert_eq!(json["object_bytes"], std::fs::metadata(knot).unwrap().len());
    assert_eq!(json["blocks"].as_array().unwrap().len(), 26);
    assert_eq!(json["blocks"][25]["columnar"]["table_bytes"], 264 * 128);
}

/// Digests depend on every byte before them; the rest of the picture does not.
fn without_digests(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n', ',']);
    words
        .map(|word| {
            let plain = word.trim_end_matches([' ', '\n', ',']);
            let is_digest = plain.len() >= 32 && plain.bytes().all(|byte| byte.is_ascii_hexdigit());
            if is_digest {
                word.replace(plain, "<digest>")
            } else {
                word.to_owned()
            }
        })
        .collect()
}

#[test]
fn exit_codes_tell_failures_apart() {
    let source = directory(&tiny_tensors());
    std::fs::remove_file(source.path().join("tokenizer.json")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let refused = pack(source.path(), out.path());
    assert_eq!(refused.status.code(), Some(64));
    let told = text(&refused.stderr);
    assert!(
        told.starts_with("fat-origin: ") && told.contains("tokenizer.json"),
        "{told}"
    );
    assert_eq!(text(&refused.stdout), "");
    assert_eq!(files(out.path()), Vec::<String>::new());

    for name in ["config.json", "chat_template.jinja"] {
        let source = directory(&tiny_tensors());
        std::fs::write(source.path().join(name), b"{\xff}").unwrap();
        let refused = pack(source.path(), out.path());
        assert_eq!(refused.status.code(), Some(64), "{name}");
        let told = text(&refused.stderr);
        assert!(told.contains(name) && told.contains("UTF-8"), "{told}");
    }

    let knot = out.path().join("broken.gkq");
    std::fs::write(&knot, b"not a knot").unwrap();
    let knot = knot.to_str().unwrap();
    assert_eq!(origin(&["inspect", knot]).status.code(), Some(66));

    assert_eq!(
        origin(&["inspect", "/nowhere/x.gkq"]).status.code(),
        Some(1)
    );
    assert_eq!(origin(&["pack"]).status.code(), Some(2));
    assert_eq!(
        origin(&["serve", "/tmp", "--tls-cert", "x"]).status.code(),
        Some(2)
    );
    let public = origin(&["serve", "/tmp", "--listen", "0.0.0.0:0"]);
    assert_eq!(public.status.code(), Some(64));
    assert!(text(&public.stderr).contains("--public"));
}

#[test]
fn serve_says_where_it_listens_and_ends_on_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fat-origin"))
            .args([
                "serve",
                dir.path().to_str().unwrap(),
                "--listen",
                "127.0.0.1:0",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
        let kill = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .unwrap();
        assert!(kill.success());
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn an_interrupted_pack_cleans_up_and_says_so() {
    let mut tensors = tiny_tensors();
    tensors.retain(|tensor| tensor.name != "model.embed_tokens.weight");
    let source = directory(&tensors);
    widen_with_a_sparse_matrix(source.path(), &tensors);
    let out = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_fat-origin"))
        .args([
            "pack",
            source.path().to_str().unwrap(),
            "--name",
            "tiny",
            "--out",
        ])
        .arg(out.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The unfinished directory shows that the work has begun; the process ends by itself otherwise.
    while files(out.path()).is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let kill = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(files(out.path()), Vec::<String>::new());
}

/// Adds a vocabulary matrix of two gigabytes of zeros that take no room on disk.
fn widen_with_a_sparse_matrix(dir: &Path, tensors: &[TestTensor]) {
    let rows = 1_u64 << 24;
    let small: u64 = tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum();
    let mut header = serde_json::Map::new();
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + tensor.bytes.len();
        let entry = serde_json::json!({
            "dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [offset, end],
        });
        header.insert(tensor.name.clone(), entry);
        offset = end;
    }
    let matrix = serde_json::json!({
        "dtype": "BF16", "shape": [rows, 64], "data_offsets": [small, small + rows * 128],
    });
    header.insert("model.embed_tokens.weight".to_owned(), matrix);
    let header = serde_json::Value::Object(header).to_string();
    let file = std::fs::File::create(dir.join("model.safetensors")).unwrap();
    (&file)
        .write_all(&(header.len() as u64).to_le_bytes())
        .unwrap();
    (&file).write_all(header.as_bytes()).unwrap();
    file.set_len(8 + header.len() as u64 + small + rows * 128)
        .unwrap();
}
