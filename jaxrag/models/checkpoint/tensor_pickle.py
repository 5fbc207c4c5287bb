"""Reads which tensors a pickle of torch describes, without unpickling it.

A pickle is a program that may call any function of Python. So its opcodes, as ``pickletools`` lists
them, are interpreted here, and only those that make dicts, lists, tuples, strings, numbers and
tensors are known. Nothing is imported or called by name.
"""

from __future__ import annotations

import dataclasses
import math
import pickletools
import warnings
from typing import Any

import ml_dtypes
import numpy as np

from jaxrag.types import InputError

DTYPES: dict[str, np.dtype] = {
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
"""Dtype of each class of storages in the module torch."""

_DICT = "collections.OrderedDict"
_TENSOR, _PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
_ALLOWED = {_DICT, _TENSOR, _PARAMETER, *(f"torch.{name}" for name in DTYPES)}
_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_FIXED_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MOST_AXES = 16
_STATE_DICT = "state_dict"


class _Global(str):
    """The name of an allowed function or class."""


@dataclasses.dataclass(frozen=True)
class StorageRecord:
    """A one-dimensional array of ``size`` numbers in a file ``key`` of its own."""

    key: str
    dtype: np.dtype
    size: int


@dataclasses.dataclass(frozen=True)
class TensorRecord:
    """A view of a storage; ``offset`` and ``strides`` count numbers, not bytes."""

    storage: StorageRecord
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_tensor_pickle(data: bytes, *, source: object) -> dict[str, TensorRecord]:
    """The tensors of a state dict by name; those of its field "state_dict" if it has one.

    InputError, naming ``source``, if the pickle is damaged or holds or names anything else.
    """
    try:
        state = _Interpreter(source).run(data)
    except InputError:
        raise
    except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise InputError(f"{source} is damaged: it is not a whole pickle ({error}).") from error
    if isinstance(state, dict) and isinstance(state.get(_STATE_DICT), dict):
        state = state[_STATE_DICT]
    if not isinstance(state, dict):
        raise InputError(f"{source} holds a {_kind(state)}; a dict of tensors is needed.")
    for name, value in state.items():
        if not isinstance(value, TensorRecord):
            raise InputError(
                f"{source}: {name!r} is a {_kind(value)}; only tensors are read. Save the state "
                "dict alone, as safetensors."
            )
    return state


def _kind(value: object) -> str:
    return "function or class" if isinstance(value, _Global) else type(value).__name__


class _Interpreter:
    """The machine that a pickle is a program for, with the few opcodes that tensors need.

    Nothing recurses or copies, so the pickle's length bounds time and memory.
    """

    def __init__(self, source: object) -> None:
        self._source = source
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """The value that the pickle describes."""
        end = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # escapes in names, refused below
            for opcode, argument, end in pickletools.genops(data):  # noqa: B007
                self._step(opcode.name, argument)
        if end != len(data) - 1:
            raise ValueError("more follows after its end")
        if len(self._stack) != 1:
            raise ValueError("it does not end with one value")
        return self._pop()

    def _step(self, name: str, argument: Any) -> None:
        push = self._stack.append
        if name in _VALUES:
            push(argument)
        elif name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name == "PROTO":
            if argument != 2:
                self._refuse(f"is a pickle of protocol {argument}; torch writes protocol 2")
        elif name == "MARK":
            push(_MARK)
        elif name == "EMPTY_DICT":
            push({})
        elif name == "EMPTY_LIST":
            push([])
        elif name in _FIXED_TUPLES:
            push(tuple(reversed([self._pop() for _ in range(_FIXED_TUPLES[name])])))
        elif name == "TUPLE":
            push(tuple(self._to_mark()))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._top()
        elif name in ("BINGET", "LONG_BINGET"):
            push(self._memo[argument])
        elif name in ("APPEND", "APPENDS"):
            items = self._to_mark() if name == "APPENDS" else [self._pop()]
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            self._set(self._to_mark() if name == "SETITEMS" else [self._pop(), self._pop()][::-1])
        elif name == "GLOBAL":  # "module name"
            push(self._global(argument.replace(" ", ".")))
        elif name == "BINPERSID":
            push(self._storage(self._pop()))
        elif name == "REDUCE":
            arguments, function = self._pop(), self._pop()
            push(self._made(function, arguments))
        elif name == "BUILD":  # attributes of a state dict, such as versions: not needed
            self._pop()
            self._top(dict)
        elif name != "STOP":
            self._refuse(f"has the pickle opcode {name}, which tensors do not need")

    def _refuse(self, why: str) -> None:
        raise InputError(
            f"{self._source} {why}; only tensors are read. If you trust the file, convert it to "
            "safetensors (docs/encoders.md)."
        )

    def _pop(self) -> Any:
        if (value := self._stack.pop()) is _MARK:
            raise ValueError("a mark where a value is needed")
        return value

    def _top(self, kind: type = object) -> Any:
        value = self._stack[-1]
        if value is _MARK or not isinstance(value, kind):
            self._refuse(f"changes a {_kind(value)} as if it were a {kind.__name__}")
        return value

    def _to_mark(self) -> list[Any]:
        items = []
        while (value := self._stack.pop()) is not _MARK:
            items.append(value)
        return items[::-1]

    def _set(self, items: list[Any]) -> None:
        target = self._top(dict)
        if len(items) % 2:
            raise ValueError("a key without a value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # other keys might be expensive to hash, such as nested tuples
            if not isinstance(key, str):
                self._refuse(f"has a dict whose key is a {_kind(key)}")
            target[str(key)] = value

    def _global(self, argument: str) -> _Global:
        if argument not in _ALLOWED:
            self._refuse(f"names {argument[:200]!r}, which tensors do not need")
        return _Global(argument)

    def _storage(self, value: Any) -> StorageRecord:
        """The storage of a persistent id: "storage", class, key, device, number of elements."""
        fits = isinstance(value, tuple) and len(value) == 5
        if not fits or not all(type(part) is str for part in (value[0], value[2], value[3])):
            self._refuse("has a persistent id that is not a storage's")
        kind, (tag, _, key, _, size) = str(value[1]), value
        if not isinstance(value[1], _Global) or tag != "storage" or not _whole(size):
            self._refuse("has a persistent id that is not a storage's")
        dtype = DTYPES.get(kind.removeprefix("torch."))
        if dtype is None:
            self._refuse(f"has a storage of the class {kind}")
        assert dtype is not None
        return StorageRecord(key, dtype, size)

    def _made(self, function: Any, arguments: Any) -> Any:
        """The result of an allowed function."""
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            self._refuse(f"calls a {_kind(function)}")
        if function == _DICT and not arguments:
            return {}
        if function == _PARAMETER and arguments and isinstance(arguments[0], TensorRecord):
            return arguments[0]
        if function == _TENSOR and len(arguments) >= 4:
            return self._tensor(*arguments[:4])
        self._refuse(f"calls {function} with other arguments than torch does")
        return None

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any) -> TensorRecord:
        if not (
            isinstance(storage, StorageRecord)
            and _whole(offset)
            and all(isinstance(axes, tuple) and all(map(_whole, axes)) for axes in (shape, strides))
            and len(shape) == len(strides) <= _MOST_AXES
        ):
            self._refuse("has a tensor without a storage, an offset, a shape and strides")
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        size = math.prod(shape)
        # more numbers than the storage has: torch's `expand`, or a bomb
        if size > storage.size or (size and last >= storage.size) or offset > storage.size:
            raise InputError(
                f"{self._source}: a tensor of shape {shape}, offset {offset} and strides {strides} "
                f"does not fit its storage of {storage.size} numbers."
            )
        return TensorRecord(storage, offset, shape, strides)


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**62
