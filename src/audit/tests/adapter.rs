//! The adapter of the honest workspace: its weights, what they merge to, and its configuration.

use super::workspace::plan;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// Norm of B A in the adapter, which is scaled by alpha / rank = 2.
pub const NORM: f64 = 5.0;

/// What stands in the adapter's and the merged weights' files: a change of one matrix, of norm 5.
pub fn weights() -> [Vec<u8>; 2] {
    use safetensors::{Dtype, tensor::TensorView};
    let bytes = |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
    let rank = plan().training.rank;
    let (mut a, mut b) = (vec![0.; rank * 3], vec![0.; 4 * rank]);
    // A passes two inputs on; B takes the first to a 3, the second to a 4.
    (a[0], a[4], b[0], b[rank + 1]) = (1., 1., 3., 4.);
    let (a, b) = (bytes(&a), bytes(&b));
    let name = |half: &str| format!("base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight");
    let tensors = [
        (name("A"), TensorView::new(Dtype::F32, vec![rank, 3], &a).unwrap()),
        (name("B"), TensorView::new(Dtype::F32, vec![4, rank], &b).unwrap()),
    ];
    [safetensors::serialize(tensors, None).unwrap(), b"merged".to_vec()]
}

/// Where the adapter's configuration lies.
pub const CONFIGURATION: &str = "adapters/1/adapter_config.json";

/// The configuration of the adapter, as every training writes it.
pub fn adapter_config() -> Value {
    let training = &plan().training;
    json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": training.rank, "lora_alpha": training.alpha,
        "bias": "none", "target_modules": ["q_proj"], "rank_pattern": {}, "alpha_pattern": {},
        "layers_to_transform": null, "modules_to_save": null, "use_rslora": false, "use_dora": false,
        "fan_in_fan_out": false,
    })
}

/// Hashes of adapter and merged weights.
pub fn weights_sha256() -> &'static [String; 2] {
    static WEIGHTS: OnceLock<[String; 2]> = OnceLock::new();
    WEIGHTS.get_or_init(|| weights().map(|bytes| crate::hash::sha256_hex(&bytes)))
}
