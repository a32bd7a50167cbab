//! The root's limit follows the limit of the process's cgroup.
//!
//! A task that changes an input of the root's limit sets the limit by both inputs. A lock makes one step of the look at the inputs and of the
//! change of the limit. So none sets a limit that is out of date. No file is read with the lock, no stock is drained, and no listener is called.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bursar_machine::host::{CgroupError, CgroupMemory, HostWord};
use bursar_machine::{AtomicWord, MemoryOrder};

use crate::group::Group;
use crate::limit::Limit;
use crate::react::limits;

/// The cgroup whose limit the root follows.
#[derive(Clone, Debug)]
pub(super) struct FromCgroup {
    keep_free: u64,
    /// The directory in `/proc` of the process whose cgroup it is.
    proc: PathBuf,
}

impl FromCgroup {
    pub(super) fn of_this_process(keep_free: u64) -> Self {
        Self {
            keep_free,
            proc: PathBuf::from("/proc/self"),
        }
    }

    /// The cgroup's limit now. Finds the cgroup each time, as the process may have been moved.
    pub(super) fn read(&self) -> Result<Option<u64>, CgroupError> {
        Ok(CgroupMemory::find(&self.proc)?.read()?.max)
    }
}

/// The inputs of the root's limit.
pub(super) struct Follow {
    from: FromCgroup,
    /// [`super::Builder::max`], or [`super::Memory::set_max`] since.
    own_max: HostWord,
    /// The cgroup's limit as last read; [`Limit::MAX`] for none.
    cgroup_max: HostWord,
    /// Held from a look at the inputs until the root's limit is what they say.
    applying: Mutex<()>,
}

impl Follow {
    pub(super) fn new(from: FromCgroup, own_max: Limit) -> Result<Self, CgroupError> {
        let cgroup_max = from.read()?.unwrap_or(Limit::MAX);
        Ok(Self {
            from,
            own_max: HostWord::new(own_max),
            cgroup_max: HostWord::new(cgroup_max),
            applying: Mutex::new(()),
        })
    }

    /// The same inputs, for another memory.
    pub(super) fn copy(&self) -> Self {
        // Full, both: as in `root_max`.
        Self {
            from: self.from.clone(),
            own_max: HostWord::new(self.own_max.load(MemoryOrder::Full)),
            cgroup_max: HostWord::new(self.cgroup_max.load(MemoryOrder::Full)),
            applying: Mutex::new(()),
        }
    }

    /// The root's limit by these inputs.
    pub(super) fn root_max(&self) -> Limit {
        // Full, both: pair with the stores in `set_max` and `reread_by`. Either we see the store, or the task that
        // stored sets the limit after us.
        let left = match self.cgroup_max.load(MemoryOrder::Full) {
            Limit::MAX => Limit::MAX,
            max => max.saturating_sub(self.from.keep_free),
        };
        left.min(self.own_max.load(MemoryOrder::Full))
    }

    /// Reads the cgroup's limit again, and sets the root's limit by it.
    pub(super) fn reread(&self, root: &Group) -> Result<Option<u64>, CgroupError> {
        self.reread_by(root, || self.from.read())
    }

    fn reread_by(
        &self,
        root: &Group,
        mut read: impl FnMut() -> Result<Option<u64>, CgroupError>,
    ) -> Result<Option<u64>, CgroupError> {
        let mut max = read()?;
        loop {
            // Full: pairs with `root_max`.
            self.cgroup_max
                .store(max.unwrap_or(Limit::MAX), MemoryOrder::Full);
            self.apply(root);
            // Another who read it earlier may have stored it later, and we may be that one.
            let now = read()?;
            if now == max {
                return Ok(max);
            }
            max = now;
        }
    }

    /// Changes the limit that holds beside the cgroup's, and sets the root's limit by both.
    pub(super) fn set_max(&self, root: &Group, bytes: u64) {
        // Full: pairs with `root_max`.
        self.own_max.store(bytes, MemoryOrder::Full);
        self.apply(root);
    }

