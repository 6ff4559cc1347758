# --- modules that files of a competition import --------------------------------------------------


def stand_in(name, text):
    """A module `task` or `utils` for a file with this text, where the competition's own is missing."""
    module = types.ModuleType(name)
    if name == "task":
        module.input_t = module.output_t = object
        module.TestSpec = dict
        return module
    # Some tasks unpack a verdict and its reasons, others take the reasons alone.
    is_pair = re.search(r"\w+\s*,\s*\w+\s*=\s*verbose_all", text) is not None
    verdict = (lambda reasons: (not reasons, reasons)) if is_pair else (lambda reasons: reasons)

    def reasons_against(received, expected, rtol, atol, most):
        if not isinstance(received, torch.Tensor):
            return [f"a {type(received).__name__} was returned where a tensor is expected"]
        if received.shape != expected.shape:
            return [f"the shape is {tuple(received.shape)}, expected {tuple(expected.shape)}"]
        if received.dtype != expected.dtype and rtol is None:
            return [f"the type is {received.dtype}, expected {expected.dtype}"]
        expected = expected.to(received.device)
        if rtol is None:
            wrong = received != expected
        else:
            wrong = ~torch.isclose(received.to(torch.float64), expected.to(torch.float64), rtol=rtol, atol=atol, equal_nan=True)
        places = wrong.nonzero()[:most].tolist()
        told = [f"at {tuple(place)}: {received[tuple(place)].item()}, expected {expected[tuple(place)].item()}" for place in places]
        return [f"{int(wrong.sum().item())} values differ", *told] if told else []

    def verbose_allclose(received, expected, rtol=1e-5, atol=1e-8, max_print=5):
        return verdict(reasons_against(received, expected, rtol, atol, max_print))

    def verbose_allequal(received, expected, max_print=5):
        return verdict(reasons_against(received, expected, None, None, max_print))

    def match_reference(data, output, reference, rtol=1e-5, atol=1e-8):
        expected = reference(data)
        reasons = []
        for got, wanted in zip(tensors(output), tensors(expected)):
            reasons += reasons_against(got, wanted, rtol, atol, 5)
        if len(tensors(output)) != len(tensors(expected)):
            reasons.append(f"{len(tensors(output))} tensors were returned, expected {len(tensors(expected))}")
        return not reasons, " ".join(reasons)

    def make_match_reference(reference, **tolerance):
        return lambda data, output: match_reference(data, output, reference, **tolerance)

    def set_seed(seed=42):
        torch.manual_seed(seed)

    class DeterministicContext:
        """Deterministic kernels of torch within a block."""

        def __enter__(self):
            self.before = torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG")
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
            torch.use_deterministic_algorithms(True)
            return self

        def __exit__(self, *_):
            torch.use_deterministic_algorithms(self.before[0])
            if self.before[1] is None:
                os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
            else:
                os.environ["CUBLAS_WORKSPACE_CONFIG"] = self.before[1]

    names = [verbose_allclose, verbose_allequal, match_reference, make_match_reference, set_seed, DeterministicContext]
    vars(module).update({one.__name__: one for one in names}, get_device=lambda *_: torch.device(DEVICE), clear_l2_cache=lambda: None)
    return module


def add_stand_ins(path):
    """Adds modules that a file imports and that nobody has."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    for name in ("task", "utils"):
        is_wanted = name == "task" or CASE.get("board")
        if is_wanted and name not in sys.modules and importlib.util.find_spec(name) is None:
            sys.modules[name] = stand_in(name, text)
