//! LoRA: a low-rank addition `scale * B A x` to a frozen matrix. A set of them is an adapter;
//! which row of a batch uses which adapter is chosen per row. A row without an adapter gets
//! no addition at all, and a row's addition never depends on its neighbours.

use super::config::{Config, DeltaConfig};
use super::linear;
use crate::error::{Error, Result};
use crate::philox::Philox;
use candle_core::{Device, Tensor, Var};

/// The matrices of a decoder layer that an adapter may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Queries.
    Q = 0,
    /// Keys.
    K = 1,
    /// Values.
    V = 2,
    /// Attention output.
    O = 3,
    /// MLP gate.
    Gate = 4,
    /// MLP up.
    Up = 5,
    /// MLP down.
    Down = 6,
    /// Queries, keys and values of a delta layer.
    DeltaQkv = 7,
    /// Output gate of a delta layer.
    DeltaGate = 8,
    /// Shares of a delta layer.
    DeltaShare = 9,
    /// Time steps of a delta layer.
    DeltaStep = 10,
    /// Output of a delta layer.
    DeltaOut = 11,
}

impl Target {
    /// All targets, in the order of their discriminants.
    pub const ALL: [Target; 12] = [
        Target::Q,
        Target::K,
        Target::V,
        Target::O,
        Target::Gate,
        Target::Up,
        Target::Down,
        Target::DeltaQkv,
        Target::DeltaGate,
        Target::DeltaShare,
        Target::DeltaStep,
        Target::DeltaOut,
    ];

    /// Whether a layer of that network has this matrix.
    pub fn is_in(self, config: &Config, layer: usize) -> bool {
        match self {
            Target::Gate | Target::Up | Target::Down => true,
            Target::Q | Target::K | Target::V | Target::O => !config.is_delta(layer),
            _ => config.is_delta(layer),
        }
    }

    /// The matrices of a layer, in the order of [`Target::ALL`].
    pub fn of(config: &Config, layer: usize) -> impl Iterator<Item = Target> {
        Target::ALL.into_iter().filter(move |t| t.is_in(config, layer))
    }

    /// The matrices that any layer of a network has.
    pub fn of_network(config: &Config) -> Vec<Target> {
        Target::ALL.into_iter().filter(|t| (0..config.layers).any(|l| t.is_in(config, l))).collect()
    }

    /// Path within a layer, such as `self_attn.q_proj`.
    pub fn path(self) -> &'static str {
        match self {
            Target::Q => "self_attn.q_proj",
            Target::K => "self_attn.k_proj",
            Target::V => "self_attn.v_proj",
            Target::O => "self_attn.o_proj",
            Target::Gate => "mlp.gate_proj",
            Target::Up => "mlp.up_proj",
            Target::Down => "mlp.down_proj",
            Target::DeltaQkv => "linear_attn.in_proj_qkv",
            Target::DeltaGate => "linear_attn.in_proj_z",
            Target::DeltaShare => "linear_attn.in_proj_b",
            Target::DeltaStep => "linear_attn.in_proj_a",
            Target::DeltaOut => "linear_attn.out_proj",
        }
    }

    /// Name as PEFT's `target_modules` writes it, such as `q_proj`.
    pub fn name(self) -> &'static str {
        self.path().rsplit('.').next().unwrap_or_default()
    }

    /// The target of that PEFT name.
    pub fn from_name(name: &str) -> Result<Target> {
        Target::ALL.into_iter().find(|t| t.name() == name).ok_or_else(|| {
            Error::invalid(format!("unknown LoRA target `{name}`"))
                .hint(format!("known targets: {}", names(&Target::ALL)))
        })
    }

    /// Shape `(out, in)` of the target's matrix; without rows where the network has no such layer.
    pub fn shape(self, config: &Config) -> (usize, usize) {
        let (query, key) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let delta = |width: fn(&DeltaConfig) -> usize| config.delta.as_ref().map_or(0, width);
        match self {
            Target::Q => (query * if config.gates_attention() { 2 } else { 1 }, config.hidden),
            Target::K | Target::V => (key, config.hidden),
            Target::O => (config.hidden, query),
            Target::Gate | Target::Up => (config.intermediate, config.hidden),
            Target::Down => (config.hidden, config.intermediate),
            Target::DeltaQkv => (delta(DeltaConfig::channels), config.hidden),
            Target::DeltaGate => (delta(DeltaConfig::values), config.hidden),
            Target::DeltaShare | Target::DeltaStep => (delta(|d| d.shape.value_heads), config.hidden),
            Target::DeltaOut => (config.hidden, delta(DeltaConfig::values)),
        }
    }
}

