//! Files of unknown length, which are stored when their end has come.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use headroom_store::Expected;
use headroom_transfer_proto::path::RelPath;

use super::root::{Root, now, written_key};
use super::spool::unnamed_file;
use super::tags;
use super::whole::{Over, Read, Whole};
use crate::files::error::{Error, ErrorKind, FileType};

/// A file of unknown length. All of it lies in the spool until its end has come.
#[derive(Debug)]
pub struct StreamFile {
    root: Root,
    path: RelPath,
    file: File,
}

impl Root {
    pub(in crate::files) fn create_stream_file(&self, path: &RelPath) -> Result<StreamFile, Error> {
        let create = || {
            self.check_place(written_key(path)?)?;
            let file = unnamed_file(&self.shared.spool)?;
            Ok(StreamFile { root: self.clone(), path: path.clone(), file })
        };
        create().map_err(|kind: ErrorKind| Error::new(path.as_bytes(), "stored", kind))
    }
}

impl Write for StreamFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl StreamFile {
    pub(in crate::files) fn error(&self, error: io::Error) -> Error {
        let kind = match ErrorKind::of(error) {
            ErrorKind::Full => ErrorKind::FullOnce,
            kind => kind,
        };
        Error::new(self.path.as_bytes(), "stored", kind)
    }

    pub(in crate::files) fn finish(self) -> Result<(), Error> {
        let Self { root, path, file } = self;
        let finish = || {
            let key = written_key(&path)?;
            let here = root.object(key)?;
            let file_here = here.as_ref().map(|here| tags::metadata(key, here));
            let file_here = file_here.filter(|here| here.file_type == FileType::File);
            let mode = file_here.map_or(tags::FILE_MODE, |here| here.mode);
            let expected = here.map_or(Expected::Nothing, |here| Expected::Version(here.version));
            let size = file.metadata().map_err(ErrorKind::of)?.len();
            let read: Arc<Read> = Arc::new(move |range: Range<u64>| -> Result<Bytes, ErrorKind> {
                let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                let mut content = vec![0; len];
                file.read_exact_at(&mut content, range.start).map_err(ErrorKind::of)?;
                Ok(Bytes::from(content))
            });
            let whole = Whole { size, mode, mtime: now() };
            root.store_whole(key, whole, &read, None, Over::Any(expected))
        };
        finish().map_err(|kind| Error::new(path.as_bytes(), "stored", kind))
    }
}
