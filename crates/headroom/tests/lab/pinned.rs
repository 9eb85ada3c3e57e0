//! The pinned programs of `headroom lab parts`, which `make test` fetches into a cache of their own
//! where the archive still has them.

use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use headroom_lab_host::programs::{Program, SearchPath};
use headroom_lab_parts::Tree;
use headroom_testing::privileged;
use serde_json::Value;

use crate::common::{Ground, HEADROOM, MEASURE, array, number, parts, text};
use crate::image::{LAYOUT, MAKEFILE};

const USER: u32 = 23456;

/// The cache that has them; none: skipped.
fn cache() -> Option<PathBuf> {
    let cache = parts().join("pinned-tests");
    if !Tree::of(&cache).is_current() {
        eprintln!("skipped: no pinned programs in {}: run make test", cache.display());
        return None;
    }
    Some(cache)
}

/// The plan of `make demo`.
const DEMO: &str = include_str!("../../../../plans/demo.toml");

const RUN: &str = "ftps https sftp --sizes 1KiB --workload download --repetitions 2";

/// The origins of the programs in results, each once.
fn origins(results: &Value) -> Vec<&str> {
    let programs = array(&results["environment"], "programs");
    let mut origins: Vec<&str> = programs.iter().map(|one| text(one, "origin")).collect();
    origins.sort_unstable();
    origins.dedup();
    origins
}

