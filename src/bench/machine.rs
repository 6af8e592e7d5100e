//! The machine that a measurement ran on, and what a process took of it.

/// Greatest resident memory of this process so far, in bytes, where the system tells.
pub fn peak_memory() -> Option<u64> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Name of the processor, where the system tells.
pub fn processor_name() -> Option<String> {
    let info = fs_err::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Processes that were running or waiting to run, averaged over the last minute.
pub fn load() -> Option<f64> {
    fs_err::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}
