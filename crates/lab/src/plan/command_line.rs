//! The plan of a command line: `headroom lab run ftp ftps --sizes 1MiB --family ipv4`.

use std::path::Path;

use headroom_lab_host::error::{Error, Result};

use super::{Family, Offload, Plan, file};
use crate::custom::Custom;
use crate::stack::Stack;
use crate::workload::{Key, WorkloadKind, work};

/// A plan on a command line, without a file; defaults are those of a file.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    /// Names of stacks.
    pub stacks: Vec<String>,
    /// Files that define applications and layers, from the working folder.
    pub include: Vec<String>,
    /// Workloads; none: downloads and uploads, or commands for stacks that move no files.
    pub workloads: Vec<WorkloadKind>,
    /// Sizes of files and datagrams; none: a small, a middling and a large file.
    pub sizes: Vec<String>,
    /// The link.
    pub link: Option<String>,
    /// IPv4 or IPv6.
    pub family: Option<Family>,
    /// Whether the interfaces offload work from the processors.
    pub offload: Option<Offload>,
}

/// Sizes of files where none are said.
const SIZES: [&str; 3] = ["1KiB", "1MiB", "64MiB"];

impl CommandLine {
    /// Returns the plan, with the baselines that its stacks are compared with.
    ///
    /// # Errors
    /// [`Error::Plan`] with a sentence.
    pub fn plan(&self) -> Result<Plan> {
        let mut custom = Custom::default();
        for path in &self.include {
            custom.include(Path::new(path)).map_err(Error::Plan)?;
        }
        let stacks = self.stacks_with_baselines(&custom)?;
        let names: Vec<String> = stacks.iter().map(|stack| stack.name.clone()).collect();
        let mut text = format!("stacks = [{}]\n", quoted(&names));
        if !self.include.is_empty() {
            text += &format!("include = [{}]\n", quoted(&self.include));
        }
        let link = self.link.as_deref().unwrap_or("unshaped");
        text += &format!("link = {link:?}\n");
        if let Some(family) = self.family {
            text += &format!("family = {:?}\n", family.name());
        }
        if let Some(offload) = self.offload {
            text += &format!("offload = {:?}\n", offload.name());
        }
        text += &self.workloads(&stacks)?;
        file::read(&text, &name_of(&names), Some(Path::new(""))).map_err(|error| {
            // the line is one of a text that nobody has seen
            let sentence = error.split_once(": ").map_or(error.as_str(), |(_line, rest)| rest);
            Error::Plan(sentence.to_owned())
        })
    }

    /// Baselines that the user did not name are measured too: an overhead over nothing is
    /// no answer.
    fn stacks_with_baselines(&self, custom: &Custom) -> Result<Vec<Stack>> {
        let parse = |name: &String| Stack::parse_with(name, custom).map_err(Error::Plan);
        let parsed = self.stacks.iter().map(parse);
        let parsed = parsed.collect::<Result<Vec<_>>>()?;
        let named: Vec<String> = parsed.iter().map(|stack| stack.name.clone()).collect();
        let mut all: Vec<Stack> = Vec::new();
        for stack in parsed {
            let baselines = stack.baselines();
            let has_one = baselines.iter().any(|b| named.contains(b));
            let is_there = |name: &str| all.iter().any(|stack| stack.name == name);
            let missing = baselines.last().filter(|b| !has_one && !is_there(b));
            let missing = missing.map(parse).transpose()?;
            all.extend(missing);
            all.push(stack);
        }
        Ok(all)
    }

