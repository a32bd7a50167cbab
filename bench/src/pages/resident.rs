//! Memory of this process, as the kernel counts it.

use std::fs;

/// Bytes in memory, less what the process has told the kernel it may take.
///
/// # Errors
/// If the kernel does not say.
pub fn kept_bytes() -> Result<u64, String> {
    const PATH: &str = "/proc/self/smaps_rollup";
    let text = fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    of(&text).ok_or_else(|| format!("{PATH}: not as expected"))
}

fn of(text: &str) -> Option<u64> {
    let bytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line?.strip_prefix(':')?.trim().strip_suffix(" kB")?;
        Some(kib.parse::<u64>().ok()? << 10)
    };
    Some(bytes("Rss")?.saturating_sub(bytes("LazyFree")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        assert_eq!(of("Rss:   100 kB\nLazyFree:   8 kB\n"), Some(92 << 10));
        assert_eq!(of("Rss: 1 kB\n"), None);
    }
}
