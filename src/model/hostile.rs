//! Weight files that were cut, flipped or written by an enemy: each is either an error that names the
//! file, or, where the change touched nothing but values, a model. None is a panic, and none an
//! allocation that the file's size does not justify.
#![cfg(test)]

use super::testing::{fixtures, write_gguf};
use super::{Model, Source};
use crate::philox::Philox;
use std::path::{Path, PathBuf};

/// Loads what `bytes` make of the file; an error must name the file or its folder.
fn attempt(file: &Path, source: &Source, bytes: &[u8]) -> Result<(), String> {
    fs_err::write(file, bytes).unwrap();
    match Model::load(source) {
        Ok(model) => {
            let logits = model.logits(&[1], None).unwrap();
            assert_eq!(logits.dims(), [1, model.config.vocab]);
            Ok(())
        }
        Err(error) => {
            let text = error.to_string();
            let folder = file.parent().unwrap().display().to_string();
            assert!(text.contains(&folder), "no path in: {text}");
            assert_eq!(error.exit_code(), 2, "{text}");
            Err(text)
        }
    }
}

/// A seeded change: flipped bits, a stretch of one value, a cut, or bytes put in or taken out.
fn mutated(original: &[u8], head: usize, stream: &mut Philox) -> Vec<u8> {
    let mut bytes = original.to_vec();
    // Most hits in the header: beyond it there are only numbers.
    let reach = if stream.below(10) < 8 { head } else { bytes.len() };
    let at = stream.below(reach);
    match stream.below(5) {
        0 => (0..=stream.below(4)).for_each(|_| bytes[stream.below(reach)] ^= 1 << stream.below(8)),
        1 => {
            let value = [0, 1, 0x7f, 0x80, 0xff][stream.below(5)];
            let end = (at + 1 + stream.below(8)).min(bytes.len());
            bytes[at..end].fill(value);
        }
        2 => bytes.truncate(at),
        3 => drop(bytes.splice(at..at, vec![stream.next_u32() as u8; 1 + stream.below(9)])),
        _ => drop(bytes.drain(at..(at + 1 + stream.below(9)).min(bytes.len()))),
    }
    bytes
}

fn gguf() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gguf");
    write_gguf(&path, &[]);
    let bytes = fs_err::read(&path).unwrap();
    (dir, path, bytes)
}

fn checkpoint() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let from = fixtures().join("llama_tied");
    fs_err::copy(from.join("config.json"), dir.path().join("config.json")).unwrap();
    let path = dir.path().join("model.safetensors");
    let bytes = fs_err::read(from.join("model.safetensors")).unwrap();
    (dir, path, bytes)
}

/// Place of `needle` in `bytes`.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|w| w == needle).unwrap()
}

#[test]
fn a_mutated_gguf_file_is_an_error_or_a_model() {
    let (_dir, path, bytes) = gguf();
    let head = find(&bytes, b"token_embd.weight") + 60;
    let mut stream = Philox::named("hostile/gguf");
    let source = Source::Gguf(path.clone());
    attempt(&path, &source, &bytes).unwrap();
    let refused =
        (0..600).filter(|_| attempt(&path, &source, &mutated(&bytes, head, &mut stream)).is_err()).count();
    assert!(refused > 400, "{refused} of 600 were refused");
}

#[test]
fn a_mutated_safetensors_file_is_an_error_or_a_model() {
    let (dir, path, bytes) = checkpoint();
    let head = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut stream = Philox::named("hostile/safetensors");
    let source = Source::Folder(dir.path().to_owned());
    attempt(&path, &source, &bytes).unwrap();
    let refused =
        (0..600).filter(|_| attempt(&path, &source, &mutated(&bytes, head, &mut stream)).is_err()).count();
    assert!(refused > 300, "{refused} of 600 were refused");
}

#[test]
fn lengths_counts_and_offsets_of_a_gguf_file_are_not_believed() {
    let (_dir, path, bytes) = gguf();
    let source = Source::Gguf(path.clone());
    let put = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        attempt(&path, &source, &bytes).unwrap_err()
    };
    let tokens = find(&bytes, b"tokenizer.ggml.tokens") + "tokenizer.ggml.tokens".len();
    let name = find(&bytes, b"blk.0.attn_k.weight");
    let info = name + "blk.0.attn_k.weight".len();
    let second = find(&bytes, b"blk.0.attn_norm.weight") + "blk.0.attn_norm.weight".len();
    for huge in [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 40, 1 << 31] {
        let huge = huge.to_le_bytes();
        put(8, &huge); // tensors
        put(16, &huge); // metadata entries
        put(24, &huge); // length of the first key
        put(tokens + 8, &huge); // items of a list
        put(tokens + 16, &huge); // length of a text
        put(name - 8, &huge); // length of a tensor's name
        assert!(put(info + 4, &huge).contains("blk.0.attn_k.weight")); // a dimension
        assert!(put(info + 24, &huge).contains("blk.0.attn_k.weight")); // an offset
    }
    // A product of dimensions that wraps round to the right number of bytes.
    let mut wrapped = [0u8; 16];
    wrapped[..8].copy_from_slice(&(1u64 << 33).to_le_bytes());
    wrapped[8..].copy_from_slice(&((1u64 << 31) + 1).to_le_bytes());
    assert!(put(info + 4, &wrapped).contains("impossible shape"));
    assert!(put(info, &9u32.to_le_bytes()).contains("9 dimensions"));
    assert!(put(info + 20, &26u32.to_le_bytes()).contains("type number 26"));
    assert!(put(second + 16, &bytes[info + 24..info + 32]).contains("overlap"));
    assert!(put(tokens + 4, &9u32.to_le_bytes()).contains("tokenizer.ggml.tokens"));
    let twice = b"blk.1.attn_k.weight";
    assert!(put(find(&bytes, twice), b"blk.0.attn_k.weight").contains("twice"));
    assert!(put(4, &1u32.to_le_bytes()).contains("version 1"));
    assert!(put(0, b"ZIPX").contains("GGUF"));
}

#[test]
fn lengths_and_offsets_of_a_safetensors_file_are_not_believed() {
    let (dir, path, bytes) = checkpoint();
    let source = Source::Folder(dir.path().to_owned());
    for huge in [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 40, bytes.len() as u64] {
        let mut bytes = bytes.clone();
        bytes[..8].copy_from_slice(&huge.to_le_bytes());
        attempt(&path, &source, &bytes).unwrap_err();
    }
    let with = |header: &str| {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend([0; 64]);
        attempt(&path, &source, &file).unwrap_err()
    };
    let tensor = |shape: &str, from: u64, to: u64| {
        format!(r#"{{"dtype": "F32", "shape": {shape}, "data_offsets": [{from}, {to}]}}"#)
    };
    for header in [
        format!(r#"{{"a": {}}}"#, tensor("[4294967296, 4294967297]", 0, 64)),
        format!(r#"{{"a": {}}}"#, tensor("[18446744073709551615]", 0, 64)),
        format!(r#"{{"a": {}}}"#, tensor("[-1]", 0, 64)),
        format!(r#"{{"a": {}}}"#, tensor("[16]", 64, 128)),
        format!(r#"{{"a": {}}}"#, tensor("[16]", 64, 0)),
        format!(r#"{{"a": {}, "b": {}}}"#, tensor("[16]", 0, 64), tensor("[16]", 0, 64)),
        format!(r#"{{"a": {}, "b": {}}}"#, tensor("[8]", 0, 32), tensor("[12]", 16, 64)),
        "[".repeat(40_000),
        "{}".to_owned(),
        String::new(),
    ] {
        with(&header);
    }
}
