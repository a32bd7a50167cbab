//! Probes at the begin and the end of a function. Unlike an instance, they are seen by all users of tracefs.
//!
//! Their group has the name of the instance, so the janitor and a later start find those of a process that is gone.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::owner::is_gone;
use super::text::text;

/// Probes of one function, which are removed when this is dropped. They must be disabled by then.
#[derive(Debug)]
pub struct Probes {
    root: PathBuf,
    group: String,
}

/// Name of the probe at the begin.
pub const BEGIN: &str = "refresh_begin";
/// Name of the probe at the end.
pub const END: &str = "refresh_end";

impl Probes {
    /// Sets probes on a function, by the cheaper way first. Removes stale ones before.
    ///
    /// `instance` is the directory of this process's instance.
    pub fn set(root: &Path, instance: &Path, function: &str) -> io::Result<Self> {
        remove_if(root, |group| is_gone(&group.replace('_', "-")));
        let group = group(instance).ok_or(io::ErrorKind::InvalidInput)?;
        let ways = [["f", "f", "%return"], ["p", "r", ""]];
        let mut set = Ok(());
        for [begin, end, suffix] in ways {
            set = write(root, &format!("{begin}:{group}/{BEGIN} {function}"))
                .and_then(|()| write(root, &format!("{end}:{group}/{END} {function}{suffix}")));
            if set.is_ok() {
                break;
            }
            remove_if(root, |it| it == group);
        }
        set.map(|()| Self {
            root: root.to_owned(),
            group,
        })
    }

    /// Name of their directory below `events`.
    pub fn group(&self) -> &str {
        &self.group
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        remove_if(&self.root, |group| group == self.group);
    }
}

/// Removes the probes of this instance, which must be gone.
pub(super) fn remove_of(instance: &Path) {
    let root = instance.parent().and_then(Path::parent);
    if let (Some(root), Some(own)) = (root, group(instance)) {
        remove_if(root, |group| group == own);
    }
}

/// Removes probes of ours in groups for which `is_wanted` holds.
fn remove_if(root: &Path, is_wanted: impl Fn(&str) -> bool) {
    let text = text(&root.join("dynamic_events")).unwrap_or_default();
    for (group, name) in text.lines().filter_map(parts) {
        if group.starts_with("bursar_") && is_wanted(group) {
            // A probe that an instance of a process still has enabled is busy.
            let _ = write(root, &format!("-:{group}/{name}"));
        }
    }
}

/// Group and name in a line of `dynamic_events`: `p:GROUP/NAME PLACE`. A return probe may have a number after its kind.
fn parts(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(':')?;
    rest.split_whitespace().next()?.split_once('/')
}

/// Adds a line. The file must not be truncated, which removes the probes of all users.
fn write(root: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .open(root.join("dynamic_events"))?;
    file.write_all(line.as_bytes())
}

/// Names of groups have no hyphens.
fn group(instance: &Path) -> Option<String> {
    Some(instance.file_name()?.to_str()?.replace('-', "_"))
}

/// The name under which a function can be traced, perhaps that of the compiler's copy: `NAME.isra.0`.
pub fn traceable(root: &Path, function: &str) -> Option<String> {
    let text = fs::read_to_string(root.join("available_filter_functions")).ok()?;
    name_of(&text, function).map(str::to_owned)
}

fn name_of<'a>(functions: &'a str, function: &str) -> Option<&'a str> {
    let mut names = functions
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| name.split('.').next() == Some(function));
    // Of several copies, one alone would show some calls only.
    names.next().filter(|_| names.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_their_group() {
        let found = |line| parts(line);
        assert_eq!(
            found("r64:bursar_1_2/refresh_end f"),
            Some(("bursar_1_2", "refresh_end"))
        );
        assert_eq!(
            found("p:bursar_1_2/refresh_begin f+0"),
            Some(("bursar_1_2", "refresh_begin"))
        );
        assert_eq!(found(""), None);
        let instance = Path::new("/t/instances/bursar-12-345");
        assert_eq!(group(instance).as_deref(), Some("bursar_12_345"));
    }

    #[test]
    fn a_copy_counts_as_the_function_and_several_do_not() {
        assert_eq!(name_of("a\nf.isra.0\nf2\n", "f"), Some("f.isra.0"));
        assert_eq!(name_of("f [module]\n", "f"), Some("f"));
        assert_eq!(name_of("f.isra.0\nf.constprop.0\n", "f"), None);
        assert_eq!(name_of("f2\n", "f"), None);
    }

    /// Stands in for tracefs: lines are added, and none is lost.
    #[test]
    fn only_probes_of_processes_that_are_gone_are_removed() {
        let root = std::env::temp_dir().join(format!("bursar-probes-{}", std::process::id()));
        fs::create_dir_all(&root).expect("a directory");
        let file = root.join("dynamic_events");
        let other = "p:kprobes/mine f\np:bursar_4294967295_1/refresh_begin f\n";
        fs::write(&file, other).expect("the file");
        let own = super::super::owner::own_path(&root.join("instances"));
        let probes = Probes::set(&root, &own, "f").expect("probes");
        let after = fs::read_to_string(&file).expect("the file");
        assert!(after.starts_with(other), "{after}");
        assert!(after.contains("-:bursar_4294967295_1/refresh_begin"));
        assert!(!after.contains("-:kprobes"));
        assert!(after.contains(&format!("f:{}/{END} f%return", probes.group())));
        drop(probes);
        fs::remove_dir_all(&root).expect("removed");
    }
}
