//! Uploads in parts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};

use crate::meter::Meter;

/// An upload whose parts are charged until they are sent.
pub(crate) struct Upload {
    upload: Box<dyn MultipartUpload>,
    meter: Meter,
    // Whether a part was refused. Some stores would complete the object without it.
    lacks_part: Arc<AtomicBool>,
}

impl Upload {
    pub(crate) fn new(upload: Box<dyn MultipartUpload>, meter: Meter) -> Self {
        Self {
            upload,
            meter,
            lacks_part: Arc::default(),
        }
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        // At once: the bytes are there before the part is polled.
        let bytes = data.content_length() as u64;
        let first = self.meter.group.try_charge(bytes);
        // In the order of the calls, which numbers the parts. Nothing is sent before it is polled.
        let part = self.upload.put_part(data);
        let (meter, lacks_part) = (self.meter.clone(), self.lacks_part.clone());
        Box::pin(async move {
            let charge = meter.or_wait(first, bytes).await;
            // Relaxed: the caller completes the upload after it has seen this part's error, which orders the two.
            let charge = charge.inspect_err(|_| lacks_part.store(true, Ordering::Relaxed))?;
            let sent = part.await;
            drop(charge);
            sent
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        // Relaxed: see `put_part`.
        if self.lacks_part.load(Ordering::Relaxed) {
            return Err(object_store::Error::Generic {
                store: "bursar",
                source: "cannot complete the upload: a part was refused; abort it".into(),
            });
        }
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.upload.fmt(f)
    }
}
