//! Commands and scripts: what is understood, and what is said of what is not.

use cistern_netfault::command::Command;
use cistern_netfault::script::{self, Event};
use proptest::prelude::*;

fn shown(text: &str) -> String {
    match Command::parse(text).unwrap_or_else(|mistake| panic!("{text:?}: {mistake}")) {
        Command::Set(action, scope) => format!("{action}{scope}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn commands_are_read_and_shown_as_they_can_be_given_again() {
    let commands = [
        ("cut", "cut"),
        ("cut a→s", "cut a->s"),
        ("cut down agent 3", "cut s->a agent #3"),
        ("loss 10% kind demand", "loss 10% kind DEMAND"),
        ("loss 0.0125% agent 10.0.0.7", "loss 0.0125% agent 10.0.0.7"),
        ("duplicate 5%", "duplicate 5% within 50ms"),
        ("duplicate 5% within 1s s->a", "duplicate 5% within 1s s->a"),
        ("reorder 100% by 30ms agent web-1", "reorder 100% by 30ms agent web-1"),
        ("delay 1.5s jitter 250us agent [::1]:9", "delay 1500ms jitter 250us agent [::1]:9"),
        ("delay 2 both", "delay 2s"),
        ("rate 64kbit queue 200ms", "rate 64kbit queue 200ms"),
        ("rate 100pps kind RECLAIM-COMPLETE", "rate 100pps queue 100ms kind RECLAIM_COMPLETE"),
        ("flap 2s # a remark", "flap 2s"),
        ("corrupt 1% kind grant a->s", "corrupt 1% a->s kind GRANT"),
    ];
    for (given, expected) in commands {
        assert_eq!(shown(given), expected, "{given}");
        assert_eq!(shown(expected), expected, "what is shown can be given");
    }
}

#[test]
fn mistakes_name_the_column_and_what_would_be_right() {
    let mistakes = [
        ("", 1, "a command"),
        ("los 10%", 1, "loss"),
        ("loss", 5, "share"),
        ("loss 10", 6, "10%"),
        ("loss 110%", 6, "100%"),
        ("cut a->s  s->a", 11, "twice"),
        ("cut sideways", 5, "a->s"),
        ("cut agent", 10, "agent"),
        ("loss 1% kind DEMANT", 14, "DEMAND"),
        ("delay 20parsecs", 7, "unit"),
        ("delay -1s", 7, "zero or more"),
        ("delay 99999h", 7, "a year"),
        ("duplicate 5% within", 20, "within"),
        ("rate 0pps", 6, "rate"),
        ("rate 10", 6, "1mbit"),
        ("heal everything", 6, "rule's number"),
        ("end now", 5, "too much"),
        ("cut →→ a→s", 5, "a->s"),
    ];
    for (text, column, word) in mistakes {
        let mistake = Command::parse(text).expect_err(text);
        assert!(mistake.column == column && mistake.what.contains(word), "{text:?}: {mistake}");
    }
}

#[test]
fn script_has_times_spans_and_remarks_and_is_ordered_by_time() {
    let text = "# a night\n\n2s   cut a->s agent 1   # one way only\n500ms..1.5s loss 20%\n2s heal\n10 end\n";
    let events = script::parse(text).unwrap();
    let times: Vec<_> = events.iter().map(|event| (event.at / 1_000_000, event.until.map(|until| until / 1_000_000))).collect();
    assert_eq!(times, [(500, Some(1_500)), (2_000, None), (2_000, None), (10_000, None)]);
    assert!(matches!(events[1].command, Command::Set(..)) && matches!(events[2].command, Command::Heal(_)));
    assert_eq!(events[3], Event { at: 10_000_000_000, until: None, command: Command::End });
}

#[test]
fn mistakes_in_a_script_name_line_and_column() {
    for (text, place) in [
        ("0s cut\n\nsoon heal", "line 3, column 1: "),
        ("# fine\n1s  losss 10%", "line 2, column 5: "),
        ("1s..1s cut", "line 1, column 5: "),
        ("1s..x cut", "line 1, column 5: "),
        ("1s..2s heal", "line 1, column 8: "),
        ("1s", "line 1, column 3: "),
    ] {
        let error = script::parse(text).expect_err(text).to_string();
        assert!(error.starts_with(place), "{text:?}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[ -~→←\n]{0,60}") {
        let _ = Command::parse(&text);
        let _ = script::parse(&text);
    }

    #[test]
    fn no_words_make_it_panic(words in prop::collection::vec(prop::sample::select(vec![
        "cut", "loss", "delay", "rate", "heal", "flap", "1s", "1s..2s", "10%", "-1%", "NaN%", "1e309s", "infs", "#", "#1", "agent", "kind", "a->s",
        "18446744073709551615gbit", "jitter", "queue", "within", "by", "..", "1pps", "é",
    ]), 0..8)) {
        let text = words.join(" ");
        let _ = Command::parse(&text);
        let _ = script::parse(&text);
    }
}