/// Names for a message.
pub(super) fn names(targets: &[Target]) -> String {
    targets.iter().map(|t| t.name()).collect::<Vec<_>>().join(", ")
}

/// Shape of a new adapter.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraConfig {
    /// Rank of every pair.
    pub rank: usize,
    /// The addition is scaled by `alpha / rank`.
    pub alpha: f64,
    /// Which matrices get a pair, in every layer that has them.
    pub targets: Vec<Target>,
}

/// The low-rank pair of one matrix.
#[derive(Debug, Clone)]
pub struct Pair {
    /// `[rank, in]`.
    pub a: Tensor,
    /// `[out, rank]`.
    pub b: Tensor,
    /// Factor of the product.
    pub scale: f64,
}

/// An adapter: at most one pair per layer and target, all f32.
#[derive(Debug, Clone)]
pub struct Lora {
    /// Rank, alpha and targets that the adapter was made with (its defaults, where a file has exceptions).
    pub config: LoraConfig,
    /// SHA-256 of the weights file it was read from or written to, once there is one.
    pub sha256: Option<String>,
    layers: Vec<[Option<Pair>; Target::ALL.len()]>,
}

impl Lora {
    /// An adapter without any pair, for `layers` layers.
    pub(super) fn empty(config: LoraConfig, layers: usize) -> Lora {
        Lora { config, sha256: None, layers: (0..layers).map(|_| Default::default()).collect() }
    }

    /// A fresh adapter: A uniform in ±1/sqrt(in) (PEFT's Kaiming bound) from a stream named by `seed`,
    /// layer and target; B zero, so that it changes nothing yet.
    pub fn init(model: &Config, config: &LoraConfig, seed: u64) -> Result<Lora> {
        if config.rank == 0 || !config.alpha.is_finite() || config.alpha <= 0.0 {
            return Err(Error::invalid(format!(
                "LoRA needs a positive rank and alpha, not {} and {}",
                config.rank, config.alpha
            )));
        }
        if config.targets.is_empty() {
            return Err(Error::invalid("LoRA needs at least one target").hint("name targets such as q_proj"));
        }
        if let Some(absent) = config.targets.iter().find(|t| !Target::of_network(model).contains(t)) {
            return Err(Error::invalid(format!("no layer of this network has `{}`", absent.name()))
                .hint(format!("its modules are {}", names(&Target::of_network(model)))));
        }
        let mut lora = Lora::empty(config.clone(), model.layers);
        for layer in 0..model.layers {
            for &target in config.targets.iter().filter(|t| t.is_in(model, layer)) {
                let (out, input) = target.shape(model);
                let mut stream = Philox::named(&format!("lora/{seed}/{layer}/{}", target.path()));
                let bound = 1.0 / (input as f64).sqrt();
                let a: Vec<f32> =
                    (0..config.rank * input).map(|_| ((2.0 * stream.unit() - 1.0) * bound) as f32).collect();
                let pair = Pair {
                    a: Tensor::from_vec(a, (config.rank, input), &Device::Cpu)?,
                    b: Tensor::zeros((out, config.rank), candle_core::DType::F32, &Device::Cpu)?,
                    scale: config.alpha / config.rank as f64,
                };
                lora.set(layer, target, pair);
            }
        }
        Ok(lora)
    }

