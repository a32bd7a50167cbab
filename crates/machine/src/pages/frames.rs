//! Reservations: the memory behind blocks.

use core::fmt;
use core::mem::MaybeUninit;

use super::block::{Block, Pfn};

/// Use of huge pages by a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// The system's setting (`/sys/kernel/mm/transparent_hugepage/enabled`).
    #[default]
    System,
    /// Huge pages are requested: fewer TLB misses, and 2 MiB taken for the first byte touched.
    Advise,
    /// Huge pages are refused: memory is taken and given back page by page.
    Never,
}

/// Node that a reservation's memory comes from, on a machine with several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NodeBinding {
    /// The requested node while it has memory, then others. Any node if the system does not allow the request, as in
    /// many containers, or for nodes without memory.
    #[default]
    Preferred,
    /// The requested node only; the process is killed when it has no memory left.
    Strict,
    /// The node of the CPU that touches a page first.
    None,
}

/// Options of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOptions {
    /// Number of pages, rounded up to whole blocks of the largest order.
    pub pages: u64,
    /// Node that the memory should be on.
    pub node: usize,
    /// Binding to the node.
    pub binding: NodeBinding,
    /// Use of huge pages.
    pub huge_pages: HugePages,
}

impl ReserveOptions {
    /// Options for `pages` on node 0, with the system's defaults for the rest.
    pub fn pages(pages: u64) -> Self {
        Self {
            pages,
            node: 0,
            binding: NodeBinding::default(),
            huge_pages: HugePages::default(),
        }
    }
}

/// Reason why memory could not be reserved. Nothing was reserved.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// No page was asked for.
    NoPages,
    /// More pages than one machine can number, together with earlier reservations.
    TooLarge {
        /// Number of pages asked for.
        pages: u64,
        /// Number of pages that can still be numbered.
        available: u64,
    },
    /// The node does not exist.
    NoSuchNode {
        /// The node.
        node: usize,
        /// Number of nodes; they count from 0.
        nodes: usize,
    },
    /// The system refuses the address space.
    Refused {
        /// Number of bytes asked for.
        bytes: u64,
        /// The system's error, and the limit that is known to cause it.
        reason: String,
    },
    /// The system refuses to bind memory to the node.
    CannotBind {
        /// The node.
        node: usize,
        /// The system's error.
        reason: String,
    },
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPages => f.write_str("a reservation has at least one page"),
            Self::TooLarge { pages, available } => {
                write!(
                    f,
                    "cannot reserve {pages} pages: {available} can still be numbered in this process"
                )
            }
            Self::NoSuchNode { node, nodes } => {
                write!(
                    f,
                    "no node {node}: this machine has nodes 0 to {}",
                    nodes - 1
                )
            }
            Self::Refused { bytes, reason } => {
                write!(f, "cannot reserve {bytes} bytes of address space: {reason}")
            }
            Self::CannotBind { node, reason } => {
                write!(f, "cannot bind memory to node {node}: {reason}")
            }
        }
    }
}

crate::debug_as_message!(
    enum ReserveError {
        NoPages,
        TooLarge { pages, available },
        NoSuchNode { node, nodes },
        Refused { bytes, reason },
        CannotBind { node, reason },
    }
);

impl std::error::Error for ReserveError {}

/// Reservation of page memory on one node. Cheap to clone; lasts as long as its machine.
///
/// Every function that takes a block panics if the block belongs to another reservation.
pub trait Frames: Clone + fmt::Debug + Send + Sync + 'static {
    /// First page.
    fn first(&self) -> Pfn;

    /// Number of pages.
    fn pages(&self) -> u64;

    /// The bytes of a block, initialized or not. From then on their content is unknown.
    ///
    /// No bytes on a simulated machine.
    fn uninit<'a>(&self, block: &'a mut Block) -> &'a mut [MaybeUninit<u8>];

    /// The bytes of a block, if all are initialized.
    ///
    /// No bytes on a simulated machine.
    fn bytes<'a>(&self, block: &'a Block) -> Option<&'a [u8]>;

    /// The bytes of a block for writing, if all are initialized.
    ///
    /// No bytes on a simulated machine.
    fn bytes_mut<'a>(&self, block: &'a mut Block) -> Option<&'a mut [u8]>;

    /// Initializes the bytes by `write`, which returns them to show that it did. Returns `false` if `write` returned
    /// fewer bytes, or others; then their content is unknown.
    ///
    /// No bytes on a simulated machine.
    fn init(
        &self,
        block: &mut Block,
        write: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) -> bool;

    /// Makes all bytes zero.
    fn zero(&self, block: &mut Block);

    /// Gives the memory behind a block back to the system; the block then reads as zeroes. Returns `false` if the
    /// system refuses, or if its pages are larger than the block; then nothing changes.
    fn discard(&self, block: &mut Block) -> bool;
}
