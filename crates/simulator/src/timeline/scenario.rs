//! Sequences of states: built in, or the rows of a file taken as time steps.

use zonewise_common::name::Name;

use crate::dataset::{CHUNK_ROWS, Cell, Chunk, Columns, Dataset, DatasetError, Problem, Rows};

/// One state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Nodes and endpoints per zone, in column order.
    pub cells: Vec<Cell>,
}

/// Which endpoints of a zone go when there are fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// A rollout replaces the old ones.
    OldestFirst,
    /// A scale-down removes the young ones.
    NewestFirst,
}

/// A sequence of states.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What users call it.
    pub title: String,
    /// Its zones.
    pub columns: Columns,
    /// Which endpoints go first.
    pub departure: Departure,
    /// The states.
    pub steps: Vec<Step>,
}

/// A scenario that comes with the program: three zones.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The name users write.
    pub name: &'static str,
    /// What happens in it.
    pub summary: &'static str,
    departure: Departure,
    steps: fn() -> Vec<Step>,
}

/// The most steps a timeline may have: each endpoint is followed through all of them.
const MAX_STEPS: usize = 100_000;
/// The most endpoints a state may have, for the same reason.
const MAX_ENDPOINTS: u64 = 20_000;

impl Scenario {
    /// The built-in scenarios.
    pub const BUILTIN: [BuiltIn; 4] = [
        BuiltIn {
            name: "one-by-one",
            summary: "15 endpoints become ready one by one, 5 in each zone",
            departure: Departure::OldestFirst,
            steps: one_by_one,
        },
        BuiltIn {
            name: "rolling-update",
            summary: "12 endpoints replaced one by one, surge first",
            departure: Departure::OldestFirst,
            steps: rolling_update,
        },
        BuiltIn {
            name: "autoscaling",
            summary: "3 to 30 endpoints and back while nodes come and go",
            departure: Departure::NewestFirst,
            steps: autoscaling,
        },
        BuiltIn {
            name: "node-loss",
            summary: "a zone loses its nodes one by one and gets them back",
            departure: Departure::OldestFirst,
            steps: node_loss,
        },
    ];

    /// A built-in scenario.
    pub fn builtin(name: &str) -> Option<Self> {
        let known = Self::BUILTIN.into_iter().find(|known| known.name == name)?;
        Some(Self {
            title: name.to_owned(),
            columns: Columns::numbered(3),
            departure: known.departure,
            steps: (known.steps)(),
        })
    }

    /// The rows of a data set, taken as states one after the other.
    pub fn from_rows(
        dataset: Dataset,
        problems: &mut dyn FnMut(Problem),
    ) -> Result<Self, DatasetError> {
        let Dataset { title, columns, rows } = dataset;
        let mut steps = Vec::new();
        let mut chunk = Chunk::default();
        let Rows::Stream(mut reader) = rows else {
            return Err(refuse(&title, "its inputs are independent of each other; name a file"));
        };
        if columns.names.len() != columns.zone_of.len() {
            return Err(refuse(&title, "two columns have the same zone name"));
        }
        loop {
            reader.fill(CHUNK_ROWS, &mut chunk, problems)?;
            if chunk.rows() == 0 {
                break;
            }
            for (index, name) in chunk.names.iter().enumerate() {
                let cells = chunk.row(index).to_vec();
                if cells.iter().map(|cell| cell.endpoints).sum::<u64>() > MAX_ENDPOINTS {
                    let name = name.escape_debug();
                    let what = format!("step `{name}` has more than {MAX_ENDPOINTS} endpoints");
                    return Err(refuse(&title, &what));
                }
                steps.push(Step { name: name.to_string(), cells });
            }
            if steps.len() > MAX_STEPS {
                return Err(refuse(&title, &format!("more than {MAX_STEPS} steps")));
            }
        }
        Ok(Self { title, columns, departure: Departure::OldestFirst, steps })
    }

