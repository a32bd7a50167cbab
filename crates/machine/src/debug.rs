//! `Debug` of error types.

/// Implements `Debug` for an error type that has `Display`: `{:?}` is the message, and `{:#?}` is the structure.
///
/// `main`, `unwrap` and `expect` print errors by `{:?}`. The caller lists all variants and fields, or the result does not compile.
/// A field with a format, such as `mode: "{:#o}"`, has that format in the structure.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_message {
    (enum $name:ident { $($variant:ident
        $(($inner:ident))? $({ $($field:ident $(: $format:literal)?),* $(,)? })?),* $(,)? }) => {
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                if !f.alternate() {
                    return ::core::fmt::Display::fmt(self, f);
                }
                match self {
                    $(Self::$variant $(($inner))? $({ $($field),* })? => $crate::debug_as_message!(
                        @show f $variant $(($inner))? $({ $($field $(: $format)?),* })?
                    ),)*
                }
            }
        }
    };
    (struct $name:ident { $($field:ident),* $(,)? }) => {
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                if !f.alternate() {
                    return ::core::fmt::Display::fmt(self, f);
                }
                let Self { $($field),* } = self;
                $crate::debug_as_message!(@show f $name { $($field),* })
            }
        }
    };
    (@show $f:ident $name:ident) => { $f.write_str(stringify!($name)) };
    (@show $f:ident $name:ident ($inner:ident)) => {
        $f.debug_tuple(stringify!($name)).field($inner).finish()
    };
    (@show $f:ident $name:ident { $($field:ident $(: $format:literal)?),* }) => {
        $f.debug_struct(stringify!($name))
            $(.field(stringify!($field), $crate::debug_as_message!(@value $field $($format)?)))*
            .finish()
    };
    (@value $field:ident) => { $field };
    (@value $field:ident $format:literal) => { &::core::format_args!($format, $field) };
}

#[cfg(test)]
mod tests {
    use std::fmt;

    enum Wrong {
        Nothing,
        Held(Count),
        Mode { path: &'static str, mode: u32 },
    }

    struct Count {
        bytes: u64,
    }

    impl fmt::Display for Wrong {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Nothing => f.write_str("nothing is there"),
                Self::Held(count) => count.fmt(f),
                Self::Mode { path, mode } => write!(f, "{path} has mode {mode:03o}"),
            }
        }
    }

    impl fmt::Display for Count {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} bytes are there", self.bytes)
        }
    }

    debug_as_message!(
        enum Wrong {
            Nothing,
            Held(count),
            Mode { path, mode: "{:#o}" },
        }
    );
    debug_as_message!(struct Count { bytes });

    #[test]
    fn the_message_or_the_structure() {
        let shown = |error: Wrong| (format!("{error:?}"), format!("{error:#?}"));
        let expect = |message: &str, structure: &str| (message.to_owned(), structure.to_owned());
        assert_eq!(shown(Wrong::Nothing), expect("nothing is there", "Nothing"));
        assert_eq!(
            shown(Wrong::Held(Count { bytes: 7 })),
            expect(
                "7 bytes are there",
                "Held(\n    Count {\n        bytes: 7,\n    },\n)"
            )
        );
        let (path, mode) = ("/tmp", 0o755);
        assert_eq!(
            shown(Wrong::Mode { path, mode }),
            expect(
                "/tmp has mode 755",
                "Mode {\n    path: \"/tmp\",\n    mode: 0o755,\n}"
            )
        );
    }
}
