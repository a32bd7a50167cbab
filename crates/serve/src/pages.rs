//! The same answers for a program that has an HTTP server of its own.

use bursar::Memory;
use bursar_arbiter::Arbiter;

use crate::request::parse_target;
use crate::response::{Page, Response};
use crate::route::Routes;
use crate::tree::Program;

/// The answers of a [`crate::Server`], without its socket. For a program that has an HTTP server of its own.
///
/// They show the names, bytes and limits of all tenants. So let only those ask whom you would let read all metrics: the socket answers its own user alone, and
/// this answers everybody.
///
/// ```
/// use bursar::{Limits, Memory};
/// use bursar_serve::Pages;
///
/// let memory = Memory::builder().build()?;
/// let acme = memory.root().child("acme", Limits::max(64 << 20))?;
/// let pages = Pages::new(&memory);
/// let page = pages.get("/v1/groups/acme/memory.max");
/// assert_eq!((page.status, &page.body[..]), (200, &b"67108864\n"[..]));
/// # drop(acme);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pages {
    routes: Routes,
}

impl Pages {
    /// Pages of a memory. They keep it alive, but no ticker of it ([`bursar::Builder::ticker`]).
    pub fn new(memory: &Memory) -> Self {
        Self {
            routes: Routes::new(memory.root().memory(), None, Program::this()),
        }
    }

    /// Shows the admissions and decisions of this arbiter as well.
    pub fn arbiter(self, arbiter: &Arbiter) -> Self {
        Self {
            routes: self.routes.with_arbiter(arbiter),
        }
    }

    /// Answers a `GET` of a path with its query, as in the first line of a request: `/v1/tree?path=/acme`. An error is a page as well: its status says so, and its body
    /// is one line with the reason.
    pub fn get(&self, target: &str) -> Page {
        let request = parse_target(target, false);
        let response = request.map_or_else(Response::from, |request| self.routes.answer(&request));
        response.into_page()
    }
}
