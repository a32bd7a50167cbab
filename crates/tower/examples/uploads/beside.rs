//! The slowest requests of a tenant beside the uploads of another one.

use std::time::Duration;

use crate::{Result, ask_alone, child, cost, said, serve};

const PAIRS: usize = 8;
const TIME: Duration = Duration::from_secs(10);

/// Times with uploads and without alternate, and a ratio is taken within each pair. Uploads come as fast as in a full run.
pub(crate) async fn show() -> Result<()> {
    let (_memory, _acme, address) = serve().await?;
    println!("| uploads | p99 without, ms | p99 with, ms | ratio, median | quartiles | all |");
    println!("|---|---|---|---|---|---|");
    for (path, count, seconds) in [("/count", "80", "10"), ("/keep", "110", "1")] {
        let mut pairs = Vec::new();
        for pair in 0..PAIRS {
            let mut taken = [0.0; 2];
            // Each is first in every other pair.
            for with in [pair % 2, 1 - pair % 2] {
                let asked = if with == 1 {
                    let others = child("0", &["ask", &address])?;
                    said(child("19", &["upload", &address, path, count, seconds])?).await?;
                    said(others).await?
                } else {
                    ask_alone(&address, TIME).await?
                };
                taken[with] = asked.rsplit(' ').next().ok_or("no answer")?.parse()?;
            }
            pairs.push(taken);
        }
        let median = |with: usize| {
            let mut all: Vec<f64> = pairs.iter().map(|pair| pair[with]).collect();
            cost::quartile(&mut all, 2)
        };
        let mut ratios: Vec<f64> = pairs.iter().map(|[without, with]| with / without).collect();
        let [low, ratio, high] = [1, 2, 3].map(|quarter| cost::quartile(&mut ratios, quarter));
        let (without, with) = (median(0), median(1));
        println!(
            "| {path} | {without:.2} | {with:.2} | {ratio:.2} | {low:.2} to {high:.2} | {ratios:.2?} |"
        );
    }
    Ok(())
}
