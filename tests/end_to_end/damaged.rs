//! Damaged Parquet files of another writer, given to the binary: each is refused with its path, or read
//! where the damage is in what nobody reads. A process of its own for each, since a reader that runs out
//! of memory takes its process along.

use crate::common::{run, said};
use rederive::philox::Philox;

const MUTATIONS: usize = 360;

/// One damage, by its number.
fn damaged(whole: &[u8], number: usize) -> Vec<u8> {
    let mut random = Philox::named(&format!("damage {number}"));
    let mut below = |n: usize| (random.unit() * n as f64) as usize;
    let mut bytes = whole.to_vec();
    let end = bytes.len() - 8;
    let footer = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    let pages = end - footer;
    // A number that is negative, or very large, where a number of pages or the footer may stand.
    let absurd: [&[u8]; 4] =
        [&[0xff, 0xff, 0xff, 0xff, 0x0f], &[0xfe, 0xff, 0xff, 0xff, 0x0f], &[0x01], &[0xff; 9]];
    match number % 6 {
        0 => (0..=below(4)).for_each(|_| bytes[4 + below(pages - 4)] ^= 1 << below(8)),
        1 => (0..=below(2)).for_each(|_| bytes[pages + below(footer)] ^= 1 << below(8)),
        2 => {
            let start = 4 + below(pages - 4);
            let stop = (start + 1 + below(100)).min(end);
            bytes[start..stop].fill(0);
        }
        3 => {
            let length = [0, 1, 8, end as u32, u32::MAX, 1 << 31, below(1 << 30) as u32][below(7)];
            bytes[end..end + 4].copy_from_slice(&length.to_le_bytes());
        }
        4 => {
            let cut = below(bytes.len());
            // Cut off, or with the middle gone and the footer still there.
            bytes = if below(2) == 0 {
                bytes[..cut].to_vec()
            } else {
                [&bytes[..cut.min(pages)], &bytes[pages..]].concat()
            };
        }
        _ => {
            let number = absurd[below(4)];
            let mut at = if below(2) == 0 { 4 + below(pages - 4) } else { pages + below(footer) };
            // Mostly in a page's header: it begins with type and sizes, three numbers.
            let headers: Vec<usize> = (4..pages - 16)
                .filter(|&i| bytes[i] == 0x15 && bytes[i + 2] == 0x15 && bytes[i + 1] <= 6)
                .collect();
            if !headers.is_empty() && below(4) > 0 {
                at = headers[below(headers.len())] + 3 + below(12);
            }
            bytes[at..at + number.len()].copy_from_slice(number);
        }
    }
    bytes
}

#[test]
fn every_damaged_file_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let (mut refused, mut read) = (0, 0);
    for number in 0..MUTATIONS {
        let name = ["rows_snappy", "rows_v2", "rows_zstd"][number / 6 % 3];
        let fixture = format!("{}/tests/fixtures/parquet/{name}.parquet", env!("CARGO_MANIFEST_DIR"));
        let bytes = damaged(&std::fs::read(fixture).unwrap(), number);
        let path = folder.path().join(format!("{number}.parquet"));
        std::fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        let output = run(&["compare", path]);
        let message = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(2) if message.contains(path) && message.contains("hint: ") => refused += 1,
            Some(0) => read += 1,
            _ => panic!("damage {number} of {name}: {}", said(&output)),
        }
        assert!(!message.contains("panicked"), "damage {number}: {message}");
    }
    assert!(refused > MUTATIONS / 2 && refused + read == MUTATIONS, "{refused} refused, {read} read");
}
