//! What cannot work is named, with numbers and the documented exit code, and gives no secret away.

use crate::station::{Finished, Origin, binary, packed, run};
use range_testkit::{Fault, FaultServer, Object, Script};
use std::path::Path;

const RUN: [&str; 4] = ["--raw", "--max-tokens", "4", "abc"];

#[track_caller]
fn refused(finished: &Finished, code: i32, parts: &[&str]) {
    assert_eq!(finished.code, code, "{}", finished.stderr);
    assert_eq!(finished.text, "", "nothing is said before it is right");
    for part in parts {
        assert!(
            finished.stderr.contains(part),
            "{part} is missing: {}",
            finished.stderr
        );
    }
}

/// The packed models with one row file changed.
fn changed_rows(name: &str, change: impl FnOnce(&mut Vec<u8>)) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for ending in ["gkq", "rows"] {
        let file = format!("{name}.{ending}");
        std::fs::copy(packed(&file), directory.path().join(&file)).unwrap();
    }
    let rows = directory.path().join(format!("{name}.rows"));
    let mut bytes = std::fs::read(&rows).unwrap();
    change(&mut bytes);
    std::fs::write(&rows, bytes).unwrap();
    directory
}

#[test]
fn a_table_of_another_length_is_not_used() {
    let expected = run(&["--knot", &packed("tied.gkq")], &RUN).succeeded();
    let longer = changed_rows("tied", |rows| rows.extend([0; 64]));
    let shorter = changed_rows("tied", |rows| rows.truncate(640_000 - 64));
    for (directory, found) in [(&longer, "640064"), (&shorter, "639936")] {
        let origin = Origin::over(directory.path());
        let local = directory
            .path()
            .join("tied.rows")
            .to_str()
            .unwrap()
            .to_owned();
        for rows in [origin.url("tied.rows"), local] {
            let refused = run(&["--columnar-embed", &rows, "--embed-always-remote"], &RUN);
            assert_eq!(refused.code, 64, "{}", refused.stderr);
            assert!(refused.stderr.contains(found), "{}", refused.stderr);
            let finished = run(&["--columnar-embed", &rows], &RUN).succeeded();
            assert!(
                finished.logits == expected.logits,
                "the dense block takes over"
            );
            assert!(finished.stderr.contains("--columnar-embed is not used"));
            assert_eq!(finished.summary["embedding"]["source"], "dense");
            let resolution = &finished.summary["resolutions"][0];
            assert_eq!(resolution["way"], "dense");
            let reason = resolution["reason"].as_str().unwrap();
            for part in [found, "640000", "10000 rows of 64 bytes bf16"] {
                assert!(reason.contains(part), "{part}: {reason}");
            }
        }
    }
}

#[test]
fn an_origin_without_ranges_is_named_once_with_what_to_do() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let object = |name: &str| Object::bytes(std::fs::read(packed(name)).unwrap());
    let script = Script::always(Fault::WholeObject);
    let rows = object("tied.rows");
    let server = runtime.block_on(FaultServer::start("/m.rows", rows, script));
    let server = server.unwrap();
    let (url, knot) = (server.url("/m.rows"), packed("tied.gkq"));
    let finished = run(&["--columnar-embed", &url, "--knot", &knot], &RUN);
    refused(
        &finished,
        64,
        &["serve it from one that answers ranges with 206"],
    );
    let said = finished
        .stderr
        .lines()
        .find(|line| line.starts_with("fat-station: "));
    let said = said.unwrap_or_default();
    assert_eq!(said.matches(&url).count(), 1, "{said}");
}

#[test]
fn without_either_way_both_reasons_are_given() {
    let directory = changed_rows("external", |rows| rows.extend([0; 64]));
    let rows = directory.path().join("external.rows");
    let finished = run(&["--columnar-embed", rows.to_str().unwrap()], &RUN);
    refused(
        &finished,
        64,
        &["model.embed_tokens.weight", "640064", "packed without"],
    );
    let finished = run(&["--knot", &packed("external.gkq")], &RUN);
    refused(
        &finished,
        64,
        &[
            "model.embed_tokens.weight",
            "--columnar-embed was not given",
        ],
    );
}

