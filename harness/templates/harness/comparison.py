# --- comparison -------------------------------------------------------------------------------


def wide(tensor):
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1).to(torch.float64)


def tolerance_for(tensor):
    """The tolerance of an output; formats of 16 bits may have their own."""
    half = (REFERENCE or {}).get("half_tolerance")
    return half if half and tensor.dtype in (torch.float16, torch.bfloat16) else CASE.get("tolerance", {})


def difference(actual, expected):
    """Computed on the device: the number of elements outside the tolerance, and the largest errors."""
    tolerance = tolerance_for(actual)
    bad = torch.zeros((), dtype=torch.int64, device=actual.device)
    most_abs = torch.zeros((), dtype=torch.float64, device=actual.device)
    most_rel = torch.zeros((), dtype=torch.float64, device=actual.device)
    flat, wanted = actual.reshape(-1), expected.reshape(-1)
    for first in range(0, flat.numel(), CHUNK):
        a, e = wide(flat[first:first + CHUNK]), wide(wanted[first:first + CHUNK])
        same = (a == e) | (a.isnan() & e.isnan())
        error = torch.where(same | ~(a - e).isfinite(), 0.0, (a - e).abs())
        allowed = tolerance.get("abs", 0.0) + tolerance.get("rel", 0.0) * e.abs()
        bad += (~same & ~((a - e).isfinite() & ((a - e).abs() <= allowed))).sum()
        most_abs = torch.maximum(most_abs, error.max())
        most_rel = torch.maximum(most_rel, torch.where(e != 0, error / e.abs(), 0.0).nan_to_num(0.0).max())
    return bad, most_abs, most_rel


def first_mismatch(actual, expected):
    tolerance = tolerance_for(actual)
    a, e = wide(actual), wide(expected)
    same = (a == e) | (a.isnan() & e.isnan())
    allowed = tolerance.get("abs", 0.0) + tolerance.get("rel", 0.0) * e.abs()
    wrong = ~same & ~((a - e).isfinite() & ((a - e).abs() <= allowed))
    index = int(wrong.to(torch.uint8).argmax())
    rest, coordinates = index, []
    for extent in reversed(actual.shape):
        coordinates.insert(0, rest % extent)
        rest //= extent
    spelled = {"nan": "NaN"}
    shown = [spelled.get(str(x), str(x)) for x in (a[index].item(), e[index].item())]
    return {"index": index, "coordinates": coordinates, "actual": shown[0], "expected": shown[1]}


def passes(mismatches, count):
    return mismatches <= CASE.get("tolerance", {}).get("mismatch_fraction", 0.0) * count
