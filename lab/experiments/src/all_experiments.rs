//! All experiments.

use std::ops::Deref;

use bursar_rig::timer::Timers;
use toml::Table;

use crate::document::VariantResult;
use crate::workload::{RunError, Sizing, Workload};
use crate::{arbitration, memcg_flush, memcg_stock, pcp_batch_free, vmstat_spread};

/// Parts of an experiment.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// The experiment's file.
    pub(crate) file: &'static str,
    /// The draws that fit its calibration rows.
    pub(crate) draws: &'static str,
}

/// Defines names, files and parameters of the experiments, each once.
macro_rules! experiments {
    ($($name:literal: $kind:ident = $module:ident;)*) => {
        /// All experiments, in the order in which they run.
        pub(crate) const ALL: &[Entry] = &[$(Entry {
            name: $name,
            file: include_str!(concat!("../experiments/", $name, ".toml")),
            draws: include_str!(concat!("../experiments/", $name, ".draws.toml")),
        },)*];

        /// Parameters of one experiment.
        #[derive(Clone, Debug)]
        pub(crate) enum Parameters {
            $($kind($module::Parameters),)*
        }

        impl Parameters {
            /// Reads the parameters of the experiment of that name.
            pub(crate) fn read(name: &str, table: &Table) -> Result<Self, String> {
                let read = match name {
                    $($name => table.clone().try_into().map(Self::$kind),)*
                    name => return Err(format!("there is no experiment `{name}`")),
                };
                read.map_err(|error: toml::de::Error| error.to_string())
            }

            pub(crate) fn with_seed(&self, seed: u64) -> Self {
                match self { $(Self::$kind(it) => Self::$kind($module::Parameters { seed, ..*it }),)* }
            }

            pub(crate) fn summary(&self, variant: &str) -> &'static str {
                match self { $(Self::$kind(_) => <$module::Parameters as Workload>::summary(variant),)* }
            }

            pub(crate) fn run<M: Timers>(&self, machine: &M, variant: &str) -> Result<VariantResult, RunError> {
                match self { $(Self::$kind(it) => it.run(machine, variant),)* }
            }
        }

        impl Deref for Parameters {
            type Target = dyn Sizing;

            fn deref(&self) -> &Self::Target {
                match self { $(Self::$kind(it) => it,)* }
            }
        }
    };
}

experiments! {
    "memcg-flush": MemcgFlush = memcg_flush;
    "vmstat-spread": VmstatSpread = vmstat_spread;
    "pcp-batch-free": PcpBatchFree = pcp_batch_free;
    "memcg-stock": MemcgStock = memcg_stock;
    "arbitration": Arbitration = arbitration;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_takes_the_time_it_is_given_and_more_load_takes_longer_to_simulate() {
        for (name, cpus, key, less, more) in [
            ("memcg-flush", 384, "readers", 50, 500),
            ("vmstat-spread", 72, "rewrites", 4, 1),
            ("pcp-batch-free", 316, "exiters", 4, 40),
            ("memcg-stock", 72, "work_ns", 4_000, 500),
            ("arbitration", 64, "batch_us", 8_000, 1_000),
        ] {
            let mut table = crate::experiment_named(name).expect("its file").parameters;
            let [less, more] = [less, more].map(|value| {
                table.insert(key.to_owned(), value.into());
                Parameters::read(name, &table).expect(name)
            });
            assert_eq!(less.estimated_seconds(None), less.run_ms() as f64 / 1e3);
            let [less, more] = [less, more].map(|it| it.estimated_seconds(Some(cpus)));
            assert!(less < more && more < less * 10.1, "{name}: {less} {more}");
        }
    }
}
