//! The unit files: read by systemd itself, and their exposure by its own measure, where it is installed.

use cistern_testkit::{CISTERN, CISTERND, program, said};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Largest exposure that `systemd-analyze security` may find, in tenths: the network is what is left.
const EXPOSURE_MAX: u32 = 15;

/// Runs systemd-analyze on a unit whose program is where the test has it; `None` where it is not installed.
fn analyze(unit: &str, args: &[&str]) -> Option<Output> {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: systemd-analyze is not installed");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("dist/systemd").join(unit);
    let text = fs::read_to_string(&path).unwrap();
    // Programs, user and settings are installed elsewhere.
    let text = text
        .replace("/usr/local/bin/cisternd", program(CISTERND).to_str().unwrap())
        .replace("/usr/local/bin/cistern", program(CISTERN).to_str().unwrap());
    let text = text.replace("User=cistern\n", "").replace("Group=cistern\n", "DynamicUser=yes\n");
    let copy = dir.path().join(unit);
    fs::write(&copy, text).unwrap();
    Some(Command::new("systemd-analyze").args(args).arg(&copy).output().unwrap())
}

#[test]
fn systemd_takes_the_unit_files() {
    for unit in ["cisternd.service", "cistern-agent.service"] {
        let Some(output) = analyze(unit, &["verify", "--man=no", "--recursive-errors=no"]) else { return };
        let told = said(&output);
        // Verifying also speaks of units of the machine that are not ours.
        let ours: Vec<_> = told.lines().filter(|line| line.contains(unit)).collect();
        assert!(output.status.success() && ours.is_empty(), "{unit}: {told}");
    }
}

#[test]
fn the_units_are_as_closed_as_a_network_service_can_be() {
    for unit in ["cisternd.service", "cistern-agent.service"] {
        let threshold = EXPOSURE_MAX.to_string();
        let Some(output) = analyze(unit, &["security", "--offline=yes", "--no-pager", "--threshold", &threshold]) else { return };
        assert!(output.status.success(), "{unit}: {}", said(&output));
    }
}