    /// The workloads as a plan's file has them.
    fn workloads(&self, stacks: &[Stack]) -> Result<String> {
        let kinds = if self.workloads.is_empty() {
            self.usual_kinds(stacks)?
        } else {
            self.workloads.clone()
        };
        if let Some(idle) =
            stacks.iter().find(|stack| !kinds.iter().any(|kind| stack.accepts(*kind)))
        {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            return Err(Error::Plan(format!(
                "`{}` can do none of the workloads {}; `headroom lab list` shows all of them",
                idle.name,
                names.join(", ")
            )));
        }
        // those of a folder's files and of a page are a plan's affair
        let has_sizes = |kind: &WorkloadKind| {
            let alone = kind.moves_files() && !work(*kind).keys.contains(&Key::Files);
            alone || kind.is_datagrams()
        };
        if !self.sizes.is_empty()
            && let Some(kind) = kinds.iter().find(|kind| !has_sizes(kind))
        {
            return Err(Error::Plan(format!(
                "the workload `{}` has no sizes: leave out --sizes",
                kind.name()
            )));
        }
        Ok(kinds.iter().map(|kind| self.workload(*kind, stacks)).collect())
    }

    fn workload(&self, kind: WorkloadKind, stacks: &[Stack]) -> String {
        let able = stacks.iter().filter(|stack| stack.accepts(kind));
        let able: Vec<String> = able.map(|stack| stack.name.clone()).collect();
        let mut text =
            format!("[[workload]]\nkind = {:?}\nstacks = [{}]\n", kind.name(), quoted(&able));
        let usual = SIZES.map(String::from);
        let sizes = match kind {
            _ if !self.sizes.is_empty() => &self.sizes[..],
            WorkloadKind::Download | WorkloadKind::Upload => &usual,
            _ => &[],
        };
        if !sizes.is_empty() {
            text += &format!("sizes = [{}]\n", quoted(sizes));
        }
        text
    }

    /// Returns the default workloads of these stacks.
    fn usual_kinds(&self, stacks: &[Stack]) -> Result<Vec<WorkloadKind>> {
        let ways = [WorkloadKind::Download, WorkloadKind::Upload];
        let moves_files = |stack: &&Stack| ways.iter().any(|&way| stack.accepts(way));
        let (files, commands): (Vec<&Stack>, Vec<&Stack>) = stacks.iter().partition(moves_files);
        let Some(Stack { name, .. }) = commands.first() else {
            let able = |way: &WorkloadKind| stacks.iter().any(|stack| stack.accepts(*way));
            return Ok(ways.into_iter().filter(able).collect());
        };
        if let Some(Stack { name: other, .. }) = files.first() {
            return Err(Error::Plan(format!(
                "`{name}` runs commands and `{other}` moves files, so they have nothing to compare: \
                 measure them in two runs, or write a plan with a workload for each"
            )));
        }
        if !self.sizes.is_empty() {
            return Err(Error::Plan(format!(
                "`{name}` runs commands and moves no files: leave out --sizes"
            )));
        }
        Ok(vec![WorkloadKind::Commands])
    }
}

/// Bytes of the name of a plan without a file, which becomes part of a folder's name.
const LONGEST_NAME: usize = 48;

/// The name of a plan of these stacks: `ftp_ftps_sftp-tls`. Of many, the first ones and a hash of
/// all, so that other stacks have another name.
fn name_of(stacks: &[String]) -> String {
    const DIGITS: usize = 8;
    let plain = |stack: &String| {
        let words = stack.split(|c: char| !c.is_ascii_alphanumeric());
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
    };
    let name = stacks.iter().map(plain).collect::<Vec<_>>().join("_");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let hash = blake3::hash(stacks.join(" ").as_bytes()).to_hex();
    let first = name[..LONGEST_NAME - DIGITS - 1].trim_end_matches(['-', '_']);
    format!("{first}-{}", &hash.as_str()[..DIGITS])
}

