//! Stock on CPUs where no thread runs any more: the threads were moved away, or the CPU was taken offline.
#![cfg(target_os = "linux")]

use std::process::{Child, Command, Stdio};

use crate::common::{Short, memory};
use bursar_machine::host::{allowed_cpus, pin_to};

/// The stock of a CPU that the only thread has left is found from another, and returns there are not lost.
#[test]
fn a_cpu_that_is_left_gives_its_stock() {
    let _alone = crate::common::fork::alone();
    const MAX: u64 = 8 << 20;
    let cpus = allowed_cpus();
    let tenant = memory().make_max("tenant", MAX);
    let [one, two] = ["one", "two"].map(|name| tenant.make(name));
    for round in 0..20 {
        pin_to(cpus[round % cpus.len()]).unwrap();
        let kept = one.try_charge(100).unwrap();
        let stock = tenant.reserved() - 100;
        assert!(stock > 0, "stock is held, or this test shows nothing");
        let before = tenant.events().drained_bytes;
        pin_to(cpus[(round + 1) % cpus.len()]).unwrap();
        let rest = two.try_charge(MAX - 100).expect("the stock counts");
        assert_eq!(tenant.events().drained_bytes - before, stock);
        assert!(two.try_charge(1).is_err());
        // Charged there, returned here.
        drop(kept);
        drop(two.try_charge(100).unwrap());
        drop(rest);
        assert_eq!(tenant.used(), 0);
        tenant.set_max(0);
        assert_eq!(tenant.reserved(), 0);
        tenant.set_max(MAX);
    }
}

const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

/// Puts the CPU back also when this process is killed: the shell waits for the end of its input.
struct BackOnline(Child);

impl Drop for BackOnline {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("the shell ends");
    }
}

/// Off unless `BURSAR_TEST_OFFLINE=1`: the whole machine loses a CPU for a moment, and threads pinned to it their affinity.
#[test]
fn a_cpu_that_goes_offline_gives_its_stock() {
    let _alone = crate::common::fork::alone();
    const MAX: u64 = 8 << 20;
    if std::env::var_os("BURSAR_TEST_OFFLINE").is_none_or(|wanted| wanted != "1") {
        return println!("skipped: takes a CPU of this machine offline if BURSAR_TEST_OFFLINE=1");
    }
    if !allowed_cpus().contains(&1) || std::fs::read_to_string(ONLINE).is_err() {
        return println!("skipped: CPU 1 is not ours, or cannot be taken offline");
    }
    let restores = Command::new("sh")
        .args(["-c", &format!("cat; echo 1 > {ONLINE}")])
        .stdin(Stdio::piped())
        .spawn();
    let back = BackOnline(restores.expect("there is a shell"));
    let tenant = memory().make_max("tenant", MAX);
    let [one, two] = ["one", "two"].map(|name| tenant.make(name));
    let kept = std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            pin_to(1).unwrap();
            let kept = one.try_charge(100).unwrap();
            assert!(tenant.reserved() > 100, "stock is held there");
            if let Err(error) = std::fs::write(ONLINE, "0") {
                println!("skipped: {error}");
                return None;
            }
            // Still the same thread, wherever it runs now.
            drop(one.try_charge(50).unwrap());
            Some(kept)
        });
        there.join().unwrap()
    });
    let Some(kept) = kept else { return };
    let rest = two
        .try_charge(MAX - 100)
        .expect("the stock of a CPU that is gone counts");
    assert!(tenant.events().drained_bytes > 0);
    assert!(two.try_charge(1).is_err());
    drop(kept);
    drop(two.try_charge(100).unwrap());
    drop(rest);
    assert_eq!(tenant.used(), 0);
    drop(back);
    let online = std::fs::read_to_string(ONLINE).unwrap();
    assert_eq!(online.trim(), "1");
    // And back: its books are as it left them.
    pin_to(1).unwrap();
    drop(one.try_charge(100).unwrap());
    tenant.set_max(0);
    assert_eq!(tenant.reserved(), 0);
}
