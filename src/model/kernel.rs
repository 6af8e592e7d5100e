//! The matrix product behind every linear map on the CPU. Each output is one chain of fused
//! multiply-adds over the inner dimension in its order, so that a row's result is the same
//! to the bit whatever the number of rows, their order, or the number of threads.
//!
//! A general gemm does not promise that. Measured with candle's on the shapes of SmolLM2: rows
//! agree for 2 to 512 rows, but one row alone takes another path and differs. Here any number
//! of rows is safe. Weights are packed once into panels of `LANES` columns.

use rayon::prelude::*;
use std::sync::OnceLock;

/// Columns of a panel: two AVX-512 registers, four AVX2 registers.
const LANES: usize = 32;

/// Products with fewer multiply-adds than this run on the calling thread.
const PARALLEL_FROM: usize = 1 << 16;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([f32; LANES]);

/// A matrix `[inner, columns]` in panels: line `p * inner + k` holds row `k` of the columns
/// from `p * LANES` on, padded with zeros.
pub struct Packed {
    inner: usize,
    columns: usize,
    lines: Vec<Line>,
}

impl Packed {
    /// Packs the transpose of a row-major `[columns, inner]`, the layout in which checkpoints store a weight.
    pub fn from_rows(w: &[f32], columns: usize, inner: usize) -> Self {
        Self::build(inner, columns, |k, column| w[column * inner + k])
    }

    /// Packs a row-major `[inner, columns]`.
    pub fn from_columns(w: &[f32], inner: usize, columns: usize) -> Self {
        Self::build(inner, columns, |k, column| w[k * columns + column])
    }

    fn build(inner: usize, columns: usize, at: impl Fn(usize, usize) -> f32 + Sync) -> Self {
        let mut lines = vec![Line([0.0; LANES]); columns.div_ceil(LANES) * inner];
        let fill = |(panel, lines): (usize, &mut [Line])| {
            let first = panel * LANES;
            let width = LANES.min(columns - first);
            // Sixteen lines at a time: each source cache line is then read whole.
            for (block, lines) in lines.chunks_mut(16).enumerate() {
                for column in 0..width {
                    for (offset, line) in lines.iter_mut().enumerate() {
                        line.0[column] = at(block * 16 + offset, first + column);
                    }
                }
            }
        };
        if inner > 0 {
            if inner * columns < PARALLEL_FROM {
                lines.chunks_mut(inner).enumerate().for_each(fill);
            } else {
                lines.par_chunks_mut(inner).enumerate().for_each(fill);
            }
        }
        Packed { inner, columns, lines }
    }

    /// Length of the summed dimension.
    pub fn inner(&self) -> usize {
        self.inner
    }

    /// Number of output columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    fn get(&self, k: usize, column: usize) -> f32 {
        self.lines[(column / LANES) * self.inner + k].0[column % LANES]
    }

    /// The matrix packed the other way round: its rows become columns.
    pub fn transposed(&self) -> Packed {
        Self::build(self.columns, self.inner, |k, column| self.get(column, k))
    }

    /// Row-major `[columns, inner]`: what `from_rows` was given.
    pub fn to_rows(&self) -> Vec<f32> {
        let mut w = vec![0.0; self.columns * self.inner];
        if self.inner > 0 {
            w.par_chunks_mut(self.inner).enumerate().for_each(|(column, row)| {
                for (k, value) in row.iter_mut().enumerate() {
                    *value = self.get(k, column);
                }
            });
        }
        w
    }
}

/// The instruction set that the product uses on this machine. The two vector paths give the same bits, and so
/// does the portable one where the processor has a fused multiply-add (aarch64); elsewhere it rounds twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// 512-bit vectors.
    Avx512,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// Whatever the compiler's target offers.
    Portable,
}

impl InstructionSet {
    /// The best that this machine offers.
    pub fn detect() -> Self {
        static DETECTED: OnceLock<InstructionSet> = OnceLock::new();
        *DETECTED.get_or_init(|| {
            #[cfg(target_arch = "x86_64")]
            {
                if is_x86_feature_detected!("avx512f") {
                    return InstructionSet::Avx512;
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    return InstructionSet::Avx2;
                }
            }
            InstructionSet::Portable
        })
    }

    /// All that this machine offers, the best first.
    #[cfg(test)]
    fn available() -> Vec<Self> {
        let all = [InstructionSet::Avx512, InstructionSet::Avx2, InstructionSet::Portable];
        let best = all.iter().position(|set| *set == Self::detect()).unwrap_or_default();
        // A processor with AVX-512 has AVX2 and its fused multiply-add.
        all[best..].to_vec()
    }

