//! Who is there: the ephemeral files of a directory.

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::steps::Steps;
use bytes::Bytes;
use std::ffi::OsString;
use std::path::Path;

impl Client {
    /// The ephemeral files of a directory, in byte order of their names, each with its contents: who has joined, and what it says of itself. Each is looked at, so
    /// that one whose maker is gone is found out.
    pub fn members(&self, dir: impl AsRef<Path>) -> Steps<Vec<(OsString, Bytes)>> {
        let (client, dir) = (self.clone(), dir.as_ref().to_owned());
        Steps::new(async move {
            let mut members = Vec::new();
            for entry in client.read_dir(&dir).with_metadata().await?.entries {
                if !entry.metadata.is_some_and(|metadata| metadata.is_ephemeral()) {
                    continue;
                }
                match client.read(dir.join(&entry.file_name)).await {
                    Ok(contents) => members.push((entry.file_name, contents.bytes)),
                    // It has just gone.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err::<_, Error>(error),
                }
            }
            Ok(members)
        })
    }
}
