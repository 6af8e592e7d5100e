//! Kernels from their sources: compiled for this card by NVRTC at first use, and kept in the
//! cache as machine code, so that a later start needs neither the compiler nor its time.

use super::gpu::{Gpu, failed};
use crate::error::{Error, Result};
use crate::hash;
use cudarc::driver::{CudaFunction, CudaModule};
use cudarc::nvrtc::{Ptx, result, sys};
use std::ffi::{CString, c_char};
use std::path::PathBuf;
use std::sync::Arc;

/// Compiled kernels, loaded on the card.
pub struct Kernels {
    module: Arc<CudaModule>,
    /// SHA-256 of the machine code: part of an engine's identity.
    pub sha256: String,
}

impl Kernels {
    /// Compiles `source` with these definitions (`NAME=VALUE`) for the card, or takes it from the cache.
    pub fn new(gpu: &Gpu, source: &str, definitions: &[String]) -> Result<Kernels> {
        let (major, minor) = gpu.capability;
        let architecture = format!("sm_{major}{minor}");
        let key =
            hash::sha256_hex(format!("{architecture}\n{}\n{source}", definitions.join("\n")).as_bytes());
        let path = cache_folder().map(|folder| folder.join(format!("{key}.cubin")));
        let kept = path.as_ref().and_then(|path| fs_err::read(path).ok());
        let load = |code: Vec<u8>| gpu.context().load_module(Ptx::from_binary(code));
        if let Some(code) = kept {
            let sha256 = hash::sha256_hex(&code);
            // A damaged file is simply compiled again.
            if let Ok(module) = load(code) {
                return Ok(Kernels { module, sha256 });
            }
        }
        let code = compile(source, definitions, &architecture)?;
        if let Some(path) = &path {
            // Without a cache the next start is slower, nothing else.
            let _ = path.parent().map(fs_err::create_dir_all);
            let _ = hash::write_atomic(path, &code);
        }
        let sha256 = hash::sha256_hex(&code);
        Ok(Kernels { module: load(code).map_err(failed("loading kernels"))?, sha256 })
    }

    /// A kernel by its name.
    pub fn get(&self, name: &str) -> Result<CudaFunction> {
        self.module.load_function(name).map_err(failed(&format!("finding the kernel `{name}`")))
    }
}

/// Where machine code is kept, beside the models.
fn cache_folder() -> Option<PathBuf> {
    let models = crate::model::fetch::cache_folder().ok()?;
    Some(models.parent()?.join("kernels"))
}

/// Machine code of `source`.
pub(super) fn compile(source: &str, definitions: &[String], architecture: &str) -> Result<Vec<u8>> {
    let broken = |what: &str, e: result::NvrtcError| {
        Error::invalid(format!("{what}: NVRTC reports {e:?}"))
            .hint("report this with the card's name and the CUDA version")
    };
    if !compiler_is_present() {
        return Err(Error::invalid("the CUDA run-time compiler (libnvrtc) was not found")
            .hint("install the CUDA toolkit's NVRTC library and put its folder into LD_LIBRARY_PATH, or run with `--device cpu`"));
    }
    let text = CString::new(source).map_err(|_| Error::invalid("a kernel's source holds a zero byte"))?;
    let program = result::create_program(&text, None).map_err(|e| broken("kernels cannot be compiled", e))?;
    let mut options = vec![format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()];
    options.extend(definitions.iter().map(|d| format!("-D{d}")));
    // SAFETY: the program was just made and is destroyed once, below.
    let compiled = unsafe { result::compile_program(program, &options) };
    let code = match compiled {
        Ok(()) => machine_code(program).map_err(|e| broken("no machine code came out", e)),
        Err(e) => {
            // SAFETY: as above.
            let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
            let log: Vec<u8> = log.iter().map(|c| *c as u8).collect();
            let text = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
            Err(broken("kernels cannot be compiled", e).at(text))
        }
    };
    // SAFETY: as above.
    let _ = unsafe { result::destroy_program(program) };
    code
}

fn machine_code(program: sys::nvrtcProgram) -> std::result::Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0usize;
    // SAFETY: the program was compiled for a real architecture; the buffer has the size that was asked for.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size).result()?;
        let mut code = vec![0u8; size];
        sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast::<c_char>()).result()?;
        Ok(code)
    }
}

fn compiler_is_present() -> bool {
    // SAFETY: only looks whether the library can be loaded.
    unsafe { sys::is_culib_present() }
}

#[cfg(test)]
mod tests {
    use super::super::{COMMON, SOURCES, definitions};
    use super::*;
    use crate::model::processor::Precision;

    #[test]
    fn the_kernels_compile_for_the_cards_and_networks_that_they_are_for() {
        if !compiler_is_present() {
            eprintln!("skipped: libnvrtc is not here");
            return;
        }
        let source = [&[COMMON], &SOURCES[..]].concat().concat();
        for name in ["llama_tied", "qwen3_5_tied"] {
            let config = crate::model::testing::model(name).config;
            for (architecture, precision) in [("sm_80", Precision::Bf16), ("sm_90", Precision::F32)] {
                let code = compile(&source, &definitions(&config, precision), architecture).unwrap();
                assert!(code.starts_with(b"\x7fELF"), "{name} for {architecture}");
            }
        }
        let broken = compile("__global__ void f( {", &[], "sm_80").unwrap_err().to_string();
        assert!(broken.contains("cannot be compiled") && broken.contains("error"), "{broken}");
    }
}
