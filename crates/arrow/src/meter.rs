//! Charges of object stores, and what follows a refusal.

use std::time::Duration;

use bursar::{Charge, ChargeError, Group};
use object_store::Result;

/// Answer of a [`ChargedStore`](crate::ChargedStore) to a refused charge.
#[cfg_attr(docsrs, doc(cfg(feature = "object_store")))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnRefusal {
    /// The request fails at once. A scan of DataFusion passes the error on, so its query fails.
    #[default]
    Fail,
    /// The request waits for memory, and fails if there is none in time. It needs tokio's timer. A stream may wait for bytes that its own reader holds: the
    /// time ends that.
    Wait(Duration),
}

/// A group, and what to do when it refuses.
#[derive(Clone)]
pub(crate) struct Meter {
    pub(crate) group: Group,
    pub(crate) on_refusal: OnRefusal,
}

impl Meter {
    /// Charges `bytes`, or waits for them, if it may.
    pub(crate) async fn charge(&self, bytes: u64) -> Result<Charge> {
        self.or_wait(self.group.try_charge(bytes), bytes).await
    }

    /// Waits, if it may, after the first attempt to charge `bytes` was refused.
    pub(crate) async fn or_wait(
        &self,
        first: Result<Charge, ChargeError>,
        bytes: u64,
    ) -> Result<Charge> {
        let charged = match (first, self.on_refusal) {
            (Err(ChargeError::LimitReached(_)), OnRefusal::Wait(patience)) => {
                // One that never fits is refused here at once.
                let mut waiting = self.group.charge_async(bytes);
                match tokio::time::timeout(patience, &mut waiting).await {
                    Ok(charged) => charged,
                    Err(_) => Err(waiting.give_up()),
                }
            }
            (first, _) => first,
        };
        charged.map_err(refused)
    }
}

fn refused(error: ChargeError) -> object_store::Error {
    object_store::Error::Generic {
        store: "bursar",
        source: Box::new(error),
    }
}
