//! Any input: no panic, no long loop, sane windows.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::maker::Maker;
use super::{find, found, sane};

fn of_tokens(tokens: impl IntoIterator<Item = u32>) -> Maker {
    let mut maker = Maker::default();
    for token in tokens {
        maker.kernel(&format!("k{token}"), 5_000);
    }
    maker
}

/// The Fibonacci word: it nearly repeats at every Fibonacci number.
fn fibonacci(length: usize) -> Vec<u32> {
    let (mut word, mut before) = (vec![0, 1], vec![0]);
    while word.len() < length {
        let next = [word.clone(), before].concat();
        before = std::mem::replace(&mut word, next);
    }
    word.truncate(length);
    word
}

#[test]
fn sequences_that_nearly_repeat_take_no_long_time() {
    let length = 60_000;
    let blocks = (0..length as u32).map(|at| if at % 1_000 == at / 1_000 { 1 } else { 0 });
    let cases = [vec![0; length], fibonacci(length), blocks.collect()];
    for tokens in cases {
        let maker = of_tokens(tokens);
        let begin = Instant::now();
        if let Some(steps) = found(&maker) {
            sane(&steps, length);
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_sequence_gives_sane_steps(tokens in prop::collection::vec(0_u32..4, 0..200)) {
        let maker = of_tokens(tokens);
        if let Some(steps) = found(&maker) {
            sane(&steps, maker.order.len());
        }
    }

    #[test]
    fn a_repeated_sequence_is_found(
        unit in prop::collection::vec(0_u32..9, 1..30),
        startup in prop::collection::vec(10_u32..99, 0..20),
        times in 8_usize..20,
    ) {
        let all = startup.iter().chain(std::iter::repeat_n(&unit, times).flatten()).copied();
        let maker = of_tokens(all);
        let steps = found(&maker).expect("it repeats");
        sane(&steps, maker.order.len());
        prop_assert_eq!(unit.len() as u64 % steps.time.work, 0);
    }

    #[test]
    fn a_broken_trace_gives_no_panic(
        times in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 30..60),
        order in prop::collection::vec(0_u32..80, 0..120),
        waits in any::<u64>(),
    ) {
        let mut maker = of_tokens((0..60).map(|at| at % 3));
        for (at, (start, duration, call)) in times.iter().enumerate() {
            let work = &mut maker.trace.work[at];
            (work.start_ns, work.duration_ns) = (*start, *duration);
            work.call = Some(if call % 2 == 0 { *call } else { call % 64 });
            work.name = if call % 5 == 0 { *call } else { work.name };
            let call = &mut maker.trace.calls[at];
            (call.start_ns, call.duration_ns) = (*duration, *start);
            call.waits = waits >> at & 1 == 1;
        }
        if let Some(steps) = find(&maker.trace, &order) {
            sane(&steps, order.len());
        }
    }
}
