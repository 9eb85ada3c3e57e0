//! The statically linked program (`scripts/build-static`), on root file systems without any library.
//! `make test` builds it; where `HEADROOM_STATIC` does not name it, it is not tested.

use std::path::PathBuf;

use headroom_testing::privileged;

use crate::common::Ground;
use crate::image::{LAYOUT, lay_out};
use crate::pinned::{assert_answer_in_an_empty_system, busybox};

/// The program; none: skipped.
fn program() -> Option<PathBuf> {
    let program = std::env::var_os("HEADROOM_STATIC").map(PathBuf::from);
    if program.is_none() {
        eprintln!("skipped: HEADROOM_STATIC names no program: run make test");
    }
    program
}

#[test]
fn image_has_no_library() {
    let Some(program) = program() else { return };
    let ground = Ground::new("static-image");
    let root = lay_out(&ground, program);
    let entries = std::fs::read_dir(root).expect("a folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["bin", "parts", "run", "tmp", "work"]);
}

#[test]
fn an_ordinary_user_of_a_system_without_libraries_gets_an_answer_from_the_demo() {
    let Some(program) = program() else { return };
    assert_answer_in_an_empty_system(&program, true);
}

/// A root file system with the files of the image, a shell and the name of a host. The network is
/// another, too.
const SYSTEM: &str = r#"set -e
umask 022
mount -t tmpfs -o mode=755 none "$ROOT"
"$LAYOUT" "$HEADROOM" "$ROOT"
cd "$ROOT"
mkdir client dev etc proc server srv srv/in
cp "$BUSYBOX" bin/busybox
if find . -name '*.so*' | grep .; then exit 1; fi
for folder in dev proc; do mount --rbind "/$folder" "$folder"; done
echo "127.0.0.1 other.test" >etc/hosts
echo "$START" >start
exec env -i PATH=/bin HOME=/client "$BUSYBOX" chroot . /bin/busybox sh /start
"#;

/// A server, and a client that finds it by its name.
const START: &str = r#"set -e
busybox ip link set lo up
headroom identity >shown
read -r key <shown
echo "$key" >authorized_keys
busybox mkfifo printed
HOME=/server headroom serve --root /srv --authorized-keys /authorized_keys >printed &
server=$!
trap 'kill $server; wait' EXIT
exec 3<printed
read -r line <&3
headroom trust other.test --fingerprint "${line##* }"
busybox head -c 3000000 /dev/urandom >file
headroom put file other.test:in/
headroom mv other.test:in/file other.test:in/renamed
headroom get other.test:in/renamed .
busybox cmp file renamed
busybox cmp file /srv/in/renamed
echo "the same"
"#;

#[test]
fn moves_files_on_a_system_without_libraries() {
    let Some(program) = program().filter(|_| privileged()) else { return };
    let ground = Ground::new("static-transfer");
    let root = ground.path("root");
    std::fs::create_dir(&root).expect("a folder");
    let mut command = ground.command("unshare");
    command
        .args(["--mount", "--net", "--propagation", "private", "sh", "-c", SYSTEM])
        .env("ROOT", root)
        .env("LAYOUT", LAYOUT)
        .env("HEADROOM", program)
        .env("BUSYBOX", busybox())
        .env("START", START);
    let ended = ground.end_of(command);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.ends_with("the same\n"), "{ended}");
}
