//! Bodies whose chunks are paid for before they are handed on.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bursar_alloc::outside;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::body_error::BodyError;
use crate::body_policy::STEP_BYTES;
use crate::pace::Pace;
use crate::purse::{Paid, Purse, Reserve};

/// Any error, as axum, hyper and tonic take it.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A chunk of fewer bytes is copied: it would keep the whole buffer that it was read into, which nobody pays for. As large as the first buffer
/// of an HTTP/1 connection of hyper.
const COPIED_MAX: usize = 8 << 10;
/// A longer body is not put together. glibc keeps freed blocks of megabytes in each of its arenas, so the bodies of a tenant would take more
/// memory than it may have. Up to here one block saves the handler's own copy. `uploads full` and `uploads cost` show both.
const WHOLE_MAX: u64 = 1 << 20;
/// Bytes that the blocks of a chunk take beside its data, about. A body whose chunks are shorter on average pays for them.
const CHUNK_MIN: u64 = 256;
/// Short chunks that a body may begin with.
const SHORT_CHUNKS: u64 = 16;

pin_project! {
    /// A request's body. Each chunk is charged to the request's group before it is handed on, until its last [`Bytes`] is dropped.
    ///
    /// While the memory is not there, the body reads nothing. So the connection reads nothing either, and TCP or HTTP/2 holds the
    /// client back. A handler that gives up such a read, as by a timeout, must read on soon or drop the body: it keeps its place in the queue, and
    /// others behind it wait. The answer's future ends that after the policy's patience, if the task that polls it also read the body.
    ///
    /// A body of up to 1 MiB that was reserved whole is handed on as one chunk, once all of it is there. Otherwise chunks are copied: those of
    /// up to 8 KiB, and under [`crate::BodyPolicy::buffered`] all. If they have fewer than 256 bytes on average, each is charged as 256.
    ///
    /// Its error is that of the inner body, or a [`crate::BodyError`].
    pub struct ChargedBody<B> {
        #[pin]
        body: B,
        // None for a body that is not charged.
        intake: Option<Intake>,
    }
}

/// State of a body that is charged.
struct Intake {
    purse: Arc<Purse>,
    reserve: Reserve,
    /// The body so far, if it is handed on as one.
    whole: Option<Whole>,
    /// Bytes that were read and are not paid for.
    unpaid: Bytes,
    /// Trailers that were read before the body was handed on.
    trailers: Option<Frame<Bytes>>,
    /// Whether the inner body has ended.
    is_over: bool,
    /// Bytes by which the chunks so far exceed [`CHUNK_MIN`] each. TCP cuts pieces of any size, so single short chunks cost nothing: a body that
    /// was reserved whole has no bytes for them.
    spare: u64,
    pace: Pace,
}

/// A body that is put together. A handler that collects it then finds one chunk, and need not copy it.
struct Whole {
    data: Vec<u8>,
    /// The body's length, as its head says.
    length: usize,
}

impl Whole {
    /// Appends bytes, unless they exceed the body's length, or there is no memory for all of it.
    fn append(&mut self, data: &[u8]) -> bool {
        if data.len() > self.length - self.data.len() {
            return false;
        }
        // Paid for already, so not counted by the allocator as well.
        if self.data.capacity() == 0
            && outside(|| self.data.try_reserve_exact(self.length)).is_err()
        {
            return false;
        }
        self.data.extend_from_slice(data);
        true
    }
}

/// The owner of a chunk.
struct Chunk<D> {
    data: D,
    // It goes after the data.
    _paid: Paid,
}

impl<D: AsRef<[u8]>> AsRef<[u8]> for Chunk<D> {
    fn as_ref(&self) -> &[u8] {
        self.data.as_ref()
    }
}

impl Intake {
    /// Pays for the first of the bytes that were read, and hands these on.
    fn poll_pay(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        let length = self.unpaid.len() as u64;
        let short_of = CHUNK_MIN.saturating_sub(length);
        let cost = length + short_of.saturating_sub(self.spare);
        let (paid, bytes) = match self.reserve.take(cost, context) {
            Some(taken) => taken,
            None => {
                let bytes = cost.min(STEP_BYTES);
                let charge = ready!(self.purse.poll_chunk(bytes, context))?;
                (Paid::Charge { _charge: charge }, bytes)
            }
        };
        self.purse.stop_waiting();
        let length = usize::try_from(bytes.min(length)).unwrap_or(self.unpaid.len());
        self.spare = (self.spare + length as u64).saturating_sub(CHUNK_MIN);
        let data = self.unpaid.split_to(length);
        // A handler that holds its chunks until the body ends would keep the buffers of all.
        let is_held = !matches!(self.reserve, Reserve::Window(_));
        // Paid for already, so not counted by the allocator as well.
        Poll::Ready(Ok(outside(|| {
            let data = match is_held || length <= COPIED_MAX {
                true => Bytes::copy_from_slice(&data),
                false => data,
            };
            Bytes::from_owner(Chunk { data, _paid: paid })
        })))
    }

