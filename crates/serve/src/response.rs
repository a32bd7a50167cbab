//! Answers, and their bytes.

use crate::request::{Refusal, Status};
use crate::tree::Tree;

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    status: Status,
    content_type: &'static str,
    body: Body,
}

/// Content after the head.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it.
    Text(Vec<u8>),
    /// Made piece by piece while it is sent.
    Tree(Box<Tree>),
}

/// An answer of [`crate::Pages`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Status of HTTP.
    pub status: u16,
    /// The header `Content-Type`.
    pub content_type: &'static str,
    /// All of the body. The tree of 10,000 groups takes some MiB.
    pub body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self {
            status: Status::Ok,
            content_type: "text/plain; charset=utf-8",
            body: Body::Text(text.into()),
        }
    }

    pub(crate) fn json(text: Vec<u8>) -> Self {
        Self {
            content_type: "application/json",
            ..Self::text(text)
        }
    }

    pub(crate) fn openmetrics(text: String) -> Self {
        Self {
            content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ..Self::text(text)
        }
    }

    pub(crate) fn tree(tree: Tree) -> Self {
        Self {
            status: Status::Ok,
            content_type: "application/json",
            body: Body::Tree(Box::new(tree)),
        }
    }

    /// Makes all of the answer at once.
    pub(crate) fn into_page(self) -> Page {
        let Self {
            status,
            content_type,
            mut body,
        } = self;
        let (mut all, mut piece) = (Vec::new(), Vec::new());
        loop {
            body.next_piece(&mut piece);
            if piece.is_empty() {
                break;
            }
            all.append(&mut piece);
        }
        Page {
            status: status.number(),
            content_type,
            body: all,
        }
    }

    /// Splits the answer into its head and its body.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Body) {
        let length = match &self.body {
            Body::Text(text) => format!("Content-Length: {}\r\n", text.len()),
            // It ends with the connection.
            Body::Tree(_) => String::new(),
        };
        let allow = match self.status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            Status::Unavailable => "Retry-After: 1\r\n",
            _ => "",
        };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\n{length}{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status.line(),
            self.content_type,
        );
        (head.into_bytes(), self.body)
    }
}

impl From<Refusal> for Response {
    fn from(Refusal { status, reason }: Refusal) -> Self {
        Self {
            status,
            ..Self::text(format!("{reason}\n"))
        }
    }
}

impl Body {
    /// Nothing.
    pub(crate) fn none() -> Self {
        Self::Text(Vec::new())
    }

    /// Bytes of memory that it holds, about.
    pub(crate) fn bytes_held(&self) -> usize {
        match self {
            Self::Text(text) => text.capacity(),
            Self::Tree(tree) => tree.bytes_held(),
        }
    }

    /// Puts the next piece into `piece`, which is empty. Leaves it empty at the end.
    pub(crate) fn next_piece(&mut self, piece: &mut Vec<u8>) {
        match self {
            Self::Text(text) => std::mem::swap(piece, text),
            Self::Tree(tree) => tree.next_piece(piece),
        }
    }
}
