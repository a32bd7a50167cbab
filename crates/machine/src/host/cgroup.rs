//! Memory limit of this process's cgroup, and of the cgroups above it.
//!
//! `/proc/self/cgroup` names the cgroup, and `/proc/self/mountinfo` tells where the hierarchy of the memory controller
//! is mounted. A controller belongs to one hierarchy. So a version 1 line that names `memory` decides for version 1,
//! even where version 2 is mounted beside it (hybrid). The mount's root need not be that of the hierarchy. In a
//! container it is often the container's own cgroup, and the name in `/proc/self/cgroup` begins with it.
//!
//! The smallest limit on the way up to the mount point counts. Limits above the mount point, outside of a container,
//! are invisible. In version 1 an ancestor's limit counts only with `memory.use_hierarchy`, which the kernel has forced
//! since 5.11. On older kernels without it, the limit found here may be tighter than the kernel's.
//!
//! Follows `kernel/cgroup/cgroup.c` (`proc_cgroup_show`, `cgroup_show_path`), `fs/proc_namespace.c`
//! (`show_mountinfo`) and `mm/memcontrol.c`.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use super::resident::page_bytes;

/// Number of characters of a malformed line that an error carries.
const SHOWN: usize = 120;

/// Interface of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// `memory.limit_in_bytes`.
    V1,
    /// `memory.max`.
    V2,
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

/// Cgroup that a process's memory is charged to, as a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupMemory {
    version: CgroupVersion,
    directory: PathBuf,
    mount_point: PathBuf,
}

/// Contents of a cgroup's files at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupLimits {
    /// Smallest limit of the cgroup and those above it, bytes; `None` if none has one. The kernel kills processes that
    /// would exceed it.
    pub max: Option<u64>,
    /// Smallest `memory.high`, bytes; above it the kernel throttles and reclaims. `None` if there is none, as in
    /// version 1.
    pub high: Option<u64>,
    /// Bytes charged to the cgroup that sets `max`, or to the process's own if there is no limit. Includes everything
    /// below it, page cache and other processes. `None` where there is no such file.
    pub current: Option<u64>,
    /// Directory of the cgroup that sets `max`; of several with the same limit, the one nearest to the process.
    pub limited_by: Option<PathBuf>,
}

/// Reason why the limit of a cgroup could not be read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CgroupError {
    /// This system has no cgroups.
    Unsupported,
    /// No hierarchy has the memory controller, so nothing limits memory here.
    NoMemoryController {
        /// The file that shows it.
        file: PathBuf,
    },
    /// The process's cgroup is in no file system that this process sees.
    NotMounted {
        /// Its name.
        cgroup: PathBuf,
        /// The file that lists the mounts.
        file: PathBuf,
    },
    /// A file cannot be read.
    Unreadable {
        /// The file, or a directory that should be there.
        file: PathBuf,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// The system's error.
        message: String,
    },
    /// A file does not hold the expected text.
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, at most 120 characters of it.
        text: String,
    },
}

impl fmt::Display for CgroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => {
                f.write_str("this system has no cgroups; set the limit as a number of bytes")
            }
            Self::NoMemoryController { file } => write!(
                f,
                "{}: no memory controller; enable it (kernel command line, systemd), or set the limit as a number of bytes",
                file.display()
            ),
            Self::NotMounted { cgroup, file } => write!(
                f,
                "{}: no mount shows the memory cgroup {}; mount the cgroup file system (in a container, its own), or set \
                 the limit as a number of bytes",
                file.display(),
                cgroup.display()
            ),
            Self::Unreadable { file, message, .. } => write!(
                f,
                "cannot read {}: {message}; let this process read it, or set the limit as a number of bytes",
                file.display()
            ),
            Self::Malformed { file, text } => write!(
                f,
                "{}: cannot make sense of {text:?}; check what is mounted there, or set the limit as a number of bytes",
                file.display()
            ),
        }
    }
}

