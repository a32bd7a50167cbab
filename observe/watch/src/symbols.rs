//! Addresses of kernel functions, from `/proc/kallsyms`.

/// Functions that take a zone's lock themselves.
const ZONE_LOCKERS: [&str; 14] = [
    "rmqueue_bulk",
    "rmqueue_buddy",
    "rmqueue",
    "__rmqueue_pcplist",
    "get_page_from_freelist",
    "free_pcppages_bulk",
    "free_one_page",
    "free_frozen_page_commit",
    "free_unref_page_commit",
    "__isolate_free_page",
    "decay_pcp_high",
    "drain_zone_pages",
    "drain_pages_zone",
    "reserve_highatomic_pageblock",
];

/// Addresses that are of use here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Address of `vmstat_update`.
    pub vmstat_update: Option<u64>,
    /// Address of `delayed_work_timer_fn`.
    pub delayed_work_timer_fn: Option<u64>,
    /// Ranges of functions that take a zone's lock.
    pub zone_lockers: Vec<(u64, u64)>,
}

impl Symbols {
    /// Reads the addresses. All are missing if the kernel hides them.
    pub fn read() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Finds the addresses in a text of `/proc/kallsyms`.
    pub fn parse(text: &str) -> Self {
        let mut symbols = Self::default();
        let mut starts = Vec::new();
        let mut addresses = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Ok(address @ 1..) = u64::from_str_radix(address, 16) else {
                continue;
            };
            if !kind.eq_ignore_ascii_case("t") {
                continue;
            }
            addresses.push(address);
            // The compiler's own copies: `rmqueue_bulk.isra.0`. A cold part begins in the middle of its function.
            let (base, copy) = name.split_once('.').unwrap_or((name, ""));
            match base {
                "vmstat_update" | "delayed_work_timer_fn"
                    if copy.split('.').any(|part| part == "cold") => {}
                "vmstat_update" => symbols.vmstat_update = Some(address),
                "delayed_work_timer_fn" => symbols.delayed_work_timer_fn = Some(address),
                name if ZONE_LOCKERS.contains(&name) => starts.push(address),
                _ => {}
            }
        }
        addresses.sort_unstable();
        let end = |start| {
            addresses
                .get(addresses.partition_point(|&it| it <= start))
                .copied()
        };
        symbols.zone_lockers = starts
            .into_iter()
            .filter_map(|start| Some((start, end(start)?)))
            .collect();
        symbols
    }
}

#[cfg(test)]
mod tests {
    use super::Symbols;

    #[test]
    fn functions_end_where_the_next_begins() {
        let text = "ffff20 t vmstat_update\nffff40 t rmqueue_bulk.isra.0\nffff30 T delayed_work_timer_fn\n\
            ffff60 t next\nffff50 d data\nffff70 t vmstat_update.isra.0.cold\n";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.vmstat_update, Some(0xff_ff20));
        assert_eq!(symbols.delayed_work_timer_fn, Some(0xff_ff30));
        assert_eq!(symbols.zone_lockers, [(0xff_ff40, 0xff_ff60)]);
    }

    #[test]
    fn hidden_addresses_are_missing() {
        let text = "0000000000000000 t vmstat_update\n0000000000000000 T rmqueue_bulk\n";
        assert_eq!(Symbols::parse(text), Symbols::default());
    }
}
