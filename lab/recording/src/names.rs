//! Names of processes and cgroups.

use std::collections::BTreeMap;

/// Names by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names of processes (`comm`), by pid.
    pub processes: BTreeMap<u32, String>,
    /// Paths of cgroups, from the root of their hierarchy, by number.
    pub cgroups: BTreeMap<u64, String>,
    /// Whether the names are pseudonyms.
    pub is_redacted: bool,
}

/// Pseudonyms of one kind: equal names get equal ones.
struct Pseudonyms {
    prefix: &'static str,
    given: BTreeMap<String, usize>,
}

impl Pseudonyms {
    fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            given: BTreeMap::new(),
        }
    }

    fn of(&mut self, name: &str) -> String {
        let next = self.given.len() + 1;
        let number = *self.given.entry(name.to_owned()).or_insert(next);
        format!("{}-{number}", self.prefix)
    }
}

impl Names {
    /// Returns pseudonyms in place of the names. Equal names stay equal, and cgroups keep their places in the tree.
    /// Numbers of processes and cgroups do not change.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut comms = Pseudonyms::new("process");
        let mut parts = Pseudonyms::new("cgroup");
        let processes = self.processes.iter();
        let cgroups = self.cgroups.iter();
        Self {
            processes: processes
                .map(|(pid, name)| (*pid, comms.of(name)))
                .collect(),
            cgroups: cgroups
                .map(|(number, path)| {
                    let part = |part: &str| match part {
                        "" => String::new(),
                        part => parts.of(part),
                    };
                    let path: Vec<String> = path.split('/').map(part).collect();
                    (*number, path.join("/"))
                })
                .collect(),
            is_redacted: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_stay_equal_and_paths_keep_their_depth() {
        let names = Names {
            processes: [(1, "init"), (7, "secret"), (9, "secret")]
                .map(|(pid, name)| (pid, name.to_owned()))
                .into(),
            cgroups: [(1, "/"), (2, "/acme.slice"), (3, "/acme.slice/db")]
                .map(|(number, path)| (number, path.to_owned()))
                .into(),
            is_redacted: false,
        };
        let redacted = names.redacted();
        assert_eq!(redacted.processes[&7], redacted.processes[&9]);
        assert_ne!(redacted.processes[&1], redacted.processes[&7]);
        assert_eq!(redacted.cgroups[&1], "/");
        assert_eq!(redacted.cgroups[&2], "/cgroup-1");
        assert_eq!(redacted.cgroups[&3], "/cgroup-1/cgroup-2");
        let all = format!("{redacted:?}");
        assert!(!all.contains("secret") && !all.contains("acme") && !all.contains("init"));
        assert!(redacted.is_redacted);
    }
}
