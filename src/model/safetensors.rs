//! Weights from a folder of safetensors files, one or sharded, and their writing. Every name
//! of the network must be there with its shape, and nothing else may be, but for the parts of a
//! multimodal checkpoint that text does not use.

use super::check;
use super::config::{Architecture, Config};
use super::lora::Target;
use crate::error::{Error, Result};
use crate::hash;
use ::safetensors::{Dtype, SafeTensors, tensor::TensorView};
use candle_core::safetensors::Load;
use candle_core::{DType, Device, Tensor};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Names and shapes of all tensors of a network, in the order of the layers.
pub fn expected(config: &Config) -> Vec<(String, Vec<usize>)> {
    let mut names = vec![("model.embed_tokens.weight".to_owned(), vec![config.vocab, config.hidden])];
    for layer in 0..config.layers {
        let prefix = format!("model.layers.{layer}");
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            names.push((format!("{prefix}.{norm}.weight"), vec![config.hidden]));
        }
        let delta = config.delta.as_ref().filter(|_| config.is_delta(layer));
        if let Some(delta) = delta {
            let (stem, heads) = (format!("{prefix}.linear_attn"), delta.shape.value_heads);
            names.push((format!("{stem}.conv1d.weight"), vec![delta.channels(), 1, delta.taps]));
            names.push((format!("{stem}.A_log"), vec![heads]));
            names.push((format!("{stem}.dt_bias"), vec![heads]));
            names.push((format!("{stem}.norm.weight"), vec![delta.shape.value_dim]));
        } else if config.normalises_heads() {
            for norm in ["q_norm", "k_norm"] {
                names.push((format!("{prefix}.self_attn.{norm}.weight"), vec![config.head_dim]));
            }
        }
        for target in Target::of(config, layer) {
            let (out, input) = target.shape(config);
            names.push((format!("{prefix}.{}.weight", target.path()), vec![out, input]));
        }
    }
    names.push(("model.norm.weight".to_owned(), vec![config.hidden]));
    if !config.tied {
        names.push(("lm_head.weight".to_owned(), vec![config.vocab, config.hidden]));
    }
    names
}

/// The weight files of a folder, read and checked.
pub struct Checkpoint {
    folder: PathBuf,
    files: Vec<(String, Vec<u8>)>,
    /// File of each tensor of the text network, and its name there.
    place: BTreeMap<String, (usize, String)>,
    /// SHA-256 of the weights (see `Origin::sha256`).
    pub sha256: String,
    /// Type of the matrices, such as `BF16`.
    pub stored: String,
}

impl Checkpoint {
    /// Reads `model.safetensors`, or the shards that `model.safetensors.index.json` names, and
    /// checks names and shapes against the network.
    pub fn open(folder: &Path, config: &Config) -> Result<Checkpoint> {
        let names = file_names(folder)?;
        let mut files = Vec::new();
        for name in names {
            let bytes = crate::regular::data(&folder.join(&name))?;
            files.push((name, bytes));
        }
        let mut checkpoint = Checkpoint {
            folder: folder.to_owned(),
            sha256: digest(&files)?,
            files,
            place: BTreeMap::new(),
            stored: String::new(),
        };
        checkpoint.index(folder, config).map_err(|e| e.at(folder.display()))?;
        Ok(checkpoint)
    }