fn quoted(items: &[String]) -> String {
    items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn strings(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    fn of(stacks: &[&str], sizes: &[&str]) -> CommandLine {
        CommandLine { stacks: strings(stacks), sizes: strings(sizes), ..CommandLine::default() }
    }

    fn refused(line: &CommandLine) -> String {
        line.plan().expect_err("a mistake").to_string()
    }

    #[test]
    fn a_command_line_brings_the_baselines_along() {
        let plan = of(&["ftps", "https"], &["1KiB"]).plan().expect("a good command line");
        let names: Vec<&str> = plan.stacks.iter().map(|p| p.stack.name.as_str()).collect();
        assert_eq!(names, ["ftp", "ftps", "http", "https"]);
        let plan = of(&["sftp/tls/openvpn"], &["1KiB"]).plan().expect("a good command line");
        assert_eq!(plan.stacks[0].stack.name, "sftp");
        assert_eq!(plan.stacks[1].baseline.as_deref(), Some("sftp"));
        assert!(refused(&of(&["ftps"], &["1K"])).starts_with("`1K` is not a size"));
        let defaults = of(&["ftp"], &[]).plan();
        assert!(defaults.is_ok_and(|plan| plan.workloads[0].sizes == [1024, 1 << 20, 64 << 20]));
    }

    #[test]
    fn a_plan_without_a_file_is_named_by_its_stacks() {
        let name = |stacks: &[&str]| of(stacks, &[]).plan().expect("a good command line").name;
        assert_eq!(name(&["ftps"]), "ftp_ftps");
        assert_eq!(name(&["ftp", "ftps"]), "ftp_ftps", "the same is measured");
        assert_eq!(name(&["sftp/tls", "https(x25519)"]), "sftp_sftp-tls_http_https-x25519");
        let many = ["ftps", "https", "sftp", "scp", "rsync", "sftp/tls", "sftp/tls/wireguard"];
        let long = name(&many);
        assert!(long.starts_with("ftp_ftps_http_https_sftp_scp_rsync"), "{long}");
        assert!(long.len() <= LONGEST_NAME, "{long}");
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        assert!(long.chars().all(plain), "{long}");
        let other = name(&[&many[..6], &["sftp/tls/openvpn"]].concat());
        assert!(other != long && other.len() <= LONGEST_NAME, "{other}");
    }

    #[test]
    fn a_command_line_of_commands_has_no_files() {
        assert!(of(&["ssh"], &[]).plan().is_ok());
        assert_eq!(
            refused(&of(&["ssh"], &["1KiB"])),
            "`ssh` runs commands and moves no files: leave out --sizes"
        );
        for stacks in [["ssh", "ftp"], ["ftp", "ssh"]] {
            let sentence = refused(&of(&stacks, &[]));
            assert!(
                sentence.starts_with("`ssh` runs commands and `ftp` moves files"),
                "{sentence}"
            );
        }
    }

    #[test]
    fn family_offload_and_workloads_are_said() {
        let line = CommandLine {
            workloads: vec![WorkloadKind::Upload, WorkloadKind::Many],
            family: Some(Family::Ipv4),
            offload: Some(Offload::Off),
            link: Some("100mbit".to_owned()),
            ..of(&["https", "sftp"], &[])
        };
        let plan = line.plan().expect("a good command line");
        assert_eq!((plan.family, plan.offload), (Some(Family::Ipv4), Offload::Off));
        assert_eq!(plan.link.slowest_bps(), Some(100_000_000));
        let names: Vec<String> = plan.workloads.iter().map(Workload::name).collect();
        assert_eq!(names, ["upload", "many"]);
        assert_eq!(plan.workloads[0].sizes, [1024, 1 << 20, 64 << 20]);
    }

    #[test]
    fn a_workload_that_a_stack_cannot_do_is_refused() {
        let commands =
            CommandLine { workloads: vec![WorkloadKind::Commands], ..of(&["https"], &[]) };
        let sentence = refused(&commands);
        assert!(sentence.contains("can do none of the workloads commands"), "{sentence}");
        let sized = CommandLine { workloads: vec![WorkloadKind::Many], ..of(&["sftp"], &["1KiB"]) };
        assert_eq!(refused(&sized), "the workload `many` has no sizes: leave out --sizes");
    }
}
