# --- trees of data ----------------------------------------------------------------------------


def fields(value):
    """The names of an object's own fields; none for containers, tensors, models and code."""
    if isinstance(value, (torch.Tensor, torch.nn.Module, type, types.ModuleType, dict, tuple, list)) or callable(value):
        return []
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
    return list(getattr(value, "__dict__", {}))


def inner_values(value):
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (tuple, list)):
        return list(value)
    if isinstance(value, torch.nn.Module):
        return [*value.parameters(), *value.buffers()]
    return [getattr(value, name) for name in fields(value)]


def tensors(value, seen=None):
    """All tensors inside tuples, lists, dicts, models and objects, each once."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    if isinstance(value, torch.Tensor):
        seen.add(id(value))
        return [value]
    inner = inner_values(value)
    if inner:
        seen.add(id(value))
    return [t for each in inner for t in tensors(each, seen)]


def mapped(value, change, memo=None):
    """The same tree with `change` of every tensor in its place. What occurs twice stays one."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)][0]
    if isinstance(value, torch.Tensor):
        twin = change(value)
    elif isinstance(value, torch.nn.Module):
        twin = copy.deepcopy(value)
        twin.to(DEVICE)
    elif isinstance(value, dict):
        twin = copy.copy(value)
        twin.update({key: mapped(inner, change, memo) for key, inner in value.items()})
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        twin = type(value)(*(mapped(inner, change, memo) for inner in value))
    elif isinstance(value, (tuple, list)):
        twin = type(value)(mapped(inner, change, memo) for inner in value)
    elif fields(value):
        twin = copy.copy(value)
        memo[id(value)] = (twin, value)
        for name in fields(value):
            inner = getattr(value, name)
            new = mapped(inner, change, memo)
            if new is not inner:
                object.__setattr__(twin, name, new)
    else:
        return value
    # The original stays alive as long as its id is a key.
    memo[id(value)] = (twin, value)
    return twin


def plain(tensor):
    """The tensor as bytes where its dtype is a packed or narrow one, which few functions take."""
    narrow_type = tensor.element_size() == 1 and tensor.dtype not in (torch.uint8, torch.int8, torch.bool)
    return tensor.view(torch.uint8) if narrow_type else tensor


def copied_tensor(tensor):
    """A copy in its own memory; strides stay, except where elements share a place."""
    shares = any(step == 0 and extent > 1 for step, extent in zip(tensor.stride(), tensor.shape)) if tensor.layout == torch.strided else True
    if shares:
        return tensor.clone()
    twin = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    plain(twin).copy_(plain(tensor))
    return twin


def copied(value):
    """A copy with every tensor in its own memory."""
    return mapped(value, copied_tensor)


def bytes_of(value):
    return sum(t.numel() * t.element_size() for t in tensors(value))
