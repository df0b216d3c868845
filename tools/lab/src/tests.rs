//! The pictures of `docs/models.md` are those that the commands make.

mod solved;

use crate::args::{Cli, Model};
use crate::requests::Arrivals;
use crate::{compare, figures, papers, real, simulate};
use cistern_model::claims;
use clap::Parser;
use std::path::Path;

fn command(line: &str) -> Model {
    Cli::try_parse_from(line.split(' ')).unwrap().model
}

#[test]
fn the_manual_s_pictures_are_made_by_the_commands() {
    let Model::Compare(cluster) = command("cistern-lab compare") else { panic!() };
    let Model::Simulate(runs) = command("cistern-lab simulate") else { panic!() };
    let figures = [
        ("figure-7", figures::overhead().unwrap()),
        ("figure-8", figures::availability().unwrap()),
        ("gc-figure-1", figures::v_load().unwrap()),
        ("gc-figure-2", figures::v_delay().unwrap()),
        ("gc-figure-3", figures::v_far_delay().unwrap()),
        ("table", papers::picture(&claims::all().unwrap())),
        ("compare", compare::picture(&cluster).unwrap()),
        ("simulate", simulate::drawn(&runs)),
    ];
    let manual = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models.md")).unwrap();
    for (name, figure) in figures {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models")).join(format!("{name}.svg"));
        let svg = cistern_picture::svg(&figure).unwrap();
        expect_test::expect_file![path].assert_eq(&svg);
        assert!(manual.contains(&format!("models/{name}.svg")), "{name} is not in docs/models.md");
    }
}

#[test]
fn every_flag_of_a_number_refuses_what_is_none() {
    for line in [
        "cistern-lab overhead --tau-rho",
        "cistern-lab overhead --tau-rho 1 --k",
        "cistern-lab overhead --tau-rho 1 --sigma",
        "cistern-lab choose-k --delta",
        "cistern-lab choose-k --epsilon",
        "cistern-lab compare --agents",
        "cistern-lab compare --lease",
        "cistern-lab simulate --requests",
    ] {
        for bad in ["0", "-1", "nan", "inf", "-inf", "1e999", "ten"] {
            let error = Cli::try_parse_from(line.split(' ').chain([bad])).unwrap_err().to_string();
            assert!(error.contains("invalid value"), "{line} {bad}: {error}");
        }
    }
    for k in ["1000001", "99999999999999999999", "1.5"] {
        assert!(Cli::try_parse_from(["cistern-lab", "overhead", "--tau-rho", "1", "--k", k]).is_err(), "{k}");
    }
}

/// Runs of real cores against what is solved: 5 % for overhead, of a thousand keep-alives and more; 15 % for the time without data, as
/// half of the 1,000 outages outlive the lease, and a mended network is found by the next message, which may take τ/8.
#[test]
fn the_real_cores_cost_what_is_solved() {
    let near = |pair: &simulate::Pair, tolerance: f64| assert!(pair.off.abs() < tolerance, "{pair:?}");
    for (opportunistic, arrivals, x, requests) in [
        (true, Arrivals::Poisson, 1.0, 2_000),
        (true, Arrivals::Poisson, 3.0, 5_000),
        (true, simulate::BURSTS, 3.0, 4_000),
        (false, Arrivals::Poisson, 1.0, 1_000),
        (false, Arrivals::Poisson, 3.0, 2_000),
    ] {
        near(&real::overhead(opportunistic, "", &arrivals, x, requests, 1).unwrap(), 0.05);
    }
    for opportunistic in [true, false] {
        near(&real::unavailability(opportunistic, 1.0, 6_000, 1).unwrap(), 0.15);
    }
}

#[test]
fn the_real_cores_are_driven_by_a_trace_as_it_is() {
    // Nine short gaps, then one of 4 τ: it takes 6 keep-alives to bridge.
    let trace = Arrivals::Traced((0..10).map(|gap| if gap == 9 { 4.0 } else { 0.1 }).collect());
    let pair = real::overhead(true, "traced", &trace, 10.0 / 4.9, 200, 1).unwrap();
    assert_eq!((pair.solved, pair.simulated), (0.6, 0.6));
}
