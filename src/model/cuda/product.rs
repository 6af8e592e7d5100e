//! How a product is started: which kernel for how many rows, and how it is cut so that it fills the card.

use super::gpu::{Arg, Buffer};
use super::network::{Network, Step, WARP};
use super::weights::{Layer, Matrix, Site};
use super::{MOST_SHARES, Precision};
use crate::error::Result;

/// Blocks of inner indices on their way to a product of many rows (as in `product.cu`).
const STAGES: usize = 4;

/// Blocks of threads that fill a card: two for each multiprocessor. With fewer, a product is cut further; from there on,
/// larger blocks are used.
pub(super) const FULL: usize = 264;

/// Numbers that the parts of a product hand over, at most.
pub(super) const PARTED: usize = FULL * MOST_SHARES * 16 * 128;

/// What is done with a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Store,
    Add,
    Gate,
}

/// The kernels' `Product`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub w: u64,
    pub x: u64,
    pub y: u64,
    pub meta: u64,
    pub pairs: u64,
    pub h: u64,
    pub part: u64,
    pub partial: u64,
    pub arrived: u64,
    pub outputs: i32,
    pub blocks: i32,
    pub shares: i32,
    pub y_stride: i32,
    pub rows: i32,
    pub sites: i32,
    pub site: i32,
    pub h_stride: i32,
}

/// Products in bf16: for up to 8, 16 and 32 rows, and for more; the wide ones have larger blocks.
pub(super) const TILED: [&str; 18] = [
    "product_few_8_store",
    "product_few_8_add",
    "product_few_8_gate",
    "product_few_16_store",
    "product_few_16_add",
    "product_few_16_gate",
    "product_few_32_store",
    "product_few_32_add",
    "product_few_32_gate",
    "product_few_32_wide_store",
    "product_few_32_wide_add",
    "product_few_32_wide_gate",
    "product_many_store",
    "product_many_add",
    "product_many_gate",
    "product_many_wide_store",
    "product_many_wide_add",
    "product_many_wide_gate",
];

/// Shared memory of a product of many rows whose warps have that many tiles and groups.
pub(super) fn stage_bytes(each: usize) -> usize {
    STAGES * 2 * each * (2048 + 1024)
}

impl Network {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn product(
        &self,
        step: &Step,
        number: usize,
        layer: &Layer,
        site: Site,
        x: &Buffer,
        y: &Buffer,
        y_stride: usize,
    ) -> Result<()> {
        let matrix = &layer.matrices[site as usize];
        let (w, adapters) = (step.work, step.adapters);
        let sites = self.weights.layers.len() * Site::ALL.len();
        let place = number * Site::ALL.len() + site as usize;
        let adapted = adapters.count() > 0;
        if adapted {
            let args = [
                x.into(),
                step.rows.into(),
                Arg::At(adapters.table()),
                sites.into(),
                place.into(),
                (&w.h).into(),
                matrix.inner.into(),
                matrix.blocks.into(),
                w.h_stride.into(),
            ];
            self.gpu.launch(self.function("shrink")?, [step.count, 8, 1], [128, 1], 0, &args)?;
        }
        let after = match site {
            Site::Input => After::Store,
            Site::Output | Site::Down => After::Add,
            Site::GateUp => After::Gate,
        };
        let product = Product {
            w: matrix.weights.pointer(),
            x: x.pointer(),
            y: y.pointer(),
            meta: step.rows.pointer(),
            pairs: if adapted { adapters.table() } else { 0 },
            h: w.h.pointer(),
            part: matrix.part.pointer(),
            partial: w.parted.pointer(),
            arrived: w.parts_arrived.pointer(),
            outputs: matrix.outputs as i32,
            blocks: matrix.blocks as i32,
            shares: matrix.shares as i32,
            y_stride: y_stride as i32,
            rows: step.count as i32,
            sites: sites as i32,
            site: place as i32,
            h_stride: w.h_stride as i32,
        };
        self.launch_product(matrix, product, after)
    }

    pub(super) fn launch_product(&self, matrix: &Matrix, product: Product, after: After) -> Result<()> {
        let rows = product.rows as usize;
        let tiles = matrix.outputs.div_ceil(16);
        // SAFETY: `Product` is plain numbers without padding.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const product).cast::<u8>(), size_of::<Product>()) };
        let args = [Arg::Struct(bytes)];
        if self.precision == Precision::F32 {
            let name = ["product_store", "product_add", "product_gate"][after as usize];
            return self.gpu.launch(self.function(name)?, [tiles, rows.div_ceil(8), 1], [WARP, 16], 0, &args);
        }
        let (kind, grid, block, shared) = if rows <= 32 {
            let (kind, together, groups) = match rows {
                0..=8 => (0, 1, 1),
                9..=16 => (1, 1, 2),
                _ if tiles >= 2 * FULL => (3, 2, 4),
                _ => (2, 1, 4),
            };
            let shared = matrix.shares * groups.min(2) * 8 * (together * 16 + 4) * size_of::<f32>();
            (kind, [tiles.div_ceil(together), 1, 1], [WARP, matrix.shares], shared)
        } else if rows.div_ceil(64) * tiles.div_ceil(8) >= FULL {
            (5, [rows.div_ceil(64), tiles.div_ceil(8), 1], [128, 1], stage_bytes(4))
        } else {
            let (across, down) = (rows.div_ceil(32), tiles.div_ceil(4));
            // A part is worth its sums' way through memory from some blocks on.
            let parts = FULL.div_ceil(across * down).min(matrix.blocks / 4).clamp(1, matrix.shares);
            (4, [across, down, parts], [128, 1], stage_bytes(2))
        };
        let name = TILED[kind * 3 + after as usize];
        self.gpu.launch(self.function(name)?, grid, block, shared, &args)
    }
}
