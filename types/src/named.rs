//! Names of settings.

/// Defines the configuration names of an enum's values: `NAMES`, `name`, `from_name` and `Display`.
#[macro_export]
macro_rules! named {
    ($kind:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $kind {
            /// Every value, with its name in the configuration.
            pub const NAMES: &'static [(&'static str, Self)] =
                &[$(($name, Self::$variant)),+];

            /// The name in the configuration.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The value with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
            }
        }

        impl core::fmt::Display for $kind {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
