//! A training run on disk: parameters, optimiser state, step and curve in one safetensors file
//! that is replaced atomically. The order of examples is a function of the plan, so the step
//! is also the position in it; a run continued from here ends with the same bytes.

use super::optimizer::AdamW;
use super::sft::Step;
use crate::error::{Error, Result};
use crate::hash::write_atomic;
use candle_core::{Device, Tensor, Var};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Key of the file's metadata entry.
const ENTRY: &str = "rederive_training";

/// What a checkpoint says of its run, as TOML: its numbers are read back to the last bit, which
/// `serde_json` does not promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Progress {
    /// Hash of everything that decides the run's outcome.
    run_sha256: String,
    /// The optimiser steps done so far.
    steps: Vec<Step>,
}

/// The file of one run.
#[derive(Debug)]
pub(super) struct Checkpoint {
    path: PathBuf,
    run_sha256: String,
}

impl Checkpoint {
    /// The checkpoint in `folder` of the run named by `run_sha256`.
    pub fn new(folder: &Path, run_sha256: String) -> Self {
        Checkpoint { path: folder.join("checkpoint.safetensors"), run_sha256 }
    }

    /// Writes the state after `steps`.
    pub fn save(
        &self,
        names: &[String],
        parameters: &[Var],
        optimizer: &AdamW,
        steps: &[Step],
    ) -> Result<()> {
        let mut tensors = Vec::with_capacity(3 * names.len());
        for ((name, parameter), [first, second]) in names.iter().zip(parameters).zip(&optimizer.moments) {
            tensors.push((format!("parameter.{name}"), parameter.as_tensor()));
            tensors.push((format!("first_moment.{name}"), first));
            tensors.push((format!("second_moment.{name}"), second));
        }
        let progress = Progress { run_sha256: self.run_sha256.clone(), steps: steps.to_vec() };
        let progress = toml::to_string(&progress).map_err(|e| {
            Error::invalid(format!("cannot write the training curve: {e}")).at(self.path.display())
        })?;
        let bytes = serialize(tensors, Some(HashMap::from([(ENTRY.to_owned(), progress)])))
            .map_err(|e| Error::invalid(format!("cannot write a checkpoint: {e}")).at(self.path.display()))?;
        write_atomic(&self.path, &bytes)
    }

    /// Restores the state that was saved, if there is any, and returns the steps done so far.
    ///
    /// # Errors
    /// When the file is damaged or belongs to another run; nothing is restored then.
    pub fn restore(&self, names: &[String], parameters: &[Var], optimizer: &mut AdamW) -> Result<Vec<Step>> {
        let bytes = match fs_err::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        };
        self.parse(&bytes, names, parameters, optimizer).map_err(|e| {
            e.at(self.path.display())
                .hint("delete the file to train from the start, or restore what the run began with")
        })
    }

    fn parse(
        &self,
        bytes: &[u8],
        names: &[String],
        parameters: &[Var],
        optimizer: &mut AdamW,
    ) -> Result<Vec<Step>> {
        let damaged = |what: String| Error::invalid(format!("the checkpoint cannot be read: {what}"));
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(e.to_string()))?;
        let entry = header.metadata().as_ref().and_then(|m| m.get(ENTRY));
        let entry = entry.ok_or_else(|| damaged(format!("it has no `{ENTRY}` entry")))?;
        let progress: Progress = toml::from_str(entry).map_err(|e| damaged(e.to_string()))?;
        if progress.run_sha256 != self.run_sha256 {
            return Err(Error::invalid(
                "the checkpoint is of another run: settings, seed, model or examples differ from those it was written with",
            ));
        }
        let file = SafeTensors::deserialize(bytes).map_err(|e| damaged(e.to_string()))?;
        let read = |kind: &str, name: &str, like: &Tensor| -> Result<Tensor> {
            let view = file.tensor(&format!("{kind}.{name}")).map_err(|e| damaged(e.to_string()))?;
            if view.dtype() != safetensors::Dtype::F32 || view.shape() != like.dims() {
                return Err(damaged(format!("`{kind}.{name}` is {:?} {:?}", view.dtype(), view.shape())));
            }
            Ok(Tensor::from_raw_buffer(view.data(), candle_core::DType::F32, like.dims(), &Device::Cpu)?
                .to_device(like.device())?)
        };
        let mut values = Vec::with_capacity(names.len());
        let mut moments = Vec::with_capacity(names.len());
        for (name, parameter) in names.iter().zip(parameters) {
            values.push(read("parameter", name, parameter)?);
            moments.push([read("first_moment", name, parameter)?, read("second_moment", name, parameter)?]);
        }
        for (parameter, value) in parameters.iter().zip(&values) {
            parameter.set(value)?;
        }
        optimizer.moments = moments;
        optimizer.updates = progress.steps.len();
        Ok(progress.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Settings;

    fn state(start: f32) -> (Vec<String>, Vec<Var>, AdamW) {
        let parameters = vec![
            Var::new(&[[start, 2.0], [3.0, 4.0]], &Device::Cpu).unwrap(),
            Var::new(&[start], &Device::Cpu).unwrap(),
        ];
        let optimizer = AdamW::new(&parameters, &Settings::default()).unwrap();
        (vec!["a".into(), "b".into()], parameters, optimizer)
    }

    fn step(number: usize) -> Step {
        Step {
            step: number,
            loss: 0.1 + 0.2,
            grad_norm: 1.0 / 3.0,
            learning_rate: 1e-3,
            loss_tokens: 3,
            tokens: 9,
            wall_ms: 1,
        }
    }

    #[test]
    fn what_is_saved_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = Checkpoint::new(folder.path(), "run".into());
        let (names, parameters, mut optimizer) = state(1.0);
        let gradients: Vec<Tensor> = parameters.iter().map(|p| p.as_tensor().ones_like().unwrap()).collect();
        optimizer.step(&parameters, &gradients, 0.1).unwrap();
        file.save(&names, &parameters, &optimizer, &[step(1)]).unwrap();

        let (names, other, mut fresh) = state(9.0);
        assert_eq!(file.restore(&names, &other, &mut fresh).unwrap(), [step(1)]);
        assert_eq!(fresh.updates, 1);
        for (a, b) in parameters.iter().zip(&other) {
            let flat = |t: &Var| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(flat(a), flat(b));
        }
        for (a, b) in optimizer.moments.iter().flatten().zip(fresh.moments.iter().flatten()) {
            let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(flat(a), flat(b));
        }
    }

    #[test]
    fn no_file_means_no_steps_and_foreign_or_damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (names, parameters, mut optimizer) = state(1.0);
        let file = Checkpoint::new(folder.path(), "run".into());
        assert!(file.restore(&names, &parameters, &mut optimizer).unwrap().is_empty());
        file.save(&names, &parameters, &optimizer, &[step(1)]).unwrap();
        let path = folder.path().join("checkpoint.safetensors");
        let good = fs_err::read(&path).unwrap();

        let error =
            Checkpoint::new(folder.path(), "other".into()).restore(&names, &parameters, &mut optimizer);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("another run") && text.contains("checkpoint.safetensors"), "{text}");

        for cut in [0, 4, 20, good.len() / 2, good.len() - 1] {
            fs_err::write(&path, &good[..cut]).unwrap();
            assert!(file.restore(&names, &parameters, &mut optimizer).is_err(), "cut at {cut}");
        }
        fs_err::write(&path, &good).unwrap();
        let absent = vec!["a".to_owned(), "c".to_owned()];
        assert!(file.restore(&absent, &parameters, &mut optimizer).is_err());
        assert_eq!(optimizer.updates, 0, "a refused file restores nothing");
    }
}
