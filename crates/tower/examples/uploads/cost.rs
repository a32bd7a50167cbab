//! The time of a body with the layer, beside the same body without it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use bursar::{Limits, Memory};
use bursar_tower::BodyLayer;

use crate::{Result, listen, policy, routes, tenants};

const BODY_BYTES: usize = 1 << 20;
const PAIRS: usize = 400;
/// Requests of one turn.
const TURN: usize = 10;

/// Both servers have a connection each, and turns that alternate. A ratio is taken within each pair of turns.
pub(crate) async fn show() -> Result<()> {
    let memory = Memory::builder().ticker(true).build()?;
    let acme = memory.root().child("acme", Limits::max(256 << 20))?;
    let without = routes().layer(tenants(&acme, &acme));
    let with = routes()
        .layer(BodyLayer::new(policy))
        .layer(tenants(&acme, &acme));
    let servers = [listen(without).await?, listen(with).await?];
    println!("| body of 1 MiB | without, us | with, us | ratio, median | quartiles |");
    println!("|---|---|---|---|---|");
    for path in ["/count", "/keep"] {
        let line = tokio::task::spawn_blocking(move || compare(servers, path)).await??;
        println!("{line}");
    }
    Ok(())
}

fn compare(servers: [SocketAddr; 2], path: &str) -> Result<String> {
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
    let request = [head.as_bytes(), &vec![7; BODY_BYTES]].concat();
    let end = format!("\r\n\r\n{BODY_BYTES}");
    let mut streams = [
        TcpStream::connect(servers[0])?,
        TcpStream::connect(servers[1])?,
    ];
    let mut turn = |server: usize| -> Result<f64> {
        let began = Instant::now();
        for _ in 0..TURN {
            streams[server].write_all(&request)?;
            let (mut answer, mut part) = (Vec::new(), [0; 512]);
            while !answer.ends_with(end.as_bytes()) {
                let read = streams[server].read(&mut part)?;
                answer.extend(&part[..read]);
                if read == 0 {
                    return Err("no answer".into());
                }
            }
        }
        Ok(began.elapsed().as_secs_f64() / TURN as f64)
    };
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for pair in 0..PAIRS {
        // Each is first in every other pair.
        let first = pair % 2;
        let mut took = [0.0; 2];
        for server in [first, 1 - first] {
            took[server] = turn(server)?;
            times[server].push(took[server]);
        }
        ratios.push(took[1] / took[0]);
    }
    let quartile = |values: &mut Vec<f64>, quarter: usize| {
        values.sort_by(f64::total_cmp);
        values[(values.len() - 1) * quarter / 4]
    };
    let [without, with] = times.each_mut().map(|times| quartile(times, 2) * 1e6);
    let [low, ratio, high] = [1, 2, 3].map(|quarter| quartile(&mut ratios, quarter));
    Ok(format!(
        "| {path} | {without:.0} | {with:.0} | {ratio:.3} | {low:.3} to {high:.3} |"
    ))
}
