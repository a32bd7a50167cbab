//! Real threads that ask, charge, widen and give up at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::Freshness;
use bursar_arbiter::{AdmitError, Ask};

use super::common::{MIB, arbiter, ask, tenant, timeless};

#[test]
fn threads_that_block_are_all_served_and_never_more_is_granted_than_there_is() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 200;
    let arbiter = arbiter(64, timeless());
    let tenants = [0, 1, 2].map(|number| tenant(&arbiter, &format!("tenant-{number}"), 40));
    // MiB granted now, as the threads see it.
    let granted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (arbiter, tenants, granted) = (&arbiter, &tenants, &granted);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let group = &tenants[((thread + round) % 3) as usize];
                    let mib = 1 + (thread * 7 + round * 13) % 39;
                    let grant = arbiter
                        .admit_blocking(ask(group, &format!("{thread}-{round}"), mib))
                        .expect("it fits when others end");
                    let all = granted.fetch_add(mib, Ordering::SeqCst) + mib;
                    assert!(all <= 64, "{all} MiB are granted");
                    let charge = grant.try_charge(mib * MIB).expect("it was promised");
                    drop(charge);
                    granted.fetch_sub(mib, Ordering::SeqCst);
                }
            });
        }
    });
    let admissions = arbiter.admissions();
    assert_eq!(admissions.counts.admitted, THREADS * ROUNDS);
    assert_eq!((admissions.grants, admissions.waiting), (vec![], vec![]));
    let usage = arbiter.memory().root().read(Freshness::Exact).unwrap();
    assert_eq!(usage.usage_bytes(), 0);
}

#[test]
fn a_blocking_ask_ends_with_its_patience() {
    let arbiter = arbiter(64, timeless());
    let acme = tenant(&arbiter, "acme", 40);
    let _held = arbiter.try_admit(ask(&acme, "held", 40)).unwrap();
    let patience = Duration::from_millis(3);
    let Err(AdmitError::TimedOut { waited, .. }) =
        arbiter.admit_blocking(ask(&acme, "late", 1).patience(patience))
    else {
        panic!("nothing is free");
    };
    assert!(waited >= patience);
}

#[test]
fn queries_that_grow_and_give_up_lose_no_promise() {
    let arbiter = arbiter(64, timeless());
    let acme = tenant(&arbiter, "acme", 48);
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let (arbiter, acme) = (&arbiter, &acme);
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let name = format!("{thread}-{round}");
                    let ask = Ask::new(acme, name)
                        .least(4 * MIB, 0)
                        .wanted((4 + round % 30) * MIB);
                    let ask = if round % 5 == 0 {
                        ask.patience(Duration::ZERO)
                    } else {
                        ask
                    };
                    let Ok(grant) = arbiter.admit_blocking(ask) else {
                        continue;
                    };
                    let least = grant.try_charge(4 * MIB).expect("it was promised");
                    let mut more = Vec::new();
                    while more.len() < 24
                        && let Ok(charge) = grant.try_charge(MIB)
                    {
                        more.push(charge);
                    }
                    if round % 7 == 0 {
                        let _ = grant.resize(5 * MIB);
                    }
                    drop((more, least));
                }
            });
        }
    });
    assert_eq!(arbiter.admissions().grants, []);
    let all = arbiter
        .try_admit(ask(&acme, "all", 48))
        .expect("all is back");
    drop(all);
}
