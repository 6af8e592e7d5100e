//! How a product is started: which kernel for how many rows, and how it is cut so that it fills the card.

use super::Precision;
use super::gpu::{Arg, Buffer};
use super::network::{Network, Step, WARP};
use super::weights::{Matrix, Site};
use crate::error::Result;

/// Blocks of inner indices on their way to a product of many rows (as in `product.cu`).
const STAGES: usize = 4;

/// Blocks of threads that fill a card: two for each multiprocessor. From there on, larger ones are used.
const FULL: usize = 264;

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
struct Product {
    w: u64,
    x: u64,
    y: u64,
    meta: u64,
    pairs: u64,
    h: u64,
    part: u64,
    outputs: i32,
    blocks: i32,
    shares: i32,
    y_stride: i32,
    rows: i32,
    sites: i32,
    site: i32,
    h_stride: i32,
}

/// One product: rows times a matrix, and where to with it.
pub(super) struct Job<'a> {
    pub matrix: &'a Matrix,
    pub x: &'a Buffer,
    pub y: &'a Buffer,
    pub y_stride: usize,
    pub rows: usize,
    pub after: After,
}

impl Product {
    /// Without an adapter.
    fn new(job: &Job, step: &Step) -> Product {
        Product {
            w: job.matrix.weights.pointer(),
            x: job.x.pointer(),
            y: job.y.pointer(),
            meta: step.rows.pointer(),
            pairs: 0,
            h: 0,
            part: job.matrix.part.pointer(),
            outputs: job.matrix.outputs as i32,
            blocks: job.matrix.blocks as i32,
            shares: job.matrix.shares as i32,
            y_stride: job.y_stride as i32,
            rows: job.rows as i32,
            sites: 0,
            site: 0,
            h_stride: 0,
        }
    }
}

/// Products in bf16: for up to 8, 16 and 32 rows, and for more; the wide ones have larger blocks.
pub(super) const TILED: [&str; 15] = [
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
];

/// Shared memory of a product of many rows: of each stage, eight tiles of weights and eight groups of rows.
pub(super) const STAGE_BYTES: usize = STAGES * 8 * (2048 + 1024);

impl Network {
    /// The product of a layer's site.
    pub(super) fn product(
        &self,
        step: &Step,
        number: usize,
        site: Site,
        x: &Buffer,
        y: &Buffer,
        y_stride: usize,
    ) -> Result<()> {
        let layers = &self.weights.layers;
        let after = match site {
            Site::Input => After::Store,
            Site::Output | Site::Down => After::Add,
            Site::GateUp => After::Gate,
        };
        let matrix = &layers[number].matrices[site as usize];
        let job = Job { matrix, x, y, y_stride, rows: step.count, after };
        let mut product = Product::new(&job, step);
        if step.adapters.count() > 0 {
            let sites = layers.len() * Site::ALL.len();
            let place = number * Site::ALL.len() + site as usize;
            let (w, table) = (step.work, step.adapters.table());
            let args = [
                x.into(),
                step.rows.into(),
                Arg::At(table),
                sites.into(),
                place.into(),
                (&w.h).into(),
                matrix.inner.into(),
                matrix.blocks.into(),
                w.h_stride.into(),
            ];
            self.gpu.launch(self.function("shrink")?, [step.count, 8, 1], [128, 1], 0, &args)?;
            product = Product {
                pairs: table,
                h: w.h.pointer(),
                sites: sites as i32,
                site: place as i32,
                h_stride: w.h_stride as i32,
                ..product
            };
        }
        self.launch_product(&job, product)
    }

    /// A product without an adapter.
    pub(super) fn plain_product(&self, step: &Step, job: &Job) -> Result<()> {
        self.launch_product(job, Product::new(job, step))
    }

    fn launch_product(&self, job: &Job, product: Product) -> Result<()> {
        let (matrix, after, rows) = (job.matrix, job.after, job.rows);
        let tiles = matrix.outputs.div_ceil(16);
        // SAFETY: `Product` is plain numbers without padding.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const product).cast::<u8>(), size_of::<Product>()) };
        let args = [Arg::Struct(bytes)];
        if self.precision == Precision::F32 {
            let name = ["product_store", "product_add", "product_gate"][after as usize];
            return self.gpu.launch(self.function(name)?, [tiles, rows.div_ceil(8), 1], [WARP, 16], 0, &args);
        }
        let few = |kind: usize, together: usize, groups: usize| {
            let shared = matrix.shares * groups.min(2) * 8 * (together * 16 + 4) * size_of::<f32>();
            (kind, [tiles.div_ceil(together), rows.div_ceil(8 * groups), 1], [WARP, matrix.shares], shared)
        };
        let wide = [rows.div_ceil(64), tiles.div_ceil(8), 1];
        let (kind, grid, block, shared) = match rows {
            0..=8 => few(0, 1, 1),
            9..=16 => few(1, 1, 2),
            17..=32 if tiles < 2 * FULL => few(2, 1, 4),
            33.. if wide[0] * wide[1] >= FULL => (4, wide, [128, 1], STAGE_BYTES),
            _ => few(3, 2, 4),
        };
        let name = TILED[kind * 3 + after as usize];
        self.gpu.launch(self.function(name)?, grid, block, shared, &args)
    }
}
