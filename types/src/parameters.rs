//! Parameters of mechanisms, with names, units, ranges and sources.
//!
//! [`parameters!`](crate::parameters!) defines the parameters of one mechanism, and
//! [`mechanisms!`](crate::mechanisms!) collects the mechanisms of a crate. A program can list
//! parameters and set them by name (`mechanism.parameter`) without knowing them.

use core::ops::RangeInclusive;
use core::time::Duration;

/// A value as a number: durations in milliseconds, switches as 0 and 1.
pub trait Value {
    /// The number.
    fn get(&self) -> f64;

    /// Takes a number that is in the parameter's range, and whole if it must be.
    fn set(&mut self, value: f64);

    /// Whether it is a whole number.
    fn is_whole(&self) -> bool {
        false
    }

    /// How it is written.
    fn text(&self) -> String {
        self.get().to_string()
    }
}

impl Value for f64 {
    fn get(&self) -> f64 {
        *self
    }

    fn set(&mut self, value: f64) {
        *self = value;
    }
}

impl Value for u32 {
    fn is_whole(&self) -> bool {
        true
    }

    fn get(&self) -> f64 {
        f64::from(*self)
    }

    fn set(&mut self, value: f64) {
        *self = value as Self;
    }
}

impl Value for u64 {
    fn is_whole(&self) -> bool {
        true
    }

    fn get(&self) -> f64 {
        *self as f64
    }

    fn set(&mut self, value: f64) {
        *self = value as Self;
    }
}

impl Value for bool {
    fn is_whole(&self) -> bool {
        true
    }

    fn get(&self) -> f64 {
        f64::from(u8::from(*self))
    }

    fn set(&mut self, value: f64) {
        *self = value != 0.0;
    }

    fn text(&self) -> String {
        (if *self { "on" } else { "off" }).to_owned()
    }
}

impl Value for Duration {
    fn get(&self) -> f64 {
        self.as_secs_f64() * 1e3
    }

    fn set(&mut self, value: f64) {
        *self = Self::from_secs_f64(value.max(0.0) / 1e3);
    }
}

/// A parameter of a mechanism.
pub struct Parameter<'a> {
    /// Its name within the mechanism.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Its unit; empty for a switch.
    pub unit: &'static str,
    /// Values that it may have.
    pub range: RangeInclusive<f64>,
    /// Where the default comes from.
    pub source: &'static str,
    /// The value.
    pub value: &'a mut dyn Value,
}

/// A callback for each parameter, with the mechanism's name.
pub type Visit<'a> = &'a mut dyn FnMut(&'static str, Parameter<'_>);