    /// Puts a pair in place; layers beyond the model are ignored by construction of the callers.
    pub(super) fn set(&mut self, layer: usize, target: Target, pair: Pair) {
        if let Some(slot) = self.layers.get_mut(layer) {
            slot[target as usize] = Some(pair);
        }
    }

    /// The pair of a target in a layer, if there is one.
    pub fn pair(&self, layer: usize, target: Target) -> Option<&Pair> {
        self.layers.get(layer)?[target as usize].as_ref()
    }

    /// Number of decoder layers it was made for.
    pub fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// All pairs with their place, layer by layer in the order of [`Target::ALL`].
    pub fn pairs(&self) -> impl Iterator<Item = (usize, Target, &Pair)> {
        self.layers.iter().enumerate().flat_map(|(layer, pairs)| {
            Target::ALL.into_iter().filter_map(move |t| pairs[t as usize].as_ref().map(|p| (layer, t, p)))
        })
    }

    /// All tensors under their module path (`model.layers.0.self_attn.q_proj.lora_A.weight`), A before B.
    pub fn tensors(&self) -> Vec<(String, Tensor)> {
        self.pairs()
            .flat_map(|(layer, target, pair)| {
                let stem = format!("model.layers.{layer}.{}", target.path());
                [
                    (format!("{stem}.lora_A.weight"), pair.a.clone()),
                    (format!("{stem}.lora_B.weight"), pair.b.clone()),
                ]
            })
            .collect()
    }

    /// A copy whose tensors are fresh variables, with those variables in the order of [`Lora::tensors`].
    /// Setting a variable changes what the copy computes at once.
    pub fn trainable(&self) -> Result<(Lora, Vec<(String, Var)>)> {
        let mut vars = Vec::new();
        let copy = self.map(|name, tensor| {
            let var = Var::from_tensor(tensor)?;
            let live = var.as_tensor().clone();
            vars.push((name, var));
            Ok(live)
        })?;
        Ok((copy, vars))
    }

    /// A copy with its own storage and no link to any variable: what generation runs on while
    /// training goes on.
    pub fn snapshot(&self) -> Result<Lora> {
        self.map(|_, tensor| Ok(tensor.copy()?.detach()))
    }

    /// Whether every product B A is zero because its A or its B is.
    pub fn is_zero(&self) -> Result<bool> {
        let zero = |t: &Tensor| -> Result<bool> { Ok(t.abs()?.max_all()?.to_scalar::<f32>()? == 0.0) };
        for (_, _, pair) in self.pairs() {
            if !zero(&pair.b)? && !zero(&pair.a)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn map(&self, mut f: impl FnMut(String, &Tensor) -> Result<Tensor>) -> Result<Lora> {
        let mut copy = Lora::empty(self.config.clone(), self.layers.len());
        copy.sha256.clone_from(&self.sha256);
        for (layer, target, pair) in self.pairs() {
            let stem = format!("model.layers.{layer}.{}", target.path());
            let a = f(format!("{stem}.lora_A.weight"), &pair.a)?;
            let b = f(format!("{stem}.lora_B.weight"), &pair.b)?;
            copy.set(layer, target, Pair { a, b, scale: pair.scale });
        }
        Ok(copy)
    }
}

/// Which rows of a batch use which adapter.
#[derive(Debug, Clone)]
pub struct RowAdapters<'a> {
    groups: Vec<Group<'a>>,
}

#[derive(Debug, Clone)]
struct Group<'a> {
    lora: &'a Lora,
    /// Row numbers; `None` when every row of the batch belongs to the group.
    rows: Option<Tensor>,
}

impl<'a> RowAdapters<'a> {
    /// No row uses an adapter.
    pub fn base() -> Self {
        RowAdapters { groups: Vec::new() }
    }

    /// Every row uses this adapter.
    pub fn all(lora: &'a Lora) -> Self {
        RowAdapters { groups: vec![Group { lora, rows: None }] }
    }

