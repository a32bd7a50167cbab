//! The variants.

use bursar_kernel::pages::Release;

/// A variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Bursar.
    Bounded,
    /// A policy of the thread.
    Published(Release),
}

impl Variant {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let published = Release::ALL.map(Self::Published);
        published.into_iter().chain([Self::Bounded])
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::all().find(|variant| variant.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bounded => "bounded",
            Self::Published(release) => release.name(),
        }
    }

    pub(super) fn summary(self) -> &'static str {
        match self {
            Self::Bounded => {
                "Bursar: batches go to a depot; holds of the zone's lock end after 63 blocks or 2 us"
            }
            Self::Published(release) => release.summary(),
        }
    }
}
