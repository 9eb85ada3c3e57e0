//! The folder that a run's results go to: one that nothing else is in.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use headroom_lab::Error;
use headroom_lab::run::JOURNAL;

/// An empty folder, made for this run or found so.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    made: bool,
}

impl Folder {
    /// The folder `chosen`, or a new one in `results` that is named by plan or
    /// study and time.
    pub(crate) fn new(chosen: Option<&Path>, name: &str) -> anyhow::Result<Self> {
        match chosen {
            Some(path) => Self::at(outside_run(std::path::absolute(path)?)?),
            None => {
                let parent = outside_run(std::path::absolute("results")?)?;
                Self::named(&parent, name)
            }
        }
    }

    fn at(path: PathBuf) -> anyhow::Result<Self> {
        let made = !path.exists();
        let doing = || format!("cannot create the output folder {}", path.display());
        std::fs::create_dir_all(&path).with_context(doing)?;
        let mut inside = std::fs::read_dir(&path).with_context(doing)?;
        if inside.next().is_some() {
            return Err(occupied(&path).into());
        }
        Ok(Self { path, made })
    }

    fn named(parent: &Path, name: &str) -> anyhow::Result<Self> {
        let seconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let first = parent.join(format!("{name}-{seconds}"));
        let doing = || format!("cannot create the output folder {}", first.display());
        std::fs::create_dir_all(parent).with_context(doing)?;
        let mut path = first.clone();
        // another run may have begun in the same second
        for number in 2.. {
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    path = parent.join(format!("{name}-{seconds}-{number}"));
                }
                made => {
                    made.with_context(doing)?;
                    break;
                }
            }
        }
        Ok(Self { path, made: true })
    }

    /// Removes it again, unless it was there before or something is in it.
    pub(crate) fn remove(&self) {
        if self.made {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

fn occupied(path: &Path) -> Error {
    let cut = path.join(JOURNAL).exists();
    let path = path.display();
    let advice = if cut {
        format!(": continue the run in it with `headroom lab run --resume {path}`, or")
    } else {
        ";".to_owned()
    };
    Error::Plan(format!("the output folder {path} is not empty{advice} choose another with --out"))
}

/// Rejects paths in `/run`, which the lab mounts over: files there disappear with it.
pub(crate) fn outside_run(path: PathBuf) -> anyhow::Result<PathBuf> {
    if path.starts_with("/run") {
        let sentence = format!(
            "{}: the lab covers /run with its own; choose a folder elsewhere",
            path.display()
        );
        return Err(Error::Plan(sentence).into());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_the_same_second_have_folders_of_their_own() {
        let ground = tempfile::tempdir().expect("a folder");
        let parent = ground.path().join("runs");
        let new = || Folder::named(&parent, "demo").expect("a folder");
        let folders = [new(), new(), new()];
        let names: std::collections::BTreeSet<&PathBuf> = folders.iter().map(|f| &f.path).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        folders.iter().for_each(Folder::remove);
        std::fs::remove_dir(&parent).expect("all of them were removed");
    }

    #[test]
    fn a_folder_with_something_in_it_is_refused_and_an_empty_one_is_kept() {
        let ground = tempfile::tempdir().expect("a folder");
        let parent = ground.path().to_owned();
        std::fs::create_dir(parent.join("empty")).expect("a folder");
        Folder::at(parent.join("empty")).expect("an empty folder").remove();
        assert!(parent.join("empty").exists(), "it was there before");
        let error = Folder::at(parent.clone()).map(|_| ()).expect_err("not empty").to_string();
        assert!(error.contains("is not empty; choose another"), "{error}");
        std::fs::write(parent.join(JOURNAL), "").expect("a file");
        let error = Folder::at(parent.clone()).map(|_| ()).expect_err("not empty").to_string();
        assert!(error.contains("--resume"), "{error}");
    }
}
