//! The time of a body with the layer, beside the same body without it: elapsed, and that of all CPUs, client included.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;

use bursar::{Limits, Memory};
use bursar_tower::BodyLayer;
use tokio::time::Instant;

use crate::{Result, listen, policy, routes, tenants};

const PAIRS: usize = 400;
/// MiB that the requests of one turn send, about.
const TURN_MIB: usize = 20;

/// Turns alternate between the servers, and a ratio is taken within each pair. Each turn has a connection of its own, because hyper
/// chooses the size of reads by what the connection has seen.
pub(crate) async fn show(mib: NonZero<usize>) -> Result<()> {
    let memory = Memory::builder().ticker(true).build()?;
    let acme = memory.root().child("acme", Limits::max(256 << 20))?;
    let without = routes().layer(tenants(&acme, &acme));
    let with = routes()
        .layer(BodyLayer::new(policy))
        .layer(tenants(&acme, &acme));
    let servers = [listen(without).await?, listen(with).await?];
    println!("| body of {mib} MiB | time | without, us | with, us | ratio, median | quartiles |");
    println!("|---|---|---|---|---|---|");
    for path in ["/count", "/keep", "/collect"] {
        let line = tokio::task::spawn_blocking(move || compare(servers, path, mib)).await??;
        println!("{line}");
    }
    Ok(())
}

/// CPU time that all threads of the process have taken, seconds.
fn cpu_time() -> Result<f64> {
    let mut taken = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let schedstat = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let first = schedstat.split(' ').next().ok_or("schedstat")?;
        taken += first.parse::<f64>()? / 1e9;
    }
    Ok(taken)
}

/// One turn: seconds that a request took, elapsed and of CPUs.
fn turn(server: SocketAddr, request: &[u8], mib: NonZero<usize>) -> Result<[f64; 2]> {
    let requests = (TURN_MIB / mib).max(1);
    let mut stream = TcpStream::connect(server)?;
    let end = format!("\r\n\r\n{}", mib.get() << 20);
    let (began, before) = (Instant::now(), cpu_time()?);
    for _ in 0..requests {
        stream.write_all(request)?;
        let (mut answer, mut part) = (Vec::new(), [0; 512]);
        while !answer.ends_with(end.as_bytes()) {
            let read = stream.read(&mut part)?;
            answer.extend(&part[..read]);
            if read == 0 {
                return Err("no answer".into());
            }
        }
    }
    let taken = [began.elapsed().as_secs_f64(), cpu_time()? - before];
    Ok(taken.map(|taken| taken / requests as f64))
}

pub(crate) fn quartile(values: &mut [f64], quarter: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * quarter / 4]
}

fn compare(servers: [SocketAddr; 2], path: &str, mib: NonZero<usize>) -> Result<String> {
    let length = mib.get() << 20;
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    let request = [head.as_bytes(), &vec![7; length]].concat();
    let mut pairs = Vec::new();
    for pair in 0..PAIRS {
        // Each is first in every other pair.
        let first = pair % 2;
        let mut taken = [[0.0; 2]; 2];
        for server in [first, 1 - first] {
            taken[server] = turn(servers[server], &request, mib)?;
        }
        pairs.push(taken);
    }
    let rows = ["elapsed", "of CPUs"].iter().enumerate().map(|(kind, name)| {
        let of = |server: usize| pairs.iter().map(move |pair| pair[server][kind]).collect::<Vec<_>>();
        let [without, with] = [of(0), of(1)].map(|mut times| quartile(&mut times, 2) * 1e6);
        let mut ratios: Vec<f64> = pairs.iter().map(|pair| pair[1][kind] / pair[0][kind]).collect();
        let [low, ratio, high] = [1, 2, 3].map(|quarter| quartile(&mut ratios, quarter));
        format!("| {path} | {name} | {without:.0} | {with:.0} | {ratio:.3} | {low:.3} to {high:.3} |")
    });
    Ok(rows.collect::<Vec<_>>().join("\n"))
}