crate::debug_as_message!(
    enum CgroupError {
        Unsupported,
        NoMemoryController { file },
        NotMounted { cgroup, file },
        Unreadable { file, kind, message },
        Malformed { file, text },
    }
);

impl std::error::Error for CgroupError {}

impl CgroupError {
    fn unreadable(file: &Path, error: &io::Error) -> Self {
        Self::Unreadable {
            file: file.to_owned(),
            kind: error.kind(),
            message: error.to_string(),
        }
    }

    fn malformed(file: &Path, text: &[u8]) -> Self {
        Self::Malformed {
            file: file.to_owned(),
            text: String::from_utf8_lossy(text).chars().take(SHOWN).collect(),
        }
    }
}

/// Bytes of memory that this process may use: the machine's memory, or the limit of the process's cgroup if that is
/// less.
pub(super) fn memory_bytes() -> u64 {
    // SAFETY: no pointers; the call only looks up a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    let physical = u64::try_from(pages)
        .unwrap_or(0)
        .saturating_mul(page_bytes());
    // A system that does not tell is assumed to have little.
    let physical = physical.max(64 << 20);
    cgroup_max().map_or(physical, |(max, _)| physical.min(max))
}

/// Memory limit of this process's cgroup, bytes, and the directory of that cgroup.
pub(super) fn cgroup_max() -> Option<(u64, PathBuf)> {
    let cgroup = CgroupMemory::of_this_process().ok()?;
    let max = cgroup.read().ok()?.max?;
    Some((max, cgroup.directory().to_owned()))
}

impl CgroupMemory {
    /// Finds the cgroup that this process is in now; the process may be moved to another.
    ///
    /// # Errors
    /// [`CgroupError`].
    pub fn of_this_process() -> Result<Self, CgroupError> {
        Self::find(Path::new("/proc/self"))
    }

    /// Finds the cgroup of the process whose directory in `/proc` is `proc`.
    ///
    /// # Errors
    /// [`CgroupError`].
    pub fn find(proc: &Path) -> Result<Self, CgroupError> {
        if !cfg!(target_os = "linux") {
            return Err(CgroupError::Unsupported);
        }
        let (version, cgroup) = named_in(&proc.join("cgroup"))?;
        let file = proc.join("mountinfo");
        let mut places: Vec<Self> = mounts(&read_bytes(&file)?)
            .filter(|mount| mount.version == version)
            .filter_map(|mount| mount.place_of(&cgroup))
            .collect();
        // The mount that shows most of the ancestors has the longest way down.
        places.sort_by_key(|place| std::cmp::Reverse(place.levels().count()));
        let Some(first) = places.first() else {
            return Err(CgroupError::NotMounted { cgroup, file });
        };
        // A later mount on top may hide a mount.
        let Some(found) = places.iter().find(|place| place.directory.is_dir()) else {
            return Err(match fs::metadata(&first.directory) {
                Err(error) => CgroupError::unreadable(&first.directory, &error),
                Ok(_) => CgroupError::NotMounted { cgroup, file },
            });
        };
        if version == CgroupVersion::V2 {
            let file = found.mount_point.join("cgroup.controllers");
            let controllers = read_bytes(&file)?;
            if !words(&controllers).any(|word| word == b"memory") {
                return Err(CgroupError::NoMemoryController { file });
            }
        }
        Ok(found.clone())
    }

