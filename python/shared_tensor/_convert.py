"""Tensors and values of other libraries. No framework is imported here unless the caller has imported it."""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
import types
from collections.abc import Callable, Mapping, Set
from typing import Any

from ._core import Object, Tensor

# Names of dtypes that NumPy does not have, and what their elements are viewed as.
_WITHOUT_NUMPY = {
    "bfloat16": "uint16",
    "complex32": "uint32",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
    "float4_e2m1fn_x2": "uint8",
}


# What the elements of other dtypes are viewed as, by their size: dtypes that every torch exchanges.
_OF_SIZE = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


_NOT_PLAIN = ("longdouble", "clongdouble", "float128", "complex256", "datetime64", "timedelta64")


def _of_torch(tensor: Any) -> Any:
    if tensor.is_sparse or tensor.is_quantized:
        raise TypeError("a sparse or quantised tensor cannot cross: pass tensor.to_dense() or tensor.dequantize()")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    # The default stream: the server orders its work after it.
    stream = {"stream": 1} if tensor.is_cuda else {}
    try:
        return tensor.__dlpack__(**stream)
    except (RuntimeError, BufferError):  # this torch does not export the dtype
        torch = sys.modules["torch"]
        plain = getattr(torch, _OF_SIZE.get(tensor.element_size(), ""), None)
        if plain in (None, tensor.dtype):
            raise
        viewed = Tensor.from_dlpack(tensor.view(plain))
        return viewed.view(str(tensor.dtype).removeprefix("torch.")).__dlpack__(max_version=(1, 1))


def _of_numpy(array: Any) -> Any:
    if hasattr(array, "filled"):
        raise TypeError("a masked array cannot cross: pass array.filled(value), or array.data and array.mask beside it")
    name = array.dtype.name
    if name in _WITHOUT_NUMPY:  # a dtype of ml_dtypes
        viewed = Tensor.from_dlpack(array.view(_WITHOUT_NUMPY[name]))
        return viewed.view(name).__dlpack__(max_version=(1, 1))
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable:
        try:
            return array.__dlpack__(max_version=(1, 1))
        except (BufferError, TypeError):  # an older NumPy exports no read-only memory
            array = array.copy()
    try:
        return array.__dlpack__()
    except BufferError as error:
        raise TypeError(f"an array of {array.dtype} cannot cross: {error}") from error


def _of_other(value: Any) -> Any:
    device, _ = value.__dlpack_device__()
    stream = 1 if device == 2 else None  # CUDA
    try:
        return value.__dlpack__(stream=stream, max_version=(1, 1))
    except TypeError:
        return value.__dlpack__(stream=stream)


def dlpack_of(value: Any) -> Any:
    """Returns a DLPack capsule of a tensor."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _of_numpy(value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(value)
    return _of_other(value)


def plain(value: Any) -> Any:
    """Returns a value of None, bool, int, float, str, list, dict or bytes for one of another type."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return list(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    item = getattr(value, "item", None)  # a scalar of NumPy; of a longdouble it is a longdouble, of a time any type
    if callable(item) and getattr(value, "shape", None) == () and type(value).__name__ not in _NOT_PLAIN:
        return item()
    raise TypeError(
        f"a value of type {type(value).__qualname__} cannot be an argument: pass numbers, str, bytes, lists, dicts, "
        "dataclasses, enums or tensors (anything with __dlpack__)"
    )


def plain_or_kept(value: Any) -> Any:
    """As plain(), for results: an object that is no value (a model, a tokenizer) stays in this process, and the caller
    gets a handle."""
    try:
        return plain(value)
    except TypeError:
        return Object.keep(object_type(type(value)), value)


def object_type(kind: type) -> str:
    """The type's name for callers. A worker process has the main module of the serving process under another name."""
    return f"{kind.__module__.replace('__mp_main__', '__main__')}.{kind.__qualname__}"


