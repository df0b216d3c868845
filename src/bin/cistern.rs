//! The command line `cistern`: hands its arguments to the command crate and exits with what that returns.

fn main() -> std::process::ExitCode {
    cistern_cli::main_cistern()
}
