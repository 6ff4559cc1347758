use super::*;

const ONE: &str = r#"{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"GPU"}],"traceEvents":[
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":7,"ts":1695835542515301.5,"dur":1.25,
     "args":{"External id":2,"Input Dims":[[2,3],[3,4]]}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1695835542515302,"dur":2,
     "args":{"correlation":5,"device":0,"stream":7,"grid":[1,2,3],"block":[4,1,1],"shared memory":16}},
    {"ph":"s","cat":"ac2g","name":"ac2g"},{"ph":"X","cat":"kernel","name":"k"},3"#;

#[test]
fn times_are_read_to_the_nanosecond_since_1970() {
    let trace = TorchTrace::read(format!("{ONE}]}}").as_bytes()).unwrap();
    assert_eq!(trace.events[0].start_ns, 1_695_835_542_515_301_500);
    assert_eq!(trace.events[0].duration_ns, 1250);
    assert_eq!(trace.events[0].shapes, "[[2,3],[3,4]]");
    assert_eq!(trace.events[1].grid, Some([1, 2, 3]));
    assert_eq!(trace.name(&trace.events[1]), "k");
    assert_eq!((trace.other, trace.malformed, trace.broken), (1, 2, None));
    assert_eq!(trace.devices, ["GPU"]);
}

#[test]
fn python_calls_memory_and_our_own_key_are_read() {
    let text = r#"{"traceEvents":[
        {"ph":"X","cat":"python_function","name":"train.py(3): step","pid":7,"tid":8,"ts":1,"dur":5,
         "args":{"Python id":1}},
        {"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":7,"tid":8,"ts":2.5,
         "args":{"Total Reserved":2048,"Total Allocated":512,"Bytes":512,"Addr":1,"Device Id":0,"Device Type":1}},
        {"ph":"i","cat":"cpu_instant_event","name":"[memory]","ts":2.5,
         "args":{"Total Allocated":512,"Device Id":-1,"Device Type":0}},
        {"ph":"X","cat":"cpu_op","name":"MmBackward0","pid":7,"tid":9,"ts":3,"dur":1,
         "args":{"Sequence number":4,"Fwd thread id":1}}],
        "rgpu":{"recorded":"steps","steps":3,"cuda":true,"model":{"name":"llama","parameters":5},
                "work":{"LLM@prefill":{"calls":1,"flops":2e9}},"memory":{"peak_allocated_bytes":9}},
        "rgpu_plain_step_ns": 4012345}"#;
    let trace = TorchTrace::read(text.as_bytes()).unwrap();
    let call = trace.python_calls[0];
    assert_eq!(trace.names[call.name as usize], "train.py(3): step");
    assert_eq!((call.tid, call.start_ns, call.duration_ns), (8, 1000, 5000));
    let change =
        MemoryChange { at_ns: 2500, device: 0, allocated_bytes: 512, reserved_bytes: 2048 };
    assert_eq!(trace.memory, [change], "memory of the host is left out");
    assert_eq!((trace.events[0].sequence, trace.events[0].is_backward), (Some(4), true));
    let recording = trace.recording.unwrap();
    assert_eq!((recording.steps, recording.cuda, recording.cut), (3, true, false));
    assert_eq!(trace.plain_step_ns, Some(4_012_345));
    assert_eq!(recording.work["LLM@prefill"], RangeWork { calls: 1, flops: 2e9 });
    assert_eq!(recording.model.unwrap().parameters, Some(5));
    assert_eq!(recording.memory.unwrap().peak_allocated_bytes, 9);
}

#[test]
fn the_rank_and_the_collectives_of_its_kernels_are_read() {
    let text = r#"{"baseTimeNanoseconds":1790857026000000000,
        "distributedInfo":{"backend":"nccl","rank":3,"world_size":4},"traceEvents":[
        {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","pid":0,"tid":7,
         "ts":1,"dur":2,"args":{"stream":7,"correlation":5,"Collective name":"allreduce",
         "In msg nelems":1024,"Out msg nelems":1024,"Group size":4,"dtype":"Float",
         "Process Group Name":"0","Process Group Ranks":"[0, 1, 2, 3]"}}]}"#;
    let trace = TorchTrace::read(text.as_bytes()).unwrap();
    let info = DistributedInfo { rank: Some(3), world_size: Some(4) };
    assert_eq!((trace.distributed, trace.base_ns), (Some(info), 1_790_857_026_000_000_000));
    let collective = trace.events[0].collective.as_deref().unwrap();
    assert_eq!((collective.name.as_str(), collective.in_elements), ("allreduce", Some(1024)));
    assert_eq!((&*collective.group, &*collective.group_ranks), ("0", "[0, 1, 2, 3]"));
    assert_eq!((&*collective.dtype, collective.group_size), ("Float", Some(4)));
}

#[test]
fn a_trace_that_takes_too_much_memory_is_read_up_to_the_event_that_does_not_fit() {
    let of_names = |name: &dyn Fn(usize) -> String| {
        let event = |n: usize| {
            let name = name(n);
            format!(r#"{{"ph":"X","cat":"kernel","name":"{name}","ts":{n},"dur":1}},"#)
        };
        let events: String = (0..100).map(event).collect();
        format!(r#"{{"traceEvents":[{events}{{}}]}}"#)
    };
    let text = of_names(&|n| format!("k{n}"));
    let mut small = MemoryBudget::for_file(0);
    small.take((32 << 20) - 300_000).unwrap();
    let trace = TorchTrace::read_within(text.as_bytes(), small.clone()).unwrap();
    let kept = trace.events.len();
    assert!((10..100).contains(&kept), "{kept}");
    let broken = trace.broken.unwrap();
    assert!(broken.starts_with(&format!("event {} does not fit: ", kept + 1)), "{broken}");
    // One name is stored once, and does not count again.
    let same = of_names(&|_| "k".to_owned());
    let trace = TorchTrace::read_within(same.as_bytes(), small.clone()).unwrap();
    assert_eq!((trace.events.len(), trace.broken), (100, None));
    for (key, value) in [("deviceProperties", "{}"), ("rgpu", "[]")] {
        let values = vec![value; 2000].join(",");
        let text = format!(r#"{{"{key}":[{values}],"traceEvents":[]}}"#);
        let error = TorchTrace::read_within(text.as_bytes(), small.clone()).unwrap_err();
        assert!(error.to_string().contains("does not fit"), "{key}: {error}");
    }
    small.take(299_000).unwrap();
    let odd = [b"{\"traceEvents\":[\"", &[0xff; 2000][..], b"\"]}"].concat();
    let error = TorchTrace::read_within(&odd, small).unwrap_err();
    assert!(matches!(error, TorchTraceError::OverBudget(_)), "{error}");
}

#[test]
fn a_trace_that_was_cut_off_keeps_its_events() {
    let trace = TorchTrace::read(ONE.as_bytes()).unwrap();
    assert_eq!(trace.events.len(), 2);
    assert!(trace.broken.is_some_and(|cause| cause.contains("EOF")));
    assert!(matches!(TorchTrace::read(b"{}"), Err(TorchTraceError::NoEvents)));
    assert!(matches!(TorchTrace::read(b"[1]"), Err(TorchTraceError::Json(_))));
    for end in 0..ONE.len() {
        let _ = TorchTrace::read(&ONE.as_bytes()[..end]);
    }
}