    /// The zone of each column.
    pub(crate) fn column_names(&self) -> Vec<Name> {
        self.columns.zone_of.iter().map(|&zone| Name::from(&*self.columns.names[zone])).collect()
    }
}

fn refuse(title: &str, why: &str) -> DatasetError {
    DatasetError::Timeline(format!("{} cannot be run as a timeline: {why}", title.escape_debug()))
}

fn step(name: String, nodes: [u64; 3], endpoints: [u64; 3]) -> Step {
    let cell = |zone: usize| Cell { nodes: nodes[zone], endpoints: endpoints[zone] };
    Step { name, cells: (0..3).map(cell).collect() }
}

/// The zone with the fewest endpoints: where a spreading scheduler puts the next one.
fn emptiest(endpoints: &[u64; 3]) -> usize {
    (0..3).min_by_key(|&zone| endpoints[zone]).unwrap_or(0)
}

fn one_by_one() -> Vec<Step> {
    /// The zones of the endpoints in the order in which they become ready.
    const ORDER: [usize; 15] = [2, 1, 0, 1, 2, 2, 2, 0, 1, 0, 1, 0, 1, 2, 0];
    let mut endpoints = [0, 0, 0];
    let ready = |(index, &zone): (usize, &usize)| {
        endpoints[zone] += 1;
        step(format!("{} ready", index + 1), [5, 5, 5], endpoints)
    };
    ORDER.iter().enumerate().map(ready).collect()
}

fn rolling_update() -> Vec<Step> {
    const REPLICAS: usize = 12;
    let nodes = [5, 5, 5];
    let mut endpoints = [4, 4, 4];
    let mut steps = vec![step(String::from("before"), nodes, endpoints)];
    for replica in 0..REPLICAS {
        endpoints[emptiest(&endpoints)] += 1;
        steps.push(step(format!("new {}", replica + 1), nodes, endpoints));
        // Old endpoints go in their own order, not where the new ones came.
        endpoints[(replica * 2) % 3] -= 1;
        steps.push(step(format!("old {} gone", replica + 1), nodes, endpoints));
    }
    steps
}

fn autoscaling() -> Vec<Step> {
    let (mut nodes, mut endpoints) = ([3, 3, 3], [1, 1, 1]);
    let mut steps = vec![step(String::from("start"), nodes, endpoints)];
    for count in 4..=30u64 {
        endpoints[emptiest(&endpoints)] += 1;
        // The node autoscaler follows, one zone at a time.
        if count.is_multiple_of(4) {
            nodes[(count / 4) as usize % 3] += 1;
        }
        steps.push(step(format!("up to {count}"), nodes, endpoints));
    }
    for count in (3..30u64).rev() {
        endpoints[count as usize % 3] -= 1;
        // Consolidation empties the last zone first.
        if count.is_multiple_of(5) && nodes[2] > 1 {
            nodes[2] -= 1;
        }
        steps.push(step(format!("down to {count}"), nodes, endpoints));
    }
    steps
}

fn node_loss() -> Vec<Step> {
    let (mut nodes, mut endpoints) = ([4, 4, 4], [6, 6, 6]);
    let mut steps = vec![step(String::from("healthy"), nodes, endpoints)];
    for lost in 1..=4u64 {
        nodes[0] -= 1;
        let gone = endpoints[0] / (5 - lost);
        endpoints[0] -= gone;
        steps.push(step(format!("node {lost} lost"), nodes, endpoints));
        for _ in 0..gone {
            endpoints[if endpoints[1] <= endpoints[2] { 1 } else { 2 }] += 1;
        }
        steps.push(step(format!("endpoints of node {lost} replaced"), nodes, endpoints));
    }
    for back in 1..=4 {
        nodes[0] += 1;
        steps.push(step(format!("node {back} back"), nodes, endpoints));
    }
    while endpoints[0] < 6 {
        endpoints[if endpoints[1] >= endpoints[2] { 1 } else { 2 }] -= 1;
        endpoints[0] += 1;
        steps.push(step(format!("rebalanced to {}", endpoints[0]), nodes, endpoints));
    }
    steps
}
