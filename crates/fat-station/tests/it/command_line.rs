//! The command line is an interface: a change of it shows here. To accept one, run with
//! `UPDATE_EXPECT=1`.

use crate::station::{binary, text_of};
use clap::CommandFactory as _;
use expect_test::expect_file;
use fat_station::cli::Cli;
use std::collections::BTreeMap;
use std::path::Path;

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
            let name = flag.to_uppercase().replace('-', "_");
            let variables =
                ["", "PREFETCH_"].map(|command| format!("[env: FAT_STATION_{command}{name}"));
            assert!(
                variables.iter().any(|variable| text.contains(variable)),
                "{command:?}: {variables:?} are missing"
            );
        }
    }
}

/// A variable that is set for one command must not mean something else to another. What two commands
/// share is listed with its one meaning; the list may only shrink.
#[test]
fn a_variable_means_one_thing() {
    let mut uses: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut commands = vec![Cli::command()];
    while let Some(command) = commands.pop() {
        for argument in command.get_arguments() {
            if let (Some(variable), Some(long)) = (argument.get_env(), argument.get_long()) {
                let variable = variable.to_str().unwrap().to_owned();
                let flag = format!("{} --{long}", command.get_name());
                uses.entry(variable).or_default().push(flag);
            }
        }
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(uses.len() > 30, "the walk found the flags: {uses:?}");
    uses.retain(|_, flags| flags.len() > 1);
    uses.values_mut().for_each(|flags| flags.sort());
    let shared = [
        // Where the text is read from.
        ("FAT_STATION_FILE", ["perplexity --file", "tokenize --file"]),
        // The text goes to the model without its chat template.
        ("FAT_STATION_RAW", ["run --raw", "tokenize --raw"]),
    ];
    let shared =
        shared.map(|(variable, flags)| (variable.to_owned(), flags.map(String::from).to_vec()));
    assert_eq!(uses, BTreeMap::from(shared));
}

#[test]
fn where_run_writes_is_not_what_prefetch_reads() {
    let (tier, rows) = (
        tempfile::tempdir().unwrap(),
        crate::station::packed("tied.rows"),
    );
    let prefetch = |variable: &str, value: &Path| {
        let mut command = binary();
        command.args(["--columnar-embed", &rows, "--embed-cache-dir"]);
        command
            .arg(tier.path())
            .arg("prefetch")
            .env(variable, value);
        command.output().unwrap()
    };
    let ids = tier.path().join("ids.json");
    std::fs::write(&ids, "[1, 2]").unwrap();
    let output = prefetch("FAT_STATION_TOKENS_FILE", &ids);
    assert_eq!(output.status.code(), Some(64));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("no rows named; give --ids-file"),
        "{stderr}"
    );
    let output = prefetch("FAT_STATION_PREFETCH_IDS_FILE", &ids);
    assert!(
        text_of(&output).contains("2 of 10000 rows"),
        "{}",
        text_of(&output)
    );
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
