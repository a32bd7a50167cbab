//! The committed ledger of explored schedules.

use bursar_check::explore::{Group, Ledger, Row, targets};
use bursar_sim::SectionKind;

const LEDGER: &str = include_str!("../../lab/docs/schedules.tsv");

#[test]
fn every_protocol_and_kind_has_a_row() {
    let ledger: Ledger = LEDGER.parse().expect("the ledger");
    let sums = ledger.sums();
    let kinds = [SectionKind::Restartable, SectionKind::Atomic];
    for target in targets(Group::Protocols, &[], &kinds).expect("all there are") {
        let key = (target.name(), target.sections_name());
        let schedules = sums.get(&key).copied().unwrap_or(0);
        assert!(schedules > 0, "{key:?} has no row: run `.ci/run explore`");
    }
}

#[test]
fn rows_are_read_as_they_are_written_and_bad_ones_are_refused() {
    let row = Row {
        protocol: "fork".to_owned(),
        sections: "atomic".to_owned(),
        commit: "0123456789ab".to_owned(),
        seed: 7,
        schedules: 1_000_000,
        seconds: 61,
        peak_kib: 5_120,
    };
    assert_eq!(row.to_string().parse(), Ok(row.clone()));
    for bad in [
        "",
        "fork\tatomic\t0123456789ab\t7\t1",
        "a\tb\tc\t1\t2\t3\tx",
        "a\u{1b}[2J\tb\tc\t1\t2\t3\t4",
    ] {
        assert!(bad.parse::<Row>().is_err(), "{bad}");
    }
    assert!(row.to_string().parse::<Ledger>().is_err(), "no head");
    let mut ledger = Ledger::default();
    assert_eq!(ledger.next_seed(), Some(1));
    ledger.push(row.clone());
    ledger.push(Row {
        seed: 3,
        ..row.clone()
    });
    assert_eq!(ledger.next_seed(), Some(8));
    let has = |sections, seed| ledger.has("fork", sections, "0123456789ab", seed);
    assert!(has("atomic", 3) && !has("atomic", 4) && !has("restartable", 3));
    assert_eq!(ledger.sums()[&("fork", "atomic")], 2_000_000);
    ledger.push(Row {
        seed: u64::MAX,
        ..row
    });
    assert_eq!(ledger.next_seed(), None);
}
