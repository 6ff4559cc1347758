//! Whose turn it is: priority, dependencies, resources, retries, and what is put back.

use super::TestQueue;
use crate::laptop::{status, wait_for};

#[test]
fn a_higher_priority_runs_first_and_then_the_older_one() {
    let queue = TestQueue::new();
    for (name, priority) in [("c", 0), ("a", 7), ("d", -1), ("b", 7)] {
        let command = format!("sh -c 'echo {name} >> order'");
        queue.add(&format!("--priority {priority} -- {command}"));
    }
    queue.run_once();
    assert_eq!(queue.lines("order"), ["a", "b", "c", "d"]);
}

#[test]
fn an_entry_runs_after_the_ends_that_it_asks_for() {
    let queue = TestQueue::new();
    let fails = queue.add("-- sh -c 'echo 1 >> order; exit 1'");
    let skipped = queue.add(&format!("--after {fails} --priority 9 -- sh -c 'echo 2 >> order'"));
    let chained = queue.add(&format!("--after {skipped} -- sh -c 'echo 3 >> order'"));
    let any = queue.add(&format!("--after {fails}:any,{chained}:any -- sh -c 'echo 4 >> order'"));
    queue.run_once();
    assert_eq!(queue.lines("order"), ["1", "4"]);
    let states = queue.states();
    let state = |id| states[&id].as_str();
    assert_eq!(
        (state(fails), state(skipped), state(chained), state(any)),
        ("failed", "skipped", "skipped", "ok")
    );
    assert_eq!(queue.entry(chained)["reason"], format!("entry {skipped} was skipped"));
    assert_eq!(queue.ends_of(skipped), ["attempt=0 status=skipped"]);
    // With the cause go those that were skipped because of it.
    let requeued = queue.json("requeue --failed");
    let ids: Vec<i64> =
        requeued["entries"].as_array().unwrap().iter().filter_map(|e| e["id"].as_i64()).collect();
    assert_eq!(ids, [fails, skipped, chained]);
}

#[test]
fn retries_are_counted_and_given_anew_by_requeue() {
    let queue = TestQueue::new();
    let id = queue.add("--retries 2 -- sh -c 'echo x >> tries; test $(wc -l < tries) -ge 5'");
    queue.run_once();
    assert_eq!((queue.state(id).as_str(), queue.lines("tries").len()), ("failed", 3));
    let ends = ["attempt=1 status=failed", "attempt=2 status=failed", "attempt=3 status=failed"];
    assert_eq!(queue.ends_of(id), ends);
    queue.json(&format!("requeue {id}"));
    queue.run_once();
    assert_eq!((queue.state(id).as_str(), queue.lines("tries").len()), ("ok", 5));
    assert_eq!(queue.entry(id)["attempt"], 5);
}

#[test]
fn entries_whose_needs_differ_run_side_by_side_and_others_do_not() {
    let queue = TestQueue::new();
    // Each writes when it begins and when it ends.
    let command = |name: &str| {
        format!(
            "sh -c 'echo {name}+ >> order; until test -e go-{name}; do sleep 0.02; done; echo {name}- >> order'"
        )
    };
    queue.add(&format!("--gpu 0 -- {}", command("a")));
    queue.add(&format!("--gpu 0 -- {}", command("b")));
    queue.add(&format!("--gpu 1 -- {}", command("c")));
    queue.add(&format!("--remote h200 -- {}", command("d")));
    queue.add(&format!("--remote h200 --gpu 3 -- {}", command("e")));
    queue.add(&format!("-- {}", command("f")));
    let runner = queue.start_runner(None);
    wait_for("three at once", || (queue.lines("order").len() == 3).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut begun = queue.lines("order");
    begun.sort();
    assert_eq!(begun, ["a+", "c+", "d+"]);
    for name in ["a", "b", "c", "d", "e", "f"] {
        queue.laptop.write(&format!("go-{name}"), "");
    }
    runner.wait_with_output().unwrap();
    let order = queue.lines("order");
    let at = |what: &str| order.iter().position(|line| line == what).unwrap();
    assert!(at("a-") < at("b+") && at("d-") < at("e+"), "{order:?}");
    assert!(at("b-") < at("f+") && at("c-") < at("f+"), "{order:?}");
}

#[test]
fn the_same_gpu_under_another_name_is_not_used_twice_at_once() {
    let queue = TestQueue::new();
    // Each fails if it finds another one running.
    let command = "sh -c 'mkdir busy && sleep 0.2 && rmdir busy'";
    for needs in ["--gpu 0", "--gpu 0,1", "--gpu 00", "--remote local --gpu 1,0", "--remote local"]
    {
        queue.add(&format!("{needs} -- {command}"));
    }
    queue.run_once();
    assert!(queue.states().values().all(|state| state == "ok"), "{:?}", queue.states());
    assert_eq!(queue.entry(4)["gpu"], "0,1");
    assert!(queue.entry(4)["remote"].is_null());
}

#[test]
fn a_command_in_an_entry_waits_for_all_other_entries() {
    let queue = TestQueue::new();
    let rgpu = env!("CARGO_BIN_EXE_rgpu");
    let other = queue.add("--gpu 1 -- sh -c 'sleep 0.3; echo other >> order'");
    let line = format!("{rgpu} queue wait; echo waited >> order");
    let waits = queue.add(&format!("--gpu 0 -- sh -c '{line}'"));
    // Its own number is 3.
    let itself = queue.add(&format!("--remote h200 -- {rgpu} queue wait 3"));
    queue.run_once();
    assert_eq!(queue.lines("order"), ["other", "waited"]);
    assert_eq!((queue.state(other), queue.state(waits)), ("ok".into(), "ok".into()));
    assert_eq!((queue.state(itself).as_str(), &queue.entry(itself)["rc"]), ("failed", &2.into()));
}

#[test]
fn a_paused_queue_starts_nothing_and_what_is_added_to_a_running_one_runs() {
    let queue = TestQueue::new();
    queue.json("pause");
    let mut runner = queue.laptop.start("queue run");
    let id = queue.add("-- true");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(queue.state(id), "waiting");
    queue.json("resume");
    assert_eq!(status(&queue.laptop.run(&format!("queue wait {id}"))), 0);
    let second = queue.add("-- false");
    assert_eq!(status(&queue.laptop.run(&format!("queue wait {second}"))), 1);
    let pid = rustix::process::Pid::from_child(&runner);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(130));
}

