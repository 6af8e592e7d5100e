//! Names the sources that decide what a model answers and learns, so that rows and checkpoints of
//! one build are told from those of another even where the version is the same.

use std::path::{Path, PathBuf};

fn main() {
    let mut files = Vec::new();
    for folder in ["src/model", "src/engine", "src/train"] {
        println!("cargo::rerun-if-changed={folder}");
        collect(Path::new(folder), &mut files);
    }
    println!("cargo::rerun-if-changed=Cargo.lock");
    files.push("Cargo.lock".into());
    files.sort();
    let mut hash = Fnv::default();
    for file in files {
        hash.add(file.to_string_lossy().as_bytes());
        // A package without a lock file is built from what the registry gives.
        hash.add(&std::fs::read(&file).unwrap_or_default());
    }
    println!("cargo::rustc-env=REDERIVE_REVISION={:032x}", hash.0);
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "cu") {
            files.push(path);
        }
    }
}

/// FNV-1a with 128 bits: tells builds apart, and protects against nobody.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.len().to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}
