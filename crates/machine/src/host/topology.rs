//! CPUs and nodes of the host, and the CPUs on which a thread may run.

/// Highest possible CPU number plus one, or the number of CPUs where the system has no list. CPU numbers may have gaps; a shard for a CPU
/// that never comes costs nothing.
pub(super) fn possible_cpus() -> usize {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/possible")
        .ok()
        .and_then(|text| parse_list(text.trim()).into_iter().max())
        .map(|highest| highest + 1);
    listed.unwrap_or_else(online_cpus)
}

fn online_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Node of each of `cpus` CPUs; all on node 0 where the system does not tell.
pub(super) fn node_of_cpus(cpus: usize) -> Vec<usize> {
    let mut node_of = vec![0; cpus];
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/node") else {
        return node_of;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(node) = name
            .to_str()
            .and_then(|name| name.strip_prefix("node"))
            .and_then(|number| number.parse::<usize>().ok())
        else {
            continue;
        };
        let list = std::fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        for cpu in parse_list(list.trim()) {
            if let Some(place) = node_of.get_mut(cpu) {
                *place = node;
            }
        }
    }
    node_of
}

/// Parses the kernel's list format: `0-3,8,10-11`. Invalid parts are left out.
fn parse_list(text: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            numbers.extend(first..=last.min(first + 65_536));
        }
    }
    numbers
}

/// CPUs on which the calling thread may run.
#[cfg(target_os = "linux")]
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: `cpu_set_t` is plain data for which all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most the size it is told into a set of that size.
    let failed =
        unsafe { libc::sched_getaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &mut set) };
    if failed != 0 {
        return (0..online_cpus()).collect();
    }
    (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the index is below the size of the set.
        .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// CPUs on which the calling thread may run.
#[cfg(not(target_os = "linux"))]
pub fn allowed_cpus() -> Vec<usize> {
    (0..online_cpus()).collect()
}

/// Makes the calling thread run on one CPU only.
///
/// # Errors
/// The system's error: the CPU does not exist or is not allowed, or this system cannot pin.
#[cfg(target_os = "linux")]
pub fn pin_to(cpu: usize) -> std::io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: as in `allowed_cpus`.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the index was checked against the size of the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads the set, whose size it is told.
    match unsafe { libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Makes the calling thread run on one CPU only.
///
/// # Errors
/// Always, on this system.
#[cfg(not(target_os = "linux"))]
pub fn pin_to(_cpu: usize) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Returns the CPUs' name for themselves, where the system has it. 64-bit Arm has two numbers instead.
pub fn cpu_model() -> Option<String> {
    model(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn model(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let found = fields.find(|(key, _)| key.trim() == name);
        found.map(|(_, value)| value.trim().to_owned())
    };
    field("model name").or_else(|| {
        let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
        Some(format!("CPU of implementer {implementer}, part {part}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_ranges_and_gaps() {
        assert_eq!(parse_list("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list(""), [0; 0]);
        assert_eq!(parse_list("x,2"), [2]);
    }

    #[test]
    fn cpus_have_a_name_or_two_numbers() {
        let text = "processor\t: 0\nmodel name\t: Some CPU\n";
        assert_eq!(model(text).as_deref(), Some("Some CPU"));
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        let numbers = "CPU of implementer 0x41, part 0xd0c";
        assert_eq!(model(arm).as_deref(), Some(numbers));
        assert_eq!(model("processor\t: 0\n"), None);
    }

    #[test]
    fn this_machine_has_cpus() {
        assert!(possible_cpus() >= allowed_cpus().len().min(1));
        assert_eq!(node_of_cpus(2).len(), 2);
    }

    // Miri has CPUs of its own.
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore)]
    #[test]
    fn the_kernel_tells_the_same() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        if let Some(allowed) = allowed {
            assert_eq!(allowed_cpus(), parse_list(allowed.trim()));
        }
        let about = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        assert_eq!(cpu_model(), model(&about));
    }

    #[test]
    fn each_allowed_cpu_is_a_possible_one() {
        // Without the list there is only a number, and allowed CPUs may be beyond it.
        if std::path::Path::new("/sys/devices/system/cpu/possible").exists() {
            let highest = allowed_cpus().into_iter().max();
            assert!(highest.is_some_and(|highest| highest < possible_cpus()));
        }
        assert!((1..=possible_cpus()).contains(&online_cpus()));
    }
}
