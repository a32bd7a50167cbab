//! A handler that panics costs its tenant nothing. In a process of its own, whose panics print backtraces.

use std::alloc::System;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Waker};

use bursar::{Freshness, Group, Limits, Memory};
use bursar_alloc::Charged;
use bursar_tower::{Admission, TenantLayer};
use http::{Request, Response};
use http_body_util::Empty;
use tower::{Layer, Service, service_fn};

#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

const CHILD: &str = "BURSAR_TEST_CHILD";

type Body = Empty<&'static [u8]>;

fn usage(group: &Group) -> i64 {
    group.read(Freshness::Exact).unwrap().usage().value
}

/// Panics when it is called, or when what it returns is polled.
fn serve(
    request: &Request<()>,
) -> impl Future<Output = Result<Response<Body>, Infallible>> + use<> {
    let number = std::hint::black_box(7);
    assert!(request.uri() != "/call", "a bug in handler {number}");
    async move { panic!("a bug in future {number}") }
}

#[test]
fn a_handler_that_panics_leaves_nothing_with_its_tenant() {
    if std::env::var_os(CHILD).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_handler_that_panics_leaves_nothing_with_its_tenant",
            ])
            .args(["--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .env("RUST_BACKTRACE", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let memory = Memory::host().unwrap();
    let tenant = memory.root().child("tenant", Limits::none()).unwrap();
    let picked = tenant.clone();
    let layer = TenantLayer::new(move |_: &Request<()>| -> Admission<Body> {
        Admission::Granted(picked.clone())
    });
    let mut service = layer.layer(service_fn(|request: Request<()>| serve(&request)));
    for path in ["/call", "/poll"] {
        for _ in 0..100 {
            let request = Request::builder().uri(path).body(()).unwrap();
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let mut future = pin!(service.call(request));
                let context = &mut Context::from_waker(Waker::noop());
                assert!(future.as_mut().poll(context).is_ready());
            }));
            assert!(caught.is_err());
            drop(caught);
            assert_eq!(usage(&tenant), 0, "{path}");
        }
    }
}