    fn index(&mut self, folder: &Path, config: &Config) -> Result<()> {
        let mut shapes = BTreeMap::new();
        for (file, (name, bytes)) in self.files.iter().enumerate() {
            let place = folder.join(name);
            let tensors = parse(bytes).map_err(|e| e.at(place.display()))?;
            for (tensor, view) in tensors.tensors() {
                let Some(known) = canonical(config, &tensor) else { continue };
                if !is_rope_table(&tensor) {
                    check_type(&tensor, view.dtype()).map_err(|e| e.at(place.display()))?;
                }
                if let Some((other, _)) = self.place.insert(known.clone(), (file, tensor.clone())) {
                    let other = &self.files[other].0;
                    return Err(Error::invalid(format!(
                        "tensor `{tensor}` is both in {other} and in {name}"
                    )));
                }
                if known.ends_with("proj.weight") && self.stored.is_empty() {
                    self.stored = format!("{:?}", view.dtype());
                }
                shapes.insert(known, view.shape().to_vec());
            }
        }
        for (name, shape) in expected(config) {
            match shapes.remove(&name) {
                None => {
                    return Err(Error::invalid(format!("tensor `{name}` is missing"))
                        .hint("the checkpoint is incomplete, or its config.json belongs to another model"));
                }
                Some(found) if found != shape => {
                    return Err(Error::invalid(format!(
                        "tensor `{name}` has shape {found:?}, not {shape:?}"
                    ))
                    .hint("the config.json belongs to another model"));
                }
                Some(_) => {}
            }
        }
        shapes.retain(|name, _| !is_rope_table(name));
        if config.tied && shapes.remove("lm_head.weight").is_some() {
            let (head, table) = (self.bytes("lm_head.weight")?, self.bytes("model.embed_tokens.weight")?);
            if head != table {
                return Err(Error::invalid(
                    "`tie_word_embeddings` is true, but `lm_head.weight` differs from the embedding",
                ));
            }
        }
        if let Some(name) = shapes.keys().next() {
            return Err(Error::invalid(format!("tensor `{name}` belongs to no module of this network"))
                .hint(format!(
                    "{} tensors are not known here; the file is of another kind of model",
                    shapes.len()
                )));
        }
        Ok(())
    }

    /// Whether the text network stands within a multimodal one.
    pub fn is_multimodal(&self) -> bool {
        self.place.values().any(|(_, stored)| stored.starts_with(LANGUAGE_MODEL))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        self.view(name, |view| Ok(view.data().to_vec()))
    }

    fn view<T>(&self, name: &str, f: impl FnOnce(TensorView<'_>) -> Result<T>) -> Result<T> {
        let missing = || Error::invalid(format!("tensor `{name}` is missing"));
        let (file, stored) = self.place.get(name).ok_or_else(missing)?;
        let (file, bytes) = self.files.get(*file).ok_or_else(missing)?;
        let at = |e: Error| e.at(self.folder.join(file).display());
        let tensors = parse(bytes).map_err(at)?;
        f(tensors.tensor(stored).map_err(|_| missing())?).map_err(at)
    }

    /// A tensor in its stored type.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.view(name, |view| load(name, &view))
    }

    /// A tensor as finite f32 numbers in row-major order.
    pub fn numbers(&self, name: &str) -> Result<Vec<f32>> {
        self.view(name, |view| {
            let numbers = numbers(name, &view)?;
            check::finite(name, &numbers)?;
            Ok(numbers)
        })
    }

    /// Replaces a tensor's numbers, rounded to its stored type; every other byte of the files stays.
    pub fn replace(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let missing = || Error::invalid(format!("tensor `{name}` is missing"));
        let (file, stored) = self.place.get(name).ok_or_else(missing)?;
        let (_, bytes) = self.files.get_mut(*file).ok_or_else(missing)?;
        let start = bytes.as_ptr() as usize;
        let (at, length, dtype) = {
            let tensors = parse(bytes)?;
            let view = tensors.tensor(stored).map_err(|_| missing())?;
            let data = view.data();
            (data.as_ptr() as usize - start, data.len(), view.dtype())
        };
        let dtype = DType::try_from(dtype)?;
        let new = ::safetensors::View::data(&&tensor.to_dtype(dtype)?.contiguous()?).into_owned();
        if new.len() != length {
            return Err(Error::invalid(format!("tensor `{name}` does not fit its place")));
        }
        bytes[at..at + length].copy_from_slice(&new);
        Ok(())
    }

    /// Writes the weight files under their names, and the index of shards beside them; returns the
    /// SHA-256 of the weights.
    pub fn write(&self, folder: &Path) -> Result<String> {
        for (name, bytes) in &self.files {
            hash::write_atomic(&folder.join(name), bytes)?;
        }
        let index = self.folder.join(INDEX);
        if index.exists() && self.files.iter().all(|(name, _)| name != SINGLE) {
            hash::write_atomic(&folder.join(INDEX), &fs_err::read(index)?)?;
        }
        digest(&self.files)
    }
}

