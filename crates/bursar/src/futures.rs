//! Futures: charges that wait for memory, changes of pressure, groups that become empty. They need no runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use bursar_machine::{Event, Host, Machine};

use crate::charge::Charge;
use crate::group::Group;
use crate::react::charge as charging;
use crate::react::wait::Ticket;
use crate::react::{ChargeError, Level, lifetime, pressure, wait};

/// A charge that waits for its turn and for memory; see [`Group::charge_async`]. Dropping it cancels the charge.
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
            ready!(charging::poll_charge(
                this.group.core(),
                &mut this.ticket,
                context.waker()
            ))
        };
        this.is_done = true;
        Poll::Ready(charged.map(|()| Charge::of(&this.group, this.bytes).sampled()))
    }
}

impl<M: Machine> Drop for ChargeAsync<M> {
    fn drop(&mut self) {
        wait::leave(self.group.core(), &mut self.ticket);
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
