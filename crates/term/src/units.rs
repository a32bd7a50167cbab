//! Numbers for people.

/// Nanoseconds with three significant digits and the unit that fits.
pub fn nanoseconds(ns: f64) -> String {
    if ns < 0.0 {
        return format!("-{}", nanoseconds(-ns));
    }
    let (value, unit) = scaled(ns);
    format!("{} {unit}", three_digits(value))
}

/// A time and the unit in which it has few digits.
pub fn scaled(ns: f64) -> (f64, &'static str) {
    match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    }
}

/// A ratio as a percentage. A share that is not 0 never looks like 0, nor one that is not 1 like 100 %.
pub fn percent(ratio: f64) -> String {
    if ratio < 0.0 {
        return negative(&percent(-ratio));
    }
    match ratio * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.01 => "< 0.01 %".to_owned(),
        100.0 => "100 %".to_owned(),
        percent if !percent.is_finite() => "-".to_owned(),
        percent if percent >= 999.5 => format!("{} %", quantity(percent)),
        percent if percent >= 100.1 => format!("{percent:.1} %"),
        percent if percent > 100.0 => "> 100 %".to_owned(),
        percent if percent > 99.99 => "> 99.99 %".to_owned(),
        // One decimal would round to 100.
        percent if !(10.0..99.95).contains(&percent) => format!("{percent:.2} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// A whole number with its thousands apart.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut apart = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// A number of things, which may be a mean: whole where it is large. One that is not 0 never looks like 0.
pub fn quantity(number: f64) -> String {
    match number {
        number if number < 0.0 => negative(&quantity(-number)),
        number if number >= 999.5 => thousands(number.round() as u64),
        number if number > 0.0 && number < 0.005 => "< 0.01".to_owned(),
        number => three_digits(number),
    }
}

/// The negative of a number for people.
fn negative(number: &str) -> String {
    match number.strip_prefix("< ") {
        Some(least) => format!("> -{least}"),
        None => format!("-{number}"),
    }
}

fn three_digits(value: f64) -> String {
    match value {
        value if value == 0.0 || value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// A number of things, each of which is called `one`.
pub fn counted(number: impl TryInto<u64>, one: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        number => format!("{} {one}s", thousands(number)),
    }
}

/// A time that the user has to wait, in seconds, minutes or hours: at least that long.
pub fn long_time(seconds: f64) -> String {
    if seconds <= 60.0 {
        return format!("{} s", seconds.max(1.0).ceil());
    }
    in_minutes((seconds / 60.0).ceil() as u64)
}

/// A time that has passed, in seconds, minutes or hours, of which the last is not over.
pub fn elapsed(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1.0 => "< 1 s".to_owned(),
        seconds if seconds < 60.0 => format!("{} s", seconds.floor()),
        seconds => in_minutes((seconds / 60.0) as u64),
    }
}

fn in_minutes(minutes: u64) -> String {
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, minutes) => format!("{} h {minutes} min", thousands(hours)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let shown = [0.0, 7.0, 123.4, 1_234.0, 99_960.0, 12_345_678.0, 2e9].map(nanoseconds);
        assert_eq!(
            shown,
            [
                "0 ns", "7.00 ns", "123 ns", "1.23 us", "100 us", "12.3 ms", "2.00 s"
            ]
        );
    }

    #[test]
    fn small_and_large_shares_stay_visible() {
        let shown = [0.0, 0.00001, 0.0123, 0.5, 0.9997, 0.99999, 1.0].map(percent);
        assert_eq!(
            shown,
            [
                "0 %",
                "< 0.01 %",
                "1.23 %",
                "50.0 %",
                "99.97 %",
                "> 99.99 %",
                "100 %"
            ]
        );
    }

    #[test]
    fn more_than_all_and_less_than_nothing_are_said() {
        let shown = [1.000_5, 1.5, 12.0, f64::INFINITY, -0.05, -1e-9].map(percent);
        assert_eq!(
            shown,
            ["> 100 %", "150.0 %", "1,200 %", "-", "-5.00 %", "> -0.01 %"]
        );
        let shown = [0.004, 0.01, 12.0, -1_234.0, -0.004].map(quantity);
        assert_eq!(shown, ["< 0.01", "0.01", "12.0", "-1,234", "> -0.01"]);
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn less_than_nothing_has_a_sign() {
        assert_eq!(nanoseconds(-3_500.0), "-3.50 us");
    }

    #[test]
    fn one_thing_is_no_plural() {
        assert_eq!(
            [0, 1, 2_000].map(|number| counted(number, "node")),
            ["0 nodes", "1 node", "2,000 nodes"]
        );
    }

    #[test]
    fn waits_are_in_seconds_minutes_or_hours() {
        assert_eq!(super::long_time(0.2), "1 s");
        assert_eq!(super::long_time(39.1), "40 s");
        assert_eq!(super::long_time(61.0), "2 min");
        assert_eq!(super::long_time(3_600.0 * 26.5), "26 h 30 min");
    }

    #[test]
    fn what_has_passed_is_rounded_down() {
        let shown = [0.01, 1.9, 59.9, 61.0, 7_199.0].map(elapsed);
        assert_eq!(shown, ["< 1 s", "1 s", "59 s", "1 min", "1 h 59 min"]);
    }
}