/// What stands before the names of the text network in a multimodal checkpoint.
const LANGUAGE_MODEL: &str = "model.language_model.";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// SHA-256 of the weights of a folder, file by file: what [`Checkpoint::sha256`] says, without their tensors.
pub fn weights_sha256(folder: &Path) -> Result<String> {
    let names = file_names(folder)?.into_iter();
    let hashes: Result<BTreeMap<String, String>> =
        names.map(|name| Ok((name.clone(), hash::sha256_file(&folder.join(name))?))).collect();
    joined(hashes?)
}

/// SHA-256 of one weight file; of several, of their names and hashes.
fn digest(files: &[(String, Vec<u8>)]) -> Result<String> {
    joined(files.iter().map(|(name, bytes)| (name.clone(), hash::sha256_hex(bytes))).collect())
}

fn joined(mut hashes: BTreeMap<String, String>) -> Result<String> {
    match hashes.len() {
        1 => Ok(hashes.pop_first().map(|(_, sha256)| sha256).unwrap_or_default()),
        _ => hash::sha256_json(&hashes),
    }
}

/// The name of a stored tensor in the text network, or none for what text does not use: vision and
/// multi-token prediction of a Qwen3.5 checkpoint.
fn canonical(config: &Config, stored: &str) -> Option<String> {
    if config.architecture != Architecture::Qwen3_5 {
        return Some(stored.to_owned());
    }
    let unused = ["mtp.", "model.mtp.", "model.visual.", "visual."];
    if unused.iter().any(|prefix| stored.starts_with(prefix)) {
        return None;
    }
    Some(match stored.strip_prefix(LANGUAGE_MODEL) {
        Some(rest) => format!("model.{rest}"),
        None => stored.to_owned(),
    })
}

fn parse(bytes: &[u8]) -> Result<SafeTensors<'_>> {
    SafeTensors::deserialize(bytes).map_err(|e| {
        Error::invalid(format!("is not a valid safetensors file: {e}")).hint("fetch or export it again")
    })
}

/// A tensor of an open file in its stored type.
fn load(name: &str, view: &TensorView<'_>) -> Result<Tensor> {
    view.load(&Device::Cpu).map_err(|e| Error::invalid(format!("tensor `{name}` cannot be read: {e}")))
}

