"""Part `python`: kernels in Python under every tool. The host needs torch and triton for its python3."""

import math

SIZES = ("--problem-sizes", "tiny|odd|large")


def finite(x):
    return isinstance(x, (int, float)) and math.isfinite(x)


def names(p):
    return {x["kernel"].lower() for x in [*p.get("launches", []), *p.get("kernels", [])]}


def python(s):
    remote = ("--remote", "h200")
    for kernel, launched in (("triton-softmax", "softmax_rows"), ("torch-softmax", "softmax")):
        p = s.profile("--kernel", kernel, "--mode", "verify", *remote)
        s.check(f"{kernel} is right at every size", (p.get("correctness") or {}).get("verdict") == "right" and len(p.get("cases", [])) == 3,
                str(p.get("correctness")))
        p = s.profile("--kernel", kernel, "--mode", "bench", *remote)
        t = p.get("timing") or {}
        s.check(f"{kernel}: CUDA events, every timed output compared", t.get("clock") == "cuda_events" and t.get("l2_flushed")
                and t.get("verified", 0) >= t.get("samples", 1), str(t), note=f"{(t.get('median_ns') or 0) / 1e3:.1f} us, {t.get('samples')} samples")
        s.check(f"{kernel}: 0.5 to 5 TB/s", 0.5e12 < (t.get("bytes_per_s") or 0) < 5e12, str(t.get("bytes_per_s")))
        s.check(f"{kernel}: clocks were read", finite(t.get("sm_mhz")), str(t.get("sm_mhz")))

        p = s.profile("--kernel", kernel, "--mode", "ncu", *remote)
        s.top_rung(f"{kernel} under ncu", p)
        s.check(f"{kernel}: ncu saw the kernel of the timed call alone", len(p.get("launches", [])) == 1 and any(launched in n for n in names(p)), str(names(p)))
        numbers = [m["value"] for x in p.get("launches", []) for m in x["metrics"].values() if not isinstance(m["value"], str)]
        s.check(f"{kernel}: over 500 finite metrics", len(numbers) > 500 and all(map(finite, numbers)), str(len(numbers)))

        p = s.profile("--kernel", kernel, "--mode", "nsys", *remote)
        s.top_rung(f"{kernel} under nsys", p)
        paths = ["::".join(r["path"]) for r in p.get("regions", [])]
        s.check(f"{kernel}: nsys saw our ranges and the kernel", any(x.startswith("rgpu@timed") for x in paths) and any(launched in n for n in names(p)),
                f"{paths} {sorted(names(p))[:8]}")

        p = s.profile("--kernel", kernel, "--mode", "torch", *remote)
        s.top_rung(f"{kernel} under torch", p)
        s.check(f"{kernel}: torch's trace has the kernel with its time", any(launched in k["kernel"].lower() and k["total_ns"] > 0 for k in p.get("kernels", [])),
                str(names(p))[:400])
    p = s.profile("--kernel", "torch-softmax", "--mode", "torch", *remote)
    own = {o["name"]: o for o in p.get("operators", [])}
    s.check("the operator of the torch function has GPU time", any("softmax" in n and (o.get("gpu_ns") or 0) > 0 for n, o in own.items()), str(list(own))[:400])
    p = s.profile("--kernel", "triton-softmax", "--mode", "sanitizer", "--tool", "memcheck", "--problem-sizes", "odd", *remote)
    s.check("memcheck calls the Triton kernel clean", [r["verdict"] for r in p.get("sanitizer", [])] == ["clean"], str(p.get("sanitizer"))[:300])
    p = s.profile("--kernel", "triton-softmax", "--mode", "bench", *SIZES, *remote)
    s.check("three sizes in one run", [c["name"] for c in p.get("cases", []) if c.get("timing")] == ["tiny", "odd", "large"], str(p.get("cases"))[:300])

    for kernel, stages in (("resnet", {"stem", "stage1", "stage2", "head"}), ("decoder", {"LLM@prefill", "LLM@decode_all", "LLM@decode_step"}),
                           ("decoder-gqa", {"LLM@prefill", "LLM@decode_all", "LLM@decode_step"})):
        p = s.profile("--kernel", kernel, "--mode", "torch", "--problem-sizes", "large", *remote)
        s.top_rung(f"{kernel} under torch", p)
        seen = {x["region"]: x for x in p.get("stages", [])}
        s.check(f"{kernel}: its stages, by GPU time", set(seen) == stages and all(x["clock"] == "gpu" and x["mean_ns"] > 0 for x in seen.values()),
                str(p.get("stages"))[:500])
        mfu = {name: x["utilization"]["percent"] for name, x in seen.items() if x.get("utilization")}
        s.check(f"{kernel}: MFU of its stages against the datasheet", mfu and all(0 < x < 100 for x in mfu.values())
                and all(x["utilization"]["source"] == "datasheet" for x in seen.values() if x.get("utilization")), str(mfu),
                note=", ".join(f"{n} {x:.1f} %" for n, x in mfu.items()))
        model = p["kernel"].get("model") or {}
        s.check(f"{kernel}: what model it is", model.get("name") and model.get("variant") and model.get("dtype") and model.get("parameters", 0) > 1e4, str(model))
        s.check(f"{kernel}: right, operators listed", (p.get("correctness") or {}).get("verdict") == "right" and len(p.get("operators", [])) > 5,
                str(p.get("correctness")))
    p = s.profile("--kernel", "decoder", "--mode", "ncu", "--set", "minimal", "--regions", "regex:decode_step", "--problem-sizes", "tiny",
                  "--launch-count", "20", *remote)
    s.check("ncu of one stage", p.get("launches") and all(any("decode_step" in part for part in x["region"]) for x in p["launches"]),
            str([x.get("region") for x in p.get("launches", [])])[:300])

    popcorn = [f for f in (s.project / "kernels").glob("wagmiv67*/**/kernel.toml") if 'language = "python"' in f.read_text()]
    for file in popcorn:
        p = s.profile("--kernel", file.parent, "--mode", "bench", *remote)
        t, c = p.get("timing") or {}, p.get("correctness") or {}
        s.check(f"{file.parent.name}: right, timed, every output compared", c.get("verdict") == "right" and t.get("verified", 0) >= t.get("samples", 1),
                f"{c} {t}"[:400], note=f"{(t.get('median_ns') or 0) / 1e3:.1f} us")
