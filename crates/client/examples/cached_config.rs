//! A configuration reader that is always current and nearly always free: every look at the file is answered from cache, with no
//! message, until somebody changes it; the change takes the cache away before it is done, so no look is ever stale.
//!
//! ```text
//! cargo run --release -- serve --volatile --new-cluster --listen 127.0.0.1:7311
//! cargo run --release -p cistern-client --example cached_config -- 127.0.0.1:7311
//! ```
//! and, in another terminal, `echo 'limit = 20' | cistern put - /service.conf`.
#![allow(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use cistern_client::{Client, Ownership, Status};
use std::error::Error;
use std::time::Duration;

const CONFIG: &str = "/service.conf";

fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7311".to_owned());
    // Bounded, so that the example ends by itself: for how many seconds to look.
    let seconds: u32 = std::env::args().nth(2).map_or(Ok(60), |n| n.parse())?;
    let client = Client::builder().server(server).connect()?;
    if client.stat(CONFIG).wait().is_err_and(|e| e.status() == Some(Status::ENOENT)) {
        client.put(CONFIG, "limit = 10\n", Ownership { mode: 0o644, uid: 0, gid: 0 }).wait()?;
    }

    let mut version = 0;
    for _ in 0..seconds {
        let before = client.lease()?;
        // A thousand requests of the service, each reading its configuration anew: there is no copy to go stale.
        for _ in 0..1_000 {
            let contents = client.read(CONFIG).wait()?;
            if contents.attr.version != version {
                version = contents.attr.version;
                println!("version {version}: {}", String::from_utf8_lossy(&contents.data).trim_end());
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
