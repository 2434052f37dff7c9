//! Figures that were published, to compare results with (`data/published.csv`).

/// Unit of a published gain over the best path alone.
pub(crate) const OVER_ONE: &str = "% over one";
const PUBLISHED: &str = include_str!("../data/published.csv");

/// A published figure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Published {
    pub(crate) scenario: String,
    pub(crate) system: String,
    pub(crate) value: f64,
    pub(crate) deviation: Option<f64>,
    pub(crate) unit: String,
    seed: String,
    note: String,
}

/// All published figures.
pub(crate) fn published() -> Vec<Published> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [scenario, system, value, deviation, unit, seed, note] = fields.as_slice() else {
            return None;
        };
        Some(Published {
            scenario: (*scenario).to_owned(),
            system: (*system).to_owned(),
            value: value.parse().ok()?,
            deviation: deviation.parse().ok(),
            unit: (*unit).to_owned(),
            seed: (*seed).to_owned(),
            note: (*note).to_owned(),
        })
    };
    PUBLISHED.lines().skip(1).filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios;

    #[test]
    fn published_figures_are_all_read() {
        let all = published();
        assert_eq!(all.len(), PUBLISHED.lines().count() - 1);
        let row = all.iter().find(|p| p.scenario == "mhip-05" && p.system == "mptcp");
        assert_eq!(row.map(|p| (p.value, p.deviation)), Some((4.5, Some(0.01))));
        for figure in &all {
            let name = format!("{}.toml", figure.scenario);
            assert!(scenarios::directory().join(&name).exists(), "{name}");
            assert!(!figure.seed.is_empty());
        }
    }
}
