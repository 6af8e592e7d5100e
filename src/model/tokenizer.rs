//! Text to token ids and back: from a `tokenizer.json`, or from the vocabulary and merges
//! that a GGUF file carries, written out as a `tokenizer.json` first so that there is one road.

use crate::error::{Error, Result};
use crate::hash;
use serde_json::{Value, json};
use std::path::Path;

/// A tokenizer, with the text of its `tokenizer.json`.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    json: String,
}

/// Refuses a BPE whose merges do not fit its vocabulary: the tokenizers crate builds them unchecked.
/// Text that is no such file is left to it.
fn check_merges(json: &str) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct File {
        model: Model,
    }
    #[derive(serde::Deserialize)]
    struct Model {
        vocab: std::collections::HashMap<String, u32>,
        merges: Vec<Merge>,
        continuing_subword_prefix: Option<String>,
    }
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Merge {
        Pair(String, String),
        Line(String),
    }
    let Ok(File { model }) = serde_json::from_str::<File>(json) else { return Ok(()) };
    let prefix = model.continuing_subword_prefix.unwrap_or_default();
    for merge in &model.merges {
        let (left, right) = match merge {
            Merge::Pair(left, right) => (left.as_str(), right.as_str()),
            Merge::Line(line) => line.split_once(' ').unwrap_or((line.as_str(), "")),
        };
        let tail = right.strip_prefix(prefix.as_str());
        let product = tail.map(|tail| format!("{left}{tail}"));
        let known = |token: &str| model.vocab.contains_key(token);
        if !known(left) || !known(right) || !product.is_some_and(|product| known(&product)) {
            return Err(Error::invalid(format!(
                "the merge of `{left}` and `{right}` does not lead from tokens to a token"
            )));
        }
    }
    Ok(())
}

/// Vocabulary and merges of a byte-level BPE, as a GGUF file stores them.
pub struct Bpe<'a> {
    /// Tokens in the order of their ids.
    pub tokens: &'a [String],
    /// Ids of control tokens: found as a whole in text, left out of decoded text on request.
    pub special: &'a [u32],
    /// Ids of other tokens that are found as a whole in text.
    pub added: &'a [u32],
    /// Merges such as `Ġ t`, most important first.
    pub merges: &'a [String],
    /// Name of the rule that splits text before merging (`tokenizer.ggml.pre`).
    pub pre: &'a str,
}

impl Tokenizer {
    /// Parses a `tokenizer.json`; `place` names it in errors.
    pub fn from_json(json: String, place: &str) -> Result<Tokenizer> {
        check_merges(&json).map_err(|e| e.at(place).hint(WHICH))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(json.as_bytes())
            .map_err(|e| Error::invalid(format!("is not a usable tokenizer: {e}")).at(place).hint(WHICH))?;
        // Files from training runs may cut or pad; a context is never cut silently here.
        inner
            .with_truncation(None)
            .map_err(|e| Error::invalid(format!("truncation cannot be switched off: {e}")).at(place))?;
        inner.with_padding(None);
        Ok(Tokenizer { inner, json })
    }

    /// The `tokenizer.json` of a folder, if it has one.
    pub fn from_folder(folder: &Path) -> Result<Option<Tokenizer>> {
        let path = folder.join("tokenizer.json");
        if !path.exists() {
            return Ok(None);
        }
        Self::from_json(crate::regular::text(&path)?, &path.display().to_string()).map(Some)
    }