fn numbers(name: &str, view: &TensorView<'_>) -> Result<Vec<f32>> {
    Ok(load(name, view)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
}

/// All tensors of a safetensors file in f32: of a type that holds weights, and finite.
pub(super) fn read_finite(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>> {
    let file = parse(bytes)?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.tensors() {
        check_type(&name, view.dtype())?;
        let numbers = numbers(&name, &view)?;
        check::finite(&name, &numbers)?;
        let tensor = Tensor::from_vec(numbers, view.shape(), &Device::Cpu)?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// Refuses types that hold no weights, or hold them only together with scales that are stored elsewhere.
fn check_type(tensor: &str, found: Dtype) -> Result<()> {
    if matches!(found, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16) {
        return Ok(());
    }
    Err(Error::invalid(format!("tensor `{tensor}` has type {found:?}, which holds no weights"))
        .hint("export the model in F32, F16 or BF16, or use a GGUF file for quantised weights"))
}

/// Rope's frequencies, which old exports carry and which are computed here.
fn is_rope_table(tensor: &str) -> bool {
    tensor.ends_with(".rotary_emb.inv_freq")
}

fn file_names(folder: &Path) -> Result<Vec<String>> {
    let index = folder.join(INDEX);
    if folder.join(SINGLE).exists() {
        return Ok(vec![SINGLE.to_owned()]);
    }
    if !index.exists() {
        return Err(Error::invalid("has neither model.safetensors nor model.safetensors.index.json")
            .at(folder.display())
            .hint("give the folder of a safetensors checkpoint, or a .gguf file"));
    }
    let bad = |what: String| Error::invalid(what).at(index.display());
    let value: serde_json::Value =
        serde_json::from_str(&crate::regular::text(&index)?).map_err(|e| bad(format!("is not JSON: {e}")))?;
    let map = value
        .get("weight_map")
        .and_then(|m| m.as_object())
        .ok_or_else(|| bad("has no `weight_map`".into()))?;
    let mut names = std::collections::BTreeSet::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| bad(format!("`{tensor}` has no file name")))?;
        if file.contains(['/', '\\']) || file.starts_with("..") {
            return Err(bad(format!("shard `{file}` is not a plain file name")));
        }
        names.insert(file.to_owned());
    }
    if names.is_empty() { Err(bad("names no file".into())) } else { Ok(names.into_iter().collect()) }
}

/// The bytes of a safetensors file with these tensors (f32, f16 or bf16), marked as PyTorch's.
pub fn serialize(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    if let Some((name, tensor)) =
        tensors.iter().find(|(_, t)| !matches!(t.dtype(), DType::F32 | DType::F16 | DType::BF16))
    {
        return Err(Error::invalid(format!("tensor `{name}` in {:?} cannot be written", tensor.dtype())));
    }
    let metadata = [("format".to_owned(), "pt".to_owned())].into_iter().collect();
    ::safetensors::serialize(tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)), Some(metadata))
        .map_err(|e| Error::invalid(format!("tensors cannot be written: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::{fixtures, numbers, tensors};
    use crate::model::{Model, Source};
    use std::path::PathBuf;

    /// A folder with the fixture's config and the given tensors, in as many shards as there are lists.
    fn folder(shards: &[Vec<(String, Tensor)>]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        fs_err::copy(fixtures().join("llama_tied/config.json"), path.join("config.json")).unwrap();
        if let [one] = shards {
            fs_err::write(path.join("model.safetensors"), serialize(one).unwrap()).unwrap();
        } else {
            let mut map = serde_json::Map::new();
            for (i, shard) in shards.iter().enumerate() {
                let name = format!("model-{i}.safetensors");
                fs_err::write(path.join(&name), serialize(shard).unwrap()).unwrap();
                map.extend(shard.iter().map(|(tensor, _)| (tensor.clone(), name.clone().into())));
            }
            let index = serde_json::json!({ "weight_map": map });
            fs_err::write(path.join("model.safetensors.index.json"), index.to_string()).unwrap();
        }
        (dir, path)
    }

    fn fixture() -> Vec<(String, Tensor)> {
        let mut all: Vec<_> = tensors("llama_tied/model.safetensors").into_iter().collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    fn logits(path: &Path) -> Vec<f32> {
        let model = Model::load(&Source::Folder(path.to_owned())).unwrap();
        numbers(&model.logits(&[1, 2, 3], None).unwrap())
    }

    fn refusal(tensors: Vec<(String, Tensor)>) -> String {
        let (_dir, path) = folder(&[tensors]);
        Model::load(&Source::Folder(path)).err().unwrap().to_string()
    }

    #[test]
    fn shards_are_the_same_model() {
        let all = fixture();
        let (_dir, path) = folder(&[all[..10].to_vec(), all[10..].to_vec()]);
        assert!(logits(&path) == logits(&fixtures().join("llama_tied")));
    }

    #[test]
    fn a_head_equal_to_the_embedding_is_fine_when_tied() {
        let mut all = fixture();
        let table = all.iter().find(|(n, _)| n == "model.embed_tokens.weight").unwrap().1.clone();
        all.push(("lm_head.weight".into(), table.clone()));
        let (_dir, path) = folder(&[all.clone()]);
        assert!(logits(&path) == logits(&fixtures().join("llama_tied")));
        all.last_mut().unwrap().1 = (table * 2.0).unwrap();
        assert!(refusal(all).contains("lm_head.weight"));
    }

    #[test]
    fn missing_surplus_and_misshapen_tensors_are_refused_by_name() {
        let without: Vec<_> = fixture().into_iter().filter(|(n, _)| !n.contains("2.mlp.up")).collect();
        assert!(refusal(without).contains("`model.layers.2.mlp.up_proj.weight` is missing"));
        let mut surplus = fixture();
        surplus.push(("model.layers.9.mlp.up_proj.weight".into(), surplus[0].1.clone()));
        assert!(refusal(surplus).contains("model.layers.9.mlp.up_proj.weight"));
        let mut turned = fixture();
        let (name, tensor) = turned.iter_mut().find(|(n, _)| n.ends_with("0.mlp.down_proj.weight")).unwrap();
        *tensor = tensor.t().unwrap().contiguous().unwrap();
        let name = name.clone();
        assert!(refusal(turned).contains(&name));
    }

    #[test]
    fn integers_and_numbers_that_are_not_finite_are_refused_by_name() {
        let name = "model.layers.1.mlp.up_proj.weight";
        let with = |change: &dyn Fn(&Tensor) -> Tensor| {
            let mut all = fixture();
            let (_, tensor) = all.iter_mut().find(|(n, _)| n == name).unwrap();
            *tensor = change(tensor);
            let (_dir, path) = folder(&[vec![]]);
            let file = ::safetensors::serialize(all.iter().map(|(n, t)| (n.as_str(), t)), None).unwrap();
            fs_err::write(path.join("model.safetensors"), file).unwrap();
            let error = Model::load(&Source::Folder(path)).err().unwrap();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        for dtype in [DType::I32, DType::I64, DType::U8, DType::F8E4M3] {
            let error = with(&|t| t.to_dtype(DType::F32).unwrap().to_dtype(dtype).unwrap());
            assert!(error.contains(name) && error.contains("model.safetensors"), "{error}");
            assert!(
                error.contains(
                    if dtype == DType::F8E4M3 { "F8_E4M3" } else { dtype.as_str() }.to_uppercase().as_str()
                ),
                "{error}"
            );
        }
        for bad in [f64::NAN, f64::INFINITY] {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let error = with(&|t| {
                    let mut values = numbers(t);
                    values[40] = bad as f32;
                    Tensor::from_vec(values, t.shape(), &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
                });
                assert!(error.contains(&format!("`{name}` has {bad} at number 40")), "{error}");
                assert!(error.contains("model.safetensors: ") && error.contains("hint: "), "{error}");
            }
        }
        // Too large for f32, in a type that can hold it.
        let error = with(&|t| (t.to_dtype(DType::F64).unwrap() * 1e300).unwrap());
        assert!(error.contains("inf at number 0"), "{error}");
    }

    #[test]
    fn damaged_files_are_errors() {
        let (_dir, path) = folder(&[fixture()]);
        let file = path.join("model.safetensors");
        let bytes = fs_err::read(&file).unwrap();
        for cut in [0, 7, 100, bytes.len() - 1] {
            fs_err::write(&file, &bytes[..cut]).unwrap();
            let error = Model::load(&Source::Folder(path.clone())).err().unwrap().to_string();
            assert!(error.contains("model.safetensors"), "{error}");
        }
        fs_err::remove_file(&file).unwrap();
        assert!(Model::load(&Source::Folder(path.clone())).err().unwrap().to_string().contains("neither"));
        fs_err::write(path.join("model.safetensors.index.json"), r#"{"weight_map": {"a": "../x"}}"#).unwrap();
        assert!(Model::load(&Source::Folder(path)).err().unwrap().to_string().contains("../x"));
    }

    #[test]
    fn half_precision_survives_writing() {
        let exact = fixture()[0].1.clone();
        for dtype in [DType::BF16, DType::F16] {
            let half = exact.to_dtype(dtype).unwrap();
            let bytes = serialize(&[("x".into(), half.clone())]).unwrap();
            let back =
                SafeTensors::deserialize(&bytes).unwrap().tensor("x").unwrap().load(&Device::Cpu).unwrap();
            assert_eq!(back.dtype(), dtype);
            let wide = |t: &Tensor| numbers(&t.to_dtype(DType::F32).unwrap());
            assert!(wide(&back) == wide(&half));
        }
    }
}
