//! The `rederive` binary: everything it does is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // candle's own threads wait in a spin loop between small operations and take the cores from the
    // kernels here, which share the work themselves.
    if std::env::var_os("CANDLE_NUM_THREADS").is_none() {
        // SAFETY: no other thread exists yet.
        unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
    }
    ExitCode::from(rederive::cli::main())
}