    /// Each row's choice is an index into `loras`, or none. Errors on an index that is not there.
    pub fn new(of_row: &[Option<usize>], loras: &[&'a Lora]) -> Result<Self> {
        if let Some(bad) = of_row.iter().flatten().find(|i| **i >= loras.len()) {
            return Err(Error::invalid(format!("adapter {bad} does not exist: {} are loaded", loras.len())));
        }
        let mut groups = Vec::new();
        for (index, lora) in loras.iter().enumerate() {
            let rows: Vec<u32> =
                (0..of_row.len()).filter(|r| of_row[*r] == Some(index)).map(|r| r as u32).collect();
            if rows.len() == of_row.len() && !rows.is_empty() {
                groups.push(Group { lora, rows: None });
            } else if !rows.is_empty() {
                let count = rows.len();
                groups.push(Group { lora, rows: Some(Tensor::from_vec(rows, count, &Device::Cpu)?) });
            }
        }
        Ok(RowAdapters { groups })
    }

    /// `y: [rows, out]` with the additions that its rows' adapters make from the matrix's input
    /// `x: [rows, in]`. Differentiable in `x`, `y` and the adapters.
    pub fn apply(&self, layer: usize, target: Target, x: &Tensor, mut y: Tensor) -> Result<Tensor> {
        for group in &self.groups {
            let Some(pair) = group.lora.pair(layer, target) else { continue };
            match &group.rows {
                None => y = (y + delta(pair, x)?)?,
                Some(rows) => y = y.index_add(rows, &delta(pair, &x.index_select(rows, 0)?)?, 0)?,
            }
        }
        Ok(y)
    }
}

/// `scale * B A x` for every row of `x: [rows, in]`: `[rows, out]`.
fn delta(pair: &Pair, x: &Tensor) -> Result<Tensor> {
    // Scaled in the middle, where it is narrow.
    let inner = (linear::rows_times(x, &pair.a)? * pair.scale)?;
    Ok(linear::rows_times(&inner, &pair.b)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{fixtures, model, normal, numbers};

    fn everywhere(model: &Config, rank: usize) -> LoraConfig {
        LoraConfig { rank, alpha: 8.0, targets: Target::of_network(model) }
    }

    #[test]
    fn a_fresh_adapter_changes_nothing_and_repeats() {
        let model = model("llama_tied");
        let lora = Lora::init(&model.config, &everywhere(&model.config, 3), 7).unwrap();
        assert!(lora.is_zero().unwrap());
        assert_eq!(lora.pairs().count(), 4 * 7);
        let (base, same) =
            (model.logits(&[1, 2, 3], None).unwrap(), model.logits(&[1, 2, 3], Some(&lora)).unwrap());
        assert!(numbers(&base) == numbers(&same));
        let (again, other) = (
            Lora::init(&model.config, &everywhere(&model.config, 3), 7).unwrap(),
            Lora::init(&model.config, &everywhere(&model.config, 3), 8).unwrap(),
        );
        let a = |lora: &Lora| numbers(&lora.pair(2, Target::Down).unwrap().a);
        assert!(a(&lora) == a(&again) && a(&lora) != a(&other));
        let bound = 1.0 / 48f32.sqrt();
        assert!(a(&lora).iter().all(|x| x.abs() <= bound) && a(&lora).iter().any(|x| x.abs() > 0.8 * bound));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let config = model("llama_tied").config;
        let with = |rank, alpha, targets: &[Target]| {
            Lora::init(&config, &LoraConfig { rank, alpha, targets: targets.to_vec() }, 1)
        };
        assert!(with(0, 8.0, &[Target::Q]).is_err());
        assert!(with(4, f64::NAN, &[Target::Q]).is_err());
        assert!(with(4, 8.0, &[]).is_err());
        assert!(Target::from_name("lm_head").unwrap_err().to_string().contains("lm_head"));
    }

    #[test]
    fn rows_with_and_without_adapters_share_a_batch_to_the_bit() {
        let model = model("llama_tied");
        let one = model.load_adapter(&fixtures().join("llama_tied/adapter")).unwrap();
        let (two, vars) =
            Lora::init(&model.config, &everywhere(&model.config, 2), 3).unwrap().trainable().unwrap();
        for (name, var) in vars.iter().filter(|(name, _)| name.contains("lora_B")) {
            let shape = var.dims2().unwrap();
            var.set(&(normal(name, shape.0, shape.1) * 0.05).unwrap()).unwrap();
        }
        let x = normal("x", 6, 32);
        let of_row = [None, Some(0), Some(1), Some(0), None, Some(1)];
        let loras = [&one, &two];
        let run = |rows: &[usize]| -> Vec<Vec<f32>> {
            let ids = Tensor::from_vec(
                rows.iter().map(|r| *r as u32).collect::<Vec<_>>(),
                rows.len(),
                &Device::Cpu,
            )
            .unwrap();
            let x = x.index_select(&ids, 0).unwrap();
            let choices: Vec<_> = rows.iter().map(|r| of_row[*r]).collect();
            let y = model.network().unwrap().linear(1, Target::Gate).unwrap().forward(&x).unwrap();
            let y = RowAdapters::new(&choices, &loras).unwrap().apply(1, Target::Gate, &x, y).unwrap();
            (0..rows.len()).map(|r| numbers(&y.narrow(0, r, 1).unwrap())).collect()
        };
        let together = run(&[0, 1, 2, 3, 4, 5]);
        for (row, wanted) in together.iter().enumerate() {
            assert!(run(&[row])[0] == *wanted, "row {row} alone");
            assert!(run(&[row, 4, 2])[0] == *wanted, "row {row} with others");
        }
        let base = model.network().unwrap().linear(1, Target::Gate).unwrap().forward(&x).unwrap();
        assert!(numbers(&base.narrow(0, 4, 1).unwrap()) == together[4]);
        assert!(numbers(&base.narrow(0, 3, 1).unwrap()) != together[3]);
        assert!(RowAdapters::new(&[Some(2)], &loras).is_err());
    }

    #[test]
    fn gradients_reach_both_matrices_in_a_mixed_batch() {
        let model = model("llama_tied");
        let (lora, vars) =
            Lora::init(&model.config, &everywhere(&model.config, 2), 3).unwrap().trainable().unwrap();
        for (name, var) in vars.iter().filter(|(name, _)| name.contains("lora_B")) {
            let shape = var.dims2().unwrap();
            var.set(&normal(name, shape.0, shape.1)).unwrap();
        }
        let of_row = [None, Some(0), Some(0)];
        let rows = super::super::Rows { tokens: &[5, 6, 7], positions: &[0, 1, 2], adapters: &of_row };
        let mut mix = super::super::Causal::one(&model.config, 3);
        let hidden = model.network().unwrap().forward(&rows, &[&lora], &mut mix).unwrap();
        let loss = model.network().unwrap().logits(&hidden).unwrap().sqr().unwrap().sum_all().unwrap();
        let gradients = loss.backward().unwrap();
        for (name, var) in &vars {
            let gradient = numbers(gradients.get(var).unwrap());
            assert!(gradient.iter().any(|g| *g != 0.0), "{name}");
        }
    }

    #[test]
    fn a_snapshot_is_cut_off_from_training() {
        let config = model("llama_tied").config;
        let (live, vars) = Lora::init(&config, &everywhere(&config, 2), 3).unwrap().trainable().unwrap();
        let kept = live.snapshot().unwrap();
        let (name, var) = &vars[1];
        assert_eq!(name, "model.layers.0.self_attn.q_proj.lora_B.weight");
        var.set(&var.ones_like().unwrap()).unwrap();
        assert!(!live.is_zero().unwrap() && kept.is_zero().unwrap());
    }
}
