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

/// 95 % quantiles of Student's distribution, for 1 to 30 degrees of freedom. Source: NIST/SEMATECH e-Handbook of Statistical
/// Methods, 1.3.6.7.2, which gives three decimals.
const STUDENT: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
    1.703, 1.701, 1.699, 1.697,
];

/// The 95 % quantile of Student's distribution, off by at most 0.0005.
///
/// Beyond the table: the normal quantile with the first two terms of its expansion (Abramowitz and Stegun, 26.7.5).
fn student(freedom: usize) -> f64 {
    const NORMAL: f64 = 1.644_853_627;
    if let Some(&quantile) = STUDENT.get(freedom - 1) {
        return quantile;
    }
    let (z, many) = (NORMAL, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / many + second / many.powi(2)
}

/// Returns a 90 % confidence interval of the mean, by Student's distribution: the interval of two one-sided tests at 5 %
/// each.
///
/// `None` for fewer than two values.
pub fn confidence_of_mean(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len();
    if count < 2 {
        return None;
    }
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    let error = (squares / (count - 1) as f64 / count as f64).sqrt();
    let half = student(count - 1) * error;
    Some((middle - half, middle + half))
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

    #[test]
    fn quantiles_beyond_the_table_follow_published_ones_and_continue_it() {
        for (freedom, published) in [(40, 1.684), (60, 1.671), (100, 1.660)] {
            assert!((student(freedom) - published).abs() < 5.1e-4, "{freedom}");
        }
        assert!((student(1_000_000) - 1.645).abs() < 5e-4);
        for freedom in 1..200 {
            assert!(student(freedom) > student(freedom + 1), "{freedom}");
        }
    }

    #[test]
    fn few_values_get_the_quantile_of_their_number() {
        // Of 1, 2, 3: mean 2, standard deviation 1, so its error is 0.57735; 2.920 of them on either side.
        let (lo, hi) = confidence_of_mean(&[1.0, 2.0, 3.0]).expect("3 values");
        assert!(
            (lo - 0.3141).abs() < 1e-3 && (hi - 3.6859).abs() < 1e-3,
            "{lo} {hi}"
        );
    }
}
