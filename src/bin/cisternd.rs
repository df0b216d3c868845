//! The server `cisternd`: the same as `cistern serve`.

fn main() -> std::process::ExitCode {
    cistern_cli::main_cisternd()
}