    /// Interface of the cgroup.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// Directory of the cgroup.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads the limits as they are now; they may change at any time.
    ///
    /// # Errors
    /// [`CgroupError`], also if the cgroup is gone.
    pub fn read(&self) -> Result<CgroupLimits, CgroupError> {
        let (max_file, current_file) = match self.version {
            CgroupVersion::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            CgroupVersion::V2 => ("memory.max", "memory.current"),
        };
        let mut max: Option<(u64, &Path)> = None;
        let mut high: Option<u64> = None;
        for level in self.levels() {
            let file = level.join(max_file);
            match self.limit(&file)? {
                File::Absent => self.check_absence(level, file)?,
                File::Unlimited => {}
                File::Bytes(bytes) if max.is_some_and(|(least, _)| least <= bytes) => {}
                File::Bytes(bytes) => max = Some((bytes, level)),
            }
            if self.version == CgroupVersion::V2
                && let File::Bytes(bytes) = self.limit(&level.join("memory.high"))?
            {
                high = Some(high.map_or(bytes, |least| least.min(bytes)));
            }
        }
        let limited_by = max.map(|(_, level)| level);
        let counted = limited_by.unwrap_or(&self.directory);
        let current = match self.limit(&counted.join(current_file))? {
            File::Bytes(bytes) => Some(bytes),
            File::Absent | File::Unlimited => None,
        };
        Ok(CgroupLimits {
            max: max.map(|(bytes, _)| bytes),
            high,
            current,
            limited_by: limited_by.map(Path::to_owned),
        })
    }

    /// Time in which some task of the cgroup stalled for memory, percent of the last 10 s (`some avg10` in `memory.pressure`). `None` in version 1,
    /// and where the kernel keeps no such account.
    ///
    /// # Errors
    /// [`CgroupError`] if the file cannot be read or understood.
    pub fn stall_percent(&self) -> Result<Option<f64>, CgroupError> {
        let file = self.directory.join("memory.pressure");
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            // The last is the answer of a kernel that has been told not to keep it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
                return Ok(None);
            }
            Err(error) => return Err(CgroupError::unreadable(&file, &error)),
        };
        let some = text.lines().find_map(|line| line.strip_prefix("some "));
        let words = some.into_iter().flat_map(str::split_whitespace);
        let mut average = words.filter_map(|word| word.strip_prefix("avg10="));
        let percent = average.next().and_then(|number| number.parse().ok());
        let percent = percent.filter(|percent: &f64| (0.0..=100.0).contains(percent));
        percent
            .map(Some)
            .ok_or_else(|| CgroupError::malformed(&file, text.as_bytes()))
    }

    /// The cgroup and those above it, up to the mount point.
    fn levels(&self) -> impl Iterator<Item = &Path> {
        self.directory
            .ancestors()
            .take_while(|level| level.starts_with(&self.mount_point))
    }

    /// Checks whether a level may lack a limit's file. Version 2 has none in the root, nor where the parent does not
    /// hand the controller down. Every cgroup of version 1 has one.
    fn check_absence(&self, level: &Path, file: PathBuf) -> Result<(), CgroupError> {
        let missing = match self.version {
            CgroupVersion::V2 if level.is_dir() => return Ok(()),
            CgroupVersion::V2 => level,
            CgroupVersion::V1 => &file,
        };
        Err(CgroupError::unreadable(
            missing,
            &io::ErrorKind::NotFound.into(),
        ))
    }

    fn limit(&self, file: &Path) -> Result<File, CgroupError> {
        let bytes = match fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(File::Absent),
            Err(error) => return Err(CgroupError::unreadable(file, &error)),
        };
        let text = bytes.trim_ascii();
        if self.version == CgroupVersion::V2 && text == b"max" {
            return Ok(File::Unlimited);
        }
        let number = std::str::from_utf8(text).ok().and_then(|t| t.parse().ok());
        match number {
            // `PAGE_COUNTER_MAX` pages, which is how version 1 writes that there is no limit.
            Some(bytes) if bytes >= i64::MAX as u64 / page_bytes() * page_bytes() => {
                Ok(File::Unlimited)
            }
            Some(bytes) => Ok(File::Bytes(bytes)),
            None => Err(CgroupError::malformed(file, text)),
        }
    }
}

/// Contents of a file with a number of bytes.
enum File {
    Absent,
    Unlimited,
    Bytes(u64),
}

