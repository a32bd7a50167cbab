//! Three workers: in this process, or as processes on loopback.

use std::error::Error;
use std::process::Stdio;

use clap::ValueEnum;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use url::Url;

use crate::worker::{Kind, Node, Row};

pub const WORKERS: [&str; 3] = ["w1", "w2", "w3"];

pub enum Cluster {
    Here(Vec<Node>, Vec<Url>),
    Processes(Vec<Process>),
}

pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    url: Url,
}

fn url(port: u16) -> Url {
    Url::parse(&format!("http://127.0.0.1:{port}")).expect("it is one")
}

impl Cluster {
    pub async fn start(kind: Kind, as_processes: bool) -> Result<Self, Box<dyn Error>> {
        if as_processes {
            let mut processes = Vec::new();
            for name in WORKERS {
                processes.push(Process::start(name, kind).await?);
            }
            return Ok(Self::Processes(processes));
        }
        let (mut nodes, mut urls) = (Vec::new(), Vec::new());
        for name in WORKERS {
            let node = Node::new(name, kind)?;
            urls.push(url(node.serve().await?.port()));
            nodes.push(node);
        }
        Ok(Self::Here(nodes, urls))
    }

    pub fn urls(&self) -> Vec<Url> {
        match self {
            Self::Here(_, urls) => urls.clone(),
            Self::Processes(processes) => processes.iter().map(|it| it.url.clone()).collect(),
        }
    }

    /// Kills the last worker, as a machine dies. `false` if the workers are in this process.
    pub async fn kill_last(&mut self) -> Result<bool, Box<dyn Error>> {
        match self {
            Self::Here(..) => Ok(false),
            Self::Processes(processes) => {
                let mut last = processes.pop().ok_or("no worker")?;
                last.child.kill().await?;
                Ok(true)
            }
        }
    }

    /// Ends the workers that live. Returns their queries, and the bytes that are still reserved on any of them.
    pub async fn end(self) -> Result<(Vec<Row>, u64), Box<dyn Error>> {
        let (mut rows, mut left) = (Vec::new(), 0);
        match self {
            Self::Here(nodes, _) => {
                for node in nodes {
                    left += node.settle().await;
                    rows.extend(node.rows());
                }
            }
            Self::Processes(processes) => {
                for process in processes {
                    left += process.end(&mut rows).await?;
                }
            }
        }
        Ok((rows, left))
    }
}

impl Process {
    async fn start(name: &str, kind: Kind) -> Result<Self, Box<dyn Error>> {
        let kind = kind.to_possible_value().ok_or("each kind has a name")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["worker", name, kind.get_name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let port = lines.next_line().await?.ok_or("the worker has ended")?;
        Ok(Self {
            child,
            lines,
            url: url(port.parse()?),
        })
    }

    async fn end(mut self, rows: &mut Vec<Row>) -> Result<u64, Box<dyn Error>> {
        // The end of its input ends it.
        drop(self.child.stdin.take());
        let mut left = 0;
        while let Some(line) = self.lines.next_line().await? {
            let cells: Vec<&str> = line.split('\t').collect();
            match cells[..] {
                [worker, path, peak, spills, refused] => rows.push(Row {
                    worker: worker.to_owned(),
                    path: path.to_owned(),
                    peak: peak.parse()?,
                    spills: spills.parse()?,
                    refused: refused.parse()?,
                }),
                [reserved] => left = reserved.parse()?,
                _ => return Err(format!("a worker says {line:?}").into()),
            }
        }
        self.child.wait().await?;
        Ok(left)
    }
}

/// A worker's process: prints its port, serves until its input ends, and prints what its queries used.
pub async fn work(name: &str, kind: Kind) -> Result<(), Box<dyn Error>> {
    let node = Node::new(name, kind)?;
    println!("{}", node.serve().await?.port());
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await?;
    let left = node.settle().await;
    for row in node.rows() {
        println!(
            "{}\t{}\t{}\t{}\t{}",
            row.worker, row.path, row.peak, row.spills, row.refused
        );
    }
    println!("{left}");
    Ok(())
}
