//! Figures side by side: a Markdown table, or JSON.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Value, json};
use zonewise_testbed::table;

/// A number, or the limit at which nobody waited any longer.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Figure {
    Known(f64),
    Above(f64),
}

impl Figure {
    pub(crate) fn times(self, factor: f64) -> Self {
        match self {
            Self::Known(value) => Self::Known(value * factor),
            Self::Above(limit) => Self::Above(limit * factor),
        }
    }

    /// Who was not waited for comes last.
    pub(crate) fn order(a: &Self, b: &Self) -> Ordering {
        let key = |figure: &Self| match *figure {
            Self::Known(value) => (false, value),
            Self::Above(limit) => (true, limit),
        };
        let ((late, x), (later, y)) = (key(a), key(b));
        late.cmp(&later).then(x.total_cmp(&y))
    }

    fn json(self) -> Value {
        match self {
            Self::Known(value) => json!(value),
            Self::Above(limit) => json!({ "moreThan": limit }),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Known(value) => formatter.write_str(&digits(value)),
            Self::Above(limit) => write!(formatter, "more than {}", digits(limit)),
        }
    }
}

/// One figure of one program.
pub(crate) struct Measure {
    pub(crate) name: String,
    pub(crate) figure: Figure,
    pub(crate) unit: &'static str,
}

/// One figure of everybody.
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    /// Where there is one: without any proxy.
    direct: Option<Figure>,
    theirs: Option<Figure>,
    ours: Option<Figure>,
    /// The ratio is then theirs / ours, so that below 1 always means that ours is better.
    more_is_better: bool,
}

impl Row {
    pub(crate) fn path(
        name: &str,
        unit: &'static str,
        [direct, theirs, ours]: [Figure; 3],
        more_is_better: bool,
    ) -> Self {
        let name = name.to_owned();
        let (theirs, ours) = (Some(theirs), Some(ours));
        Self { name, unit, direct: Some(direct), theirs, ours, more_is_better }
    }

    /// A row of what counting costs: the defaults, and with it.
    pub(crate) fn counters(name: &str, plain: Figure, counting: Figure) -> Self {
        let name = name.to_owned();
        let (theirs, ours) = (Some(plain), Some(counting));
        Self { name, unit: "MiB", direct: None, theirs, ours, more_is_better: false }
    }

    /// A row that compares with kube-proxy without its pause; none for what it was not measured for.
    pub(crate) fn eager(mut self) -> Option<Self> {
        self.theirs?;
        // The API server's part is the same.
        if self.name.contains("API server") {
            return None;
        }
        self.name.push_str(" (kube-proxy with --iptables-min-sync-period=0s)");
        Some(self)
    }

    fn ratio(&self) -> Option<String> {
        let (ours, theirs) = (self.ours?, self.theirs?);
        let (over, under) = if self.more_is_better { (theirs, ours) } else { (ours, theirs) };
        match (over, under) {
            (Figure::Known(_), Figure::Known(0.0)) => None,
            (Figure::Known(over), Figure::Known(under)) => Some(factor(over / under)),
            (Figure::Known(over), Figure::Above(under)) => {
                Some(format!("< {}", factor(over / under)))
            }
            (Figure::Above(over), Figure::Known(under)) => {
                Some(format!("> {}", factor(over / under)))
            }
            (Figure::Above(_), Figure::Above(_)) => None,
        }
    }

    /// Where both figures are known.
    fn quotient(&self) -> Option<f64> {
        let (Figure::Known(ours), Figure::Known(theirs)) = (self.ours?, self.theirs?) else {
            return None;
        };
        Some(if self.more_is_better { theirs / ours } else { ours / theirs })
    }

    fn cells(&self) -> Vec<String> {
        let name = if self.more_is_better {
            format!("{} (ratio: kube-proxy / ours)", self.name)
        } else {
            self.name.clone()
        };
        let show = |figure: Option<Figure>| {
            figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure} {}", self.unit))
        };
        let ratio = self.ratio().unwrap_or_else(|| "–".to_owned());
        vec![name, show(self.direct), show(self.theirs), show(self.ours), ratio]
    }

    fn json(&self, scale: u32) -> Value {
        let value = |figure: Option<Figure>| figure.map_or(Value::Null, Figure::json);
        json!({
            "services": scale,
            "measure": self.name,
            "unit": self.unit,
            "direct": value(self.direct),
            "kubeProxy": value(self.theirs),
            "ours": value(self.ours),
            "ratio": self.quotient(),
            "ratioOf": if self.more_is_better { "kubeProxy / ours" } else { "ours / kubeProxy" },
        })
    }
}

/// Puts the measures of the same name side by side, in the order of whoever has more of them.
pub(crate) fn pair(theirs: &[Measure], ours: &[Measure]) -> Vec<Row> {
    let of = |all: &[Measure], name: &str| {
        all.iter().find(|measure| measure.name == name).map(|measure| measure.figure)
    };
    let order = if theirs.len() > ours.len() { theirs } else { ours };
    let row = |measure: &Measure| Row {
        name: measure.name.clone(),
        unit: measure.unit,
        direct: None,
        theirs: of(theirs, &measure.name),
        ours: of(ours, &measure.name),
        more_is_better: false,
    };
    order.iter().map(row).collect()
}

pub(crate) fn json(all: &[(u32, Vec<Row>)]) -> Value {
    all.iter().flat_map(|(scale, rows)| rows.iter().map(|row| row.json(*scale))).collect()
}

/// A table for one scale; the column without a proxy only where there is something in it.
pub(crate) fn render(scale: u32, rows: &[Row]) -> String {
    let title = format!("{scale} Services × 10 endpoints");
    let header = [&title, "no proxy", "kube-proxy", "ours", "ours / kube-proxy"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(Row::cells));
    if rows.iter().all(|row| row.direct.is_none()) {
        for line in &mut lines {
            line.remove(1);
        }
    }
    table::markdown(&lines)
}

/// A table of what counting costs.
pub(crate) fn render_counters(scale: u32, rows: &[Row]) -> String {
    let title = format!("{scale} Services × 10 endpoints");
    let header = [&title, "--count zones", "--count services"].map(str::to_owned).to_vec();
    let cells = rows.iter().map(|row| {
        let cells = row.cells();
        vec![cells[0].clone(), cells[2].clone(), cells[3].clone()]
    });
    table::markdown(&std::iter::once(header).chain(cells).collect::<Vec<_>>())
}

/// Three digits that say something.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    }
}

fn factor(value: f64) -> String {
    if value >= 0.1 { format!("{value:.2}") } else { format!("{value:.4}") }
}
