//! Leader election with fencing: whoever holds the lock leads; what the leader writes is guarded by its grant, so that a leader
//! that was stopped for too long cannot overwrite its successor's work.
//!
//! Run a server, then this in several terminals, and stop or kill the leader:
//!
//! ```text
//! cargo run --release --bin cisternd -- --volatile --new-cluster --insecure --listen 127.0.0.1:7311
//! CISTERN_INSECURE=1 cargo run --release -p cistern-client --example leader_election -- 127.0.0.1:7311 --pcap leader_election.pcap
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use cistern_client::{Builder, Client, ErrorKind, Guard, LockState, Recorder};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

const ELECTION: &str = "/election";
const STATE: &str = "/election-state";
const TERM: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let (arguments, builder) = arguments()?;
    let server = arguments.first().map_or("127.0.0.1:7311", String::as_str);
    // Bounded, so that the example ends by itself: how many times to do the leader's work.
    let rounds: u32 = arguments.get(1).map_or(Ok(120), |n| n.parse())?;
    let client = builder.server(server).connect()?;

    let mut done = 0;
    while done < rounds {
        println!("standing for election");
        let guard = client.lock(ELECTION).create().wait()?;
        println!("leading, with token {}", guard.token());
        done += lead(&client, &guard, rounds - done)?;
    }
    Ok(())
}

/// The arguments; `--pcap FILE` among them makes the agent write what it sends and receives.
fn arguments() -> Result<(Vec<String>, Builder), Box<dyn Error>> {
    let (mut rest, mut builder) = (Vec::new(), Client::builder());
    let mut all = std::env::args().skip(1);
    while let Some(argument) = all.next() {
        if argument == "--pcap" {
            let file = all.next().ok_or("--pcap needs the name of a file")?;
            builder = builder.tap(Arc::new(Recorder::create(file.as_ref())?));
        } else {
            rest.push(argument);
        }
    }
    Ok((rest, builder))
}

/// Does the leader's work until the lock is not certain any more; gives how many rounds were done.
fn lead(client: &Client, guard: &Guard, rounds: u32) -> Result<u32, Box<dyn Error>> {
    let mut done = 0;
    while done < rounds {
        // The local check costs no message; the guard makes the server check again, at the moment of the write.
        if !guard.is_valid() {
            println!("not certain to lead: holding still");
        } else {
            match client.write(STATE, format!("token {}\n", guard.token())).guarded_by(guard).wait() {
                Ok(metadata) => {
                    done += 1;
                    println!("wrote version {} under token {}", metadata.version(), guard.token());
                }
                Err(error) if error.kind() == ErrorKind::StaleGuard => {
                    println!("somebody else leads: the server refused the write");
                    return Ok(done);
                }
                Err(error) => println!("{error}"),
            }
        }
        match guard.events().next_timeout(TERM) {
            Some(LockState::Lost) => {
                println!("lost the lead");
                return Ok(done);
            }
            Some(event) => println!("{event:?}"),
            None => {}
        }
    }
    Ok(done)
}