/// A root file system with nothing but a kernel's folders, the files of the image of this program
/// (`contrib/Containerfile`), and a shell to start it with: no package manager, no server, and no
/// accounts but the user's.
const EMPTY_SYSTEM: &str = r#"set -e
mount -t tmpfs -o mode=755 none "$ROOT"
"$LAYOUT" "$HEADROOM" "$ROOT"
cd "$ROOT"
mkdir dev etc home old proc sys
cp "$BUSYBOX" bin/busybox
cp bin/busybox bin/sh
cp bin/busybox bin/su
{ ldd bin/busybox || true; } | tr ' ' '\n' | sort -u | while read -r file; do
  case $file in /*) mkdir -p ".${file%/*}"; cp "$file" ".$file" ;; esac
done
if [ -n "$STATIC" ] && find . -name '*.so*' | grep .; then exit 1; fi
for folder in dev proc sys; do mount --rbind "/$folder" "$folder"; done
mount --bind "$PARTS" parts
mount --bind "$HOME_THERE" home
echo "me:x:$ID:$ID::/home:/bin/sh" >etc/passwd
echo "me:x:$ID:" >etc/group
cat >start <<END
/bin/busybox umount -l /old
cd /home
exec /bin/su me -c "/bin/busybox env -i HOME=/home HEADROOM_PARTS=/parts /bin/headroom lab run $RUN --out out"
END
pivot_root . old
exec /bin/busybox chroot . /bin/sh /start
"#;

#[test]
fn an_ordinary_user_of_an_empty_system_gets_an_answer_from_the_demo() {
    assert_answer_in_an_empty_system(HEADROOM.as_ref(), false);
}

/// A shell for a root file system that has no other.
pub(super) fn busybox() -> PathBuf {
    let busybox = Program::new("busybox", "busybox-static", &[]);
    SearchPath::from_environment().locate(busybox).expect("a shell without libraries").path
}

/// Runs the demo by `program` as an ordinary user of an empty system, which has no library if the
/// program `is_static`.
pub(super) fn assert_answer_in_an_empty_system(program: &Path, is_static: bool) {
    let Some(cache) = cache().filter(|_| privileged()) else { return };
    let ground = Ground::new("pinned");
    for folder in ["root", "home"] {
        std::fs::create_dir(ground.path(folder)).expect("a folder");
    }
    chown(ground.path("home"), Some(USER), Some(USER)).expect("a folder of the user");
    assert!(
        MAKEFILE.contains("\n\t$(HEADROOM) lab run plans/demo.toml\n"),
        "the recipe of the demo"
    );
    ground.write("home/demo.toml", DEMO);
    let mut command = ground.command("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", EMPTY_SYSTEM])
        .env("ROOT", ground.path("root"))
        .env("HOME_THERE", ground.path("home"))
        .env("LAYOUT", LAYOUT)
        .env("HEADROOM", program)
        .env("STATIC", if is_static { "yes" } else { "" })
        .env("BUSYBOX", busybox())
        .env("PARTS", &cache)
        .env("ID", USER.to_string())
        // the tests beside this one may leave the link too little of the machine
        .env("RUN", "demo.toml --scale smoke --allow-failed-link-test");
    let ended = ground.end_of(command);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.contains("What do FTPS, SFTP and HTTPS cost"), "{ended}");
    let results = std::fs::read_to_string(ground.path("home/out/results.json")).expect("results");
    let results: Value = serde_json::from_str(&results).expect("JSON");
    assert_eq!(origins(&results), ["built-in", "pinned"]);
    assert_eq!(array(&results["plan"], "stacks").len(), 5);
    let settings = &results["environment"]["settings"];
    assert!(text(settings, "pinned programs").starts_with("Debian 13 (lock "), "{settings}");
    let privileges = text(settings, "privileges");
    assert!(privileges.starts_with(&format!("user namespace of user {USER}")), "{privileges}");
    assert!(array(&results, "samples").iter().all(|sample| sample["ok"] == true), "{ended}");
}

#[test]
fn programs_of_this_machine_are_measured_when_asked_for() {
    let Some(cache) = cache().filter(|_| privileged()) else { return };
    let ground = Ground::new("host-programs");
    let both = ground.path("parts");
    std::fs::create_dir(&both).expect("a cache");
    symlink(parts().join("root"), both.join("root")).expect("this machine's programs");
    symlink(Tree::of(&cache).path(), Tree::of(&both).path()).expect("the pinned ones");
    for (words, is_pinned) in [("", true), (" --host-programs", false)] {
        let _ = std::fs::remove_dir_all(ground.path("out"));
        let mut command =
            ground.headroom(&format!("lab run http {RUN} --only http --out out{words}"));
        command.env("HEADROOM_PARTS", &both);
        let ended = ground.end_of(command);
        assert_eq!(ended.code, Some(0), "{ended}");
        ended.assert_nothing_left();
        assert_eq!(origins(&ground.results()).contains(&"pinned"), is_pinned, "{ended}");
    }
}

#[test]
fn programs_of_this_machine_are_measured_where_a_trace_lies_among_them() {
    let Some(cache) = cache().filter(|_| privileged()) else { return };
    let ground = Ground::new("trace-in-usr");
    let both = ground.path("parts");
    std::fs::create_dir(&both).expect("a cache");
    symlink(parts().join("root"), both.join("root")).expect("this machine's programs");
    symlink(Tree::of(&cache).path(), Tree::of(&both).path()).expect("the pinned ones");
    let plan = "stacks = [\"http\"]\nrepetitions = 2\ncount-packets = false\n\
                link = \"trace=/usr/local/share/recorded.trace\"\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\ntransfers-per-sample = 1\n";
    ground.write("p.toml", plan);
    // the trace is there for this run alone
    let script = "mount -t tmpfs none /usr/local/share && echo 1 >/usr/local/share/recorded.trace && \
                  exec \"$0\" lab run p.toml --out out";
    let mut command = ground.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, HEADROOM]);
    command.env("HEADROOM_PARTS", &both);
    let ended = ground.end_of(command);
    ended.assert_says(0, &["/usr/local/share/recorded.trace would not be there"]);
    assert!(!origins(&ground.results()).contains(&"pinned"), "{ended}");
}

#[test]
fn pinned_programs_agree_on_hybrid_keys() {
    let Some(cache) = cache().filter(|_| privileged()) else { return };
    let ground = Ground::new("pinned-hybrid");
    let plan = "stacks = [\"https(x25519)\", \"https(mlkem768)\", \"sftp\", \"sftp(mlkem768)\"]\n\
                link = \"100mbit\"\nrepetitions = 2\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\ntransfers-per-sample = 1\n";
    ground.write("p.toml", plan);
    let mut command = ground.headroom(&format!("{MEASURE} p.toml"));
    command.env("HEADROOM_PARTS", &cache);
    let ended = ground.end_of(command);
    assert_eq!(ended.code, Some(0), "{ended}");
    let results = ground.results();
    let bytes = |stack: &str| {
        let samples = array(&results, "samples").iter();
        let of_it = samples.filter(|sample| sample["stack"] == stack);
        of_it.map(|sample| number(&sample["wire"], "bytes")).fold(0.0, f64::max)
    };
    // an encapsulation key of 1184 bytes one way, a ciphertext of 1088 the other (FIPS 203)
    for (x25519, hybrid) in [("https(x25519)", "https(mlkem768)"), ("sftp", "sftp(mlkem768)")] {
        let more = bytes(hybrid) - bytes(x25519);
        assert!((2000.0..3500.0).contains(&more), "{hybrid}: {more} bytes more than {x25519}");
    }
}

#[test]
fn pinned_programs_agree_on_a_certificate_of_ml_dsa() {
    let Some(cache) = cache().filter(|_| privileged()) else { return };
    let ground = Ground::new("pinned-ml-dsa");
    let plan = "stacks = [\"https(mlkem768)\", \"https(mlkem768,mldsa65)\", \"https(h2,mldsa65)\", \
                \"https(mldsa65)/tls\"]\nlink = \"100mbit\"\nrepetitions = 2\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\ntransfers-per-sample = 1\n";
    ground.write("p.toml", plan);
    let mut command = ground.headroom(&format!("{MEASURE} p.toml"));
    command.env("HEADROOM_PARTS", &cache);
    let ended = ground.end_of(command);
    // the client trusts this certificate alone, and there is no other
    assert_eq!(ended.code, Some(0), "{ended}");
    let results = ground.results();
    let bytes = |stack: &str| {
        let samples = array(&results, "samples").iter();
        let of_it = samples.filter(|sample| sample["stack"] == stack);
        of_it.map(|sample| number(&sample["wire"], "bytes")).fold(0.0, f64::max)
    };
    // a public key of 1952 bytes and two signatures of 3309, in place of 65 and two of 72 at most
    // (FIPS 204), and the headers of the packets
    let more = bytes("https(mlkem768,mldsa65)") - bytes("https(mlkem768)");
    assert!((8000.0..11_000.0).contains(&more), "{more} bytes more");
    let stacks = array(&results["plan"], "stacks");
    assert_eq!(stacks[1]["baseline"].as_str(), Some("https(mlkem768)"));
}

#[test]
fn pinned_programs_speak_later_versions_of_http() {
    let Some(cache) = cache().filter(|_| privileged()) else { return };
    let ground = Ground::new("pinned-http");
    let plan = "stacks = [\"https\", \"https(h2)\", \"https(h2,mlkem768)\", \"https(h3)\"]\n\
                link = \"100mbit\"\nrepetitions = 2\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\ntransfers-per-sample = 1\n\
                [[workload]]\nkind = \"upload\"\nsizes = [\"64KiB\"]\ntransfers-per-sample = 1\n\
                [[workload]]\nkind = \"many\"\nstacks = [\"https\", \"https(h2)\"]\nfiles = 3\nsizes = [\"1KiB\"]\n";
    ground.write("p.toml", plan);
    let mut command = ground.headroom(&format!("{MEASURE} p.toml"));
    command.env("HEADROOM_PARTS", &cache);
    let ended = ground.end_of(command);
    let results = ground.results();
    // a client that speaks another version fails; curl's QUIC, which is new, seldom hangs
    let samples = array(&results, "samples");
    let of = |stack: &'static str| samples.iter().filter(move |sample| sample["stack"] == stack);
    for stack in ["https", "https(h2)", "https(h2,mlkem768)"] {
        assert!(of(stack).all(|sample| sample["ok"] == true), "{stack}: {ended}");
    }
    for workload in ["download", "upload"] {
        let mut tried =
            of("https(h3)").filter(|sample| text(sample, "workload").starts_with(workload));
        assert!(tried.any(|sample| sample["ok"] == true), "{workload}: {ended}");
    }
    let connections = |stack: &str| {
        let mut samples = array(&results, "samples").iter();
        let counted = samples.find(|one| one["stack"] == stack && one["wire"].is_object());
        number(&counted.expect("counted")["wire"], "connections")
    };
    assert_eq!((connections("https(h2)"), connections("https(h3)")), (1.0, 1.0));
}

#[test]
fn a_program_of_the_cache_is_measured_among_the_pinned_ones() {
    let Some(cache) = cache().filter(|_| privileged()) else { return };
    let ground = Ground::new("pinned-and-cached");
    let both = ground.path("parts");
    let programs = both.join("root/usr/bin");
    std::fs::create_dir_all(&programs).expect("a cache");
    symlink(Tree::of(&cache).path(), Tree::of(&both).path()).expect("the pinned ones");
    // a program that no release has
    let own = "#!/bin/sh\nexec cp \"$1\" \"$2\"\n";
    std::fs::write(programs.join("own-copy"), own).expect("a program");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(programs.join("own-copy"), mode).expect("executable");
    let plan = "stacks = [\"own\"]\nrepetitions = 2\ncount-packets = false\n\
                [application.own]\nabout = \"a copy\"\nsecured = false\n\
                server = [\"nginx\", \"-p\", \"{dir}\", \"-e\", \"stderr\", \"-c\", \"{dir}/nginx.conf\"]\n\
                download = [\"curl\", \"--disable\", \"--silent\", \"--fail\", \"--noproxy\", \"*\", \"--output\", \"{local}\", \"http://{address}/{file}\"]\n\
                prepare = [[\"own-copy\", \"{dir}/nginx.conf\", \"{dir}/copied\"]]\n\
                programs = { nginx = { version = [\"-v\"] }, curl = { version = [\"--version\"] }, own-copy = { version = [\"--version\"] } }\n\
                [application.own.server-files]\n\"nginx.conf\" = \"user root; daemon off; pid {dir}/pid; error_log stderr; \
                events {{ }} http {{ access_log off; client_body_temp_path {dir}/1; proxy_temp_path {dir}/2; \
                fastcgi_temp_path {dir}/3; uwsgi_temp_path {dir}/4; scgi_temp_path {dir}/5; server {{ listen {address}; root {files}; }} }}\"\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\ntransfers-per-sample = 1\n";
    ground.write("p.toml", plan);
    let run = || {
        let mut command = ground.headroom(&format!("{MEASURE} p.toml"));
        command.env("HEADROOM_PARTS", &both);
        ground.end_of(command)
    };
    let ended = run();
    assert_eq!(ended.code, Some(0), "{ended}");
    let origins: Vec<String> = origins(&ground.results()).into_iter().map(str::to_owned).collect();
    assert!(["cache", "pinned"].iter().all(|one| origins.iter().any(|of| of == one)), "{ended}");
}
