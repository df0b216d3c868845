//! The programs' decoders of text, alone: for whoever feeds them with anything (`cistern-fuzz`).

/// Reads a settings file; how many settings it has.
///
/// # Errors
/// What is wrong with it.
pub fn settings_file(text: &str) -> Result<usize, String> {
    crate::settings::understood(text)
}

/// Reads a line of a server's control socket.
///
/// # Errors
/// What is wrong with it.
pub fn control_line(line: &str) -> Result<(), String> {
    crate::server_control::understood(line)
}

/// Reads a line of a host agent's socket, and writes it; what was written.
///
/// # Errors
/// What is wrong with it.
pub fn host_agent_line(line: &[u8]) -> Result<String, String> {
    let asked = crate::local::RequestLine::read(line).map_err(|unread| unread.failure.message)?;
    asked.written().map_err(|e| e.to_string())
}
