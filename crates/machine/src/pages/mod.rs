//! Page memory: who owns which page, and where pages wait for their next user.
//!
//! A [`Block`] is a token: whoever has it, and nobody else, owns 2^order pages. There is one token for each piece of a
//! reservation, it can be cut and joined but not copied, and only with it in hand can the memory behind be reached. So code
//! that moves pages about needs no `unsafe`, and cannot hand out a page twice.
//!
//! | type | what it is |
//! |---|---|
//! | [`Block`], [`Pfn`], [`Order`], [`Content`], [`Owner`] | the token, and what it says of its pages |
//! | [`Span`] | pages that were never used, as blocks of the largest order |
//! | [`Frames`] | a reservation: the memory behind its blocks |
//! | [`BlockStacks`], [`Bounds`] | per-CPU stacks of blocks, changed in one section |
//! | [`simulated`] | blocks without memory, for machines that simulate |

mod block;
mod frames;
pub mod simulated;
mod stacks;

pub use block::{
    Block, Content, MAX_ORDER, Order, OrderError, Owner, PAGE_BYTES, Pfn, SPAN_PAGES, Span,
};
pub use frames::{Frames, HugePages, NodeBinding, ReserveError, ReserveOptions};
pub use stacks::{BlockStacks, Bounds, LIST_BLOCKS_MAX, LISTS_MAX, StackWord, depth, pops};
