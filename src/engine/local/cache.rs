//! Keys and values of every lane in two pools of fixed size: values laid out
//! `[lane][layer][kv_head][position][head_dim]`, keys the same but with the positions of a
//! block interleaved ([`KeyLine`]). A prefix moves between lanes by copy, never
//! by reference, so that no two sequences can write to the same memory.

use super::kernels::{Context, KEY_BLOCK, KeyLine};

/// Dimensions of one lane.
#[derive(Debug, Clone, Copy)]
pub struct LaneShape {
    /// Decoder layers.
    pub layers: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Most positions.
    pub context: usize,
}

impl LaneShape {
    /// Lines of a head's keys.
    fn head_lines(&self) -> usize {
        self.context.div_ceil(KEY_BLOCK) * self.head_dim
    }

    /// Elements of a head's values.
    fn head_values(&self) -> usize {
        self.context * self.head_dim
    }

    /// Bytes of keys and values of one lane.
    pub fn bytes(&self) -> usize {
        let head = self.head_lines() * KEY_BLOCK + self.head_values();
        self.layers * self.kv_heads * head * size_of::<f32>()
    }
}

/// The pools.
pub struct Cache {
    shape: LaneShape,
    keys: Vec<KeyLine>,
    values: Vec<f32>,
}

impl Cache {
    /// Pools of `lanes` lanes. The system hands out their pages when they are first written.
    pub fn new(lanes: usize, shape: LaneShape) -> Self {
        let heads = lanes * shape.layers * shape.kv_heads;
        Cache {
            shape,
            keys: vec![[0.0; KEY_BLOCK]; heads * shape.head_lines()],
            values: vec![0.0; heads * shape.head_values()],
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

    /// A head's first `positions` positions.
    pub fn head(&self, lane: usize, layer: usize, head: usize, positions: usize) -> Context<'_> {
        let LaneShape { head_dim, .. } = self.shape;
        let number = self.number(lane, layer, head);
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
            let number = self.number(lane, layer, head);
            let block = number * self.shape.head_lines() + position / KEY_BLOCK * width;
            for (line, x) in self.keys[block..][..width].iter_mut().zip(key) {
                line[position % KEY_BLOCK] = *x;
            }
            let row = number * self.shape.head_values() + position * width;
            self.values[row..][..width].copy_from_slice(value);
        }
    }

    /// Copies the first `positions` positions of every layer from one lane to another. Later keys
    /// of the last block come along; they are written before they are read.
    pub fn copy_prefix(&mut self, from: usize, to: usize, positions: usize) {
        if from == to || positions == 0 {
            return;
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

    /// Keys and values `[positions, head_dim]` of a head.
    fn read(cache: &Cache, lane: usize, layer: usize, head: usize, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let Context { keys, values, head_dim, .. } = cache.head(lane, layer, head, positions);
        let key = |p: usize| (0..head_dim).map(move |d| keys[p / KEY_BLOCK * head_dim + d][p % KEY_BLOCK]);
        ((0..positions).flat_map(key).collect(), values.to_vec())
    }

    #[test]
    fn a_copied_prefix_is_equal_and_independent() {
        let context = KEY_BLOCK + 5;
        let shape = LaneShape { layers: 2, kv_heads: 3, head_dim: 4, context };
        let mut cache = Cache::new(3, shape);
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
