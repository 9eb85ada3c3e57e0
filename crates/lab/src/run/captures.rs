//! Packets that are kept: of each cell the accounting transfer whose counts stand.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use headroom_lab_host::capture::{RunningCapture, Sink};
use headroom_lab_host::error::{Doing, Result};
use headroom_lab_host::testbed::Testbed;
use headroom_lab_results::schema::KeptCapture;
use headroom_lab_trace::Framing;
use headroom_netio::Frame;
use headroom_netio::capture::HEAD;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};

use super::cell::Cell;
use crate::units;

/// The folder, in that of the results.
pub(super) const FOLDER: &str = "captures";

/// A transfer that moves more keeps only the heads of its frames.
const LARGEST_WHOLE: u64 = 16 << 20;

/// Bytes that the packets of a transfer of a file may take at most.
pub(super) const fn largest_file(bytes: u64) -> u64 {
    const HEADERS: u64 = 64 << 10;
    // whole frames with their headers, and acknowledgements; or heads alone
    let frames = if bytes <= LARGEST_WHOLE { bytes + bytes / 3 } else { bytes / 4 };
    HEADERS + frames
}

/// The packets of one transfer; its file is removed when dropped, unless it was kept.
#[derive(Debug)]
pub(super) struct Taken {
    path: PathBuf,
    snaplen: u32,
}

impl Taken {
    /// Begins to write what passes the router; `nth` tells the transfers of a cell
    /// apart.
    ///
    /// # Errors
    /// The file cannot be written, or the kernel refused the capture.
    pub(super) fn begin(
        testbed: &Testbed,
        folder: &Path,
        nth: u32,
        cell: &Cell,
    ) -> Result<(Self, RunningCapture<PcapFile>)> {
        std::fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
        let whole = cell.bytes() <= LARGEST_WHOLE;
        let snaplen = if whole { testbed.largest_frame() } else { HEAD as u32 };
        let taken = Self { path: folder.join(format!(".transfer-{nth}.pcap")), snaplen };
        let sink = PcapFile::create(&taken.path)?;
        let capture = testbed.capture(snaplen as usize, sink)?;
        Ok((taken, capture))
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub(super) fn keep(&self, cell: &Cell, packets: u64) -> Result<KeptCapture> {
        let folder = self.path.parent().unwrap_or(Path::new(FOLDER));
        let stem = plain(&format!(
            "{}-{}-{}",
            cell.stack,
            cell.workload.name(),
            units::chosen_size(cell.size)
        ));
        let name = (1..)
            .map(|nth| if nth == 1 { format!("{stem}.pcap") } else { format!("{stem}-{nth}.pcap") })
            .find(|name| !folder.join(name).exists())
            .unwrap_or_default();
        std::fs::rename(&self.path, folder.join(&name))
            .doing(|| format!("keep the capture {}", folder.join(&name).display()))?;
        Ok(KeptCapture {
            stack: cell.stack.clone(),
            workload: cell.workload.name(),
            size_bytes: cell.size,
            file: format!("{FOLDER}/{name}"),
            packets,
            snaplen: self.snaplen,
        })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A name that every shell, browser and file system takes as it is.
fn plain(name: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    name.chars().filter(|c| *c != ' ').map(|c| if safe(c) { c } else { '_' }).collect()
}

/// A pcap file in the making, or nowhere.
#[derive(Default)]
pub(super) struct PcapFile {
    writer: Option<PcapWriter<BufWriter<File>>>,
    failed: Option<pcap_file::PcapError>,
}

impl PcapFile {
    fn create(path: &Path) -> Result<Self> {
        let doing = || format!("write {}", path.display());
        // some readers (pcap-file 2.0 is one) refuse a frame longer than the header's
        // snaplen though its record says that it was cut
        let header = PcapHeader {
            snaplen: 65_535,
            datalink: DataLink::ETHERNET,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let file = BufWriter::new(File::create(path).doing(doing)?);
        let writer = PcapWriter::with_header(file, header).doing(doing)?;
        Ok(Self { writer: Some(writer), failed: None })
    }

    /// Writes out what is left.
    ///
    /// # Errors
    /// The first write that failed.
    pub(super) fn end(self) -> Result<()> {
        let Self { writer, failed } = self;
        let doing = || "write a capture".to_owned();
        failed.map_or(Ok(()), Err).doing(doing)?;
        let file = writer.map(PcapWriter::into_writer);
        file.map_or(Ok(()), |mut file| std::io::Write::flush(&mut file)).doing(doing)
    }
}

impl Sink for PcapFile {
    fn take(&mut self, _: Framing, frame: Frame<'_>) {
        let Some(writer) = &mut self.writer else { return };
        let packet = PcapPacket::new(frame.time, frame.wire_len, frame.bytes);
        if let Err(error) = writer.write_packet(&packet) {
            self.writer = None;
            self.failed = Some(error);
        }
    }
}

impl std::fmt::Debug for PcapFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapFile").field("open", &self.writer.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_whatever_a_stack_is_called() {
        assert_eq!(plain("sftp/tls#a b-download-1 KiB"), "sftp_tls_ab-download-1KiB");
        assert_eq!(plain("../ü"), ".._ü".replace('ü', "_"));
    }
}
