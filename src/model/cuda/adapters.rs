//! LoRA pairs on the card, in f32: for each place where a layer multiplies, the A matrices of
//! the targets that share its input, and their B rows in the order of the fused matrix, scaled.

use super::gpu::{Buffer, Gpu};
use super::network::Network;
use super::weights::{Matrix, Site};
use crate::error::Result;
use crate::model::lora::{Lora, Pair};

/// One adapter's pair at one site, as the kernels read it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Entry {
    a: u64,
    b: u64,
    rank: i32,
    parts: i32,
}

/// All registered adapters.
pub struct Adapters {
    entries: Vec<Entry>,
    /// What the entries point to.
    kept: Vec<Buffer>,
    table: Buffer,
    count: usize,
    /// Greatest number of A rows at a site.
    width: usize,
}

impl Adapters {
    /// None yet.
    pub fn new(gpu: &Gpu) -> Result<Adapters> {
        Ok(Adapters { entries: Vec::new(), kept: Vec::new(), table: gpu.zeros(0)?, count: 0, width: 0 })
    }

    /// Number of adapters.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Numbers that a row's intermediate product may need.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Address of the table `[adapter, layer * 4 + site]`.
    pub(super) fn table(&self) -> u64 {
        self.table.pointer()
    }

    /// Copies an adapter to the card. Its number is the count before.
    pub fn add(&mut self, network: &Network, lora: &Lora) -> Result<()> {
        for (layer, weights) in network.layers().iter().enumerate() {
            for site in Site::ALL {
                let entry = self.entry(network.gpu(), lora, layer, &weights.matrices[site as usize])?;
                self.width = self.width.max((entry.rank * entry.parts) as usize);
                self.entries.push(entry);
            }
        }
        self.table = network.gpu().upload(&self.entries)?;
        self.count += 1;
        Ok(())
    }

    fn entry(&mut self, gpu: &Gpu, lora: &Lora, layer: usize, matrix: &Matrix) -> Result<Entry> {
        let pairs: Vec<Option<&Pair>> = matrix.targets.iter().map(|(t, _)| lora.pair(layer, *t)).collect();
        let rank_of = |pair: &&Pair| pair.a.dim(0).unwrap_or(0);
        let rank = pairs.iter().flatten().map(rank_of).max().unwrap_or(0);
        if rank == 0 {
            return Ok(Entry { a: 0, b: 0, rank: 0, parts: 0 });
        }
        // Pairs of lower rank are filled up with zeros.
        let mut a = vec![0f32; pairs.len() * rank * matrix.inner];
        let mut b = vec![0f32; matrix.outputs * rank];
        let mut first = 0;
        for (part, (pair, (_, outputs))) in pairs.iter().zip(&matrix.targets).enumerate() {
            if let Some(pair) = pair {
                let rows = pair.a.flatten_all()?.to_vec1::<f32>()?;
                a[part * rank * matrix.inner..][..rows.len()].copy_from_slice(&rows);
                let own = rank_of(pair);
                for (row, numbers) in pair.b.flatten_all()?.to_vec1::<f32>()?.chunks_exact(own).enumerate() {
                    let place = if matrix.gated { row / 8 * 16 + part * 8 + row % 8 } else { first + row };
                    for (to, x) in b[place * rank..].iter_mut().zip(numbers) {
                        *to = (f64::from(*x) * pair.scale) as f32;
                    }
                }
            }
            first += outputs;
        }
        let (a, b) = (gpu.upload(&a)?, gpu.upload(&b)?);
        let entry = Entry { a: a.pointer(), b: b.pointer(), rank: rank as i32, parts: pairs.len() as i32 };
        self.kept.extend([a, b]);
        Ok(entry)
    }
}
