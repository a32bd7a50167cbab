//! Requests to `bursar-serve`: heads, and the answers to their targets.

use std::sync::OnceLock;

use bursar::{Group, Limits, Memory};
use bursar_arbiter::{Arbiter, Policy};
use bursar_serve::Pages;

use crate::common::{assert_harmless, text};
use crate::request::{Request, parse};

/// Longest text of a refusal, characters.
const REASON_MAX: usize = 400;

pub(super) fn run(input: &[u8]) {
    let whole = parse(input);
    // The first byte that changes by chance says where the head is cut on its way.
    let cut = input.iter().map(|&byte| usize::from(byte)).sum::<usize>() % (input.len() + 1);
    match parse(&input[..cut]) {
        Ok(None) => {}
        Ok(found) => assert_eq!(Ok(found), whole, "cut at {cut}"),
        Err(_) => assert!(whole.is_err(), "cut at {cut}"),
    }
    match whole {
        Ok(Some(request)) => answer(input, &request),
        Ok(None) => {}
        Err(refusal) => {
            assert!(!refusal.reason.contains('\n'));
            assert_harmless(&refusal.reason);
            assert!(refusal.reason.chars().count() < REASON_MAX);
            assert_ne!(refusal.status.number(), 200);
        }
    }
}

fn answer(input: &[u8], request: &Request) {
    assert!(request.path.starts_with('/'));
    let mut words = input.split(|&byte| byte == b' ');
    let target = words
        .nth(1)
        .and_then(text)
        .expect("a target, which is text");
    let page = pages().get(target);
    let body = text(&page.body).expect("text");
    match page.content_type {
        "application/json" => {
            serde_json::from_str::<serde_json::Value>(body).expect("JSON");
        }
        "text/plain; charset=utf-8" => assert_harmless(body),
        _ => assert!(body.ends_with("# EOF\n")),
    }
    if page.status != 200 {
        assert_eq!(body.matches('\n').count(), 1, "one line");
        assert!(body.chars().count() < REASON_MAX);
    }
}

/// A memory with groups of odd names, and the last of them, which keeps them.
fn pages() -> &'static Pages {
    static SHARED: OnceLock<(Pages, Group)> = OnceLock::new();
    let (pages, _) = SHARED.get_or_init(|| {
        let memory = Memory::builder().build().expect("a memory");
        let root = memory.root();
        let acme = root.child("acme", Limits::max(1 << 20)).expect("a group");
        let odd = acme
            .child("\u{202e}a b%\n\"", Limits::none())
            .expect("a group");
        odd.try_charge(4096).expect("room").forget();
        assert!(acme.try_charge(1 << 21).is_err(), "a refusal to show");
        let arbiter = Arbiter::new(&memory, Policy::default());
        (Pages::new(&memory).arbiter(&arbiter), odd)
    });
    pages
}
