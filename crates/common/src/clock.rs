//! The wall clock. All that asks for the time of day asks here, so that a simulation can set another one.

use std::cell::RefCell;

use jiff::Timestamp;

type Clock = Box<dyn Fn() -> Timestamp>;

thread_local! {
    static SIMULATED: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// The time now.
pub fn now() -> Timestamp {
    SIMULATED.with_borrow(|clock| clock.as_ref().map_or_else(Timestamp::now, |clock| clock()))
}

/// From now on, everything that runs on this thread gets the time from `clock`.
pub fn simulate(clock: impl Fn() -> Timestamp + 'static) {
    SIMULATED.set(Some(Box::new(clock)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_clock_is_that_of_its_thread_alone() {
        let other = || std::thread::spawn(now).join().unwrap();
        assert!(now() > Timestamp::UNIX_EPOCH);
        simulate(|| Timestamp::UNIX_EPOCH);
        assert_eq!(now(), Timestamp::UNIX_EPOCH);
        assert!(other() > Timestamp::UNIX_EPOCH);
    }
}
