//! What a definition may have, for people: its keys, its placeholders and an example, as
//! `headroom lab list --own-stacks` prints them. docs/lab.md has the same tables; tests hold both
//! against what is accepted.

use headroom_lab_results::report::columns::wrapped;

/// A key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    /// Whether a table without it is refused.
    pub required: bool,
    /// Its meaning, in a line.
    pub about: &'static str,
}

/// Keys of one sort of table.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// The tables that have them: `both` is applications and layers.
    pub of: &'static str,
    /// A title.
    title: &'static str,
    /// The keys.
    pub keys: &'static [Key],
}

/// Placeholders that are alike.
#[derive(Debug, Clone, Copy)]
pub struct Placeholders {
    /// Their names, without braces.
    pub names: &'static [&'static str],
    /// Where they stand: `everywhere`, or commands.
    pub of: &'static str,
    /// Their meaning, in a line.
    pub about: &'static str,
}

const fn key(name: &'static str, about: &'static str) -> Key {
    Key { name, required: false, about }
}

const fn required(name: &'static str, about: &'static str) -> Key {
    Key { name, required: true, about }
}

/// All keys.
pub const KEYS: [Keys; 4] = [
    Keys {
        of: "both",
        title: "Keys of [application.NAME] and of [layer.NAME]",
        keys: &[
            required(
                "server",
                "the command of its server; it stays in the foreground, with a private `/run` and no name server",
            ),
            required(
                "programs",
                "a table: each program that a command begins with or names as `{program:NAME}`",
            ),
            key("about", "a line for `headroom lab list`"),
            key(
                "ready",
                "the server is ready when `{address}` accepts TCP connections (`\"tcp\"`) or is bound for UDP (`\"udp\"`)",
            ),
            key(
                "ready-line",
                "it is ready when it has printed a line with this text, in place of `ready`",
            ),
            key(
                "server-files",
                "a table: files that are written into `{dir}` of the server, by name",
            ),
            key("client-files", "a table: the same at the client"),
            key("environment", "a table: variables of its processes, by name"),
            key("facts", "a table: settings for the record, by name"),
        ],
    },
    Keys {
        of: "application",
        title: "Keys of [application.NAME] alone",
        keys: &[
            required(
                "secured",
                "whether the content cannot be read on the wire: every run checks it, and fails if that is not so",
            ),
            key(
                "download",
                "moves `{file}` on the server, relative to `{files}`, to `{local}`: it exits with 0, and the hash must be right",
            ),
            key(
                "upload",
                "moves `{local}` to `{file}` on the server, relative to `{files}`; likewise",
            ),
            key(
                "download-tree",
                "the workload `many`: fetches the folder `{folder}` into the empty folder `{local}`",
            ),
            key(
                "shell",
                "the workload `commands`: a shell on the server that reads commands from standard input",
            ),
            key("stream", "the workload `stream`: sends for `{seconds}`"),
            key("stream-file", "sends the file `{local}` as a stream, for the clear-text check"),
            key("prepare", "a list of commands that run before the server"),
            key(
                "ready-within",
                "seconds in which the server gets ready (default 10; a layer has 20)",
            ),
            key("baseline", "the stack that it is compared with"),
            key("layers", "the only layers that it stands under; `[]`: none"),
            key(
                "port",
                "the port that it asks for (default 8000); a second copy gets another one, so commands use `{port}`",
            ),
            key("transport", "`\"udp\"`: files travel over UDP"),
            key("data-connections", "files travel on TCP connections of their own, as in FTP"),
            key(
                "close-exchange",
                "the session ends with an exchange behind the last reply, as in SSH",
            ),
            key(
                "obfuscates",
                "it changes the content without encrypting it, for instance compresses it",
            ),
        ],
    },
    Keys {
        of: "layer",
        title: "Keys of [layer.NAME] alone",
        keys: &[
            required(
                "encrypts",
                "whether the content cannot be read on the wire: every run checks it, and fails if that is not so",
            ),
            required("client", "the command of its end at the client"),
            key(
                "kind",
                "`\"stream\"` (default): it carries one TCP connection; `\"network\"`: packets, by the interface `{interface}`, \
                 which both ends make and the lab gives addresses",
            ),
            key(
                "overhead",
                "bytes that a network layer adds to a packet at most, its own UDP and IP headers included; it must say so",
            ),
        ],
    },
    Keys {
        of: "program",
        title: "Keys of a program in [application.NAME.programs] or [layer.NAME.programs]",
        keys: &[
            required(
                "version",
                "the arguments that make it print its version, which results keep: `[\"--version\"]`",
            ),
            key("package", "the Debian package that has it, if that is not called like it"),
        ],
    },
];

