//! Files that are mostly holes.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use headroom_transfer_proto::span::Tree;

use super::super::{Links, Reader, Source, SourceKind};
use super::*;

const GIB: u64 = 1 << 30;

fn reader(folder: &Path, name: &str) -> Reader {
    let mut source = Source::new([folder.join(name)], Links::Keep);
    match source.next().expect("one").expect("found").kind {
        SourceKind::File(file) => file.open().expect("open"),
        kind => panic!("{kind:?}"),
    }
}

fn hash(reader: &Reader) -> Hash {
    let mut tree = Tree::new(reader.spans());
    for span in 0..reader.spans().count() {
        tree.insert(span, reader.span_value(span).expect("read").expect("a span"));
    }
    tree.root().expect("all spans")
}

#[test]
fn eight_gibibytes_with_three_islands() {
    let (folder, root) = root();
    let file = File::create(folder.path().join("from")).expect("a file");
    file.set_len(8 * GIB).expect("a hole");
    let islands = [(5, 3000), (4 * GIB - 100_000, 200_000), (8 * GIB - 1, 1)];
    for (n, (offset, size)) in islands.into_iter().enumerate() {
        file.write_all_at(&bytes(n as u8, size), offset).expect("an island");
    }
    let reader = reader(folder.path(), "from");
    let sent = Offer { data: 1 << 20, ..offer(reader.size() as usize) };
    let partial = root.begin(&path("to"), &sent).expect("begun");
    // as a sender goes over it
    let (mut at, mut data_bytes) = (0, 0);
    while at < reader.size() {
        let data = reader.next_data(at).expect("an answer").unwrap_or(reader.size()..reader.size());
        partial.write_zeros(at, data.start - at).expect("written");
        let mut room = vec![0; (data.end - data.start) as usize];
        assert_eq!(reader.read_at(data.start, &mut room).expect("read"), room.len());
        partial.write_at(data.start, &room).expect("written");
        data_bytes += room.len();
        at = data.end;
    }
    assert!(data_bytes < MIB, "{data_bytes} bytes were read of three islands");
    let root_hash = hash(&reader);
    assert!(reader.is_unchanged().expect("an answer"));
    partial.finish(&seal_of(root_hash)).expect("finished");
    let metadata = folder.path().join("to").metadata().expect("a file");
    assert_eq!(metadata.len(), 8 * GIB);
    assert!(metadata.blocks() * 512 < MIB as u64, "holes were filled");
    let copy = File::open(folder.path().join("to")).expect("a file");
    for (n, (offset, size)) in islands.into_iter().enumerate() {
        let mut room = vec![0; size];
        copy.read_exact_at(&mut room, offset).expect("read");
        assert_eq!(room, bytes(n as u8, size));
    }
}

/// A sender that knows nothing of holes sends their zeros.
#[test]
fn runs_of_zeros_become_holes() {
    let (folder, root) = root();
    let mut content = vec![0; 10 * MIB];
    content[3 * MIB + 17] = 1;
    content[7 * MIB..7 * MIB + 5000].fill(9);
    for piece in [100_000, MIB, 10 * MIB] {
        let partial = root.begin(&path("file"), &offer(content.len())).expect("begun");
        for (n, bytes) in content.chunks(piece).enumerate() {
            partial.write_at((n * piece) as u64, bytes).expect("written");
        }
        partial.finish(&seal(&content)).expect("finished");
        assert_eq!(std::fs::read(folder.path().join("file")).expect("a file"), content);
        let stored = folder.path().join("file").metadata().expect("a file").blocks() * 512;
        // small pieces hold few whole blocks of 64 KiB
        let most = if piece == 100_000 { 9 * MIB } else { MIB };
        assert!(stored < most as u64, "{stored} bytes on the disk, in pieces of {piece}");
    }
}
