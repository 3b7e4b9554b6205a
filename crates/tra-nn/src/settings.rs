//! How settings are written down: every one with a default and a `with_…` method.

/// Writes a struct of settings with its defaults, its `with_…` methods and its serde form, in which
/// a missing setting has its default and an unknown one is an error.
macro_rules! settings {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$about:meta])* $field:ident: $type:ty = $default:expr, $with:ident;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        $crate::settings::builders! { $name { $($with($field: $type);)* } }
    };
}

/// Writes `with_…` methods.
macro_rules! builders {
    ($name:ident { $($with:ident($field:ident: $type:ty);)* }) => {
        impl $name {
            $(
                #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
                #[must_use]
                pub fn $with(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

pub(crate) use {builders, settings};

/// Left out of files: files from before the setting mean the same.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