#[test]
fn ended_entries_are_removed_with_their_files_but_not_those_that_are_needed() {
    let queue = TestQueue::new();
    let (one, two, bad) = (queue.add("-- true"), queue.add("-- true"), queue.add("-- false"));
    queue.run_once();
    let later = queue.add(&format!("--after {two} -- true"));
    assert_eq!(queue.json("prune --keep 0 --dry-run")["removed"], serde_json::json!([one]));
    assert_eq!(queue.json("prune --keep 0 --yes")["removed"], serde_json::json!([one]));
    assert!(!queue.laptop.project(format!(".rgpu/queue/{one}")).exists());
    assert!(queue.laptop.project(format!(".rgpu/queue/{two}/1.log")).exists());
    assert_eq!(queue.states().into_keys().collect::<Vec<_>>(), [two, bad, later]);
    queue.run_once();
    assert_eq!(
        queue.json("prune --keep 0 --all --yes")["removed"],
        serde_json::json!([two, bad, later])
    );
    assert_eq!(queue.ends_of(one), ["attempt=1 status=ok"]);
    assert!(queue.add("-- true") > later, "numbers are not used again");
}

#[test]
fn the_room_of_removed_entries_is_given_back() {
    let queue = TestQueue::new();
    let script = [b"exit 0\n".to_vec(), vec![b'#'; 4 << 20]].concat();
    queue.add_script("--lang sh", &script);
    queue.run_once();
    let bytes = || {
        let size =
            |name| std::fs::metadata(queue.laptop.project(name)).map_or(0, |file| file.len());
        size(".rgpu/state.db") + size(".rgpu/state.db-wal")
    };
    assert!(bytes() > 4 << 20);
    queue.json("prune --keep 0 --yes");
    assert!(bytes() < 1 << 20, "{}", bytes());
}

#[test]
fn an_entry_does_not_wait_for_one_that_cannot_start_before_its_end() {
    let queue = TestQueue::new();
    let rgpu = env!("CARGO_BIN_EXE_rgpu");
    let script = |wait: &str| format!("sh -c '{rgpu} queue wait {wait}'");
    let waiter = queue.add(&format!("--gpu 0 -- {}", script("2")));
    queue.add("--gpu 0,1 -- true");
    let indirect = queue.add(&format!("--gpu 2 -- {}", script("4")));
    queue.add(&format!("--gpu 3 --after {indirect}:any -- true"));
    let free = queue.add(&format!("--gpu 4 -- {}", script("6")));
    queue.add("--gpu 5 -- true");
    queue.run_once();
    for (id, wanted) in [(waiter, 2), (indirect, 4)] {
        let said = String::from_utf8_lossy(&queue.output(id)).into_owned();
        let why = format!("entry {wanted} cannot start before entry {id} ends");
        assert!(said.contains(&why) && said.contains("`--after"), "{said}");
    }
    let states: Vec<String> = queue.states().into_values().collect();
    assert_eq!(states, ["failed", "ok", "failed", "ok", "ok", "ok"]);
    assert_eq!(free, 5);
}
