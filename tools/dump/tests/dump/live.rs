//! Capturing on the loopback interface; it needs the right to, and says so where it is missing.

use crate::input::interrupt;
use crate::{program, question, text};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// All of these ask in one session on one interface, and what is shown of one would be a copy of what another sent.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn live_traffic_is_shown_once_and_summed_up_when_interrupted() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: capturing needs root");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (agent, server) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    let port = to.port().to_string();
    let mut child = program(&["-i", "lo", "--port", &port]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It says nothing when it is ready, so something is sent until something is shown.
    let done = Arc::new(AtomicBool::new(false));
    let sender = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            let mut packet = 0;
            while !done.load(Ordering::Relaxed) {
                packet += 1;
                agent.send_to(&question(packet), to).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line
    };
    let (first, second) = (line(), line());
    done.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    interrupt(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(first.contains("11223344 p") && first.contains("SERVER_STATUS n"), "{first}");
    let number = |line: &str| line.split(" p").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(number(&second), number(&first) + 1, "each once: {first}{second}");
    let shown = format!("{first}{second}{rest}");
    assert!(!shown.contains("copy"), "{shown}");
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains(" datagrams captured, ") && text(&output.stderr).contains(" not Cistern"), "{output:?}");
}

#[test]
fn packets_that_the_kernel_dropped_are_counted_and_told() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: capturing needs root");
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (agent, server) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    let port = to.port().to_string();
    let mut child = program(&["-i", "lo", "--port", &port]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    // It captures as soon as it shows something; then nobody reads what it shows, and it stands still while the kernel's buffer fills.
    let mut packet = 0;
    let mut send = |times: u64| {
        for _ in 0..times {
            packet += 1;
            agent.send_to(&question(packet), to).unwrap();
        }
        packet
    };
    let shown = std::thread::spawn(move || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        out
    });
    while !shown.is_finished() {
        send(1);
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut out = shown.join().unwrap();
    send(100_000);
    // What is sent after a drop tells of it, once there is room again.
    let last = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let last = Arc::clone(&last);
        move || {
            let mut line = String::new();
            while out.read_line(&mut line).unwrap() > 0 {
                let number = line.split(" p").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
                last.fetch_or(number > Some(100_100), Ordering::Relaxed);
                line.clear();
            }
        }
    });
    send(200);
    while !last.load(Ordering::Relaxed) {
        send(1);
        std::thread::sleep(Duration::from_millis(5));
    }
    interrupt(&child);
    reader.join().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("lo: the kernel dropped at least "), "{output:?}");
}

#[test]
fn without_the_right_it_says_what_to_do() {
    let mut command = program(&["-i", "lo"]);
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534);
    }
    match command.output() {
        Ok(output) => {
            assert_eq!(output.status.code(), Some(77), "{output:?}");
            let error = text(&output.stderr);
            assert!(error.contains("no right to capture on lo") && error.contains("cap_net_raw"), "{error}");
        }
        // The build directory is not everybody's to look into.
        Err(e) => eprintln!("skipped: another user cannot run the program: {e}"),
    }
}
