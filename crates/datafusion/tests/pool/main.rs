//! Pools of groups, as DataFusion uses them.

mod arrow;
mod asked;
mod common;
mod ends;
mod limits;
mod model;
mod operators;
mod pools;
mod refusals;
mod share;
mod sorts;
mod watermark;