    /// Hands on what was put together; `None` if that is nothing.
    fn hand_on(&mut self, context: &Context<'_>) -> Option<Bytes> {
        let data = self.whole.take()?.data;
        // It was reserved, and nothing else takes from it meanwhile.
        let (paid, _) = self.reserve.take(data.len() as u64, context)?;
        Some(outside(|| Bytes::from_owner(Chunk { data, _paid: paid })))
    }

    /// Passes a chunk to the handler. Behind the last one nothing stays reserved.
    fn pass<T>(&mut self, data: Bytes, is_end: bool) -> Poll<Option<Result<Frame<Bytes>, T>>> {
        if is_end && self.unpaid.is_empty() {
            self.release();
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    /// Gives back what is reserved.
    fn release(&mut self) {
        self.reserve = Reserve::Spent;
        self.whole = None;
        self.unpaid = Bytes::new();
        self.purse.stop_waiting();
    }

    /// Bytes that were read and will be handed on together.
    fn gathered(&self) -> usize {
        self.whole.as_ref().map_or(0, |whole| whole.data.len())
    }

    fn fail<T>(&mut self, error: BodyError) -> Poll<Option<Result<T, BoxError>>> {
        self.release();
        // The first one counts.
        let _ = self.purse.ended.set(error.clone());
        Poll::Ready(Some(Err(error.into())))
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.purse.stop_waiting();
    }
}

impl<B> ChargedBody<B> {
    pub(crate) fn uncharged(body: B) -> Self {
        Self { body, intake: None }
    }

    pub(crate) fn charged(body: B, purse: Arc<Purse>, reserve: Reserve) -> Self
    where
        B: Body,
    {
        let length = match &reserve {
            Reserve::Whole(_) => body.size_hint().exact(),
            Reserve::Window(_) | Reserve::Spent => None,
        };
        let length = length.filter(|&length| length <= WHOLE_MAX);
        let intake = Intake {
            purse,
            reserve,
            whole: length.map(|length| Whole {
                data: Vec::new(),
                length: length as usize,
            }),
            unpaid: Bytes::new(),
            trailers: None,
            is_over: false,
            spare: SHORT_CHUNKS * CHUNK_MIN,
            pace: Pace::default(),
        };
        Self {
            body,
            intake: Some(intake),
        }
    }
}

impl<B> fmt::Debug for ChargedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.intake.as_ref().map(|intake| &intake.purse.group);
        f.debug_struct("ChargedBody")
            .field("group", &group)
            .finish_non_exhaustive()
    }
}

impl<B> Body for ChargedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let Some(intake) = this.intake else {
            return this.body.poll_frame(context).map_err(Into::into);
        };
        if intake.purse.ended.get().is_some() {
            return Poll::Ready(None);
        }
        while intake.unpaid.is_empty() {
            if intake.is_over {
                intake.release();
                return Poll::Ready(None);
            }
            if let Some(trailers) = intake.trailers.take() {
                return Poll::Ready(Some(Ok(trailers)));
            }
            match this.body.as_mut().poll_frame(context) {
                Poll::Pending => {
                    return match intake.pace.wait(&intake.purse, context) {
                        Ok(()) => Poll::Pending,
                        Err(error) => intake.fail(error),
                    };
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if data.is_empty() && intake.whole.is_none() => {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                    Ok(data) => {
                        intake.pace.received(data.len());
                        if let Some(whole) = &mut intake.whole
                            && whole.append(&data)
                        {
                            if whole.data.len() < whole.length {
                                continue;
                            }
                        } else {
                            intake.unpaid = data;
                        }
                    }
                    Err(trailers) => intake.trailers = Some(trailers),
                },
                Poll::Ready(Some(Err(error))) => {
                    intake.release();
                    return Poll::Ready(Some(Err(error.into())));
                }
                // Perhaps it is shorter than its head said.
                Poll::Ready(None) => intake.is_over = true,
            }
            if let Some(data) = intake.hand_on(context) {
                return intake.pass(data, this.body.is_end_stream());
            }
        }
        let paid = ready!(intake.poll_pay(context));
        match paid {
            Ok(data) => intake.pass(data, this.body.is_end_stream()),
            Err(error) => intake.fail(error),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.intake {
            Some(intake) if !intake.unpaid.is_empty() || intake.gathered() > 0 => false,
            Some(Intake {
                trailers: Some(_), ..
            }) => false,
            _ => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if let Some(intake) = &self.intake {
            let unpaid = (intake.unpaid.len() + intake.gathered()) as u64;
            let (lower, upper) = (hint.lower(), hint.upper());
            hint = SizeHint::new();
            if let Some(upper) = upper {
                hint.set_upper(upper.saturating_add(unpaid));
            }
            hint.set_lower(lower.saturating_add(unpaid));
        }
        hint
    }
}
