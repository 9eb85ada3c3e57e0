//! Embeds the files of the page, also compressed: one table of names, content types, tags and bytes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() {
    println!("cargo:rerun-if-changed=web");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("web");
    let mut names: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of the page")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).to_owned();
    let mut table = String::from("pub(crate) const FILES: &[File] = &[\n");
    for name in names {
        let content_type = match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
            "html" => "text/html; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            "svg" => "image/svg+xml",
            "wasm" => "application/wasm",
            _ => continue,
        };
        let path = folder.join(&name);
        let bytes = fs::read(&path).expect("a file of the page");
        let hash = blake3::hash(&bytes).to_hex();
        let tag = &hash[..32];
        let gzipped = out.join(format!("{name}.gz"));
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&bytes).expect("memory");
        fs::write(&gzipped, gzip.finish().expect("memory")).expect("a compressed file");
        writeln!(
            table,
            "    File {{ name: {name:?}, content_type: {content_type:?}, tag: {tag:?}, bytes: include_bytes!({path:?}), gzipped: include_bytes!({gzipped:?}) }},"
        )
        .expect("memory");
    }
    table.push_str("];\n");
    fs::write(out.join("files.rs"), table).expect("the table");
}