def dtype_name(dtype: Any) -> str:
    """The name of a dtype, in torch's words, of a dtype of any framework: "float32"."""
    if isinstance(dtype, str):
        return dtype
    return dtype.__name__ if isinstance(dtype, type) else str(dtype).rpartition(".")[2]


def to_numpy(tensor: Tensor) -> Any:
    import numpy

    viewed = _WITHOUT_NUMPY.get(tensor.dtype)
    if viewed is None:
        return _from_dlpack(tensor)
    try:
        import ml_dtypes

        dtype = numpy.dtype(getattr(ml_dtypes, tensor.dtype))
    except (ImportError, AttributeError):
        raise TypeError(
            f"NumPy has no dtype {tensor.dtype}: install ml_dtypes, or take the tensor as torch or as a Tensor "
            f"(framework='none') and view it as {viewed}"
        ) from None
    return _from_dlpack(tensor.view(viewed)).view(dtype)


def _from_dlpack(tensor: Tensor) -> Any:
    import numpy

    array = numpy.from_dlpack(tensor)  # type: ignore[arg-type,unused-ignore]
    if array.flags.writeable or not numpy.__version__.startswith("1."):
        return array
    # NumPy 1 makes every such array read-only.
    interface = {**array.__array_interface__, "data": (array.ctypes.data, False)}
    return numpy.asarray(types.SimpleNamespace(__array_interface__=interface, owner=array))


def to_torch(tensor: Tensor) -> Any:
    import torch  # type: ignore[import-not-found,unused-ignore]

    dtype = getattr(torch, tensor.dtype, None)
    if dtype is None:
        raise TypeError(f"this torch ({torch.__version__}) has no dtype {tensor.dtype}: take the tensor as NumPy")
    try:
        return torch.from_dlpack(tensor)
    except (RuntimeError, BufferError, TypeError):  # this torch does not import the dtype
        plain = _OF_SIZE.get(
            dtype.itemsize if hasattr(dtype, "itemsize") else torch.empty(0, dtype=dtype).element_size()
        )
        if plain in (None, tensor.dtype):
            raise
        return torch.from_dlpack(tensor.view(plain)).view(dtype)


def to_jax(tensor: Tensor) -> Any:
    import jax.numpy  # type: ignore[import-not-found,unused-ignore]

    return jax.numpy.from_dlpack(tensor)


def default(tensor: Tensor) -> Any:
    """Makes a tensor of torch if the program has imported it, else of NumPy."""
    return to_torch(tensor) if "torch" in sys.modules else to_numpy(tensor)


_NAMED: dict[str, Callable[[Tensor], Any] | None] = {
    "torch": to_torch,
    "numpy": to_numpy,
    "jax": to_jax,
    "none": None,
}


def converter(framework: str | Callable[[Tensor], Any] | None) -> Callable[[Tensor], Any] | None:
    """Returns the function that makes the wanted framework's tensor. None: a Tensor stays one."""
    if framework is None:
        return default
    if callable(framework):
        return framework
    if framework not in _NAMED:
        raise ValueError(f"framework={framework!r}: use 'torch', 'numpy', 'jax', 'none' or a function of a Tensor")
    return _NAMED[framework]


def apply(value: Any, convert: Callable[[Tensor], Any]) -> Any:
    """Converts the tensors inside a result."""
    if isinstance(value, Tensor):
        return convert(value)
    if type(value) is list:
        return [apply(element, convert) for element in value]
    if type(value) is dict:
        return {key: apply(member, convert) for key, member in value.items()}
    return value


def of_arguments(positional: tuple[Any, ...], named: dict[str, Any]) -> Callable[[Tensor], Any] | None:
    """Returns the converter of the first tensor among the arguments, else `default`."""
    for value in (*positional, *named.values()):
        module = type(value).__module__
        if module.startswith("torch"):
            if hasattr(value, "__dlpack__"):
                return to_torch
        elif module.startswith("numpy"):
            if getattr(value, "shape", ()) != ():
                return to_numpy
        elif module.startswith(("jax", "jaxlib")) and hasattr(value, "__dlpack__"):
            return to_jax
    return default
