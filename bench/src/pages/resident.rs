//! Frames of this process that are in memory, as the kernel counts them.

use std::fs;

/// Bytes of a frame.
pub const FRAME_BYTES: u64 = 4096;

/// Some of `/proc/self/smaps_rollup`, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// In memory, less what the process has told the kernel it may take.
    pub kept_bytes: u64,
    /// In memory, and read or written since [`forget_touches`].
    pub touched_bytes: u64,
}

impl Resident {
    /// As of now.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn now() -> Result<Self, String> {
        const PATH: &str = "/proc/self/smaps_rollup";
        let text = fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
        Self::of(&text).ok_or_else(|| format!("{PATH}: not as expected"))
    }

    fn of(text: &str) -> Option<Self> {
        let bytes = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kib: u64 = line?
                .strip_prefix(':')?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()?;
            Some(kib << 10)
        };
        Some(Self {
            kept_bytes: bytes("Rss")?.saturating_sub(bytes("LazyFree")?),
            touched_bytes: bytes("Referenced")?,
        })
    }
}

/// Makes the kernel forget which frames were read or written.
///
/// # Errors
/// If it does not.
pub fn forget_touches() -> Result<(), String> {
    const PATH: &str = "/proc/self/clear_refs";
    fs::write(PATH, "1").map_err(|error| format!("{PATH}: {error}"))?;
    // The processor notes a touch only when it looks an address up in the tables. So what it has looked up already must be
    // forgotten too, and unmapping more than a few pages does that. The C library maps anything as large as this.
    let mut mapped = vec![0_u8; 64 << 20];
    for frame in mapped.chunks_mut(FRAME_BYTES as usize).take(64) {
        frame[0] = 1;
    }
    drop(std::hint::black_box(mapped));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "Rss:   100 kB\nReferenced:   80 kB\nLazyFree:   8 kB\n";
        let expected = Resident {
            kept_bytes: 92 << 10,
            touched_bytes: 80 << 10,
        };
        assert_eq!(Resident::of(text), Some(expected));
        assert_eq!(Resident::of("Rss: 1 kB\n"), None);
    }
}