/// Sets the parameter `name` (`mechanism.parameter`) among those that `visit_all` shows.
///
/// # Errors
/// There is none of that name, or `value` is out of its range or not whole.
pub fn set(visit_all: impl FnOnce(Visit<'_>), name: &str, value: f64) -> Result<(), String> {
    let mut outcome = Err(format!("there is no parameter {name:?}"));
    visit_all(&mut |mechanism, parameter| {
        if name.split_once('.') != Some((mechanism, parameter.name)) {
            return;
        }
        outcome = if !parameter.range.contains(&value) {
            Err(format!("{name} is to be in {:?}, not {value}", parameter.range))
        } else if parameter.value.is_whole() && value.fract() != 0.0 {
            Err(format!("{name} is to be a whole number, not {value}"))
        } else {
            parameter.value.set(value);
            Ok(())
        };
    });
    outcome
}

/// Defines the parameters of one mechanism: a struct with their defaults that can be listed.
///
/// Each is `name: type = default, "unit", range, "source";`. The unit of a duration is `ms` and
/// that of a switch empty.
#[macro_export]
macro_rules! parameters {
    (
        $(#[doc = $intro:literal])+
        pub struct $kind:ident {
            $(
                $(#[doc = $about:literal])+
                $name:ident: $type:ty = $default:expr, $unit:literal, $range:expr, $source:literal;
            )+
        }
    ) => {
        $(#[doc = $intro])+
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $kind {
            $(
                $(#[doc = $about])+
                #[doc = ""]
                #[doc = concat!("Default: `", stringify!($default), "` (", $source, ").")]
                pub $name: $type,
            )+
        }

        impl Default for $kind {
            fn default() -> Self {
                Self { $($name: $default),+ }
            }
        }

        impl $kind {
            /// Calls `visit` with each parameter, in the order of definition.
            pub fn visit(&mut self, visit: &mut dyn FnMut($crate::parameters::Parameter<'_>)) {
                $(visit($crate::parameters::Parameter {
                    name: stringify!($name),
                    about: concat!($($about),+),
                    unit: $unit,
                    range: $range,
                    source: $source,
                    value: &mut self.$name,
                });)+
            }
        }
    };
}

/// Gathers the parameters of mechanisms, and those of a lower crate after `nested`.
#[macro_export]
macro_rules! mechanisms {
    (
        $(#[doc = $intro:literal])+
        pub struct $kind:ident {
            $($(#[doc = $about:literal])+ $name:ident: $type:ty,)+
            $(nested: $(#[doc = $nested_about:literal])+ $nested:ident: $nested_type:ty,)?
        }
    ) => {
        $(#[doc = $intro])+
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct $kind {
            $($(#[doc = $about])+ pub $name: $type,)+
            $($(#[doc = $nested_about])+ pub $nested: $nested_type,)?
        }

        impl $kind {
            /// The mechanisms by name, and what each does, in the order of [`visit`](Self::visit).
            pub fn mechanisms() -> Vec<(&'static str, &'static str)> {
                let own = vec![$((stringify!($name), concat!($($about),+))),+];
                $(let own = [own, <$nested_type>::mechanisms()].concat();)?
                own
            }

            /// Calls `visit` with the name of each mechanism and each of its parameters.
            pub fn visit(&mut self, visit: $crate::parameters::Visit<'_>) {
                $(self.$name.visit(&mut |parameter| visit(stringify!($name), parameter));)+
                $(self.$nested.visit(visit);)?
            }

            /// Sets a parameter by its name, `mechanism.parameter`: durations in milliseconds,
            /// switches as 0 and 1.
            ///
            /// # Errors
            /// There is none of that name, or the value is out of its range.
            pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
                $crate::parameters::set(|visit| self.visit(visit), name, value)
            }
        }
    };
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macros make public items")]
mod tests {
    use super::*;

    parameters! {
        /// The parameters of a mechanism.
        pub struct Brakes {
            /// Pressure at which
            /// they begin to work.
            pressure: f64 = 0.5, "bar", 0.0..=10.0, "measured";
            /// Time that they take.
            takes: Duration = Duration::from_micros(1_500), "ms", 0.0..=100.0, "a guess";
            /// They are used.
            used: bool = true, "", 0.0..=1.0, "needed";
        }
    }

    mechanisms! {
        /// The parameters of a crate.
        pub struct Vehicle {
            /// What stops it.
            brakes: Brakes,
        }
    }

    #[test]
    fn parameters_are_listed_and_set_by_name() {
        let mut vehicle = Vehicle::default();
        let mut listed = Vec::new();
        vehicle.visit(&mut |mechanism, parameter| {
            let value = parameter.value.text();
            listed.push(format!("{mechanism}.{} {value} {}", parameter.name, parameter.unit));
        });
        assert_eq!(listed, ["brakes.pressure 0.5 bar", "brakes.takes 1.5 ms", "brakes.used on "]);
        assert_eq!(Vehicle::mechanisms(), [("brakes", " What stops it.")]);
        vehicle.set("brakes.takes", 20.0).expect("it exists");
        vehicle.set("brakes.used", 0.0).expect("it exists");
        let expected = Brakes { pressure: 0.5, takes: Duration::from_millis(20), used: false };
        assert_eq!(vehicle.brakes, expected);
    }

    #[test]
    fn names_and_ranges_are_checked() {
        let mut vehicle = Vehicle::default();
        let wrong = [
            ("brakes.pressure", 11.0),
            ("brakes.used", 0.5),
            ("brakes.lights", 1.0),
            ("pressure", 1.0),
        ];
        for (name, value) in wrong {
            let error = vehicle.set(name, value).expect_err("refused");
            assert!(error.contains(name), "{error}");
        }
        vehicle.set("brakes.pressure", f64::NAN).expect_err("no number");
        assert_eq!(vehicle, Vehicle::default());
    }
}
