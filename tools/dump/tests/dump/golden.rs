//! What is shown of the committed captures, word for word.

use crate::{capture, lines, shown};
use expect_test::expect_file;

fn check(name: &str, args: &[&str]) {
    expect_file![format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"))].assert_eq(&shown(args));
}

#[test]
fn messages_read_as_they_always_did() {
    for name in ["normal", "contended", "partition", "healed"] {
        check(&format!("{name}.txt"), &[&capture(name)]);
    }
}

#[test]
fn lives_of_leases_read_as_they_always_did() {
    for name in ["normal", "contended", "partition", "healed"] {
        check(&format!("{name}.leases.txt"), &["--leases", &capture(name)]);
    }
    check("partition.leases.json", &["--leases", "--json", &capture("partition")]);
}

#[test]
fn figures_read_as_they_always_did() {
    check("normal.stats.txt", &["--stats", &capture("normal")]);
    check("partition.stats.txt", &["--stats", &capture("partition")]);
    check("normal.stats.json", &["--stats", "--json", &capture("normal")]);
}

#[test]
fn a_followed_session_reads_as_it_always_did() {
    check("partition.follow.txt", &["--follow", "ac9ec28b", &capture("partition")]);
    check("partition.follow.json", &["--follow", "ac9ec28b", "--json", &capture("partition")]);
}

#[test]
fn fields_and_bytes_read_as_they_always_did() {
    check("contended.fields.txt", &["-vv", "--kind", "WELCOME,QUEUED,DEMAND", &capture("contended")]);
    check("contended.json", &["--json", &capture("contended")]);
}

#[test]
fn every_line_of_json_is_an_object_with_the_same_words_as_the_text() {
    for name in ["normal", "contended", "partition", "healed"] {
        let text = lines(&[&capture(name)]);
        let json = lines(&["--json", &capture(name)]);
        assert_eq!(text.len(), json.len());
        for (text, json) in text.iter().zip(json) {
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            let (kind, words) = (json["kind"].as_str().unwrap(), json["words"].as_str().unwrap());
            assert!(text.contains(&format!("  {kind} ")) && text.contains(words), "{text}\n{json}");
            assert_eq!(json["cistern"]["kind"], kind);
            assert_eq!(json["cistern"]["packet"], json["packet"]);
        }
    }
}

#[test]
fn a_steal_is_told_with_what_led_to_it() {
    let text = shown(&["--leases", &capture("partition")]);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in\n{text}"));
    let order =
        [at("lease until"), at("never receipted: the delivery failed"), at("the lease is over"), at("stolen from: the advisory lock")];
    assert!(order.is_sorted(), "{text}");
}

#[test]
fn pictures_of_the_documentation_are_those_that_the_program_draws() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["normal", "contended", "partition"] {
        let drawn = dir.path().join(format!("{name}.svg"));
        shown(&["--labels", "--name", "10.77.0.1:7311=server", "--ladder", drawn.to_str().unwrap(), &capture(name)]);
        let drawn = std::fs::read_to_string(&drawn).unwrap();
        expect_file![format!("{}/../../docs/inspecting/{name}.svg", env!("CARGO_MANIFEST_DIR"))].assert_eq(&drawn);
    }
}
