//! The client: one connection that is kept alive.

use std::net::SocketAddr;

use axum::body::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::server::TENANT;

/// Error between client and server.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A connection to the server.
pub struct Client {
    requests: SendRequest<Empty<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    /// Connects.
    pub async fn connect(server: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(server).await?;
        let (requests, connection) = handshake(TokioIo::new(stream)).await?;
        Ok(Self {
            requests,
            connection: tokio::spawn(connection),
        })
    }

    /// Asks for `path` on behalf of `tenant`, and takes the answer in frame by frame; returns its status and bytes.
    pub async fn get(&mut self, tenant: &str, path: &str) -> Result<(StatusCode, usize), Error> {
        self.requests.ready().await?;
        let request = Request::get(path)
            .header("host", "localhost")
            .header(TENANT, tenant);
        let sent = self.requests.send_request(request.body(Empty::new())?);
        let response = sent.await?;
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok((status, bytes))
    }

    /// Closes the connection, and waits until it is closed.
    pub async fn close(self) -> Result<(), Error> {
        drop(self.requests);
        Ok(self.connection.await??)
    }
}
