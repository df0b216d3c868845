//! Golden files of tests: text that must not change unnoticed.
//!
//! Decides: that `CISTERN_REGENERATE=1 cargo test -p cistern-dump` writes them anew. Only for tests.

/// Compares with the file of this name in `tests/golden`.
pub(crate) fn check(name: &str, text: &[u8]) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("CISTERN_REGENERATE").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}; CISTERN_REGENERATE=1 makes it"));
    let (is, was) = (String::from_utf8_lossy(text), String::from_utf8_lossy(&golden));
    for (line, (is, was)) in is.lines().zip(was.lines()).enumerate() {
        assert_eq!(is, was, "{path}:{}: CISTERN_REGENERATE=1 if it is right", line + 1);
    }
    assert_eq!(is.lines().count(), was.lines().count(), "{path} has another number of lines");
}
