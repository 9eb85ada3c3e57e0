//! Embeds the files of the page: one table of names, content types, tags and bytes.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=web");
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("web");
    let mut names: Vec<_> = fs::read_dir(&folder)
        .expect("the folder of the page")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
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
        let hash = blake3::hash(&fs::read(&path).expect("a file of the page")).to_hex();
        let tag = &hash[..32];
        writeln!(
            table,
            "    File {{ name: {name:?}, content_type: {content_type:?}, tag: {tag:?}, bytes: include_bytes!({path:?}) }},"
        )
        .expect("memory");
    }
    table.push_str("];\n");
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("files.rs");
    fs::write(out, table).expect("the table");
}
