//! A configuration reader that is always current and nearly always free: every look at the file is answered from cache, with no
//! message, until somebody changes it; the change takes the cache away before it is done, so no look is ever stale.
//!
//! ```text
//! cargo run --release --bin cisternd -- --volatile --new-cluster --insecure --listen 127.0.0.1:7311
//! CISTERN_INSECURE=1 cargo run --release -p cistern-client --example cached_config -- 127.0.0.1:7311 --pcap cached_config.pcap
//! ```
//! and, in another terminal, `echo 'limit = 20' | cistern --insecure put - /service.conf`.
#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use cistern_client::{Builder, Client, ErrorKind, Recorder};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

const CONFIG: &str = "/service.conf";

fn main() -> Result<(), Box<dyn Error>> {
    let (arguments, builder) = arguments()?;
    let server = arguments.first().map_or("127.0.0.1:7311", String::as_str);
    // Bounded, so that the example ends by itself: for how many seconds to look.
    let seconds: u32 = arguments.get(1).map_or(Ok(60), |n| n.parse())?;
    let client = builder.server(server).connect()?;
    match client.write(CONFIG, "limit = 10\n").if_absent().wait() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => _ = made?,
    }

    let mut version = 0;
    for _ in 0..seconds {
        let before = client.lease()?;
        // A thousand requests of the service, each reading its configuration anew: there is no copy to go stale.
        for _ in 0..1_000 {
            let contents = client.read(CONFIG).wait()?;
            let now = contents.metadata.version().number;
            if now != version {
                version = now;
                println!("version {version}: {}", String::from_utf8_lossy(&contents.bytes).trim_end());
            }
        }
        let after = client.lease()?;
        println!(
            "1000 reads: {} from cache, {} requests; lease {:?}, {:?} left",
            after.cache_hits - before.cache_hits,
            after.requests - before.requests,
            after.phase,
            after.left
        );
        std::thread::sleep(Duration::from_secs(1));
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