/// Mounted cgroup hierarchy that may have the memory controller.
struct Mount {
    version: CgroupVersion,
    /// Mounted part of the hierarchy.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// Place at which this mount shows a cgroup, if it does.
    fn place_of(self, cgroup: &Path) -> Option<CgroupMemory> {
        let below = cgroup.strip_prefix(&self.root).ok()?;
        // Names outside of a cgroup namespace begin with `/..`, once for each level up.
        if below.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        let mut directory = self.point.clone();
        // Component by component: joining an empty path would add a slash.
        directory.extend(below.components());
        Some(CgroupMemory {
            version: self.version,
            directory,
            mount_point: self.point,
        })
    }
}

/// Version and name of the cgroup that a `/proc/PID/cgroup` names for memory.
fn named_in(file: &Path) -> Result<(CgroupVersion, PathBuf), CgroupError> {
    let text = read_bytes(file)?;
    let mut unified = None;
    for line in lines(&text) {
        // `hierarchy:controllers:name`, where the name may hold colons.
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (Some(hierarchy), Some(controllers), Some(name)) =
            (fields.next(), fields.next(), fields.next())
        else {
            return Err(CgroupError::malformed(file, line));
        };
        let name = PathBuf::from(OsStr::from_bytes(name));
        if lists(controllers, b"memory") {
            return Ok((CgroupVersion::V1, name));
        }
        if hierarchy == b"0" && controllers.is_empty() {
            unified = Some(name);
        }
    }
    let name = unified.ok_or_else(|| CgroupError::NoMemoryController {
        file: file.to_owned(),
    })?;
    Ok((CgroupVersion::V2, name))
}

/// Cgroup mounts of a `mountinfo`. Lines that are not understood are skipped.
fn mounts(text: &[u8]) -> impl Iterator<Item = Mount> {
    lines(text).filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        let [root, point] = [3, 4].map(|index| fields.get(index).copied());
        // Optional fields lie between the sixth and a lone dash; then come type, source and options of the file system.
        let dash = 6 + fields.get(6..)?.iter().position(|&field| field == b"-")?;
        let version = match *fields.get(dash + 1)? {
            b"cgroup2" => CgroupVersion::V2,
            b"cgroup" if lists(fields.get(dash + 3)?, b"memory") => CgroupVersion::V1,
            _ => return None,
        };
        Some(Mount {
            version,
            root: unescape(root?),
            point: unescape(point?),
        })
    })
}

/// Undoes the kernel's `\ooo` for blanks, line ends and backslashes.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn read_bytes(file: &Path) -> Result<Vec<u8>, CgroupError> {
    fs::read(file).map_err(|error| CgroupError::unreadable(file, &error))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace)
}

