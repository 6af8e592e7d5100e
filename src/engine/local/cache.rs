//! What every lane has computed, in pools of fixed size: values laid out
//! `[lane][layer][kv_head][position][head_dim]`, keys the same but with the positions of a
//! block interleaved ([`KeyLine`]), and for layers of the gated delta rule one memory a lane, which
//! stands where the lane's last token left it. A prefix moves between lanes by copy, never
//! by reference, so that no two sequences can write to the same memory.

use super::kernels::{Context, KEY_BLOCK, KeyLine};
use crate::model::Config;
use crate::model::delta::Memory;

/// Dimensions of one lane.
#[derive(Debug, Clone, Copy)]
pub struct LaneShape {
    /// Layers with keys and values.
    pub layers: usize,
    /// Layers with a memory instead.
    pub delta_layers: usize,
    /// Numbers of a memory's convolution tail and of its state.
    pub memory: [usize; 2],
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Most positions.
    pub context: usize,
}

impl LaneShape {
    /// For a network and calls of at most `context` tokens.
    pub fn new(config: &Config, context: usize) -> Self {
        let delta_layers = (0..config.layers).filter(|layer| config.is_delta(*layer)).count();
        let memory = |d: &crate::model::config::DeltaConfig| [(d.taps - 1) * d.channels(), d.shape.state()];
        LaneShape {
            layers: config.layers - delta_layers,
            delta_layers,
            memory: config.delta.as_ref().map_or([0, 0], memory),
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            context,
        }
    }

    /// Lines of a head's keys.
    fn head_lines(&self) -> usize {
        self.context.div_ceil(KEY_BLOCK) * self.head_dim
    }

    /// Elements of a head's values.
    fn head_values(&self) -> usize {
        self.context * self.head_dim
    }

    /// Bytes of one lane: keys, values and memories.
    pub fn bytes(&self) -> usize {
        let head = self.head_lines() * KEY_BLOCK + self.head_values();
        let memories = self.delta_layers * self.memory.iter().sum::<usize>();
        (self.layers * self.kv_heads * head + memories) * size_of::<f32>()
    }
}

/// The pools.
pub struct Cache {
    shape: LaneShape,
    keys: Vec<KeyLine>,
    values: Vec<f32>,
    /// `[delta layer][lane]`: tail, then state.
    memories: Vec<Vec<Vec<f32>>>,
    /// Number of each layer of the network among those of its kind.
    ordinals: Vec<usize>,
}

