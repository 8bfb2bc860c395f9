"""Type hints as checks of arguments and as JSON Schema."""

from __future__ import annotations

import base64
import binascii
import collections.abc
import contextvars
import dataclasses
import enum
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from . import _convert, _core
from .errors import BadArgument

Check = Callable[[Any, str], Any]
"""Takes a value and its place ("boxes[2].x"), returns the value for the function. Raises BadArgument."""


@dataclasses.dataclass(frozen=True)
class Type:
    """A type hint: how a value is checked, and what rpc.discover says about it."""

    check: Check
    schema: dict[str, Any]


def _found(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    return type(value).__name__


_converter: contextvars.ContextVar[Callable[[_core.Tensor], Any] | None] = contextvars.ContextVar(
    "converter", default=None
)


def checked(kind: Type, value: Any, place: str, convert: Callable[[_core.Tensor], Any] | None) -> Any:
    """Checks a value, and converts the tensors of which the type hint says nothing."""
    before = _converter.set(convert)
    try:
        return kind.check(value, place)
    finally:
        _converter.reset(before)


def _any(value: Any, place: str) -> Any:
    convert = _converter.get()
    return value if convert is None else _convert.apply(value, convert)


def _integer(value: Any, place: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        if not (isinstance(value, float) and value.is_integer()):
            raise BadArgument(place, "integer", _found(value))
        return int(value)
    return value


_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _number(value: Any, place: str) -> Any:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadArgument(place, "number", _found(value))
    return float(value)


def _boolean(value: Any, place: str) -> Any:
    if not isinstance(value, bool):
        raise BadArgument(place, "boolean", _found(value))
    return value


def _string(value: Any, place: str) -> Any:
    if not isinstance(value, str):
        raise BadArgument(place, "string", _found(value))
    return value


def _bytes(value: Any, place: str) -> Any:
    try:
        return base64.b64decode(_string(value, place), validate=True)
    except binascii.Error:
        raise BadArgument(place, "base64 text", _found(value)) from None


def _null(value: Any, place: str) -> Any:
    if value is not None:
        raise BadArgument(place, "null", _found(value))


_PLAIN: dict[Any, Type] = {
    Any: Type(_any, {}),
    object: Type(_any, {}),
    int: Type(_integer, {"type": "integer"}),
    float: Type(_number, {"type": "number"}),
    bool: Type(_boolean, {"type": "boolean"}),
    str: Type(_string, {"type": "string"}),
    bytes: Type(_bytes, {"type": "string", "contentEncoding": "base64"}),
    None: Type(_null, {"type": "null"}),
    types.NoneType: Type(_null, {"type": "null"}),
}


def _list(item: Type, make: Callable[[list[Any]], Any]) -> Type:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise BadArgument(place, "array", _found(value))
        return make([item.check(element, f"{place}[{i}]") for i, element in enumerate(value)])

    return Type(check, {"type": "array", "items": item.schema} if item.schema else {"type": "array"})


def _tuple(items: list[Type]) -> Type:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, list) or len(value) != len(items):
            raise BadArgument(place, f"array of {len(items)}", _found(value))
        return tuple(item.check(value[i], f"{place}[{i}]") for i, item in enumerate(items))

    count = len(items)
    return Type(
        check, {"type": "array", "prefixItems": [i.schema for i in items], "minItems": count, "maxItems": count}
    )


def _dict(values: Type) -> Type:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise BadArgument(place, "object", _found(value))
        return {key: values.check(member, f"{place}.{key}") for key, member in value.items()}

    return Type(
        check, {"type": "object", "additionalProperties": values.schema} if values.schema else {"type": "object"}
    )


def _fields(fields: dict[str, Type], required: set[str], make: Callable[..., Any]) -> Type:
    def check(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise BadArgument(place, "object", _found(value))
        for name in value:
            if name not in fields:
                raise BadArgument(f"{place}.{name}", "no such member", _found(value[name]))
        for name in sorted(required):
            if name not in value:
                raise BadArgument(f"{place}.{name}", "a value: the member is required", "nothing")
        return make(**{name: fields[name].check(member, f"{place}.{name}") for name, member in value.items()})

    schema: dict[str, Any] = {"type": "object", "properties": {name: field.schema for name, field in fields.items()}}
    if required:
        schema["required"] = sorted(required)
    return Type(check, schema)


_unfinished: dict[Any, Type] = {}


def _recursive(hint: Any, make: Callable[[Any], Type]) -> Type:
    """make(hint), whose members may have the type `hint` again."""
    if hint in _unfinished:
        return _unfinished[hint]
    made: list[Type] = []
    _unfinished[hint] = Type(lambda value, place: made[0].check(value, place), {"type": "object"})
    try:
        made.append(make(hint))
    finally:
        _unfinished.pop(hint, None)
    return made[0]


def _dataclass(hint: Any) -> Type:
    hints = typing.get_type_hints(hint, include_extras=True)
    fields = [field for field in dataclasses.fields(hint) if field.init]
    required = {f.name for f in fields if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
    return _fields({field.name: of(hints[field.name]) for field in fields}, required, hint)


def _typed_dict(hint: Any) -> Type:
    hints = typing.get_type_hints(hint)
    return _fields({name: of(member) for name, member in hints.items()}, set(hint.__required_keys__), dict)


def _enum(hint: type[enum.Enum]) -> Type:
    by_value = {member.value: member for member in hint}
    names = ", ".join(repr(value) for value in by_value)

    def check(value: Any, place: str) -> Any:
        if isinstance(value, list | dict) or value not in by_value:
            raise BadArgument(place, f"one of {names}", _found(value))
        return by_value[value]

    return Type(check, {"enum": list(by_value)})


def _literal(values: tuple[Any, ...]) -> Type:
    plain = [value.value if isinstance(value, enum.Enum) else value for value in values]

    def check(value: Any, place: str) -> Any:
        for sent, allowed in zip(plain, values, strict=True):
            if type(value) is type(sent) and value == sent:
                return allowed
        raise BadArgument(place, "one of " + ", ".join(map(repr, plain)), _found(value))

    return Type(check, {"enum": plain})


def _union(kinds: list[Type]) -> Type:
    def check(value: Any, place: str) -> Any:
        failures = []
        for kind in kinds:
            try:
                return kind.check(value, place)
            except BadArgument as failure:
                failures.append(failure)
        inside = [failure for failure in failures if failure.parameter != place]
        if len(inside) == 1:
            raise inside[0]
        raise BadArgument(place, " or ".join(dict.fromkeys(f.expected for f in failures)), _found(value))

    return Type(check, {"anyOf": [kind.schema for kind in kinds]} if all(k.schema for k in kinds) else {})


def framework_of(hint: Any) -> str | None:
    """The framework of a tensor type; None if the hint is no tensor type."""
    if hint is _core.Tensor:
        return "none"
    if not isinstance(hint, type):
        hint = typing.get_origin(hint)
    if not isinstance(hint, type):
        return None
    module, name = hint.__module__.partition(".")[0], hint.__name__
    if (
        module == "torch"
        and hasattr(sys.modules.get("torch"), "Tensor")
        and issubclass(hint, sys.modules["torch"].Tensor)
    ):
        return "torch"
    if module == "numpy" and name == "ndarray":
        return "numpy"
    if module in ("jax", "jaxlib") and name in ("Array", "ArrayImpl"):
        return "jax"
    return None


def takes_tensor(hint: Any) -> bool:
    """Whether a value of this type is a tensor, or None."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return takes_tensor(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return all(takes_tensor(one) for one in arguments if one is not type(None))
    return framework_of(hint) is not None


def _tensor(framework: str) -> Type:
    convert = _convert.converter(framework)

    def check(value: Any, place: str) -> Any:
        if not isinstance(value, _core.Tensor):
            raise BadArgument(place, "tensor", _found(value))
        return value if convert is None else convert(value)

    return Type(check, {"$ref": "#/components/schemas/Tensor"})


_NUMPY = {"b": _PLAIN[bool], "i": _PLAIN[int], "u": _PLAIN[int], "f": _PLAIN[float]}


def _kind_of_numpy(hint: type) -> str:
    """The kind of a scalar type of NumPy, like numpy.float32; else an empty text."""
    numpy = sys.modules.get("numpy")
    return numpy.dtype(hint).kind if numpy is not None and hint in numpy.sctypeDict.values() else ""


def _scalar(hint: type, plain: Type) -> Type:
    limits = sys.modules["numpy"].iinfo(hint) if plain is _PLAIN[int] else None

    def check(value: Any, place: str) -> Any:
        number = plain.check(value, place)
        if limits is not None and not limits.min <= number <= limits.max:
            raise BadArgument(place, hint.__name__, _found(value))
        return hint(number)

    return Type(check, plain.schema)


def _kept(type_name: str | None, hint: Any) -> Type:
    wanted = typing.get_origin(hint) or hint

    def check(value: Any, place: str) -> Any:
        if isinstance(wanted, type) and not isinstance(value, wanted):
            raise BadArgument(place, f"a handle of a {wanted.__name__}", _found(value))
        return value

    schema: dict[str, Any] = {"type": "object", "required": ["$object"], "x-access": "concurrent"}
    if type_name:
        schema["x-object-type"] = type_name
    return Type(check, schema)


def of(hint: Any) -> Type:
    """The check and the schema of a type hint. A hint that says nothing about JSON accepts any value."""
    if hint in _PLAIN if isinstance(hint, collections.abc.Hashable) else False:
        return _PLAIN[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        inner = of(arguments[0])
        notes = [note for note in arguments[1:] if isinstance(note, str)]
        return Type(inner.check, {**inner.schema, "description": "; ".join(notes)}) if notes else inner
    if origin in (typing.Union, types.UnionType):
        return _union([of(argument) for argument in arguments])
    if origin is typing.Literal:
        return _literal(arguments)
    framework = framework_of(hint)
    if framework is not None:
        return _tensor(framework)
    if origin in (list, collections.abc.Sequence) or hint in (list, collections.abc.Sequence):
        return _list(of(arguments[0]) if arguments else _PLAIN[Any], list)
    for collection in (set, frozenset):
        if collection in (origin, hint):
            return _list(of(arguments[0]) if arguments else _PLAIN[Any], collection)
    if origin is tuple or hint is tuple:
        if not arguments or (len(arguments) == 2 and arguments[1] is ...):
            return _list(of(arguments[0]) if arguments else _PLAIN[Any], tuple)
        return _tuple([of(argument) for argument in arguments])
    if origin in (dict, collections.abc.Mapping) or hint in (dict, collections.abc.Mapping):
        return _dict(of(arguments[1]) if arguments else _PLAIN[Any])
    if typing.is_typeddict(hint):
        return _recursive(hint, _typed_dict)
    if isinstance(hint, type):
        if dataclasses.is_dataclass(hint):
            return _recursive(hint, _dataclass)
        if issubclass(hint, enum.Enum):
            return _enum(hint)
        if (kind := _kind_of_numpy(hint)) in _NUMPY:
            return _scalar(hint, _NUMPY[kind])
        return _kept(_convert.object_type(hint), hint)
    return _PLAIN[Any]


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function. Raises TypeError for a hint that names something unknown."""
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{getattr(function, '__name__', function)}: a type hint names something unknown: {error}"
        ) from error
