//! Rates that a Prometheus gives.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::time::sleep;
use zonewise_cluster::prometheus::{Prometheus, PrometheusError, Series};
use zonewise_cluster::watch::random_part;
use zonewise_common::name::Name;
use zonewise_demand::queries::Queries;
use zonewise_demand::rates::{Answer, Rate, Rates};
use zonewise_demand::{Figures, Millis};

use super::{Measuring, Requests, SUCCESS, now};
use crate::config::DemandConfig;

/// The rates of a Prometheus.
pub(super) struct PrometheusRates {
    rates: Mutex<Rates>,
    last: Mutex<Last>,
    requests: Requests,
}

/// What became of the last question.
#[derive(Default)]
struct Last {
    problem: Option<Problem>,
    /// The problem that the log has told.
    told: Option<&'static str>,
    counted: Option<Millis>,
}

/// Why there are no rates.
#[derive(Clone, Debug, PartialEq)]
struct Problem {
    name: &'static str,
    text: String,
}

const NONSENSE: &str = "nonsense";
const EMPTY: &str = "empty";

/// The names of what can be wrong.
pub(super) fn problems() -> impl Iterator<Item = &'static str> {
    PrometheusError::NAMES.into_iter().chain([EMPTY])
}

impl From<PrometheusError> for Problem {
    fn from(error: PrometheusError) -> Self {
        Self { name: error.name(), text: error.to_string() }
    }
}

impl PrometheusRates {
    pub(super) fn new(requests: Requests) -> Self {
        Self { rates: Mutex::default(), last: Mutex::default(), requests }
    }

    /// Asks again and again, until the future is dropped.
    pub(super) async fn collect(&self, config: &DemandConfig) {
        let queries = &config.prometheus.queries;
        let mut client = None;
        sleep(random_part(config.period)).await;
        loop {
            let result = self.ask(&mut client, config, queries).await;
            self.requests
                .with([result.as_ref().err().map_or(SUCCESS, |problem| problem.name)])
                .inc();
            self.last.lock().problem = result.err();
            sleep(config.period).await;
        }
    }

    /// Files may be missing at first: the client is made when they are there.
    async fn ask(
        &self,
        client: &mut Option<Prometheus>,
        config: &DemandConfig,
        queries: &Queries,
    ) -> Result<(), Problem> {
        let client = match client {
            Some(client) => client,
            None => client.insert(Prometheus::new(config.prometheus.server.clone())?),
        };
        let answer = Answer {
            rates: rates(&client.query(&queries.rates).await?)?,
            largest: match &queries.largest {
                Some(query) => rates(&client.query(query).await?)?,
                None => Vec::new(),
            },
            reporting: match &queries.reporting {
                Some(query) => Some(by_zone(&client.query(query).await?)?),
                None => None,
            },
        };
        self.count(answer)
    }

    fn count(&self, answer: Answer) -> Result<(), Problem> {
        let (now, name) = (now(), if answer.rates.is_empty() { EMPTY } else { NONSENSE });
        let added = self.rates.lock().add(answer, now);
        added.map_err(|error| {
            let text = format!("the answer of Prometheus is left out: {error}");
            Problem { name, text }
        })?;
        self.last.lock().counted = Some(now);
        Ok(())
    }
}

impl Measuring for PrometheusRates {
    fn figures(&self, work: &mut dyn FnMut(&mut dyn Figures)) {
        work(&mut *self.rates.lock());
    }

    fn counted(&self) -> Option<Millis> {
        self.last.lock().counted
    }

    fn tell(&self) {
        let (problem, told) = {
            let mut last = self.last.lock();
            let problem = last.problem.clone();
            (
                problem.clone(),
                std::mem::replace(&mut last.told, problem.map(|problem| problem.name)),
            )
        };
        match problem {
            Some(Problem { name, text }) if told != Some(name) => tracing::warn!(
                "demand cannot be read from Prometheus: {text}; the last figures count for two minutes, then shares go back to the CPU of the nodes"
            ),
            None if told.is_some() => tracing::info!("demand is read from Prometheus again"),
            _ => {}
        }
    }
}

fn label(series: &Series, name: &str) -> Result<Name, Problem> {
    let value = series.labels.get(name).map(|value| Name::from(&**value));
    value.ok_or_else(|| {
        let labels: Vec<&str> = series.labels.keys().map(|label| &**label).collect();
        let has = if labels.is_empty() { "no label".to_owned() } else { labels.join(", ") };
        let text = format!("the query gives series without the label {name}; the first has {has}");
        Problem { name: NONSENSE, text }
    })
}

/// The rates in an answer. Nodes without a zone have an empty one, and are left out.
fn rates(answer: &[Series]) -> Result<Vec<Rate>, Problem> {
    let rate = |series: &Series| {
        let (namespace, service) = (label(series, "namespace")?, label(series, "service")?);
        let zone = label(series, "zone")?;
        Ok(Rate {
            service: format!("{namespace}/{service}").as_str().into(),
            zone,
            per_second: series.value,
        })
    };
    let rates = answer.iter().map(rate).collect::<Result<Vec<Rate>, Problem>>()?;
    Ok(rates.into_iter().filter(|rate| !rate.zone.is_empty()).collect())
}

fn by_zone(answer: &[Series]) -> Result<BTreeMap<Name, f64>, Problem> {
    answer.iter().map(|series| Ok((label(series, "zone")?, series.value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(labels: &[(&str, &str)], value: f64) -> Series {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Series { labels, value }
    }

    #[test]
    fn labels_say_which_service_and_zone_a_rate_is_of() {
        let answer =
            |zone| series(&[("namespace", "shop"), ("service", "web"), ("zone", zone)], 2.5);
        let expected = Rate { service: "shop/web".into(), zone: "a".into(), per_second: 2.5 };
        assert_eq!(rates(&[answer("a"), answer("")]), Ok(vec![expected]));
        let rows: [(&[(&str, &str)], &str); 3] = [
            (&[], "without the label namespace; the first has no label"),
            (
                &[("namespace", "shop"), ("zone", "a")],
                "without the label service; the first has namespace, zone",
            ),
            (&[("namespace", "shop"), ("service", "web")], "without the label zone"),
        ];
        for (labels, expected) in rows {
            let problem = rates(&[series(labels, 1.0)]).unwrap_err();
            assert!(problem.text.contains(expected), "{}", problem.text);
        }
    }
}
