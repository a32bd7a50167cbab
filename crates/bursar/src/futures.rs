//! Futures: charges that wait for memory, changes of pressure, groups that become empty. They need no runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use bursar_machine::{Event, Host, Machine};

use crate::charge::Charge;
use crate::group::Group;
use crate::react::slow_charge;
use crate::react::wait::Ticket;
use crate::react::{ChargeError, Level, lifetime, pressure};

/// A charge that waits for its turn and for memory; see [`Group::charge_async`]. Dropping it cancels the charge.
///
/// A wait that is dropped before it is served leaves a trace as a refusal does: [`Events::gave_up`](crate::Events::gave_up) counts it,
/// [`Memory::refusals`](crate::Memory::refusals) keeps it, and the feature `tracing` tells it. [`ChargeAsync::give_up`] also returns the
/// reason.
///
/// # Panics
/// If polled after it was ready. If a reclaimer that the poll asks panics; the future may be polled again then.
#[must_use = "a future does nothing unless it is polled"]
pub struct ChargeAsync<M: Machine = Host> {
    group: Group<M>,
    bytes: u64,
    ticket: Ticket,
    is_done: bool,
}

impl<M: Machine> ChargeAsync<M> {
    pub(crate) fn new(group: Group<M>, bytes: u64) -> Self {
        let ticket = Ticket::new(group.index(), bytes);
        Self {
            group,
            bytes,
            ticket,
            is_done: false,
        }
    }

    /// Gives up waiting, and returns the limit in the way at this moment and the users of its memory, as a refusal does. For a
    /// wait that a timeout ended. If the charge would fit by now, the error names the limit that it waited for.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Waker};
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::builder().max(64 << 20).build()?;
    /// let acme = memory.root().child("acme", Limits::none())?;
    /// let umbrella = memory.root().child("umbrella", Limits::none())?;
    /// let held = umbrella.try_charge(60 << 20)?;
    /// let mut waiting = acme.charge_async(10 << 20);
    /// # assert!(pin!(&mut waiting).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// // timeout(patience, &mut waiting).await has elapsed
    /// assert_eq!(
    ///     waiting.give_up().to_string(),
    ///     "cannot charge 10.0 MiB to /acme: / uses 60.0 MiB of 64.0 MiB; largest below it: umbrella 60.0 MiB",
    /// );
    /// assert_eq!((acme.events().gave_up, memory.refusals().len()), (1, 1));
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A second wait behind the same limit within 100 ms is counted, and not kept. A future that was never polled has no
    /// place in a queue. Giving it up counts too.
    pub fn give_up(mut self) -> ChargeError {
        slow_charge::give_up(self.group.core(), &mut self.ticket)
    }
}

impl<M: Machine> fmt::Debug for ChargeAsync<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargeAsync")
            .field("group", &self.group)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

// Nothing here is pinned: the queue holds a waker and a number.
impl<M: Machine> Unpin for ChargeAsync<M> {}

impl<M: Machine> Future for ChargeAsync<M> {
    type Output = Result<Charge<M>, ChargeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(!this.is_done, "polled after it was ready");
        let charged = if this.bytes == 0 {
            lifetime::pin(this.group.core(), this.group.index())
        } else {
            ready!(slow_charge::poll_charge(
                this.group.core(),
                &mut this.ticket,
                context.waker()
            ))
        };
        this.is_done = true;
        Poll::Ready(charged.map(|()| Charge::new(&this.group, this.bytes).sampled()))
    }
}

impl<M: Machine> Drop for ChargeAsync<M> {
    fn drop(&mut self) {
        if self.ticket.is_queued() {
            slow_charge::give_up(self.group.core(), &mut self.ticket);
        }
    }
}

/// A change of a group's level of pressure that a task waits for; see [`Group::pressure_changed`].
pub(crate) struct PressureChanged<M: Machine> {
    pub(crate) group: Group<M>,
    pub(crate) from: Level,
    pub(crate) number: Option<u64>,
}

impl<M: Machine> fmt::Debug for PressureChanged<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PressureChanged")
            .field("group", &self.group)
            .field("from", &self.from)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Unpin for PressureChanged<M> {}

impl<M: Machine> Future for PressureChanged<M> {
    type Output = Level;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Level> {
        let this = &mut *self;
        let (core, index) = (this.group.core(), this.group.index());
        match pressure::poll_pressure(core, index, this.from, &mut this.number, context.waker()) {
            Some(level) => Poll::Ready(level),
            None => Poll::Pending,
        }
    }
}

impl<M: Machine> Drop for PressureChanged<M> {
    fn drop(&mut self) {
        let (core, index) = (self.group.core(), self.group.index());
        pressure::stop_waiting(core, index, &mut self.number);
    }
}

/// The return of a removed group's last byte, which a task waits for; see [`Group::emptied`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Emptied<M: Machine = Host> {
    pub(crate) group: Group<M>,
    pub(crate) number: Option<u64>,
}

impl<M: Machine> fmt::Debug for Emptied<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Emptied").field(&self.group).finish()
    }
}

impl<M: Machine> Unpin for Emptied<M> {}

impl<M: Machine> Future for Emptied<M> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let (core, index) = (this.group.core(), this.group.index());
        match pressure::poll_emptied(core, index, &mut this.number, context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl<M: Machine> Drop for Emptied<M> {
    fn drop(&mut self) {
        let (core, index) = (self.group.core(), self.group.index());
        pressure::stop_waiting(core, index, &mut self.number);
    }
}

/// Wakes a thread that waits.
struct Woken<M: Machine>(M::Event);

impl<M: Machine> Wake for Woken<M> {
    fn wake(self: Arc<Self>) {
        self.0.set();
    }
}

impl<M: Machine> Emptied<M> {
    /// Blocks the thread until the group is removed and empty.
    pub fn wait(mut self) {
        loop {
            // An event happens once.
            let woken = Arc::new(Woken::<M>(M::Event::new()));
            let waker = Waker::from(woken.clone());
            if Pin::new(&mut self)
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
            {
                return;
            }
            woken.0.wait();
        }
    }
}
