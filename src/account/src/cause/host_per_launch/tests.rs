use super::find;
use crate::cause::test_view::{StepScript, play};

fn steps(us: f64) -> Vec<StepScript> {
    let step = |number: usize| {
        let mut step = StepScript::new();
        for _ in 0..30 + 4 * number {
            step = step.host(20.0).kernel("void at::native::add<float>(int)", us);
        }
        step
    };
    (0..6).map(step).collect()
}

#[test]
fn host_time_between_launches_that_change_is_found() {
    let found = play(&steps(2.0)).look(find).unwrap();
    assert!(found.text.contains("not the same in each step"), "{}", found.text);
    assert!(found.hint.contains("torch.compile"));
}

#[test]
fn launches_of_two_threads_that_mix_are_named() {
    let steps = (0..6).map(|number| {
        let mut step = StepScript::new();
        for launch in 0..30 {
            // The second thread launches at another place in each step.
            let is_second = launch == 5 + number;
            let name = if is_second { "scale(float*)" } else { "void at::native::add<float>(int)" };
            step = step.on_thread(1 + u64::from(is_second)).host(20.0).kernel(name, 2.0);
        }
        step.on_thread(1)
    });
    let found = play(&steps.collect::<Vec<_>>()).look(find).unwrap();
    assert!(found.text.contains("several threads launch"), "{}", found.text);
}

#[test]
fn long_kernels_are_silent() {
    assert!(play(&steps(100.0)).look(find).is_none());
}

#[test]
fn a_sequence_that_repeats_is_for_a_graph() {
    let window = vec![steps(2.0)[0].clone(); 6];
    assert!(play(&window).look(find).is_none());
}
