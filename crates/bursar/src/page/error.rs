//! What a caller of an allocation acts on.

use std::fmt;

use bursar_machine::pages::{Order, Pfn, ReserveError};

use crate::charge::ChargeError;

/// Why there are no pages. Nothing is charged then, and nothing is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocPagesError {
    /// The group, or one above it, may not have them.
    Refused(ChargeError),
    /// All zones that may be used are at their reserve, after the lists of all CPUs were emptied. Pages that are freed make
    /// it succeed again.
    Exhausted {
        /// The order asked for.
        order: Order,
        /// Pages free in all zones, those included that are kept for emergencies or too scattered.
        free_pages: u64,
        /// Pages that an ordinary allocation leaves.
        reserve_pages: u64,
    },
    /// The node does not exist.
    NoSuchNode {
        /// How many there are, from 0.
        nodes: usize,
    },
    /// More than fits the address space.
    TooMany {
        /// The order asked for.
        order: Order,
        /// How many blocks were asked for.
        count: usize,
    },
    /// No memory could be reserved for pages when the first was asked for.
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
                    "{count} blocks of order {} exceed the address space",
                    order.get()
                )
            }
            Self::NoZones(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AllocPagesError {}

/// Why a page cannot be had back by its frame. Nothing was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The page was had back before: a double free.
    AlreadyFreed {
        /// The page.
        pfn: Pfn,
    },
    /// The page is of this memory and was not given out: the middle of a block, or never raw.
    NotGivenOut {
        /// The page.
        pfn: Pfn,
    },
    /// The page is of no zone of this memory.
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

impl std::error::Error for ClaimError {}
