//! Guarantees, experiments and published policies on simulated machines. One program, because each would be built for the
//! simulated machine again.

#[path = "../common/mod.rs"]
mod common;
mod sim_age;
mod sim_conservation;
mod sim_flat;
mod sim_housekeeping;
mod sim_limits;
mod sim_many_groups;
mod sim_memcg_flush;
mod sim_memcg_loads;
mod sim_pages;
mod sim_reclaim;
mod sim_slack;
mod sim_throttle;
mod sim_waiting;
