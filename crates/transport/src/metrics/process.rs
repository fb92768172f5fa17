//! Resource usage of the process, as Linux reports it; left out elsewhere.

use std::fs;

use super::PrometheusText;

/// Adds what is known.
pub fn render(text: &mut PrometheusText) {
    if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().and_then(|status| resident_bytes(&status)) {
        text.metric("process_resident_memory_bytes", "gauge", "Resident memory.", bytes);
    }
    if let Some(ticks) = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_ticks(&stat)) {
        let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        text.metric("process_cpu_seconds_total", "counter", "CPU time used.", seconds);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // The directory itself was open while it was read.
        text.metric("process_open_fds", "gauge", "Open file descriptors.", open.count().saturating_sub(1));
    }
}

/// `VmRSS:      1234 kB` in bytes.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// User plus system time. The program's name before them may contain anything, so fields count from the last parenthesis.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    1234 kB\nVmData: 1 kB\n"), Some(1234 * 1024));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
        assert_eq!(cpu_ticks("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 13 14"), Some(42));
        assert_eq!(cpu_ticks("7 (x) S 1"), None);
    }
}
