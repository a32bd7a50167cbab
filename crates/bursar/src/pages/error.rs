//! Errors of the allocation and the return of pages.

use std::fmt;

use crate::react::ChargeError;
use bursar_machine::pages::{Order, Pfn, ReserveError};

/// Reason why no pages were allocated. Nothing is charged, and nothing is lost.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocPagesError {
    /// The charge to the group, or to a group above it, was refused.
    Refused(ChargeError),
    /// All zones that may be used are at their reserve, even after the lists of all CPUs were emptied. Freed pages make
    /// the request succeed again.
    Exhausted {
        /// The order asked for.
        order: Order,
        /// Free pages in all zones, including those that are kept for emergencies or too scattered.
        free_pages: u64,
        /// Pages that an ordinary allocation leaves free.
        reserve_pages: u64,
    },
    /// The node does not exist.
    NoSuchNode {
        /// Number of nodes; they count from 0.
        nodes: usize,
    },
    /// The bytes exceed the address space, or the program's allocator has no memory for a list of so many blocks.
    TooMany {
        /// The order asked for.
        order: Order,
        /// Number of blocks asked for.
        count: usize,
    },
    /// The reservation of page memory failed at the first request.
    NoZones(ReserveError),
}

impl From<ChargeError> for AllocPagesError {
    fn from(error: ChargeError) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for AllocPagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Exhausted {
                order,
                free_pages,
                reserve_pages,
            } => write!(
                f,
                "no pages of order {} left: {free_pages} pages free, {reserve_pages} of them kept \
                 for emergencies; reserve more (PageOptions::bytes_per_node), or limit groups to less",
                order.get()
            ),
            Self::NoSuchNode { nodes } => {
                write!(f, "no such node: this memory has nodes 0 to {}", nodes - 1)
            }
            Self::TooMany { order, count } => {
                write!(
                    f,
                    "{count} blocks of order {} exceed the address space, or there is no memory for a list of them",
                    order.get()
                )
            }
            Self::NoZones(error) => error.fmt(f),
        }
    }
}

bursar_machine::debug_as_message!(
    enum AllocPagesError {
        Refused(error),
        Exhausted { order, free_pages, reserve_pages },
        NoSuchNode { nodes },
        TooMany { order, count },
        NoZones(error),
    }
);

impl std::error::Error for AllocPagesError {}

/// Reason why a page cannot be claimed by its frame number. Nothing was touched.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The page was claimed before: a double free.
    AlreadyFreed {
        /// The page.
        pfn: Pfn,
    },
    /// The page is of this memory but was not given out: it is inside a block, or was never raw memory.
    NotGivenOut {
        /// The page.
        pfn: Pfn,
    },
    /// The page belongs to no zone of this memory.
    Foreign {
        /// The page.
        pfn: Pfn,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyFreed { pfn } => write!(f, "page {pfn} was freed already"),
            Self::NotGivenOut { pfn } => {
                write!(
                    f,
                    "page {pfn} was never given out: not the start of a block"
                )
            }
            Self::Foreign { pfn } => write!(f, "page {pfn} is not of this memory"),
        }
    }
}

bursar_machine::debug_as_message!(enum ClaimError { AlreadyFreed { pfn }, NotGivenOut { pfn }, Foreign { pfn } });

impl std::error::Error for ClaimError {}
