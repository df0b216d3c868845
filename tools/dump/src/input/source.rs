//! A capture as a source of bytes: a file, standard input, a file that grows.
//!
//! Decides: that a read never blocks: where it would, there is nothing for now; and when nothing more can come. Leaves to others: waiting
//! (`Inputs::wait`), what the bytes are (`cistern-capture`).

use crate::failure::{EXIT_NO_INPUT, Failure};
use crate::stop::Stop;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

/// What is known about a source by whoever waits for it.
#[derive(Debug)]
pub(super) struct Flow {
    over: Rc<Cell<bool>>,
    /// What becomes readable when there is more; nothing does for a file that grows.
    fd: Option<OwnedFd>,
    /// How many packets the kernel has dropped, where it tells.
    drops: Option<Rc<Cell<u32>>>,
}

impl Flow {
    /// A source whose end is told through the cell.
    pub(super) const fn new(over: Rc<Cell<bool>>, fd: Option<OwnedFd>) -> Self {
        Self { over, fd, drops: None }
    }

    /// The same, of a source that loses what is not taken in time, and counts it in the cell.
    pub(super) fn with_drops(mut self, drops: Rc<Cell<u32>>) -> Self {
        self.drops = Some(drops);
        self
    }

    /// How many packets the kernel has dropped.
    pub(super) fn drops(&self) -> u32 {
        self.drops.as_ref().map_or(0, |drops| drops.get())
    }

    /// Whether nothing more can come.
    pub(super) fn is_over(&self) -> bool {
        self.over.get()
    }

    /// What to wait for, if it can be waited for.
    pub(super) fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }
}

/// A file or standard input.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    tail: bool,
    over: Rc<Cell<bool>>,
}

impl Source {
    /// Opens a file; `-` is standard input. With `tail` its end is not final.
    pub(super) fn open(path: &Path, tail: bool) -> Result<(Self, Flow), Failure> {
        let failed = |e: io::Error| Failure::new(EXIT_NO_INPUT, format!("cannot open {}: {e}", path.display()));
        let file = if path == Path::new("-") {
            File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?)
        } else {
            File::open(path).map_err(failed)?
        };
        let kind = file.metadata().map_err(failed)?.file_type();
        if kind.is_dir() {
            return Err(Failure::new(EXIT_NO_INPUT, format!("{} is a directory: name the captures in it", path.display())));
        }
        let over = Rc::new(Cell::new(false));
        let tail = tail && kind.is_file();
        let fd = if tail { None } else { Some(file.try_clone().map_err(failed)?.into()) };
        Ok((Self { file, tail, over: Rc::clone(&over) }, Flow::new(over, fd)))
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !Stop::is_ready(self.file.as_fd()) {
            return Ok(0);
        }
        let read = self.file.read(buffer)?;
        if read == 0 && !self.tail {
            self.over.set(true);
        }
        Ok(read)
    }
}