/// All placeholders.
pub const PLACEHOLDERS: [Placeholders; 14] = [
    Placeholders {
        names: &["host", "port", "address"],
        of: "everywhere",
        about: "the server's address, its port, and both, an IPv6 address in brackets; of a layer where this end \
                accepts, of a network layer this end's address",
    },
    Placeholders {
        names: &["url-host", "ip-version"],
        of: "everywhere",
        about: "the address as URLs have it; 4 or 6",
    },
    Placeholders {
        names: &["dir"],
        of: "everywhere",
        about: "the folder of this application or layer on this side",
    },
    Placeholders {
        names: &["certificate"],
        of: "everywhere",
        about: "the run's certificate (ECDSA P-256, for the server's addresses), which clients trust",
    },
    Placeholders { names: &["key"], of: "server", about: "the key of that certificate" },
    Placeholders {
        names: &["files"],
        of: "application",
        about: "the folder that is served; uploads go to `incoming` in it",
    },
    Placeholders {
        names: &["first-data-port", "last-data-port"],
        of: "server of an application",
        about: "ports for data connections",
    },
    Placeholders {
        names: &["file"],
        of: "download, upload",
        about: "the file on the server, relative to `{files}`",
    },
    Placeholders {
        names: &["folder"],
        of: "download-tree",
        about: "the folder on the server, relative to `{files}`",
    },
    Placeholders {
        names: &["local"],
        of: "download, upload, download-tree, stream-file",
        about: "the file or folder on the client",
    },
    Placeholders { names: &["seconds"], of: "stream", about: "how long it sends" },
    Placeholders {
        names: &["to-host", "to-port", "to-address", "url-to-host"],
        of: "layer",
        about: "where this end passes on to; of a network layer the other end",
    },
    Placeholders {
        names: &["interface", "mtu", "inner-host"],
        of: "network layer",
        about: "its interface, the size of packets on it, its address there",
    },
    Placeholders {
        names: &["program:NAME"],
        of: "commands",
        about: "a word of its own: another one of the `programs`",
    },
];

/// A whole plan.
pub const EXAMPLE: &str = include_str!("example.toml");

const INTRODUCTION: &str = "A plan, or a file that it names in include = [\"FILE\"], defines applications and layers as commands. They \
                            stand in stacks like those that are built in. A command is a list of words, which no shell \
                            reads; the first one is a program. An application has a server of its own, even if the \
                            lab has such a server built in, and needs one of download, upload, shell and \
                            stream-file. headroom lab list FILE checks a file, headroom lab doctor PLAN looks for \
                            programs, and docs/lab.md of the source tree has more examples, lftp with vsftpd among \
                            them.";

/// Columns of names, with the blanks around them.
const NAMES: usize = 20;

/// Prints all of it, `width` columns wide but for the example.
pub fn text(width: usize) -> String {
    let mut text = wrapped(INTRODUCTION, width);
    for Keys { title, keys, .. } in &KEYS {
        text += &format!("\n{title}\n");
        for key in *keys {
            text += &row(key.name, &key.meaning(), width);
        }
    }
    text += "\nPlaceholders in words, files and variables ({{ and }} are braces)\n";
    for Placeholders { names, of, about } in &PLACEHOLDERS {
        text += &row(&braced(names).join(", "), &format!("{of}: {about}"), width);
    }
    text + "\nExample\n\n" + EXAMPLE
}

impl Key {
    /// Its meaning, and that it is required.
    fn meaning(&self) -> String {
        format!("{}{}", if self.required { "required: " } else { "" }, self.about)
    }
}

/// The names as commands have them.
fn braced(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{{{name}}}")).collect()
}

/// A name with a text beside it, or below a long one.
fn row(name: &str, about: &str, width: usize) -> String {
    let beside = wrapped(about, width.saturating_sub(NAMES));
    let is_short = name.len() + 4 <= NAMES;
    let mut text = if is_short { String::new() } else { format!("  {name}\n") };
    for (index, line) in beside.lines().enumerate() {
        let name = if index == 0 && is_short { name } else { "" };
        text += &format!("  {name:rest$}{line}\n", rest = NAMES - 2);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of the guide.
    fn tables() -> [String; 2] {
        let head = |first: &str, second: &str| {
            format!("| {first} | {second} | meaning |\n|---|---|---|\n")
        };
        let of = |keys: &Keys| {
            let row = |key: &Key| format!("| `{}` | {} | {} |\n", key.name, keys.of, key.meaning());
            keys.keys.iter().map(row).collect::<String>()
        };
        let keys = head("key", "of") + &KEYS.iter().map(of).collect::<String>();
        let row = |one: &Placeholders| {
            format!("| `{}` | {} | {} |\n", braced(one.names).join("`, `"), one.of, one.about)
        };
        let rows: String = PLACEHOLDERS.iter().map(row).collect();
        [keys, head("placeholder", "where") + &rows]
    }

    #[test]
    fn the_guide_has_the_same_tables() {
        let guide = include_str!("../../../../docs/lab.md");
        for table in tables() {
            assert!(guide.contains(&table), "docs/lab.md should have:\n{table}");
        }
    }

    #[test]
    fn is_as_wide_as_the_terminal_but_for_the_example() {
        let text = text(80);
        let (tables, example) = text.split_once("\nExample\n\n").expect("an example");
        assert_eq!(example, EXAMPLE);
        for line in tables.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for (name, about) in [("secured", "required: whether"), ("{dir}", "everywhere: the")] {
            let line = format!("\n  {name:18}{about}");
            assert!(tables.contains(&line), "`{line}` is not in {tables}");
        }
        let below = format!("\n  {{host}}, {{port}}, {{address}}\n{:20}everywhere: the", "");
        assert!(tables.contains(&below), "{tables}");
    }
}