#[test]
fn rows_of_another_model_are_found_out() {
    let origin = Origin::start();
    let rows = origin.url("other.rows");
    let finished = run(
        &["--columnar-embed", &rows, "--knot", &packed("tied.gkq")],
        &RUN,
    );
    refused(&finished, 66, &["does not verify"]);
    assert!(finished.number("/integrity_failures") > 0);
    let flags = [
        "--columnar-embed",
        &rows,
        "--knot",
        &packed("tied.gkq"),
        "--verify",
        "off",
    ];
    assert_eq!(
        run(&flags, &RUN).code,
        0,
        "unless the operator does not want to know"
    );
}

#[test]
fn a_block_that_does_not_match_its_digest_is_not_used() {
    let directory = changed_rows("tied", |_| {});
    let knot = directory.path().join("tied.gkq");
    let mut bytes = std::fs::read(&knot).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&knot, bytes).unwrap();
    let origin = Origin::over(directory.path());
    let rows = origin.url("tied.rows");
    let finished = run(&["--columnar-embed", &rows], &RUN);
    refused(&finished, 66, &["model.embed_tokens.weight", "BLAKE3"]);
    assert_eq!(
        finished.number("/integrity_failures"),
        2,
        "it was read once more"
    );
}

/// A copy of the packed knot with a bit of the byte at `place` flipped.
fn damaged_knot(directory: &Path, place: impl FnOnce(&gkq_v2::Knot) -> u64) -> String {
    let mut bytes = std::fs::read(packed("tied.gkq")).unwrap();
    let knot = gkq_v2::Knot::parse(&bytes, bytes.len() as u64).unwrap();
    bytes[place(&knot) as usize] ^= 1;
    let path = directory.join("tied.gkq");
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_damaged_local_knot_is_refused_wherever_the_damage_is() {
    let rows = packed("tied.rows");
    let block = |knot: &gkq_v2::Knot, name: &str| knot.block(name).unwrap().payload.start + 5;
    let layer = "model.layers.0.mlp.up_proj.weight";
    let matrix = "model.embed_tokens.weight";
    let check = |name: &str, place: &dyn Fn(&gkq_v2::Knot) -> u64| {
        let directory = tempfile::tempdir().unwrap();
        let knot = damaged_knot(directory.path(), place);
        // Rows of the knot's own matrix, and rows of a sound table.
        for flags in [
            vec!["--knot", &knot],
            vec!["--knot", &knot, "--columnar-embed", &rows],
        ] {
            let finished = run(&flags, &RUN);
            refused(&finished, 66, &[name, "tied.gkq", "BLAKE3"]);
            assert_eq!(finished.number("/integrity_failures"), 1);
        }
        // Unchecked, a tokenizer may still contradict itself.
        if name != "tokenizer" {
            run(&["--knot", &knot, "--verify", "off"], &RUN).succeeded();
        }
    };
    check(layer, &|knot| block(knot, layer));
    check(matrix, &|knot| block(knot, matrix));
    check("tokenizer", &|knot| {
        let section = knot.section(gkq_v2::SectionKind::Tokenizer).unwrap();
        section.range.end - 1
    });
}

#[test]
fn a_damaged_knot_is_an_integrity_failure() {
    let directory = changed_rows("tied", |_| {});
    let knot = directory.path().join("tied.gkq");
    let bytes = std::fs::read(&knot).unwrap();
    std::fs::write(&knot, &bytes[..bytes.len() - 1]).unwrap();
    let finished = run(&["--knot", knot.to_str().unwrap()], &RUN);
    refused(&finished, 66, &["tied.gkq", "the header declares"]);
}

#[test]
fn missing_objects_are_named_without_their_query() {
    let origin = Origin::start();
    let missing = origin.url("nowhere.rows?X-Amz-Signature=SECRET");
    let finished = run(&["--columnar-embed", &missing], &RUN);
    refused(&finished, 64, &["nowhere.gkq", "tried", "404"]);
    assert!(!finished.stderr.contains("SECRET"), "{}", finished.stderr);

    let finished = run(
        &["--columnar-embed", &missing, "--knot", &packed("tied.gkq")],
        &RUN,
    );
    refused(&finished, 65, &["nowhere.rows", "404"]);
    assert!(!finished.stderr.contains("SECRET"), "{}", finished.stderr);

    let finished = run(&["--knot", "/no/such/model.gkq"], &RUN);
    refused(&finished, 64, &["/no/such/model.gkq"]);
    let knot = packed("tied.rows");
    refused(&run(&["--knot", &knot], &RUN), 64, &["tied.rows"]);
    refused(&run(&["--knot", "/"], &RUN), 64, &["/: not a regular file"]);
    for url in [
        "https//u:SECRET@h/q.rows?sig=SECRET",
        "https:/h/q.rows?sig=SECRET",
    ] {
        let finished = run(&["--knot", url], &RUN);
        refused(&finished, 64, &["https"]);
        assert!(!finished.stderr.contains("SECRET"), "{}", finished.stderr);
    }
    let output = binary()
        .arg("https://u:SECRET@h/q.rows?sig=SECRET")
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr.contains("https://h/q.rows") && !stderr.contains("SECRET"),
        "{stderr}"
    );
}

