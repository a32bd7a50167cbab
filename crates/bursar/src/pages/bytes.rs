//! Bytes of a page.

use std::mem::MaybeUninit;

use bursar_machine::Machine;
use bursar_machine::pages::Frames;

use super::page::Page;

impl<M: Machine> Page<M> {
    /// The bytes, for writing. They may hold data that the group wrote earlier, never another group's.
    ///
    /// On a simulated machine a page has no bytes, here and below.
    pub fn uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        self.tag = self.tag.unreadable();
        let zone = self.core.pages.zone(self.tag.zone());
        let block = self.block.as_mut().expect("there until the page is gone");
        zone.frames.uninit(block)
    }

    /// The bytes.
    ///
    /// # Panics
    /// If they may be uninitialized: allocate with [`crate::pages::Zeroed::Yes`], or write them with [`Page::copy_from`],
    /// [`Page::zero`] or [`Page::init_with`].
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        self.check();
        let zone = self.core.pages.zone(self.tag.zone());
        let bytes = zone.frames.bytes(self.block());
        bytes.expect("initialized bytes stay initialized")
    }

    /// The bytes, to be changed.
    ///
    /// # Panics
    /// As [`Page::bytes`].
    #[track_caller]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.check();
        let zone = self.core.pages.zone(self.tag.zone());
        let block = self.block.as_mut().expect("there until the page is gone");
        let bytes = zone.frames.bytes_mut(block);
        bytes.expect("initialized bytes stay initialized")
    }

    /// Makes all bytes zero.
    pub fn zero(&mut self) {
        let zone = self.core.pages.zone(self.tag.zone());
        let block = self.block.as_mut().expect("there until the page is gone");
        zone.frames.zero(block);
        self.tag = self.tag.readable();
    }

    /// Initializes the bytes by `write`, which returns them to show that it did.
    ///
    /// ```
    /// # use bursar::pages::{Order, Zeroed};
    /// # let memory = bursar::Memory::host()?;
    /// let mut page = memory.alloc_pages(Order::ZERO, Zeroed::No)?;
    /// page.init_with(|bytes| bytes.write_copy_of_slice(&[7; 4096]));
    /// assert_eq!(page.bytes()[4095], 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If `write` returns fewer bytes, or others.
    #[track_caller]
    pub fn init_with(
        &mut self,
        write: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) {
        let zone = self.core.pages.zone(self.tag.zone());
        let block = self.block.as_mut().expect("there until the page is gone");
        // In case `write` panics half-way.
        self.tag = self.tag.unreadable();
        let all = zone.frames.init(block, write);
        assert!(
            all,
            "`write` must initialize all bytes of the page and no others"
        );
        self.tag = self.tag.readable();
    }

    /// Writes `bytes` to the beginning, and zeroes to the rest.
    ///
    /// # Panics
    /// If `bytes` is longer than the page.
    #[track_caller]
    pub fn copy_from(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len(), "more bytes than the page has");
        self.zero();
        if let Some(start) = self.bytes_mut().get_mut(..bytes.len()) {
            start.copy_from_slice(bytes);
        }
    }

    #[track_caller]
    fn check(&self) {
        assert!(
            self.tag.is_readable(),
            "the bytes of a page that was allocated with Zeroed::No are read before all were written"
        );
    }
}

#[cfg(feature = "bytes")]
mod frozen {
    use bytes::Bytes as Frozen;

    use super::*;

    /// A readable page, as the owner of a `Bytes`.
    struct Readable<M: Machine>(Page<M>);

    impl<M: Machine> AsRef<[u8]> for Readable<M> {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }

    impl<M: Machine> Page<M> {
        /// Turns the page into shared, immutable bytes without copying. The page returns when the last clone or slice
        /// of them is gone, and is charged to its group until then.
        ///
        /// ```
        /// # use bursar::pages::{Order, Zeroed};
        /// # let memory = bursar::Memory::host()?;
        /// let mut page = memory.alloc_pages(Order::ZERO, Zeroed::No)?;
        /// page.copy_from(b"key=value");
        /// let frozen = page.freeze();
        /// let value = frozen.slice(4..9);     // keeps the page
        /// drop(frozen);
        /// assert_eq!(&value[..], b"value");
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// # Panics
        /// As [`Page::bytes`].
        #[track_caller]
        pub fn freeze(self) -> Frozen
        where
            M::Slot: Send,
        {
            self.check();
            Frozen::from_owner(Readable(self))
        }
    }
}
