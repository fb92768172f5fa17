//! Keeps the machine busy while tests run.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Result;

use crate::cargo;

/// How many loops of each kind there are.
const LOOPS: usize = 2;
/// What a loop writes before each flush.
const BLOCK: [u8; 4096] = [7; 4096];

/// Loops that take processor time and flush files, until this is dropped.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start() -> Result<Self> {
        let mut load = Self { stop: Arc::default(), threads: Vec::new() };
        let folder = cargo::target();
        std::fs::create_dir_all(&folder)?;
        for number in 0..LOOPS {
            let stop = load.stop.clone();
            load.threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }));
            let path = folder.join(format!("load-{number}"));
            let (mut file, stop) = (File::create(&path)?, load.stop.clone());
            load.threads.push(std::thread::spawn(move || {
                // A disk that refuses a write is no reason to stop: it is busy all the same.
                while !stop.load(Ordering::Relaxed) {
                    let _ = file.rewind();
                    let _ = file.write_all(&BLOCK);
                    let _ = file.sync_all();
                }
                let _ = std::fs::remove_file(&path);
            }));
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