    /// Name for an identity or a report.
    pub fn name(self) -> &'static str {
        match self {
            InstructionSet::Avx512 => "avx512",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Portable => "portable",
        }
    }

    /// Rows of a register tile: as many accumulators as the register file holds beside operands.
    fn tile_rows(self) -> usize {
        match self {
            InstructionSet::Avx512 => MAX_TILE_ROWS,
            InstructionSet::Avx2 | InstructionSet::Portable => 3,
        }
    }
}

/// `x: [rows, inner]` times a packed `[inner, columns]`: row-major `[rows, columns]`.
pub fn multiply(x: &[f32], rows: usize, w: &Packed) -> Vec<f32> {
    multiply_with(InstructionSet::detect(), x, rows, w, w.inner, w.columns)
}

/// The product with the first `inner` rows and the first `columns` columns of `w` alone:
/// `x: [rows, inner]` to `[rows, columns]`, the same bits as if `w` were that small.
pub fn multiply_part(x: &[f32], rows: usize, w: &Packed, inner: usize, columns: usize) -> Vec<f32> {
    multiply_with(InstructionSet::detect(), x, rows, w, inner, columns)
}

fn multiply_with(
    set: InstructionSet,
    x: &[f32],
    rows: usize,
    w: &Packed,
    inner: usize,
    columns: usize,
) -> Vec<f32> {
    assert!(inner <= w.inner && columns <= w.columns, "a part is not larger than its matrix");
    assert_eq!(x.len(), rows * inner, "rows have the matrix's inner length");
    if inner == 0 {
        return vec![0.0; rows * columns];
    }
    let mut out = Vec::with_capacity(rows * columns);
    let output = Output(out.as_mut_ptr());
    let (tiles, panels) = (rows.div_ceil(set.tile_rows()), columns.div_ceil(LANES));
    let work = |panel: usize, tile: usize| {
        let lines = &w.lines[panel * w.inner..][..inner];
        // Tiles as equal in size as can be.
        let (first_row, last_row) = (rows * tile / tiles, rows * (tile + 1) / tiles);
        let first_column = panel * LANES;
        let width = LANES.min(columns - first_column);
        let mut sums = [[0.0f32; LANES]; MAX_TILE_ROWS];
        run_tile(set, last_row - first_row, &x[first_row * inner..last_row * inner], lines, &mut sums);
        for (row, sums) in (first_row..last_row).zip(&sums) {
            // SAFETY: the range is within row `row` of `out`, which has room for `rows * columns` numbers and
            // is not touched before the loops below are done; each (panel, tile) pair owns its rectangle.
            unsafe { output.write(row * columns + first_column, &sums[..width]) };
        }
    };
    if rows * inner * columns < PARALLEL_FROM {
        (0..panels * tiles).for_each(|i| work(i / tiles, i % tiles));
    } else if panels >= 8 {
        // A panel stays in the cache while all tiles pass over it.
        (0..panels).into_par_iter().for_each(|panel| (0..tiles).for_each(|tile| work(panel, tile)));
    } else {
        (0..panels * tiles).into_par_iter().for_each(|i| work(i / tiles, i % tiles));
    }
    // SAFETY: the tiles cover all rows and the panels all columns, so every number was written.
    unsafe { out.set_len(rows * columns) };
    out
}

struct Output(*mut f32);

// SAFETY: the pointer is only written through, at rectangles that no two tasks share.
unsafe impl Sync for Output {}

impl Output {
    /// # Safety
    /// `start + values.len()` must be within the allocation, and no other task may touch that range.
    unsafe fn write(&self, start: usize, values: &[f32]) {
        // SAFETY: promised by the caller.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0.add(start), values.len()) };
    }
}

/// Most rows of a register tile on any instruction set.
const MAX_TILE_ROWS: usize = 10;

/// Writes row-major `[rows, columns]` as `[columns, rows]`, in blocks that fit the cache.
pub fn transpose(x: &[f32], columns: usize, out: &mut [f32]) {
    const BLOCK: usize = 16;
    let rows = x.len().checked_div(columns).unwrap_or_default();
    for first in (0..columns).step_by(BLOCK) {
        let last = columns.min(first + BLOCK);
        for (row, values) in x.chunks_exact(columns).enumerate() {
            for (column, value) in (first..last).zip(&values[first..last]) {
                out[column * rows + row] = *value;
            }
        }
    }
}

type Sums = [[f32; LANES]; MAX_TILE_ROWS];

fn run_tile(set: InstructionSet, rows: usize, x: &[f32], lines: &[Line], sums: &mut Sums) {
    match set {
        // SAFETY: the set was detected on this machine.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => unsafe { tile_avx512(rows, x, lines, sums) },
        // SAFETY: the set was detected on this machine.
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => unsafe { tile_avx2(rows, x, lines, sums) },
        _ => tile_portable(rows, x, lines, sums),
    }
}

