//! Futures in groups.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bursar::Group;
use pin_project_lite::pin_project;

use super::current::{outside, within};
use super::record::Record;

pin_project! {
    /// A future that is in a group while it is polled and while it is dropped; see [`InGroupExt::in_group`].
    #[must_use = "futures do nothing unless polled"]
    pub struct InGroup<F> {
        // Before the group: what it allocated is returned first.
        #[pin]
        future: Option<F>,
        record: &'static Record,
        group: Group,
    }

    impl<F> PinnedDrop for InGroup<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            within(Some(*this.record), || this.future.set(None));
        }
    }
}

impl<F: fmt::Debug> fmt::Debug for InGroup<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InGroup")
            .field("future", &self.future)
            .field("group", &self.group)
            .finish()
    }
}

impl<F> InGroup<F> {
    /// Returns the group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the wrapped value: a future, or a stream or body that its owner polls in the group by
    /// [`InGroup::poll_with`].
    ///
    /// # Panics
    /// Never: the value exists until this is dropped.
    pub fn get_ref(&self) -> &F {
        self.future.as_ref().expect("there until the end")
    }

    /// Runs `poll` on the wrapped value, in the group. For streams, bodies and other traits that are polled.
    pub fn poll_with<R>(self: Pin<&mut Self>, poll: impl FnOnce(Pin<&mut F>) -> R) -> R {
        let this = self.project();
        let future = this.future.as_pin_mut().expect("there until the end");
        within(Some(*this.record), || poll(future))
    }
}

impl<F: Future> Future for InGroup<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.poll_with(|future| future.poll(context))
    }
}

/// Methods that put futures in groups.
pub trait InGroupExt: Sized {
    /// Charges the future's allocations to `group`, on any thread and executor, including those of its destructor.
    /// Between polls the threads are in the groups that they were in before. The result keeps a handle of the group.
    ///
    /// A task that the future spawns is not in the group, and must enter one itself. Bytes that the future allocated
    /// stay charged to the group until they are freed, including its output.
    ///
    /// ```
    /// # use std::alloc::System;
    /// # use bursar_alloc::Charged;
    /// # #[global_allocator]
    /// # static HEAP: Charged<System> = Charged::new(System);
    /// use bursar::{Freshness, Limits, Memory};
    /// use bursar_alloc::InGroupExt;
    ///
    /// # async fn fetch() -> Vec<u8> { vec![1; 1 << 20] }
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let memory = Memory::host()?;
    /// let request = memory.root().child("request", Limits::none())?;
    /// let body = fetch().in_group(&request).await;
    /// assert!(request.read(Freshness::Exact)?.usage().value >= 1 << 20);
    /// # drop(body);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn in_group(self, group: &Group) -> InGroup<Self>;
}

impl<F> InGroupExt for F {
    fn in_group(self, group: &Group) -> InGroup<Self> {
        InGroup {
            future: Some(self),
            record: outside(|| Record::of(group)),
            group: group.clone(),
        }
    }
}