impl Cache {
    /// Pools of `lanes` lanes. The system hands out their pages when they are first written.
    pub fn new(lanes: usize, shape: LaneShape, config: &Config) -> Self {
        let heads = lanes * shape.layers * shape.kv_heads;
        let ordinal = |layer: usize| {
            (0..layer).filter(|before| config.is_delta(*before) == config.is_delta(layer)).count()
        };
        let memory = vec![0.0; shape.memory.iter().sum()];
        Cache {
            ordinals: (0..config.layers).map(ordinal).collect(),
            memories: vec![vec![memory; lanes]; shape.delta_layers],
            shape,
            keys: vec![[0.0; KEY_BLOCK]; heads * shape.head_lines()],
            values: vec![0.0; heads * shape.head_values()],
        }
    }

    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        match self.memories.first() {
            Some(layer) => layer.len(),
            None => self.values.len() / (self.shape.layers * self.shape.kv_heads * self.shape.head_values()),
        }
    }

    /// Dimensions of a lane.
    pub fn shape(&self) -> &LaneShape {
        &self.shape
    }

    /// Number of a head among all heads of all lanes.
    fn number(&self, lane: usize, layer: usize, head: usize) -> usize {
        debug_assert!(layer < self.shape.layers && head < self.shape.kv_heads);
        (lane * self.shape.layers + layer) * self.shape.kv_heads + head
    }

    /// The memories of a layer of the network, one a lane, as the rule takes them.
    pub fn memories(&mut self, layer: usize) -> impl Iterator<Item = Memory<'_>> {
        let [tail, _] = self.shape.memory;
        self.memories[self.ordinals[layer]].iter_mut().map(move |memory| {
            let (tail, state) = memory.split_at_mut(tail);
            Memory { tail, state }
        })
    }

    /// Empties a lane's memories: what comes next is a sequence's first token.
    pub fn forget(&mut self, lane: usize) {
        for layer in &mut self.memories {
            layer[lane].fill(0.0);
        }
    }

    /// A head's first `positions` positions in a layer of the network.
    pub fn head(&self, lane: usize, layer: usize, head: usize, positions: usize) -> Context<'_> {
        let LaneShape { head_dim, .. } = self.shape;
        let number = self.number(lane, self.ordinals[layer], head);
        Context {
            keys: &self.keys[number * self.shape.head_lines()..][..positions.div_ceil(KEY_BLOCK) * head_dim],
            values: &self.values[number * self.shape.head_values()..][..positions * head_dim],
            positions,
            head_dim,
        }
    }

    /// Writes one position of a layer; `keys, values: [kv_heads * head_dim]`.
    pub fn write(&mut self, lane: usize, layer: usize, position: usize, keys: &[f32], values: &[f32]) {
        let width = self.shape.head_dim;
        for (head, (key, value)) in keys.chunks_exact(width).zip(values.chunks_exact(width)).enumerate() {
            let number = self.number(lane, self.ordinals[layer], head);
            let block = number * self.shape.head_lines() + position / KEY_BLOCK * width;
            for (line, x) in self.keys[block..][..width].iter_mut().zip(key) {
                line[position % KEY_BLOCK] = *x;
            }
            let row = number * self.shape.head_values() + position * width;
            self.values[row..][..width].copy_from_slice(value);
        }
    }

    /// Copies the first `positions` positions of every layer from one lane to another, and the memories
    /// as they stand. Later keys of the last block come along; they are written before they are read.
    pub fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) {
        if from == to || positions == 0 {
            return;
        }
        for layer in &mut self.memories {
            if let Ok([source, target]) = layer.get_disjoint_mut([from, to]) {
                target.copy_from_slice(source);
            }
        }
        let LaneShape { layers, kv_heads, head_dim, .. } = self.shape;
        let (head_lines, head_values) = (self.shape.head_lines(), self.shape.head_values());
        for layer in 0..layers {
            for head in 0..kv_heads {
                let (source, target) = (self.number(from, layer, head), self.number(to, layer, head));
                let lines =
                    source * head_lines..source * head_lines + positions.div_ceil(KEY_BLOCK) * head_dim;
                self.keys.copy_within(lines, target * head_lines);
                let rows = source * head_values..source * head_values + positions * head_dim;
                self.values.copy_within(rows, target * head_values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::model;

    /// Keys and values `[positions, head_dim]` of a head.
    fn read(cache: &Cache, lane: usize, layer: usize, head: usize, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let Context { keys, values, head_dim, .. } = cache.head(lane, layer, head, positions);
        let key = |p: usize| (0..head_dim).map(move |d| keys[p / KEY_BLOCK * head_dim + d][p % KEY_BLOCK]);
        ((0..positions).flat_map(key).collect(), values.to_vec())
    }

    #[test]
    fn a_copied_prefix_is_equal_and_independent() {
        let context = KEY_BLOCK + 5;
        let config = Config { layers: 2, kv_heads: 3, head_dim: 4, ..model("llama_tied").config };
        let mut cache = Cache::new(3, LaneShape::new(&config, context), &config);
        let row = |seed: usize| (0..12).map(|i| (seed * 100 + i) as f32).collect::<Vec<_>>();
        for lane in 0..3 {
            for layer in 0..2 {
                for position in 0..context {
                    let seed = (lane * 2 + layer) * context + position;
                    cache.write(lane, layer, position, &row(seed), &row(seed + 1000));
                }
            }
        }
        let last = read(&cache, 2, 1, 2, context);
        assert_eq!(last.0[(context - 1) * 4..], row(6 * context - 1)[8..]);
        assert_eq!(last.1[(context - 1) * 4..], row(6 * context - 1 + 1000)[8..]);
        for positions in [3, KEY_BLOCK, KEY_BLOCK + 2] {
            cache.copy_prefix(0, 2, positions);
            for layer in 0..2 {
                for head in 0..3 {
                    assert_eq!(
                        read(&cache, 0, layer, head, positions),
                        read(&cache, 2, layer, head, positions)
                    );
                }
            }
            assert_eq!(read(&cache, 2, 1, 2, context).1[positions * 4..], last.1[positions * 4..]);
        }
        cache.write(2, 0, 0, &[7.0; 12], &[8.0; 12]);
        assert_eq!(read(&cache, 0, 0, 0, 1).0[0], 0.0, "the source is untouched");
        assert_eq!(read(&cache, 2, 0, 2, 1), (vec![7.0; 4], vec![8.0; 4]));
        assert_eq!(cache.shape().bytes(), 4 * 2 * 3 * 4 * (2 * KEY_BLOCK + context));
    }
}
