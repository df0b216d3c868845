//! Prints the dissector: `cargo run -p cistern-wireshark > tools/wireshark/cistern.lua`.

use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    io::stdout().write_all(cistern_wireshark::dissector().as_bytes())
}