/// Calls `$tile` with the number of rows as a constant, so that its accumulators are registers.
macro_rules! for_rows {
    ($rows:expr, $tile:ident($x:expr, $lines:expr, $sums:expr), $($n:literal)*) => {
        match $rows {
            $($n => $tile::<$n>($x, $lines, $sums),)*
            other => unreachable!("no tile has {other} rows"),
        }
    };
}

/// One vector instruction set's tiles: the same loop for each, over `$parts` registers a line.
#[cfg(target_arch = "x86_64")]
macro_rules! vector_tiles {
    ($entry:ident, $tile:ident, $features:literal, $parts:literal, $zero:ident, $load:ident, $set:ident, $fma:ident,
     $store:ident, $($n:literal)*) => {
        #[target_feature(enable = $features)]
        fn $entry(rows: usize, x: &[f32], lines: &[Line], sums: &mut Sums) {
            for_rows!(rows, $tile(x, lines, sums), $($n)*);
        }

        #[target_feature(enable = $features)]
        fn $tile<const ROWS: usize>(x: &[f32], lines: &[Line], sums: &mut Sums) {
            use std::arch::x86_64::{$fma, $load, $set, $store, $zero};
            const WIDTH: usize = LANES / $parts;
            let mut accumulators = [[$zero(); $parts]; ROWS];
            let inner = lines.len();
            assert_eq!(x.len(), ROWS * inner, "a tile has its rows");
            for (k, line) in lines.iter().enumerate() {
                for part in 0..$parts {
                    // SAFETY: a line is LANES floats, aligned to 64 bytes.
                    let weights = unsafe { $load(line.0.as_ptr().add(WIDTH * part)) };
                    for (row, accumulators) in accumulators.iter_mut().enumerate() {
                        // SAFETY: below ROWS * inner, the length of x; a checked access adds a branch to every row.
                        let x = unsafe { *x.get_unchecked(row * inner + k) };
                        accumulators[part] = $fma($set(x), weights, accumulators[part]);
                    }
                }
            }
            for (sums, accumulators) in sums.iter_mut().zip(&accumulators) {
                for (part, value) in accumulators.iter().enumerate() {
                    // SAFETY: each row of sums is LANES floats.
                    unsafe { $store(sums.as_mut_ptr().add(WIDTH * part), *value) };
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector_tiles!(tile_avx512, rows_avx512, "avx512f", 2, _mm512_setzero_ps, _mm512_load_ps, _mm512_set1_ps,
    _mm512_fmadd_ps, _mm512_storeu_ps, 1 2 3 4 5 6 7 8 9 10);
#[cfg(target_arch = "x86_64")]
vector_tiles!(tile_avx2, rows_avx2, "avx2,fma", 4, _mm256_setzero_ps, _mm256_load_ps, _mm256_set1_ps,
    _mm256_fmadd_ps, _mm256_storeu_ps, 1 2 3);

fn tile_portable(rows: usize, x: &[f32], lines: &[Line], sums: &mut Sums) {
    for_rows!(rows, rows_portable(x, lines, sums), 1 2 3);
}

fn rows_portable<const ROWS: usize>(x: &[f32], lines: &[Line], sums: &mut Sums) {
    let mut accumulators = [[0.0f32; LANES]; ROWS];
    let x: [&[f32]; ROWS] = std::array::from_fn(|row| &x[row * lines.len()..][..lines.len()]);
    for (k, line) in lines.iter().enumerate() {
        for (sums, x) in accumulators.iter_mut().zip(x) {
            let x = x[k];
            for (sum, weight) in sums.iter_mut().zip(&line.0) {
                // Without a fused instruction `mul_add` is a slow library call.
                *sum =
                    if cfg!(target_arch = "aarch64") { x.mul_add(*weight, *sum) } else { x * weight + *sum };
            }
        }
    }
    sums[..ROWS].copy_from_slice(&accumulators);
}

/// The processor family and those of its vector extensions that change results here or in
/// the matrix products, such as `x86_64+avx2+fma`.
pub fn instruction_set() -> String {
    let mut name = std::env::consts::ARCH.to_string();
    #[cfg(target_arch = "x86_64")]
    for (feature, present) in [
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ] {
        if present {
            name.push('+');
            name.push_str(feature);
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{normal, numbers};
    use proptest::prelude::*;

    /// Matrices of SmolLM2, as inner × columns, and a LoRA pair of rank 16.
    const SHAPES: [(usize, usize); 6] =
        [(576, 576), (576, 192), (576, 1536), (1536, 576), (576, 16), (16, 576)];

    fn rows(x: &[f32], inner: usize, order: &[usize]) -> Vec<f32> {
        order.iter().flat_map(|r| x[r * inner..][..inner].to_vec()).collect()
    }

    #[test]
    fn a_row_is_the_same_bits_in_any_company() {
        for (inner, columns) in SHAPES {
            let w = Packed::from_rows(&numbers(&normal("w", columns, inner)), columns, inner);
            let x = numbers(&normal("x", 64, inner));
            let alone: Vec<Vec<f32>> = (0..64).map(|r| multiply(&rows(&x, inner, &[r]), 1, &w)).collect();
            for count in [2, 3, 5, 8, 12, 13, 16, 31, 32, 33, 48, 64] {
                // Another order for each count: 29 has no factor in common with any of them but itself.
                let order: Vec<usize> = (0..count).map(|i| (i * 29 + count) % 64).collect();
                let together = multiply(&rows(&x, inner, &order), count, &w);
                for (place, row) in order.iter().enumerate() {
                    let found = &together[place * columns..][..columns];
                    assert!(found == alone[*row], "{inner}x{columns}, row {row} at {place} of {count}");
                }
            }
        }
    }

    #[test]
    fn the_head_of_smollm2_keeps_rows_apart() {
        let (inner, columns) = (576, 49_152);
        let w = Packed::from_rows(&numbers(&normal("w", columns, inner)), columns, inner);
        let x = numbers(&normal("x", 17, inner));
        let (all, one) = (multiply(&x, 17, &w), multiply(&x[16 * inner..], 1, &w));
        assert!(all[16 * columns..] == one);
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let w = Packed::from_rows(&numbers(&normal("w", 576, 576)), 576, 576);
        let x = numbers(&normal("x", 33, 576));
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| multiply(&x, 33, &w))
        };
        let one = with(1);
        assert!(one == with(2) && one == with(5));
    }

    #[test]
    fn vector_paths_give_the_same_bits_and_the_portable_one_nearly() {
        let sets = InstructionSet::available();
        println!("compared: {}", sets.iter().map(|s| s.name()).collect::<Vec<_>>().join(", "));
        for (rows, inner, columns) in [(1, 1, 1), (7, 300, 70), (10, 64, 32), (11, 65, 33), (23, 576, 192)] {
            let (x, w) = (numbers(&normal("x", rows, inner)), numbers(&normal("w", columns, inner)));
            let w = Packed::from_rows(&w, columns, inner);
            let results: Vec<_> =
                sets.iter().map(|set| multiply_with(*set, &x, rows, &w, inner, columns)).collect();
            for (set, result) in sets.iter().zip(&results) {
                let exact = cfg!(target_arch = "aarch64") || *set != InstructionSet::Portable;
                assert!(
                    !exact || *result == results[0],
                    "{} differs at {rows}x{inner}x{columns}",
                    set.name()
                );
                assert!(results[0].iter().zip(result).all(|(a, b)| (a - b).abs() < 2e-4), "{}", set.name());
            }
        }
    }

    #[test]
    fn a_part_is_the_product_with_a_smaller_matrix() {
        let (x, w) = (numbers(&normal("x", 5, 20)), numbers(&normal("w", 90, 40)));
        let small: Vec<f32> = w.chunks(40).take(50).flat_map(|row| row[..20].to_vec()).collect();
        let part = multiply_part(&x, 5, &Packed::from_rows(&w, 90, 40), 20, 50);
        assert!(part == multiply(&x, 5, &Packed::from_rows(&small, 50, 20)));
    }

    #[test]
    fn packing_loses_nothing() {
        let w = numbers(&normal("w", 45, 37));
        let packed = Packed::from_rows(&w, 45, 37);
        assert!(packed.to_rows() == w);
        let turned = packed.transposed();
        assert_eq!((turned.inner(), turned.columns()), (45, 37));
        assert!(turned.transposed().to_rows() == w);
        assert!(Packed::from_columns(&w, 45, 37).to_rows() == turned.to_rows());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn agrees_with_the_sum_in_f64(rows in 0usize..20, inner in 0usize..50, columns in 0usize..80) {
            let (x, w) = (numbers(&normal("x", rows, inner)), numbers(&normal("w", columns, inner)));
            let product = multiply(&x, rows, &Packed::from_rows(&w, columns, inner));
            prop_assert_eq!(product.len(), rows * columns);
            for row in 0..rows {
                for column in 0..columns {
                    let terms = (0..inner).map(|k| f64::from(x[row * inner + k]) * f64::from(w[column * inner + k]));
                    let wanted: f64 = terms.sum();
                    prop_assert!((f64::from(product[row * columns + column]) - wanted).abs() < 1e-4);
                }
            }
        }
    }
}