    /// A byte-level BPE from its parts. Errors name an unknown splitting rule.
    pub fn from_bpe(bpe: &Bpe<'_>, place: &str) -> Result<Tokenizer> {
        let byte_level = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
        let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        let pre = match bpe.pre {
            "smollm" => json!([{"type": "Digits", "individual_digits": true}, byte_level(true)]),
            "gpt-2" => json!([byte_level(true)]),
            "llama-bpe" => json!([split(LLAMA3_SPLIT), byte_level(false)]),
            other => {
                return Err(Error::invalid(format!("tokenizer rule `{other}` is not supported"))
                    .at(place)
                    .hint("supported: smollm, gpt-2, llama-bpe; a folder with the model's tokenizer.json also works"));
            }
        };
        let token = |id: &u32| {
            bpe.tokens
                .get(*id as usize)
                .ok_or_else(|| Error::invalid(format!("token {id} is not in the vocabulary")).at(place))
        };
        let mut added = Vec::new();
        for (ids, special) in [(bpe.special, true), (bpe.added, false)] {
            for id in ids {
                added.push(json!({"id": id, "content": token(id)?, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": special}));
            }
        }
        added.sort_by_key(|t| t["id"].as_u64());
        let mut merges = Vec::with_capacity(bpe.merges.len());
        for merge in bpe.merges {
            let (left, right) = merge
                .split_once(' ')
                .ok_or_else(|| Error::invalid(format!("merge `{merge}` is not two tokens")).at(place))?;
            merges.push(json!([left, right]));
        }
        let vocab: serde_json::Map<String, Value> =
            bpe.tokens.iter().enumerate().map(|(id, token)| (token.clone(), Value::from(id))).collect();
        if vocab.len() != bpe.tokens.len() {
            return Err(Error::invalid("the vocabulary has a token twice").at(place));
        }
        let file = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": pre},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "ignore_merges": bpe.pre == "llama-bpe", "vocab": vocab, "merges": merges},
        });
        Self::from_json(file.to_string(), place)
    }

    /// Token ids of `text` as it stands: nothing is put before or after it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self
            .inner
            .encode_fast(text, false)
            .map_err(|e| Error::invalid(format!("text cannot be tokenised: {e}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of token ids, special tokens left out when `skip_special`. Bytes that are not UTF-8
    /// become replacement characters.
    pub fn decode(&self, tokens: &[u32], skip_special: bool) -> Result<String> {
        self.inner
            .decode(tokens, skip_special)
            .map_err(|e| Error::invalid(format!("tokens cannot be decoded: {e}")))
    }

    /// The id of a token written out, such as `<|im_end|>`.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id, as the vocabulary writes it.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Bytes of the longest token as the vocabulary writes it: no token stands for more of a text, so that a text has at
    /// least its length over this of them.
    pub fn longest(&self) -> usize {
        self.inner.get_vocab(true).into_keys().map(|token| token.len()).max().unwrap_or(0).max(1)
    }

    /// One more than the largest id; a network's vocabulary may be padded beyond it.
    pub fn reach(&self) -> usize {
        self.inner.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
    }

    /// Refuses a vocabulary with an id that a network of `vocab` rows has no embedding for.
    pub(super) fn check_fits(&self, vocab: usize) -> Result<()> {
        match self.inner.get_vocab(true).into_iter().map(|(token, id)| (id, token)).max() {
            Some((id, token)) if id as usize >= vocab => Err(Error::invalid(format!(
                "the tokenizer has id {id} (`{token}`), but the embedding has {vocab} rows"
            ))
            .hint("tokenizer and weights belong to different models: take both from one publication")),
            _ => Ok(()),
        }
    }

    /// The text of its `tokenizer.json`.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// SHA-256 of its `tokenizer.json`.
    pub fn sha256(&self) -> String {
        hash::sha256_hex(self.json.as_bytes())
    }
}

const WHICH: &str =
    "needed is the tokenizer.json that the `tokenizers` library writes, from the model's publication";

/// How Llama 3 splits text: contractions, words with one leading mark, up to three digits, runs of marks, white space.
const LLAMA3_SPLIT: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The characters that stand for the bytes 0 to 255 in a byte-level vocabulary: printable bytes
/// stand for themselves, the others are moved up from 256 in their order.
pub fn byte_characters() -> [char; 256] {
    let mut table = ['\0'; 256];
    let mut moved = 0u32;
    for (byte, slot) in (0u32..).zip(table.iter_mut()) {
        let printable =
            (0x21..=0x7e).contains(&byte) || (0xa1..=0xac).contains(&byte) || (0xae..=0xff).contains(&byte);
        let code = if printable { byte } else { 256 + moved };
        moved += u32::from(!printable);
        *slot = char::from_u32(code).expect("codes below 512 are characters");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(merges: &[&str], pre: &str) -> Result<Tokenizer> {
        let mut tokens: Vec<String> = byte_characters().map(String::from).to_vec();
        tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
        tokens.push("<|end|>".into());
        let end = tokens.len() as u32 - 1;
        let merges: Vec<String> = merges.iter().map(|m| (*m).to_owned()).collect();
        Tokenizer::from_bpe(
            &Bpe { tokens: &tokens, special: &[end], added: &[], merges: &merges, pre },
            "test",
        )
    }

    #[test]
    fn byte_characters_are_those_of_byte_level_vocabularies() {
        let table = byte_characters();
        assert_eq!(
            (table[usize::from(b'A')], table[usize::from(b' ')], table[usize::from(b'\n')]),
            ('A', 'Ġ', 'Ċ')
        );
        let alphabet: std::collections::BTreeSet<char> =
            tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet().into_iter().collect();
        assert_eq!(table.into_iter().collect::<std::collections::BTreeSet<_>>(), alphabet);
    }

    #[test]
    fn merges_apply_in_order_and_digits_stay_apart_where_the_rule_says_so() {
        let text = "12ab<|end|> ab";
        let tokens = |pre| parts(&["a b", "1 2", "Ġ ab"], pre).unwrap().encode(text).unwrap();
        assert_eq!(tokens("gpt-2"), [257, 256, 259, 258]);
        assert_eq!(tokens("smollm"), [b'1'.into(), b'2'.into(), 256, 259, 258]);
        assert_eq!(tokens("llama-bpe"), [257, 256, 259, 258]);
        let tokenizer = parts(&["a b"], "smollm").unwrap();
        assert_eq!(tokenizer.decode(&[256, 257], true).unwrap(), "ab");
        assert_eq!(tokenizer.decode(&[256, 257], false).unwrap(), "ab<|end|>");
        assert_eq!((tokenizer.id("<|end|>"), tokenizer.reach()), (Some(257), 258));
    }

    #[test]
    fn files_of_another_kind_are_refused_by_name() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"version": "1.0"}"#,
            r#"{"model": {"type": "Magic", "vocab": {}}}"#,
            r#"{"tokenizer_class": "LlamaTokenizer"}"#,
            "\0\u{1}\u{2}",
        ] {
            let error = Tokenizer::from_json(text.into(), "x/tokenizer.json").err().unwrap().to_string();
            assert!(error.starts_with("x/tokenizer.json: ") && error.contains("hint: "), "{text}: {error}");
        }
    }

    #[test]
    fn merges_that_do_not_fit_the_vocabulary_are_refused() {
        let file = |merges: &str, prefix: &str| {
            format!(
                r#"{{"version": "1.0", "added_tokens": [], "model": {{"type": "BPE", "continuing_subword_prefix": {prefix},
                    "vocab": {{"a": 0, "b": 1, "ab": 2, "@b": 3}}, "merges": {merges}}}}}"#
            )
        };
        let load = |merges: &str, prefix: &str| Tokenizer::from_json(file(merges, prefix), "x").map(|_| ());
        load(r#"[["a", "b"]]"#, "null").unwrap();
        load(r#"["a b"]"#, "null").unwrap();
        load(r#"[["a", "@b"]]"#, "\"@\"").unwrap();
        for (merges, prefix) in [
            (r#"[["a", "b"]]"#, "\"@\""),
            (r#"[["b", "a"]]"#, "null"),
            (r#"["a c"]"#, "null"),
            (r#"["ab"]"#, "null"),
        ] {
            let error = load(merges, prefix).unwrap_err().to_string();
            assert!(error.contains("does not lead") && error.contains("hint:"), "{merges}: {error}");
        }
    }

    #[test]
    fn the_reach_of_a_vocabulary_with_holes_is_its_largest_id() {
        let file = r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []},
            "added_tokens": [{"id": 300, "content": "<|im_end|>", "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true}]}"#;
        let tokenizer = Tokenizer::from_json(file.into(), "x").unwrap();
        assert_eq!(tokenizer.reach(), tokenizer.id("<|im_end|>").unwrap() as usize + 1);
    }

    #[test]
    fn a_vocabulary_larger_than_the_embedding_is_refused_by_name() {
        let tokenizer = parts(&["a b"], "smollm").unwrap();
        tokenizer.check_fits(258).unwrap();
        let error = tokenizer.check_fits(257).unwrap_err().to_string();
        assert!(error.contains("id 257 (`<|end|>`)") && error.contains("257 rows"), "{error}");
    }

    #[test]
    fn unknown_rules_and_broken_parts_are_refused_by_name() {
        assert!(parts(&[], "deepseek-coder").err().unwrap().to_string().contains("deepseek-coder"));
        assert!(parts(&["ab"], "gpt-2").err().unwrap().to_string().contains("`ab`"));
        assert!(parts(&["a b", "a b"], "gpt-2").err().unwrap().to_string().contains("twice"));
        assert!(
            Tokenizer::from_json("{".into(), "x/tokenizer.json")
                .err()
                .unwrap()
                .to_string()
                .starts_with("x/tokenizer.json")
        );
    }
}