/// Returns whether a comma-separated list contains a word.
fn lists(list: &[u8], word: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|item| item == word)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// `PAGE_COUNTER_MAX` in bytes with pages of 4 KiB.
    const V1_NONE: &str = "9223372036854771712\n";

    /// A directory with a fake `/proc/self` in `proc`, and cgroup file systems.
    struct Fake(PathBuf);

    impl Fake {
        fn new(cgroup: &str, mountinfo: &str) -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("bursar-cgroup-{}-{number}", std::process::id());
            let fake = Self(std::env::temp_dir().join(name));
            fake.write("proc/cgroup", cgroup);
            let here = fake.0.to_str().expect("a plain path");
            fake.write("proc/mountinfo", &mountinfo.replace("HERE", here));
            fake
        }

        fn write(&self, path: &str, text: &str) {
            let file = self.0.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }

        /// A version 2 hierarchy mounted at `point`, with the memory controller.
        fn unified(cgroup: &str, root: &str, point: &str) -> Self {
            let mounts = format!(
                "22 1 0:21 / /proc rw - proc proc rw\n35 22 0:30 {root} HERE/{point} rw,nosuid shared:9 master:2 - \
                 cgroup2 cgroup2 rw,nsdelegate\n"
            );
            let fake = Self::new(cgroup, &mounts);
            fake.write(
                &format!("{}/cgroup.controllers", point.replace("\\040", " ")),
                "cpuset cpu io memory pids\n",
            );
            fake
        }

        fn find(&self) -> Result<CgroupMemory, CgroupError> {
            CgroupMemory::find(&self.0.join("proc"))
        }

        fn read(&self) -> Result<CgroupLimits, CgroupError> {
            self.find()?.read()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn v2_plain() {
        let fake = Fake::unified("0::/web\n", "/", "fs");
        fake.write("fs/web/memory.max", "1073741824\n");
        fake.write("fs/web/memory.high", "max\n");
        fake.write("fs/web/memory.current", "4096\n");
        let found = fake.find().unwrap();
        assert_eq!(found.version(), CgroupVersion::V2);
        assert_eq!(found.directory(), fake.0.join("fs/web"));
        assert_eq!(
            found.read().unwrap(),
            CgroupLimits {
                max: Some(1 << 30),
                high: None,
                current: Some(4096),
                limited_by: Some(fake.0.join("fs/web")),
            }
        );
        fake.write("fs/web/memory.max", "2147483648\n");
        assert_eq!(found.read().unwrap().max, Some(2 << 30), "read anew");
    }

    #[test]
    fn v2_the_tightest_ancestor_counts() {
        let fake = Fake::unified("0::/a/b/c\n", "/", "fs");
        fake.write("fs/a/b/c/memory.max", "3000\n");
        fake.write("fs/a/b/c/memory.high", "2500\n");
        fake.write("fs/a/b/c/memory.current", "1\n");
        fake.write("fs/a/b/memory.max", "2000\n");
        fake.write("fs/a/b/memory.high", "max\n");
        fake.write("fs/a/b/memory.current", "2\n");
        fake.write("fs/a/memory.max", "2000\n");
        fake.write("fs/a/memory.high", "1500\n");
        // Above the mount point, so not a cgroup.
        fake.write("memory.max", "1\n");
        let limits = fake.read().unwrap();
        assert_eq!(limits.max, Some(2000));
        assert_eq!(limits.high, Some(1500));
        assert_eq!(limits.current, Some(2), "of the one that limits");
        assert_eq!(limits.limited_by, Some(fake.0.join("fs/a/b")), "nearest");
    }

    #[test]
    fn v2_no_limit_anywhere() {
        let fake = Fake::unified("0::/a/b\n", "/", "fs");
        fake.write("fs/a/b/memory.max", "max\n");
        fake.write("fs/a/b/memory.current", "77\n");
        fake.write("fs/a/memory.max", "max\n");
        let limits = fake.read().unwrap();
        assert_eq!((limits.max, limits.limited_by), (None, None));
        assert_eq!(limits.current, Some(77));
    }

    #[test]
    fn v2_the_root_has_no_files() {
        let fake = Fake::unified("0::/\n", "/", "fs");
        let limits = fake.read().unwrap();
        assert_eq!((limits.max, limits.current), (None, None));
    }

    #[test]
    fn v2_a_level_without_the_controller_is_passed_over() {
        let fake = Fake::unified("0::/slice/threads\n", "/", "fs");
        fake.write("fs/slice/memory.max", "5000\n");
        fake.write("fs/slice/threads/cgroup.procs", "1\n");
        assert_eq!(fake.read().unwrap().max, Some(5000));
    }

    #[test]
    fn v2_without_the_memory_controller() {
        let fake = Fake::unified("0::/web\n", "/", "fs");
        fake.write("fs/cgroup.controllers", "cpu memory_like pids\n");
        fake.write("fs/web/cgroup.procs", "1\n");
        let file = fake.0.join("fs/cgroup.controllers");
        let error = fake.find().unwrap_err();
        assert_eq!(error, CgroupError::NoMemoryController { file });
        assert!(error.to_string().contains("cgroup.controllers"), "{error}");
    }

    #[test]
    fn v1() {
        let fake = Fake::new(
            "5:cpu,cpuacct:/x\n4:hugetlb,memory:/system/web:1\n1:name=systemd:/x\n",
            "30 1 0:9 / HERE/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             31 1 0:8 / HERE/mem rw shared:4 - cgroup cgroup rw,hugetlb,memory\n",
        );
        fake.write("mem/memory.limit_in_bytes", V1_NONE);
        fake.write("mem/system/memory.limit_in_bytes", "8000\n");
        fake.write("mem/system/memory.usage_in_bytes", "300\n");
        fake.write("mem/system/web:1/memory.limit_in_bytes", V1_NONE);
        let found = fake.find().unwrap();
        assert_eq!(found.version(), CgroupVersion::V1);
        assert_eq!(found.directory(), fake.0.join("mem/system/web:1"));
        let limits = found.read().unwrap();
        assert_eq!((limits.max, limits.current), (Some(8000), Some(300)));
        fake.write("mem/system/memory.limit_in_bytes", "9223372036854775807\n");
        assert_eq!(found.read().unwrap().max, None, "before Linux 3.19");
    }

    /// The process's own cgroup has no limit, and the one above it has, under each layout of mounts.
    #[test]
    fn the_limit_of_the_group_above() {
        use CgroupVersion::{V1, V2};
        let unified = "31 1 0:8 / HERE/all rw - cgroup2 cgroup2 rw\n";
        let by_controller = "32 1 0:9 / HERE/cpu rw - cgroup cgroup rw,cpu\n33 1 0:7 / HERE/mem rw - cgroup cgroup rw,memory\n";
        let hybrid = format!("{unified}{by_controller}");
        let subtree = "31 1 0:8 /pod HERE/all rw - cgroup2 cgroup2 rw\n";
        let nested =
            format!("{unified}34 31 0:8 /pod/job HERE/all/pod/job/own rw - cgroup2 cgroup2 rw\n");
        let hidden = format!("{unified}34 1 0:8 /pod HERE/missing rw - cgroup2 cgroup2 rw\n");
        let layouts: [(_, &str, _, &str); 7] = [
            ("0::/pod/job\n", unified, V2, "all/pod"),
            (
                "5:cpu:/x\n4:memory:/pod/job\n",
                by_controller,
                V1,
                "mem/pod",
            ),
            ("4:memory:/pod/job\n0::/other\n", &hybrid, V1, "mem/pod"),
            ("5:cpu:/x\n0::/pod/job\n", &hybrid, V2, "all/pod"),
            ("0::/pod/job\n", subtree, V2, "all"),
            ("0::/pod/job\n", &nested, V2, "all/pod"),
            ("0::/pod/job\n", &hidden, V2, "all/pod"),
        ];
        for (cgroup, mounts, version, above) in layouts {
            let fake = Fake::new(cgroup, mounts);
            let (file, none) = match version {
                V1 => ("memory.limit_in_bytes", V1_NONE),
                V2 => ("memory.max", "max\n"),
            };
            fake.write("all/cgroup.controllers", "memory\n");
            fake.write("all/other/memory.max", "1\n");
            fake.write("mem/memory.limit_in_bytes", V1_NONE);
            fake.write(&format!("{above}/{file}"), "6000\n");
            let own = format!("{above}/job/{file}");
            fake.write(&own, none);
            let found = fake.find().unwrap();
            assert_eq!(found.version(), version, "{mounts}");
            let limits = found.read().unwrap();
            let limited_by = Some(fake.0.join(above));
            let expected = (Some(6000), limited_by);
            assert_eq!((limits.max, limits.limited_by), expected, "{mounts}");
            fake.write(&own, "5000\n");
            assert_eq!(found.read().unwrap().max, Some(5000), "{mounts}");
        }
    }

    #[test]
    fn a_container_sees_its_own_cgroup_as_the_mount() {
        let fake = Fake::unified("0::/docker/c1/worker\n", "/docker/c1", "fs");
        fake.write("fs/memory.max", "1000\n");
        fake.write("fs/worker/memory.max", "2000\n");
        let limits = fake.read().unwrap();
        assert_eq!(limits.max, Some(1000));
        assert_eq!(limits.limited_by, Some(fake.0.join("fs")));
        let fake = Fake::unified("0::/docker/c1\n", "/docker/c1", "fs");
        fake.write("fs/memory.max", "1000\n");
        assert_eq!(fake.find().unwrap().directory(), fake.0.join("fs"));
        assert_eq!(fake.read().unwrap().max, Some(1000));
    }

    #[test]
    fn what_no_mount_shows_is_an_error() {
        // A name that only looks like a prefix, and a place outside of the cgroup namespace.
        for (cgroup, root) in [("/docker/c12", "/docker/c1"), ("/../c2", "/"), ("/", "/..")] {
            let fake = Fake::unified(&format!("0::{cgroup}\n"), root, "fs");
            let error = fake.find().unwrap_err();
            let (cgroup, file) = (cgroup.into(), fake.0.join("proc/mountinfo"));
            assert_eq!(error, CgroupError::NotMounted { cgroup, file });
        }
        // A place outside on the same way is shown.
        let fake = Fake::unified("0::/../c2\n", "/..", "fs");
        fake.write("fs/c2/memory.max", "1000\n");
        assert_eq!(fake.read().unwrap().max, Some(1000));
    }

    #[test]
    fn blanks_in_names() {
        let fake = Fake::unified("0::/my job/part\n", "/my\\040job", "file\\040system");
        fake.write("file system/part/memory.max", "1000\n");
        let found = fake.find().unwrap();
        assert_eq!(found.directory(), fake.0.join("file system/part"));
        assert_eq!(found.read().unwrap().max, Some(1000));
        assert_eq!(unescape(br"\134a\12"), PathBuf::from(r"\a\12"));
    }

    #[test]
    fn the_mount_that_shows_most_is_taken_unless_it_is_hidden() {
        let mounts = "31 1 0:8 /a HERE/part rw - cgroup2 cgroup2 rw\n\
                      32 1 0:8 / HERE/whole rw - cgroup2 cgroup2 rw\n";
        let fake = Fake::new("0::/a/b\n", mounts);
        for point in ["part", "whole"] {
            fake.write(&format!("{point}/cgroup.controllers"), "memory\n");
        }
        fake.write("part/b/memory.max", "2000\n");
        assert_eq!(fake.read().unwrap().max, Some(2000), "the whole is hidden");
        fake.write("whole/a/b/memory.max", "2000\n");
        fake.write("whole/a/memory.max", "1000\n");
        assert_eq!(fake.read().unwrap().max, Some(1000));
    }

    #[test]
    fn missing_files_are_named() {
        let missing = |error: CgroupError, end: &str| match &error {
            CgroupError::Unreadable { file, kind, .. } => {
                assert_eq!(*kind, io::ErrorKind::NotFound);
                assert!(file.ends_with(end), "{error}");
                assert!(error.to_string().contains(end), "{error}");
            }
            other => panic!("{other}"),
        };
        let fake = Fake::unified("0::/web\n", "/", "fs");
        missing(fake.find().unwrap_err(), "fs/web");
        fs::create_dir_all(fake.0.join("fs/web")).unwrap();
        let found = fake.find().unwrap();
        fs::remove_dir(fake.0.join("fs/web")).unwrap();
        missing(found.read().unwrap_err(), "fs/web");
        fs::remove_file(fake.0.join("proc/mountinfo")).unwrap();
        missing(fake.find().unwrap_err(), "proc/mountinfo");
        fs::remove_file(fake.0.join("proc/cgroup")).unwrap();
        missing(fake.find().unwrap_err(), "proc/cgroup");

        let fake = Fake::new(
            "4:memory:/\n",
            "32 1 0:9 / HERE/mem rw - cgroup cgroup rw,memory\n",
        );
        fs::create_dir_all(fake.0.join("mem")).unwrap();
        missing(fake.read().unwrap_err(), "mem/memory.limit_in_bytes");
    }

    #[test]
    fn garbage_is_shown() {
        let fake = Fake::unified("0::/web\n", "/", "fs");
        for garbage in [
            "",
            "-1\n",
            "12 MiB\n",
            "maximal\n",
            "99999999999999999999\n",
        ] {
            fake.write("fs/web/memory.max", garbage);
            let (file, text) = (fake.0.join("fs/web/memory.max"), garbage.trim().into());
            let error = fake.read().unwrap_err();
            assert_eq!(error, CgroupError::Malformed { file, text });
            assert!(error.to_string().contains("memory.max"), "{error}");
        }
        let fake = Fake::new("nonsense\n", "");
        let (file, text) = (fake.0.join("proc/cgroup"), "nonsense".into());
        assert_eq!(
            fake.find().unwrap_err(),
            CgroupError::Malformed { file, text }
        );
        let fake = Fake::new("0::/web\n", "nonsense\n1 2 3\n1 2 3 / /x rw\n - cgroup2\n");
        assert!(matches!(
            fake.find().unwrap_err(),
            CgroupError::NotMounted { .. }
        ));
        let fake = Fake::new("3:cpu:/\n", "");
        assert!(matches!(
            fake.find().unwrap_err(),
            CgroupError::NoMemoryController { .. }
        ));
    }

    #[test]
    fn this_process() {
        // On a machine that has no cgroups or hides them, any answer is right, as long as there is one.
        match CgroupMemory::of_this_process().and_then(|cgroup| cgroup.read()) {
            Ok(limits) => assert_eq!(limits.max.is_some(), limits.limited_by.is_some()),
            Err(error) => assert!(error.to_string().contains("set the limit"), "{error}"),
        }
    }

    #[test]
    fn stalls_are_read_where_the_kernel_keeps_account() {
        let fake = Fake::unified("0::/a\n", "/", "cg");
        fake.write("cg/a/memory.max", "max\n");
        let cgroup = CgroupMemory::find(&fake.0.join("proc")).unwrap();
        assert_eq!(cgroup.stall_percent(), Ok(None));
        let line = "avg10=12.50 avg60=1.00 avg300=0.00 total=7";
        fake.write(
            "cg/a/memory.pressure",
            &format!("some {line}\nfull avg10=1.00 total=1\n"),
        );
        assert_eq!(cgroup.stall_percent(), Ok(Some(12.5)));
        for bad in [
            "",
            "full avg10=1.00\n",
            "some avg10=x\n",
            "some avg10=101\n",
            "some avg10=NaN\n",
        ] {
            fake.write("cg/a/memory.pressure", bad);
            let error = cgroup.stall_percent().unwrap_err();
            assert!(
                matches!(error, CgroupError::Malformed { .. }),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn a_file_that_is_there_and_cannot_be_read_is_no_missing_limit() {
        let fake = Fake::unified("0::/web\n", "/", "fs");
        // A directory in its place, because a file without permissions is readable to root.
        fake.write("fs/web/memory.max/file", "");
        match fake.read().unwrap_err() {
            CgroupError::Unreadable { file, kind, .. } => {
                assert_eq!(file, fake.0.join("fs/web/memory.max"));
                assert_ne!(kind, io::ErrorKind::NotFound);
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn limits_of_many_terabytes_are_limits() {
        let fake = Fake::unified("0::/web\n", "/", "fs");
        for shift in [40, 50, 60] {
            let max = 1_u64 << shift;
            fake.write("fs/web/memory.max", &format!("{max}\n"));
            assert_eq!(fake.read().unwrap().max, Some(max));
        }
    }

    #[test]
    fn the_memory_of_this_process_is_within_its_limit() {
        let limits = CgroupMemory::of_this_process().and_then(|cgroup| cgroup.read());
        let max = limits.ok().and_then(|limits| limits.max);
        assert_eq!(cgroup_max().map(|(max, _)| max), max);
        let bytes = memory_bytes();
        assert!(bytes <= max.unwrap_or(u64::MAX));
        assert!(bytes >= max.unwrap_or(64 << 20).min(64 << 20), "{bytes}");
    }
}
