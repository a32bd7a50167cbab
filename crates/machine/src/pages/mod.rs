//! Page memory: tokens of owned pages, and places where pages wait for their next user.
//!
//! A [`Block`] is a token: its holder alone owns 2^order pages. There is one token for each piece of a reservation. It
//! can be split and joined but not copied, and only its holder can reach the memory behind it. So code that moves pages
//! needs no `unsafe`, and cannot hand out a page twice.
//!
//! | type | meaning |
//! |---|---|
//! | [`Block`], [`Pfn`], [`Order`], [`Content`], [`Owner`] | the token, and its facts about its pages |
//! | [`Span`] | pages that were never used, as blocks of the largest order |
//! | [`Frames`] | a reservation: the memory behind its blocks |
//! | [`BlockStacks`], [`Bounds`] | per-CPU stacks of blocks, changed in one section |
//! | [`BlockList`] | one of these stacks, as words, for implementations |
//! | [`simulated`] | blocks without memory, for machines that simulate |

mod block;
mod frames;
mod list;
pub mod simulated;
mod stacks;

pub use block::{
    Block, Content, MAX_ORDER, Order, OrderError, Owner, PAGE_BYTES, Pfn, SPAN_PAGES, Span,
};
pub use frames::{Frames, HugePages, NodeBinding, ReserveError, ReserveOptions};
pub use list::{BlockList, ListOperation};
pub use stacks::{BlockStacks, Bounds, LIST_BLOCKS_MAX, LISTS_MAX, StackWord, depth, pops};
