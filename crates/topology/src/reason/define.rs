//! The macro behind the table of reasons: from one list of entries to all that must agree with it.

/// Makes [`Code`](super::Code), [`TABLE`](super::TABLE) and [`Reason`](super::Reason) from the
/// entries of the table. `decisions`, `requests`, `demand` and `routes` are reasons, with a code
/// and maybe figures; `conditions` are codes alone.
macro_rules! define_reasons {
    (
        decisions { $($decisions:tt)* }
        requests { $($requests:tt)* }
        conditions { $($conditions:tt)* }
        demand { $($demand:tt)* }
        routes { $($routes:tt)* }
    ) => {
        define_codes! { $($decisions)* $($requests)* $($conditions)* $($demand)* $($routes)* }
        define_reason_type! { $($decisions)* $($requests)* $($demand)* $($routes)* }
    };
}

/// Makes `Code` and `TABLE`, which have the same order.
macro_rules! define_codes {
    ($(
        $name:ident $({ $($field:ident: $type:ty),* })? => $outcome:ident,
            $sentence:literal,
            $remedy:expr
            $(, figures($($shown:ident),*) $figures:expr)?;
    )*) => {
        /// The stable name of a reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
        pub enum Code {
            $(#[doc = $sentence] $name,)*
        }

        /// Every code with its meaning, in the order of [`Code`].
        pub static TABLE: [Entry; [$(Code::$name),*].len()] = [$(
            Entry {
                code: Code::$name,
                outcome: Outcome::$outcome,
                sentence: $sentence,
                remedy: $remedy,
            },
        )*];
    };
}

/// Makes `Reason`, its codes and its figures in words.
macro_rules! define_reason_type {
    ($(
        $name:ident $({ $($field:ident: $type:ty),* })? => $outcome:ident,
            $sentence:literal,
            $remedy:expr
            $(, figures($($shown:ident),*) $figures:expr)?;
    )*) => {
        /// A code with its arithmetic.
        #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
        #[serde(tag = "code", rename_all_fields = "camelCase")]
        #[expect(missing_docs, reason = "the names of the figures say what they are")]
        pub enum Reason {
            $(#[doc = $sentence] $name $({ $($field: $type),* })?,)*
        }

        impl Reason {
            /// Its stable name.
            pub fn code(&self) -> Code {
                match self {
                    $(Self::$name { .. } => Code::$name,)*
                }
            }

            /// The figures behind it, in words.
            pub(super) fn figures(&self) -> Option<String> {
                match *self {
                    $($(Self::$name { $($shown,)* .. } => Some($figures),)?)*
                    _ => None,
                }
            }
        }
    };
}

pub(super) use {define_codes, define_reason_type, define_reasons};
