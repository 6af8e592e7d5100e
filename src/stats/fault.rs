//! A fault that tests can plant: while it is set, every paired delta is off by that much.
//! It exists so that the audit's second road can be shown to notice a wrong `stats`.
//! Nothing outside tests plants it; unplanted it adds exactly nothing.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that is 0 until planted; shared by the whole process.
pub struct Fault(AtomicU64);

impl Fault {
    const fn none() -> Self {
        Fault(AtomicU64::new(0))
    }

    /// Plants `offset`; 0 takes the fault away.
    pub fn plant(&self, offset: f64) {
        self.0.store(offset.to_bits(), Ordering::SeqCst);
    }

    /// `value` as it is, or shifted while a fault is planted.
    pub(crate) fn apply(&self, value: f64) -> f64 {
        match f64::from_bits(self.0.load(Ordering::SeqCst)) {
            0.0 => value,
            offset => value + offset,
        }
    }
}

/// The offset added to the value of every paired delta.
pub static PAIRED_DELTA: Fault = Fault::none();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unplanted_changes_nothing_and_planted_shifts() {
        let fault = Fault::none();
        assert_eq!(fault.apply(-0.0).to_bits(), (-0.0f64).to_bits());
        fault.plant(1e-6);
        assert_eq!(fault.apply(0.5), 0.5 + 1e-6);
        fault.plant(0.0);
        assert_eq!(fault.apply(0.5), 0.5);
    }
}
