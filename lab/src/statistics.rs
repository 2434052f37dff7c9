//! Statistics of measured values.

use serde::{Deserialize, Serialize};

/// Of a set of values. All are 0 for an empty set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Statistics {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
    pub(crate) minimum: f64,
    pub(crate) median: f64,
    #[serde(default)]
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) maximum: f64,
}

impl Statistics {
    /// Of `values`, which get sorted.
    pub(crate) fn of(values: &mut [f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let mean = mean(values);
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count as f64;
        let rank = |share: f64| values[((share * count as f64) as usize).min(count - 1)];
        let median = if count.is_multiple_of(2) {
            f64::midpoint(values[count / 2 - 1], values[count / 2])
        } else {
            values[count / 2]
        };
        Self {
            count: count as u64,
            mean,
            deviation: variance.sqrt(),
            minimum: values[0],
            median,
            p95: rank(0.95),
            p99: rank(0.99),
            maximum: values[count - 1],
        }
    }
}

/// The median; 0 for no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    Statistics::of(&mut values.to_vec()).median
}

/// The mean; 0 for no values.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The mean absolute difference of neighbouring values.
pub(crate) fn mean_difference(values: &[f64]) -> f64 {
    let pairs = values.windows(2);
    let count = pairs.len().max(1) as f64;
    pairs.map(|pair| (pair[1] - pair[0]).abs()).sum::<f64>() / count
}

/// Jain's fairness index: 1 if all values are equal, 1/n if all but one are 0.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 {
        return 0.0;
    }
    values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_a_known_set() {
        let s = Statistics::of(&mut [4.0, 1.0, 3.0, 2.0]);
        assert_eq!((s.count, s.mean, s.median, s.minimum, s.maximum), (4, 2.5, 2.5, 1.0, 4.0));
        assert!((s.deviation - 1.25f64.sqrt()).abs() < 1e-12);
        assert_eq!(Statistics::of(&mut []), Statistics::default());
    }

    #[test]
    fn jains_index_is_one_for_equal_shares() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), 1.0);
        assert!((jain(&[9.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(jain(&[]), 0.0);
    }
}
