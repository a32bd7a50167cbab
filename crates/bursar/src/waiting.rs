//! Futures: charges that wait for memory, changes of pressure, groups that become empty. They need no runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use bursar_machine::{Event, Host, Machine};

use crate::group::Group;
use crate::held::Charge;
use crate::react::wait::Ticket;
use crate::react::{ChargeError, Level, Pressure, charge, pressure, wait};

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
            this.group.pin()
        } else {
            ready!(charge::poll_charge(
                this.group.core(),
                &mut this.ticket,
                context.waker()
            ))
        };
        this.is_done = true;
        Poll::Ready(charged.map(|()| this.group.hold(this.bytes)))
    }
}

impl<M: Machine> Drop for ChargeAsync<M> {
    fn drop(&mut self) {
        wait::leave(self.group.core(), &mut self.ticket);
    }
}

/// A change of a group's level of pressure that a task waits for; see [`Group::pressure_changed`].
#[must_use = "a future does nothing unless it is polled"]
pub struct PressureChanged<M: Machine = Host> {
    group: Group<M>,
    from: Level,
    number: Option<u64>,
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
    group: Group<M>,
    number: Option<u64>,
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

/// # Waiting
impl<M: Machine> Group<M> {
    /// Waits until the group is removed and empty: no byte is charged to it or to any group that is or was below it. Then
    /// [`Group::reserved`] is 0. Call it after [`Group::close`] or [`Group::remove`]. If called before, it also waits for the removal. For
    /// the root it never ends. It keeps the group like a handle.
    ///
    /// All charges count: [`Charge`]s, pages, reserves, and allocations that `bursar_alloc` charged to the group, wherever they
    /// are now. Stock does not count, because a removed group has none. Handles do not count, nor do charges of 0 bytes.
    /// The future does not wait for an infallible charge that comes after the end. Statistics may lag behind: an update or a return that runs
    /// in another thread at this moment may be missing from a [`Group::read`].
    ///
    /// The future is `Send + 'static` and needs no runtime; [`Emptied::wait`] blocks instead. Some returns wake no task: those
    /// of [`Charge::release_nowait`] and frees of `bursar_alloc`. Then the next other charge or return wakes it, or
    /// [`crate::Memory::tick`]. So have a ticker ([`crate::Builder::ticker`]).
    #[must_use = "a future does nothing unless it is polled"]
    pub fn emptied(&self) -> Emptied<M> {
        Emptied {
            group: self.clone(),
            number: None,
        }
    }

    /// Charges `bytes`, and waits if necessary until memory is returned or a limit is raised.
    ///
    /// Waiting charges are served in the order of their first polls. A small charge does not pass a larger one that waits for
    /// the same limit. [`Group::try_charge`] does not wait, and may pass. Dropping the future cancels the charge: nothing is
    /// charged, and the next one has its turn.
    ///
    /// A poll may block for a short time while stock is taken back, like [`Group::try_charge`]. It also runs reclaimers. If the poll
    /// must not block, no reclaimer may block. Above a `high` no poll sleeps; the debt is left for [`Group::take_debt`].
    ///
    /// The future is `Send + 'static` and needs no runtime. There are two hazards. Tasks that hold charges while they wait for
    /// more may deadlock: put a timeout around the future, and spill when it ends. And a future that was polled must be
    /// dropped, or polled again when it is woken; otherwise it blocks the charges behind it.
    ///
    /// # Errors
    /// [`ChargeError`] if waiting cannot help: the charge is larger than the limit in its way, or the group was removed or closed.
    #[must_use = "a future does nothing unless it is polled"]
    pub fn charge_async(&self, bytes: u64) -> ChargeAsync<M> {
        ChargeAsync {
            group: self.clone(),
            bytes,
            ticket: Ticket::new(self.index(), bytes),
            is_done: false,
        }
    }

    /// Pressure on the group: by its own limits, and by the stalls of tasks that charge the group or groups below.
    ///
    /// Limits of an ancestor do not count. Read the pressure of the ancestor for these.
    #[doc(alias = "memory.pressure")]
    pub fn pressure(&self) -> Pressure {
        pressure::now(self.core(), self.index())
    }

    /// Waits until the level of pressure differs from `from`, and returns it.
    ///
    /// Levels by usage change with charges and returns. Levels by stall fall with time, and only [`crate::Memory::tick`] or a
    /// ticker ([`crate::Builder::ticker`]) wakes a task for that.
    #[must_use = "a future does nothing unless it is polled"]
    pub fn pressure_changed(&self, from: Level) -> PressureChanged<M> {
        PressureChanged {
            group: self.clone(),
            from,
            number: None,
        }
    }
}