#[test]
fn an_origin_that_refuses_connections_is_unreachable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    // Credentials in a URL are refused before anything is sent.
    for (user, code) in [("", 65), ("user:SECRET@", 64)] {
        let rows = format!("http://{user}{address}/tied.rows?sig=SECRET");
        let knot = packed("tied.gkq");
        let finished = run(&["--columnar-embed", &rows, "--knot", &knot], &RUN);
        refused(&finished, code, &["tied.rows"]);
        assert!(!finished.stderr.contains("SECRET"), "{}", finished.stderr);
    }
}

#[test]
fn a_prompt_beyond_the_context_is_refused_with_both_numbers() {
    let flags = ["--knot", &packed("tied.gkq"), "--max-context", "5"];
    refused(
        &run(&flags, &["--raw", "abcdef"]),
        64,
        &["6 tokens", "holds 5"],
    );
    // One token of room is enough for one token.
    let finished = run(&flags, &["--raw", "--ignore-eos", "abcd"]).succeeded();
    assert_eq!(finished.tokens.len(), 1);
    refused(
        &run(&["--knot", &packed("tied.gkq")], &["--raw", ""]),
        64,
        &["at least one token"],
    );
}

#[test]
fn flags_that_cannot_work_are_named() {
    let check = |flags: &[&str], code: i32, part: &str| {
        let output = binary().args(flags).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {stderr}");
        assert!(stderr.contains(part), "{flags:?}: {stderr}");
    };
    check(&["run"], 2, "PROMPT");
    check(&["--no-such-flag"], 2, "--no-such-flag");
    check(&["run", "x"], 64, "no model");
    check(
        &["--knot", "k", "run", "--temperature", "-1", "x"],
        64,
        "found -1",
    );
    check(
        &["--knot", "k", "run", "--temperature=-1", "x"],
        64,
        "temperature",
    );
    check(
        &["--knot", "k", "run", "--max-tokens", "0", "x"],
        64,
        "--max-tokens",
    );
    check(
        &["--knot", "k", "--log", "fat_station=loud", "run", "x"],
        64,
        "--log",
    );
    check(
        &["--knot", "k", "--listen", "0.0.0.0:0"],
        64,
        "--insecure-no-auth",
    );
    assert!(!Path::new("k").exists());
}
