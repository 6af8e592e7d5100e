//! How rows of the slot pool attend: each row's key and value go to its lane's cache, then
//! each row looks at its own positions `0..=position` and at nothing else. No padding, no
//! masks: this is what makes a row independent of its neighbours.

use super::cache::Cache;
use super::kernels;
use crate::error::{Error, Result};
use crate::model::Mix;
use crate::model::delta::Delta;
use candle_core::{CpuStorage, Device, Storage, Tensor};
use rayon::prelude::*;
use std::sync::Arc;

/// Products of a query and a key coordinate below which the work stays on the calling thread:
/// some ten microseconds, about what handing it out costs.
const PARALLEL_FROM: usize = 1 << 17;

/// Where a row's key and value belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Lane of the cache.
    pub lane: usize,
    /// Position within the lane; all before it are written or come in the same call.
    pub position: usize,
}

/// Attention of one step's rows over the cache.
pub struct LaneAttention<'a> {
    /// The pools.
    pub cache: &'a mut Cache,
    /// One place a row.
    pub places: &'a [Place],
}

impl Mix for LaneAttention<'_> {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let (q, k, v) = (q.contiguous()?, k.contiguous()?, v.contiguous()?);
        let (rows, width) = q.dims2()?;
        let shape = *self.cache.shape();
        let kv_width = shape.kv_heads * shape.head_dim;
        if rows != self.places.len()
            || k.dims() != [rows, kv_width]
            || v.dims() != k.dims()
            || width % kv_width != 0
        {
            return Err(Error::invalid(format!(
                "q {:?}, k {:?}, v {:?} do not fit {} rows and {} heads of {}",
                q.dims(),
                k.dims(),
                v.dims(),
                self.places.len(),
                shape.kv_heads,
                shape.head_dim
            )));
        }
        with_f32(&k, |k| {
            with_f32(&v, |v| {
                let keys_and_values = k.chunks_exact(kv_width).zip(v.chunks_exact(kv_width));
                for (place, (k, v)) in self.places.iter().zip(keys_and_values) {
                    self.cache.write(place.lane, layer, place.position, k, v);
                }
            })
        })??;
        let mut out = vec![0f32; rows * width];
        with_f32(&q, |q| self.mix(layer, q, &mut out, width / shape.kv_heads))?;
        Ok(Tensor::from_vec(out, (rows, width), &Device::Cpu)?)
    }

    fn recur(&mut self, layer: usize, delta: &Arc<Delta>, x: &Tensor, steps: &Tensor) -> Result<Tensor> {
        let (x, steps) = (x.contiguous()?, steps.contiguous()?);
        let (channels, heads) = (delta.channels(), delta.shape.value_heads);
        let rows = self.places.len();
        if x.dims() != [rows, channels] || steps.dims() != [rows, 2 * heads] {
            return Err(Error::invalid(format!(
                "{:?} and {:?} do not fit {rows} rows of {channels} channels and {heads} heads",
                x.dims(),
                steps.dims()
            )));
        }
        // The rows of a lane lie together, in the order of their positions.
        let mut of_lane = vec![0..0; self.cache.lanes()];
        for (row, place) in self.places.iter().enumerate() {
            let rows = &mut of_lane[place.lane];
            *rows = if rows.start == rows.end { row..row + 1 } else { rows.start..row + 1 };
        }
        let mut work: Vec<_> =
            self.cache.memories(layer).zip(&of_lane).filter(|(_, rows)| rows.start < rows.end).collect();
        work.sort_by_key(|(_, rows)| rows.start);
        let out: Vec<Vec<f32>> = with_f32(&x, |x| {
            with_f32(&steps, |steps| {
                let one = |(memory, rows): (_, &std::ops::Range<usize>)| {
                    let x = &x[rows.start * channels..rows.end * channels];
                    delta.advance(x, &steps[rows.start * 2 * heads..rows.end * 2 * heads], memory)
                };
                work.into_par_iter().map(one).collect()
            })
        })??;
        let width = heads * delta.shape.value_dim;
        Ok(Tensor::from_vec(out.concat(), (rows, width), &Device::Cpu)?)
    }
}

impl LaneAttention<'_> {
    /// Every (row, key head) on its own; `group` is the width of the queries that share a key head.
    fn mix(&self, layer: usize, queries: &[f32], out: &mut [f32], group: usize) {
        let shape = self.cache.shape();
        let one = |scores: &mut Vec<f32>, (index, (out, queries)): (usize, (&mut [f32], &[f32]))| {
            let place = self.places[index / shape.kv_heads];
            let context = self.cache.head(place.lane, layer, index % shape.kv_heads, place.position + 1);
            kernels::attend(queries, context, scores, out);
        };
        let work: usize = self.places.iter().map(|p| (p.position + 1) * group * shape.kv_heads).sum();
        if work < PARALLEL_FROM {
            let mut scores = Vec::new();
            out.chunks_exact_mut(group)
                .zip(queries.chunks_exact(group))
                .enumerate()
                .for_each(|x| one(&mut scores, x));
        } else {
            out.par_chunks_exact_mut(group)
                .zip(queries.par_chunks_exact(group))
                .enumerate()
                .for_each_init(Vec::new, one);
        }
    }
}

/// Reads a contiguous f32 tensor in main memory, in place.
pub fn with_f32<R>(tensor: &Tensor, read: impl FnOnce(&[f32]) -> R) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    let data = match &*storage {
        Storage::Cpu(CpuStorage::F32(data)) => data.as_slice(),
        _ => return Err(Error::invalid("generation needs f32 tensors in main memory")),
    };
    let (start, end) =
        layout.contiguous_offsets().ok_or_else(|| Error::invalid("generation needs contiguous tensors"))?;
    Ok(read(&data[start..end]))
}
