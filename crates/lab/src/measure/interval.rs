//! Statistics of a handful of seeds: their central part, and the confidence of their mean.

/// Returns the arithmetic mean; 0 of no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the central 90 % of the values: without the twentieth part at either end, rounded down. Of fewer than 20
/// values that is all of them; of 20 it leaves out the least and the greatest.
pub fn central(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 20;
    match (sorted.get(cut), sorted.len().checked_sub(cut + 1)) {
        (Some(&lo), Some(last)) => (lo, sorted[last]),
        _ => (0.0, 0.0),
    }
}

/// Returns a 90 % confidence interval of the mean, by Student's distribution: the interval of two one-sided tests at 5
/// % each.
///
/// `None` for fewer than two values. The quantile for 19 degrees of freedom serves for any larger number as well, which errs
/// towards a wider interval (1.729 instead of 1.645 at most); for fewer it is that of 1, wider still (Student's t, 0.95).
pub fn confidence_of_mean(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len();
    if count < 2 {
        return None;
    }
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    let error = (squares / (count - 1) as f64 / count as f64).sqrt();
    let quantile = if count >= 20 { 1.729 } else { 6.314 };
    Some((middle - quantile * error, middle + quantile * error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_central_part_of_twenty_leaves_out_one_at_either_end() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(central(&values), (2.0, 19.0));
        assert_eq!(central(&values[..19]), (1.0, 19.0));
        assert_eq!(central(&[]), (0.0, 0.0));
    }

    #[test]
    fn the_confidence_interval_follows_a_worked_case() {
        // Of 1..=20: mean 10.5, standard deviation 5.916, so its error is 1.3229.
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let (lo, hi) = confidence_of_mean(&values).expect("20 values");
        assert!(
            (lo - 8.2127).abs() < 1e-3 && (hi - 12.7873).abs() < 1e-3,
            "{lo} {hi}"
        );
        assert_eq!(confidence_of_mean(&[1.0]), None);
    }
}
