//! Reads a WAL the way SQLite recovers one (<https://sqlite.org/fileformat2.html#walformat>) to find damage. SQLite
//! itself stops at the first invalid frame without an error.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// The size of the file header, and of each frame header.
const HEADER: usize = 32;
const FRAME: usize = 24;

/// The first bytes; the last bit is the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;

/// The largest page size of SQLite.
const PAGE_MAX: usize = 65_536;

/// The state of a WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalState {
    /// It does not exist or is empty.
    Missing,
    /// Every transaction in it is valid.
    Sound,
    /// It is damaged or truncated, and this many complete transactions follow the damage.
    Torn { transactions: u64 },
}

/// Checks a WAL.
pub(crate) fn inspect(path: &Path) -> std::io::Result<WalState> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(WalState::Missing),
        opened => BufReader::with_capacity(1 << 20, opened?),
    };
    let mut header = [0; HEADER];
    match read_full(&mut file, &mut header)? {
        0 => return Ok(WalState::Missing),
        HEADER => {}
        _ => return Ok(WalState::Torn { transactions: 0 }),
    }
    let (magic, size) = (be_u32(&header[..4]), be_u32(&header[8..12]) as usize);
    let big = magic & 1 == 1;
    let mut sum = checksum(big, &header[..24], (0, 0));
    if magic & !1 != MAGIC || !size.is_power_of_two() || size > PAGE_MAX || sum != checksum_at(&header[24..]) {
        return Ok(WalState::Torn { transactions: 0 });
    }
    let mut frame = vec![0; FRAME + size];
    let (mut sound, mut lost, mut cut) = (true, 0, false);
    loop {
        match read_full(&mut file, &mut frame)? {
            0 => break,
            read if read < frame.len() => {
                // The salt shows whether the frame belongs to this WAL or is left over from an earlier one.
                cut = read >= 16 && frame[8..16] == header[16..24];
                break;
            }
            _ => {}
        }
        if frame[8..16] != header[16..24] {
            // Left over from an earlier, longer WAL, or damaged.
            sound = false;
            continue;
        }
        sum = checksum(big, &frame[FRAME..], checksum(big, &frame[..8], sum));
        sound &= sum == checksum_at(&frame[16..24]);
        // The last frame of a transaction holds the size of the database.
        lost += u64::from(!sound && be_u32(&frame[4..8]) > 0);
    }
    // Frames without a last one are a transaction that a crash interrupted; it was never committed.
    Ok(if lost > 0 || cut { WalState::Torn { transactions: lost } } else { WalState::Sound })
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read(&mut buffer[read..]) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn checksum_at(bytes: &[u8]) -> (u32, u32) {
    (be_u32(&bytes[..4]), be_u32(&bytes[4..8]))
}

fn checksum(big: bool, bytes: &[u8], (mut first, mut second): (u32, u32)) -> (u32, u32) {
    let take = |bytes: &[u8]| if big { be_u32(bytes) } else { be_u32(bytes).swap_bytes() };
    for eight in bytes.chunks_exact(8) {
        first = first.wrapping_add(take(&eight[..4])).wrapping_add(second);
        second = second.wrapping_add(take(&eight[4..])).wrapping_add(first);
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    /// A WAL with this many transactions of at least two pages each.
    fn wal(folder: &Path, transactions: u32) -> Vec<u8> {
        let path = folder.join("w.db");
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        for i in 1..transactions {
            conn.execute("INSERT INTO t VALUES (?1)", [i]).unwrap();
        }
        std::fs::read(folder.join("w.db-wal")).unwrap()
    }

    fn inspect_bytes(bytes: &[u8]) -> WalState {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        inspect(file.path()).unwrap()
    }

    #[test]
    fn damage_is_distinguished_from_incomplete_transactions() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = wal(folder.path(), 10);
        let frame = 4096 + FRAME;
        let frames = (bytes.len() - HEADER) / frame;
        let at = |number: usize| HEADER + number * frame;
        let is_end = |number: usize| be_u32(&bytes[at(number) + 4..at(number) + 8]) > 0;
        let ends = |from: usize| (from..frames).filter(|number| is_end(*number)).count() as u64;
        assert_eq!(ends(0), 10);
        assert_eq!(inspect_bytes(&bytes), WalState::Sound);
        assert_eq!(inspect_bytes(&[]), WalState::Missing);
        assert_eq!(inspect(&folder.path().join("nothing")).unwrap(), WalState::Missing);

        // Damaged bytes in the middle.
        let mut damaged = bytes.clone();
        damaged[at(frames / 2) + 1000] ^= 1;
        assert_eq!(inspect_bytes(&damaged), WalState::Torn { transactions: ends(frames / 2) });
        damaged[at(frames / 2)..at(frames / 2 + 1)].fill(0xee);
        assert_eq!(inspect_bytes(&damaged), WalState::Torn { transactions: ends(frames / 2 + 1) });
        let mut headless = bytes.clone();
        headless[5] ^= 1;
        assert_eq!(inspect_bytes(&headless), WalState::Torn { transactions: 0 });

        // Truncated in the middle of a frame.
        assert_eq!(inspect_bytes(&bytes[..at(frames - 1) + 500]), WalState::Torn { transactions: 0 });
        assert_eq!(inspect_bytes(&bytes[..10]), WalState::Torn { transactions: 0 });

        // An unfinished transaction: all its frames but the last are there.
        let last = (0..frames).rev().find(|number| !is_end(*number)).unwrap();
        assert_eq!(inspect_bytes(&bytes[..at(last + 1)]), WalState::Sound);
        // Frames of an earlier WAL have another salt.
        let mut older = bytes.clone();
        for number in frames / 2..frames {
            older[at(number) + 8] ^= 1;
        }
        assert_eq!(inspect_bytes(&older), WalState::Sound);
    }
}
