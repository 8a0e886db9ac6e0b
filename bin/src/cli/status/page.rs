//! Reads a page of metrics in the text format of Prometheus.

/// A value on a page of metrics, with its labels.
#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// The values of a page of metrics. Comments and invalid lines are left out.
#[derive(Clone, Debug, Default)]
pub struct MetricsPage(Vec<Sample>);

impl MetricsPage {
    /// Reads a page of metrics.
    pub fn read(text: &str) -> MetricsPage {
        MetricsPage(text.lines().filter_map(sample).collect())
    }

    /// Returns the value of a family without labels, or `None` if the page does not have the family.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|sample| sample.name == name).map(|sample| sample.value)
    }

    /// Returns the sum of the values of a family that have this label. Returns the sum of all values if
    /// `label` is `None`.
    pub fn sum(&self, name: &str, label: Option<(&str, &str)>) -> f64 {
        let has = |sample: &Sample| {
            label.is_none_or(|(name, value)| sample.labels.iter().any(|(n, v)| n == name && v == value))
        };
        self.0.iter().filter(|sample| sample.name == name && has(sample)).map(|sample| sample.value).sum()
    }

    /// Returns the values of a family with the value of a label, in the order of the page.
    pub fn by_label(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let of = |sample: &Sample| {
            let value = sample.labels.iter().find(|(name, _)| name == label);
            value.map(|(_, value)| (value.clone(), sample.value))
        };
        self.0.iter().filter(|sample| sample.name == name).filter_map(of).collect()
    }
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Splits `a="b",c="d"} 1` into labels and the text after the brace.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = rest.char_indices();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => match letters.next()?.1 {
                    'n' => value.push('\n'),
                    letter => value.push(letter),
                },
                (_, letter) => value.push(letter),
            }
        };
        labels.push((name.to_owned(), value));
        text = &rest[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP a_total Help.
# TYPE a_total counter
a_total{code=\"200\",verb=\"GET\"} 3
a_total{code=\"404\",verb=\"GET\"} 1
a_total{code=\"200\",verb=\"WATCH \\\"x\\\" \\\\ }\"} 2.5 1700000000
size 1.5e+06
broken{a=\"b
";

    #[test]
    fn a_metrics_page_is_queried_by_name_and_label() {
        let page = MetricsPage::read(PAGE);
        assert_eq!(page.sum("a_total", None), 6.5);
        assert_eq!(page.sum("a_total", Some(("code", "200"))), 5.5);
        assert_eq!(page.sum("a_total", Some(("verb", "WATCH \"x\" \\ }"))), 2.5);
        assert_eq!((page.number("size"), page.number("broken")), (Some(1.5e6), None));
        let codes: Vec<String> = page.by_label("a_total", "code").into_iter().map(|(code, _)| code).collect();
        assert_eq!(codes, ["200", "404", "200"]);
    }
}
