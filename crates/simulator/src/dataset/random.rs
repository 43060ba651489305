//! Random inputs. Each row has a generator of its own, seeded by the seed and the row's number, so
//! that threads and shards do not change what is drawn.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use super::ranges::{self, NumberRange};
use super::{Cell, Chunk, DatasetError, Indexed};

/// Inputs drawn evenly from ranges.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// Zones per input.
    pub zones: usize,
    /// Nodes per zone.
    pub nodes: NumberRange,
    /// Endpoints per zone.
    pub endpoints: NumberRange,
    /// How many inputs.
    pub rows: u64,
    /// The same seed draws the same inputs.
    pub seed: u64,
}

impl Random {
    /// Refuses numbers that inputs cannot have.
    pub fn checked(self) -> Result<Self, DatasetError> {
        ranges::check(self.zones, self.nodes, self.endpoints).map(|()| self)
    }
}

impl Indexed for Random {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn fill(&self, first_row: u64, count: u64, chunk: &mut Chunk) {
        chunk.begin(first_row, self.zones);
        for row in first_row..(first_row + count).min(self.rows) {
            let salt = SplitMix64::seed_from_u64(row).next_u64();
            let mut generator = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ salt);
            for _ in 0..self.zones {
                chunk.cells.push(Cell {
                    nodes: draw(&mut generator, &self.nodes),
                    endpoints: draw(&mut generator, &self.endpoints),
                });
            }
        }
    }

    fn name(&self, row: u64) -> String {
        format!("random-{row}")
    }
}

fn draw(generator: &mut impl Rng, range: &NumberRange) -> u64 {
    let index = (u128::from(generator.next_u64()) * u128::from(range.count())) >> 64;
    range.first + index as u64 * range.step
}
