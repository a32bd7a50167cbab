//! Reservations: the memory behind blocks.

use core::fmt;
use core::mem::MaybeUninit;

use super::block::{Block, Pfn};

/// How a reservation uses huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// As the system is set up (`/sys/kernel/mm/transparent_hugepage/enabled`).
    #[default]
    System,
    /// Asked for: fewer TLB misses, and 2 MiB taken for the first byte touched.
    Advise,
    /// Refused: memory is taken and given back page by page.
    Never,
}

/// Where a reservation's memory comes from on a machine with several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NodeBinding {
    /// From the node asked for while that has some, then from others; from anywhere if the system does not let us ask (as in
    /// many containers, or for nodes without memory).
    #[default]
    Preferred,
    /// From that node only; the process is killed when it has none left.
    Strict,
    /// From wherever who touches a page first happens to run.
    None,
}

/// What to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOptions {
    /// Pages; rounded up to whole blocks of the largest order.
    pub pages: u64,
    /// The node that the memory should be on.
    pub node: usize,
    /// See there.
    pub binding: NodeBinding,
    /// See there.
    pub huge_pages: HugePages,
}

impl ReserveOptions {
    /// `pages` on node 0, the rest as the system does it.
    pub fn pages(pages: u64) -> Self {
        Self {
            pages,
            node: 0,
            binding: NodeBinding::default(),
            huge_pages: HugePages::default(),
        }
    }
}

/// Why memory could not be reserved. Nothing was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// No page was asked for.
    NoPages,
    /// More pages than one machine can number, together with what was reserved before.
    TooLarge {
        /// Pages asked for.
        pages: u64,
        /// Pages that can still be numbered.
        available: u64,
    },
    /// The node does not exist.
    NoSuchNode {
        /// The node.
        node: usize,
        /// How many there are, from 0.
        nodes: usize,
    },
    /// The system refuses the address space.
    Refused {
        /// Bytes asked for.
        bytes: u64,
        /// What the system says, and the limit that is known to stand in the way.
        reason: String,
    },
    /// The system refuses to bind memory to the node.
    CannotBind {
        /// The node.
        node: usize,
        /// What the system says.
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

impl std::error::Error for ReserveError {}

/// A reservation of page memory on one node. Cheap to clone; lasts as long as its machine.
///
/// Every function that takes a block panics if the block is of another reservation.
pub trait Frames: Clone + fmt::Debug + Send + Sync + 'static {
    /// The first page.
    fn first(&self) -> Pfn;

    /// How many there are.
    fn pages(&self) -> u64;

    /// The bytes of a block, initialized or not; from then on their content is unknown.
    ///
    /// No bytes on a simulated machine.
    fn uninit<'a>(&self, block: &'a mut Block) -> &'a mut [MaybeUninit<u8>];

    /// The bytes of a block if all are initialized.
    ///
    /// No bytes on a simulated machine.
    fn bytes<'a>(&self, block: &'a Block) -> Option<&'a [u8]>;

    /// The bytes of a block if all are initialized, to change them.
    ///
    /// No bytes on a simulated machine.
    fn bytes_mut<'a>(&self, block: &'a mut Block) -> Option<&'a mut [u8]>;

    /// Lets `write` initialize the bytes, which it returns to show that it did. `false` if it returned fewer, or others; then
    /// their content is unknown.
    ///
    /// No bytes on a simulated machine.
    fn init(
        &self,
        block: &mut Block,
        write: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) -> bool;

    /// Makes all bytes zero.
    fn zero(&self, block: &mut Block);

    /// Gives the memory behind a block back to the system; the block then reads as zeroes. `false` if the system refuses:
    /// then nothing changes.
    fn discard(&self, block: &mut Block) -> bool;
}
