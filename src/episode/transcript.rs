//! What was said in an episode, and the token ids that were sampled: one JSON line an episode,
//! compressed with zstd. Kept only where the environment lets its transcripts be published.

use crate::environment::Message;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read};
use std::path::Path;

/// One episode's conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transcript {
    /// The task.
    pub task_id: String,
    /// The rollout.
    pub rollout: i64,
    /// Every message in order, worked examples included.
    pub messages: Vec<Message>,
    /// Token ids of each sampled turn, in order, as they were sampled.
    pub sampled: Vec<Vec<u32>>,
}

/// The bytes of a `.jsonl.zst` file: the same for the same transcripts.
pub fn encode(transcripts: &[Transcript]) -> Result<Vec<u8>> {
    let mut lines = Vec::new();
    for transcript in transcripts {
        serde_json::to_writer(&mut lines, transcript)
            .map_err(|e| Error::invalid(format!("a transcript cannot be written as JSON: {e}")))?;
        lines.push(b'\n');
    }
    Ok(zstd::encode_all(lines.as_slice(), zstd::DEFAULT_COMPRESSION_LEVEL)?)
}

/// Most bytes of one transcript, and of all transcripts of a file, unpacked.
const LONGEST: u64 = 64 << 20;
const MOST: u64 = 16 << 30;

/// Reads a `.jsonl.zst` file; an error names the file and the line. A line that unpacks to more than 64 MiB is none.
pub fn read(path: &Path) -> Result<Vec<Transcript>> {
    let damaged = |line: usize, why: String| {
        Error::invalid(format!("line {line} is not a transcript: {why}"))
            .at(path.display())
            .hint("restore the file, or delete its unit's files and run it again")
    };
    crate::regular::check(path)?;
    let reader = zstd::Decoder::new(fs_err::File::open(path)?)?;
    let mut reader = std::io::BufReader::new(reader.take(MOST));
    let mut transcripts = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let number = transcripts.len() + 1;
        let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut line);
        if read.map_err(|e| damaged(number, e.to_string()))? == 0 {
            return Ok(transcripts);
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST {
            return Err(damaged(number, format!("it is longer than {LONGEST} bytes")));
        }
        transcripts.push(serde_json::from_slice(&line).map_err(|e| damaged(number, e.to_string()))?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(n: usize) -> Vec<Transcript> {
        (0..n)
            .map(|i| Transcript {
                task_id: format!("t{i}"),
                rollout: i as i64,
                messages: vec![Message::user("a\nb \u{2028} \"q\""), Message::assistant("</script>")],
                sampled: vec![vec![1, u32::MAX], vec![]],
            })
            .collect()
    }

    #[test]
    fn transcripts_survive_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl.zst");
        for n in [0, 1, 20] {
            fs_err::write(&path, encode(&some(n)).unwrap()).unwrap();
            assert_eq!(read(&path).unwrap(), some(n));
        }
    }

    #[test]
    fn a_line_without_end_is_no_transcript() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl.zst");
        let endless = vec![b' '; LONGEST as usize + 1];
        fs_err::write(&path, zstd::encode_all(endless.as_slice(), 1).unwrap()).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("longer than"), "{error}");
    }

    #[test]
    fn a_cut_file_is_an_error_at_every_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl.zst");
        let bytes = encode(&some(3)).unwrap();
        for cut in 0..bytes.len() {
            fs_err::write(&path, &bytes[..cut]).unwrap();
            match read(&path) {
                Err(e) => assert!(!e.to_string().is_empty()),
                Ok(rows) => assert!(rows.is_empty() && cut == 0, "cut at {cut} read {} lines", rows.len()),
            }
        }
    }
}
