//! Numbers of metrics for people.

use bursar_experiments::measure::Unit;
pub use bursar_term::units::{
    counted, long_time, nanoseconds, percent, quantity, scaled, thousands,
};

/// A number without decimals, as short as can be: marks of an axis of powers of two.
pub fn rough(value: f64, unit: Unit) -> String {
    let (value, unit) = match unit {
        Unit::Ns => scaled(value),
        _ if value >= 1e7 => (value / 1e6, "M"),
        _ if value >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{value:.0}{unit}")
}

/// A number that needs no more than one digit: marks of an axis of decades.
pub fn exact(value: f64, unit: Unit) -> String {
    // A value that is a whole number of the next unit, but for rounding, gets that unit.
    let value = value * (1.0 + 1e-9);
    match unit {
        Unit::Ns => {
            let (value, unit) = scaled(value);
            format!("{value:.0} {unit}")
        }
        Unit::Ratio => format!("{} %", one_digit(value * 100.0)),
        _ => one_digit(value),
    }
}

fn one_digit(value: f64) -> String {
    match value {
        value if value >= 1.0 => thousands(value as u64),
        value => {
            let decimals = -(value.log10() + 1e-9).floor();
            format!("{value:.*}", decimals as usize)
        }
    }
}

/// A number of a metric, in its unit.
pub fn in_unit(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Ns => nanoseconds(value),
        Unit::Ratio => percent(value),
        Unit::Count => quantity(value),
        Unit::PerSecond if value >= 1e6 => format!("{} M/s", quantity(value / 1e6)),
        Unit::PerSecond => format!("{}/s", quantity(value)),
        Unit::MbitPerSecond => format!("{} Mbit/s", quantity(value)),
        Unit::Timeline => quantity(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_an_axis_have_one_digit() {
        let counts = [0.01, 0.5, 1.0, 200.0, 10_000.0].map(|value| exact(value, Unit::Count));
        assert_eq!(counts, ["0.01", "0.5", "1", "200", "10,000"]);
        let times = [500.0, 1e3, 2e7].map(|value| exact(value, Unit::Ns));
        assert_eq!(times, ["500 ns", "1 us", "20 ms"]);
        let powers = [8.0, 4_096.0, 65_536.0, 16_777_216.0].map(|value| rough(value, Unit::Count));
        assert_eq!(powers, ["8", "4096", "66k", "17M"]);
    }
}
