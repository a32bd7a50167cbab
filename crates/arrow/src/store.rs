//! Object stores whose bytes in flight are charged.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bursar::{Charge, Group};
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, Result,
};

use crate::meter::{Meter, OnRefusal};
use crate::upload::Upload;

/// Piece in which a file is read for a stream, bytes. Judgement: the stream of `object_store` itself reads 8 KiB on another thread each time.
const PIECE: u64 = 1 << 20;

/// Largest range that is fetched in one piece, bytes. Judgement: a reader that splits a file among its workers asks for ranges of any size, and streams them.
const WHOLE: u64 = 8 << 20;

/// A store whose bytes are charged to a group while they are in flight, and while the reader has them.
///
/// | request | charged | until |
/// |---|---|---|
/// | `get_ranges` | all of its bytes at once, before they are fetched | the last clone or slice of each range is dropped |
/// | `get_range`, or another bounded range, of at most 8 MiB | its bytes, before they are fetched, in one piece | that of the piece |
/// | a larger range, an open one, a whole object | each piece of the stream, when it is there; a file's before it is read | that of the piece |
/// | `put`, a part of an upload | its bytes, before they are sent | the request ends |
///
/// Nothing is copied: a [`Bytes`] has its charge as part of its owner. But `get_range` and [`GetResult::bytes`] copy an answer of several pieces, and that copy
/// is charged to nobody. `get_ranges` never does. A store that merges near ranges also holds the gaps between them, which are at most 1 MiB each, and are not charged.
///
/// A refusal is [`object_store::Error::Generic`] with the [`ChargeError`](bursar::ChargeError) as its source. All other requests, and all other errors, are the store's.
///
/// ```
/// # use std::sync::Arc;
/// use bursar::{Freshness, Limits, Memory};
/// use bursar_arrow::{ChargedStore, OnRefusal};
/// use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Memory::host()?;
/// let group = memory.root().child("scans", Limits::max(1 << 20))?;
/// let store = ChargedStore::new(Arc::new(InMemory::new()), &group, OnRefusal::Fail);
/// store.put(&Path::from("object"), vec![0; 1000].into()).await?;
/// let bytes = store.get_range(&Path::from("object"), 0..300).await?;
/// assert_eq!(group.read(Freshness::Exact)?.usage_bytes(), 300);
/// # drop(bytes);
/// # Ok(())
/// # }
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "object_store")))]
#[derive(Clone)]
pub struct ChargedStore {
    store: Arc<dyn ObjectStore>,
    meter: Meter,
}

impl ChargedStore {
    /// Charges the bytes of `store` to `group`.
    pub fn new(store: Arc<dyn ObjectStore>, group: &Group, on_refusal: OnRefusal) -> Self {
        let group = group.clone();
        let meter = Meter { group, on_refusal };
        Self { store, meter }
    }
}

/// Bytes that return their charge with the last clone.
struct Held {
    // Dropped first: its bytes are free before they are returned.
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn held(bytes: Bytes, charge: Charge) -> Bytes {
    Bytes::from_owner(Held {
        bytes,
        _charge: charge,
    })
}

fn length(range: &Range<u64>) -> u64 {
    range.end.saturating_sub(range.start)
}

/// All of an answer as one piece, charged before it is fetched.
async fn piece(meter: Meter, answer: GetResult) -> Result<Bytes> {
    let charge = meter.charge(length(&answer.range)).await?;
    Ok(held(answer.bytes().await?, charge))
}

/// A range of an open file, in pieces.
fn file_pieces(
    meter: Meter,
    file: File,
    path: PathBuf,
    meta: ObjectMeta,
    range: Range<u64>,
) -> BoxStream<'static, Result<Bytes>> {
    let read = stream::try_unfold((range.start, file), move |(start, file)| {
        let end = range.end.min(start.saturating_add(PIECE));
        let (meter, path, meta) = (meter.clone(), path.clone(), meta.clone());
        async move {
            if start >= end {
                return Ok(None);
            }
            let same = file
                .try_clone()
                .map_err(|error| object_store::Error::Generic {
                    store: "bursar",
                    source: Box::new(error),
                })?;
            let answer = GetResult {
                payload: GetResultPayload::File(same, path),
                meta,
                range: start..end,
                attributes: Attributes::default(),
            };
            Ok(Some((piece(meter, answer).await?, (end, file))))
        }
    });
    read.boxed()
}

/// Each piece of a stream, charged as it comes.
fn pieces(
    meter: Meter,
    stream: BoxStream<'static, Result<Bytes>>,
) -> BoxStream<'static, Result<Bytes>> {
    let charged = stream.and_then(move |bytes| {
        let meter = meter.clone();
        async move {
            let charge = meter.charge(bytes.len() as u64).await?;
            Ok(held(bytes, charge))
        }
    });
    charged.boxed()
}

#[async_trait]
impl ObjectStore for ChargedStore {
    async fn put_opts(
        &self,
        to: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let _charge = self.meter.charge(payload.content_length() as u64).await?;
        self.store.put_opts(to, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.store.put_multipart_opts(to, options).await?;
        Ok(Box::new(Upload::new(upload, self.meter.clone())))
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        let is_bounded = matches!(options.range, Some(GetRange::Bounded(_)));
        let answer = self.store.get_opts(from, options).await?;
        if is_head {
            return Ok(answer);
        }
        let meter = self.meter.clone();
        let (meta, range) = (answer.meta.clone(), answer.range.clone());
        let attributes = answer.attributes.clone();
        let charged = match answer.payload {
            _ if is_bounded && length(&range) <= WHOLE => {
                stream::once(piece(meter, answer)).boxed()
            }
            GetResultPayload::File(file, path) => {
                file_pieces(meter, file, path, answer.meta, answer.range)
            }
            GetResultPayload::Stream(stream) => pieces(meter, stream),
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(charged),
            meta,
            range,
            attributes,
        })
    }

    async fn get_ranges(&self, from: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = ranges.iter().map(length).fold(0, u64::saturating_add);
        let mut charge = self.meter.charge(bytes).await?;
        let fetched = self.store.get_ranges(from, ranges).await?;
        let fetched = fetched.into_iter().map(|bytes| {
            // A store may return less than was asked for at the end of an object, and never more.
            let part = charge.split(bytes.len() as u64);
            part.map_or(bytes.clone(), |part| held(bytes, part))
        });
        Ok(fetched.collect())
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.store.rename_opts(from, to, options).await
    }
}

impl fmt::Debug for ChargedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargedStore")
            .field("store", &self.store)
            .field("group", &self.meter.group.path())
            .field("on_refusal", &self.meter.on_refusal)
            .finish()
    }
}

impl fmt::Display for ChargedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} charged to {}", self.store, self.meter.group.path())
    }
}