    /// Sets the root's limit by the inputs.
    fn apply(&self, root: &Group) {
        limits::set_max_by(root.core(), root.index(), |set| {
            let _applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
            set(self.root_max());
        });
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::{Builder, ChargeError, Host, Memory, MemoryError};

    /// A fake `/proc/self` and a cgroup that can be limited.
    struct Fake(PathBuf);

    impl Fake {
        fn new(limit: &str) -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("bursar-follow-{}-{number}", std::process::id());
            let fake = Self(std::env::temp_dir().join(name));
            for directory in ["proc", "fs/web"] {
                fs::create_dir_all(fake.0.join(directory)).unwrap();
            }
            let here = fake.0.display();
            let mount = format!("35 22 0:30 / {here}/fs rw - cgroup2 cgroup2 rw\n");
            fake.write("proc/cgroup", "0::/web\n");
            fake.write("proc/mountinfo", &mount);
            fake.write("fs/cgroup.controllers", "memory\n");
            fake.limit(limit);
            fake
        }

        fn write(&self, path: &str, text: &str) {
            fs::write(self.0.join(path), text).unwrap();
        }

        /// At once, as the kernel does it.
        fn limit(&self, limit: &str) {
            self.write("fs/web/new", limit);
            fs::rename(self.0.join("fs/web/new"), self.0.join("fs/web/memory.max")).unwrap();
        }

        fn follow(&self, mut builder: Builder, keep_free: u64) -> Builder {
            builder.cgroup = Some(FromCgroup {
                keep_free,
                proc: self.0.join("proc"),
            });
            builder
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_smaller_limit_counts() {
        let fake = Fake::new("1000000");
        let max = |builder: Builder, keep_free| {
            let memory = fake.follow(builder, keep_free).build().unwrap();
            memory.root().limits().max
        };
        assert_eq!(max(Memory::builder(), 0), 1_000_000);
        assert_eq!(max(Memory::builder(), 300_000), 700_000);
        assert_eq!(max(Memory::builder().max(800_000), 300_000), 700_000);
        assert_eq!(max(Memory::builder().max(600_000), 300_000), 600_000);
        assert_eq!(max(Memory::builder(), 2_000_000), 0);
        fake.limit("max");
        assert_eq!(max(Memory::builder(), 300_000), u64::MAX);
        assert_eq!(max(Memory::builder().max(600_000), 300_000), 600_000);
    }

    #[test]
    fn the_memory_of_a_forked_child_has_a_limit_of_its_own() {
        let fake = Fake::new("1000000");
        let memory = fake.follow(Memory::builder(), 0).build().unwrap();
        let (fresh, _) = memory.reset_after_fork().unwrap();
        fresh.set_max(600_000);
        assert_eq!(memory.reread_cgroup().unwrap(), Some(1_000_000));
        let max = [&memory, &fresh].map(|memory| memory.root().limits().max);
        assert_eq!(max, [1_000_000, 600_000]);
        fake.limit("500000");
        fresh.reread_cgroup().unwrap();
        assert_eq!(fresh.root().limits().max, 500_000);
    }

    #[test]
    fn a_cgroup_that_cannot_be_read_is_an_error() {
        let fake = Fake::new("a lot");
        let error = fake.follow(Memory::builder(), 0).build().unwrap_err();
        assert!(matches!(
            &error,
            MemoryError::Cgroup(CgroupError::Malformed { .. })
        ));
        assert!(error.to_string().contains("memory.max"), "{error}");
    }

    #[test]
    fn rereading_lowers_and_raises_and_charges_feel_it() {
        let fake = Fake::new("1000000");
        let builder = Memory::builder().max(2_000_000);
        let memory = fake.follow(builder, 100_000).build().unwrap();
        let group = memory.root().child("g", crate::Limits::none()).unwrap();
        drop(group.try_charge(900_000).unwrap());
        fake.limit("500000");
        assert_eq!(memory.clone().reread_cgroup(), Ok(Some(500_000)));
        assert_eq!(memory.root().limits().max, 400_000);
        assert!(matches!(
            group.try_charge(400_001).unwrap_err(),
            ChargeError::LimitReached(_)
        ));
        drop(group.try_charge(400_000).unwrap());
        fake.limit("5000000");
        assert_eq!(memory.reread_cgroup(), Ok(Some(5_000_000)));
        assert_eq!(memory.root().limits().max, 2_000_000, "its own");
        fake.limit("max");
        assert_eq!(memory.reread_cgroup(), Ok(None));
        assert_eq!(memory.root().limits().max, 2_000_000);
        drop(group.try_charge(2_000_000).unwrap());
    }

    #[test]
    fn an_unreadable_cgroup_leaves_the_limit() {
        let fake = Fake::new("1000000");
        let memory = fake.follow(Memory::builder(), 0).build().unwrap();
        fs::remove_dir_all(fake.0.join("fs/web")).unwrap();
        assert!(matches!(
            memory.reread_cgroup(),
            Err(CgroupError::Unreadable { .. })
        ));
        assert_eq!(memory.root().limits().max, 1_000_000);
    }

    #[test]
    fn a_process_that_is_moved_is_followed() {
        let fake = Fake::new("1000000");
        let memory = fake.follow(Memory::builder(), 0).build().unwrap();
        fs::create_dir(fake.0.join("fs/other")).unwrap();
        fake.write("fs/other/memory.max", "5000\n");
        fake.write("proc/cgroup", "0::/other\n");
        assert_eq!(memory.reread_cgroup(), Ok(Some(5000)));
        assert_eq!(memory.root().limits().max, 5000);
    }

    #[test]
    fn what_is_set_by_hand() {
        let fake = Fake::new("1000000");
        let memory = fake.follow(Memory::builder(), 0).build().unwrap();
        memory.root().set_max(3_000_000);
        assert_eq!(
            memory.root().limits().max,
            3_000_000,
            "until the next reading"
        );
        assert_eq!(memory.reread_cgroup(), Ok(Some(1_000_000)));
        assert_eq!(memory.root().limits().max, 1_000_000);
        memory.set_max(700_000);
        assert_eq!(memory.root().limits().max, 700_000);
        assert_eq!(memory.reread_cgroup(), Ok(Some(1_000_000)));
        assert_eq!(memory.root().limits().max, 700_000, "stays");
        memory.set_max(3_000_000);
        assert_eq!(memory.root().limits().max, 1_000_000, "the smaller");
    }

    /// Another rereads between our reading of the file and our setting of the limit.
    #[test]
    fn what_was_read_too_early_does_not_stay() {
        let fake = Fake::new("1000000");
        let memory = fake.follow(Memory::builder(), 0).build().unwrap();
        let follow = memory.cgroup.as_ref().unwrap();
        let mut has_changed = false;
        let last = follow.reread_by(&memory.root(), || {
            let read = follow.from.read();
            if !has_changed {
                has_changed = true;
                fake.limit("5000");
                assert_eq!(memory.reread_cgroup(), Ok(Some(5000)));
            }
            read
        });
        assert_eq!(last, Ok(Some(5000)));
        assert_eq!(memory.root().limits().max, 5000);
    }

    /// Another sets a limit between our look at what it should be and our setting of it.
    #[test]
    fn what_was_computed_too_early_does_not_stay() {
        let fake = Fake::new("1000000");
        let memory = fake.follow(Memory::builder(), 0).build().unwrap();
        let follow = memory.cgroup.as_ref().unwrap();
        // Full: pairs with the store in `set_max`.
        let own_max = || follow.own_max.load(MemoryOrder::Full);
        std::thread::scope(|scope| {
            let applying = follow.applying.lock().unwrap();
            let max = follow.root_max();
            scope.spawn(|| memory.set_max(5000));
            while own_max() != 5000 {
                std::thread::yield_now();
            }
            // The other one waits for us.
            memory.root().set_max(max);
            drop(applying);
        });
        assert_eq!(memory.root().limits().max, 5000);
    }

    #[test]
    fn the_ticker_rereads() {
        let fake = Fake::new("1000000");
        let builder = Memory::builder().flush_period(Duration::from_millis(2));
        let memory = fake.follow(builder, 0).build().unwrap();
        let ticker = memory.start_ticker().unwrap();
        for limit in [2_000_000, 500_000] {
            // A value between them that cannot be read is passed over.
            fake.limit("nonsense");
            fake.limit(&format!("{limit}"));
            // Never ends if the ticker does not do it, or ended at the nonsense.
            while memory.root().limits().max != limit {
                std::thread::yield_now();
            }
        }
        drop(ticker);
    }

    #[test]
    fn a_machine_that_is_handed_in_has_no_cgroup() {
        let fake = Fake::new("1000000");
        let builder = fake.follow(Memory::builder(), 0);
        let error = builder.build_on(Host::start().unwrap()).unwrap_err();
        assert_eq!(error, MemoryError::NoCgroup);
    }
}
