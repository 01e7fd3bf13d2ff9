//! The command line is an interface: a change of it shows here. To accept one, run with
//! `UPDATE_EXPECT=1`.

use crate::station::{binary, text_of};
use expect_test::expect_file;

#[test]
fn help_is_stable() {
    for (command, file) in [
        (&["--help"][..], "help.txt"),
        (&["run", "--help"], "help_run.txt"),
        (&["perplexity", "--help"], "help_perplexity.txt"),
        (&["tokenize", "--help"], "help_tokenize.txt"),
        (&["prefetch", "--help"], "help_prefetch.txt"),
    ] {
        let output = binary()
            .args(command)
            .env("COLUMNS", "100")
            .output()
            .unwrap();
        expect_file![format!("{}/tests/it/{file}", env!("CARGO_MANIFEST_DIR"))]
            .assert_eq(text_of(&output));
    }
}

#[test]
fn every_flag_is_also_an_environment_variable() {
    for command in [
        &["--help"][..],
        &["run", "--help"],
        &["perplexity", "--help"],
        &["tokenize", "--help"],
        &["prefetch", "--help"],
    ] {
        let output = binary()
            .args(command)
            .env("COLUMNS", "500")
            .output()
            .unwrap();
        let text = text_of(&output);
        for line in text.lines().map(str::trim_start) {
            let Some(flag) = line.split("--").nth(1).filter(|_| line.starts_with('-')) else {
                continue;
            };
            let flag = flag.split([' ', '=']).next().unwrap();
            if ["help", "version"].contains(&flag) {
                continue;
            }
            let variable = format!(
                "[env: FAT_STATION_{}",
                flag.to_uppercase().replace('-', "_")
            );
            assert!(
                text.contains(&variable),
                "{command:?}: {variable} is missing"
            );
        }
    }
}

#[test]
fn the_environment_is_heard_and_the_flag_wins() {
    let knot = crate::station::packed("tied.gkq");
    let with = |flags: &[&str]| {
        let mut command = binary();
        command
            .env("FAT_STATION_KNOT", &knot)
            .env("FAT_STATION_RAW", "1");
        command.args(flags).output().unwrap()
    };
    assert_eq!(text_of(&with(&["tokenize", "ab"])).trim(), "[64,65]");
    let output = with(&["--knot", "/no/such.gkq", "tokenize", "ab"]);
    assert_eq!(output.status.code(), Some(64));
}
