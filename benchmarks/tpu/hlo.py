"""Costs of a compiled TPU program, counted in the text of its optimised HLO.

XLA's own analysis counts the body of a loop once, counts accesses of the chip's scratch memory
(VMEM, "S(1)" in a layout) like those of HBM, and ignores the padding of tiled layouts. Here a loop
with a constant number of rounds is multiplied by it, only HBM counts, with padding. A loop without
(a decoding loop, which ends when answers do) counts as often as the caller says. Of branches the
dearest counts.

An instruction reads its operands and writes its result, with these exceptions, which read or write
less than the whole array: slices, gathers, updates in place, and fusions that begin or end with
them. Floating-point operations are those of matrix products, as in XLA's analysis.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

_BITS = {"pred": 8, "token": 0, "opaque": 0}
_FREE = frozenset(
    {
        *("parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all"),
        *("partition-id", "replica-id", "domain", "opt-barrier", "add-dependency"),
        *("copy-done", "slice-done", "dynamic-slice-done", "async-done", "async-update"),
        *("all-gather-done", "all-reduce-done", "collective-permute-done"),
        *("send-done", "recv-done"),
    }
)
_COLLECTIVES = frozenset(
    {"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"}
    | {"ragged-all-to-all"}
)
_ARRAY = re.compile(r"(\w+)\[([\d,<=]*)\](?:\{([^}]*)\})?")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_OPCODE = re.compile(r"^([a-z][a-z0-9\-]*)\(")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")


@dataclasses.dataclass(frozen=True)
class Array:
    """An array of a program: bytes in its tiled layout, and whether it is in HBM."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    in_hbm: bool

    @property
    def hbm(self) -> int:
        """Bytes, 0 outside HBM."""
        return self.bytes if self.in_hbm else 0


@dataclasses.dataclass(frozen=True)
class Instruction:
    """An instruction: the arrays of its result, its operands' names, and its attributes as text."""

    name: str
    result: tuple[Array, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    root: bool
    number: int
    """Of a parameter; -1 for other instructions."""

    def called(self, attribute: str) -> str | None:
        """Name of the computation that an attribute names."""
        found = re.search(rf"{attribute}=%?([\w.\-]+)", self.attributes)
        return found[1] if found else None


Computation = dict[str, Instruction]


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one chip.

    Attributes:
      hbm: bytes read from and written to HBM.
      flops: floating-point operations of matrix products.
      sent: bytes of the results of collectives, each of which crosses the chips' links at least
        once.
    """

    hbm: float = 0.0
    flops: float = 0.0
    sent: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.hbm + other.hbm, self.flops + other.flops, self.sent + other.sent)

    def times(self, rounds: float) -> Cost:
        """Of so many rounds."""
        return Cost(rounds * self.hbm, rounds * self.flops, rounds * self.sent)


def program_cost(text: str, *, steps: int = 1) -> Cost:
    """The cost of a program's entry computation, `jax.stages.Compiled.as_text`.

    ``steps``: rounds of loops without a constant number of them.
    """
    return _Program(text, steps).cost(None)


def dearest(text: str, count: int = 20, *, steps: int = 1) -> list[tuple[float, int, str]]:
    """The instructions that move most bytes of HBM: bytes in all rounds, rounds, name."""
    program = _Program(text, steps)
    found = list(program.traffic(None, 1))
    return sorted(found, reverse=True)[:count]


def arrays(text: str) -> tuple[Array, ...]:
    """The arrays of a type's text, such as ``bf16[8,128]{1,0:T(8,128)(2,1)S(1)}`` or a tuple."""
    return tuple(_array(*match.groups()) for match in _ARRAY.finditer(text))


def _array(dtype: str, dimensions: str, layout: str | None) -> Array:
    shape = tuple(int(n.removeprefix("<=")) for n in dimensions.split(",") if n)
    order, _, tiling = (layout or "").partition(":")
    padded = [shape[int(i)] for i in order.split(",")] if order else list(reversed(shape))
    tile = re.search(r"T\(([\d,]+)\)", tiling)
    if tile and padded:
        sizes = [int(n) for n in tile[1].split(",")][::-1]
        for i, size in enumerate(sizes[: len(padded)]):
            padded[i] = -(-padded[i] // size) * size
    bits = _BITS.get(dtype) if dtype in _BITS else _width(dtype)
    return Array(dtype, shape, math.prod(padded) * (bits or 0) // 8, "S(" not in tiling)


def _width(dtype: str) -> int:
    number = re.match(r"[a-z]+(\d+)", dtype)
    return int(number[1]) if number else 0


def _split_type(text: str) -> tuple[str, str]:
    """An instruction's type and the rest of its line."""
    if not text.startswith("("):
        first, _, rest = text.partition(" ")
        return first, rest
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return text[: i + 1], text[i + 2 :]
    raise ValueError(f"unbalanced type: {text[:80]}")


def _split_operands(text: str) -> tuple[str, str]:
    """The text within the parentheses that open ``text``, and the text after them."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character in "({") - (character in ")}")
        if not depth:
            return text[1:i], text[i + 1 :]
    raise ValueError(f"unbalanced operands: {text[:80]}")


def _computations(text: str) -> tuple[dict[str, Computation], str]:
    """All computations by name, and the name of the entry."""
    found: dict[str, Computation] = {}
    entry, current = "", None
    for line in text.splitlines():
        if header := _HEADER.match(line):
            current = found.setdefault(header[2], {})
            entry = header[2] if header[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            kind, rest = _split_type(match[3])
            opcode = _OPCODE.match(rest)
            if opcode is None:
                continue
            inside, attributes = _split_operands(rest[len(opcode[1]) :])
            current[match[2]] = Instruction(
                match[2],
                arrays(kind),
                opcode[1],
                tuple(re.findall(r"%([\w.\-]+)", inside)),
                inside if opcode[1] == "constant" else attributes,
                bool(match[1]),
                int(inside) if opcode[1] == "parameter" else -1,
            )
    return found, entry


class _Program:
    def __init__(self, text: str, steps: int) -> None:
        self.computations, self.entry = _computations(text)
        self.steps = steps
        self._costs: dict[str, Cost] = {}

    def cost(self, name: str | None) -> Cost:
        """Of a computation; None is the entry."""
        name = name or self.entry
        if name not in self._costs:
            own = self.computations[name]
            parts = (self._instruction_cost(own, one) for one in own.values())
            self._costs[name] = sum(parts, Cost())
        return self._costs[name]

    def traffic(self, name: str | None, rounds: int) -> Iterator[tuple[float, int, str]]:
        own = self.computations[name or self.entry]
        for one in own.values():
            if one.opcode == "while":
                yield from self.traffic(one.called("body"), rounds * self._rounds(one))
            elif one.opcode == "call":
                yield from self.traffic(one.called("to_apply"), rounds)
            elif one.opcode == "conditional":
                yield from self.traffic(max(_branches(one), key=lambda b: self.cost(b).hbm), rounds)
            elif one.opcode not in _FREE:
                named = re.search(r'op_name="([^"]*)"', one.attributes)
                bytes_ = rounds * self._instruction_cost(own, one).hbm
                yield bytes_, rounds, f"{one.name} ({one.opcode}) {named[1] if named else ''}"

    def _instruction_cost(self, own: Computation, one: Instruction) -> Cost:
        if one.opcode in _FREE:
            return Cost()
        if one.opcode == "while":
            return self.cost(one.called("body")).times(self._rounds(one))
        if one.opcode == "call":
            return self.cost(one.called("to_apply"))
        if one.opcode == "conditional":
            return max((self.cost(branch) for branch in _branches(one)), key=lambda c: c.hbm)
        sent = 0
        plain = one.opcode.removesuffix("-start")
        if plain in _COLLECTIVES:
            sent = sum(array.bytes for array in self._written(one))
        return Cost(self._read(own, one) + self._write(one), self._flops(own, one), sent)

    def _read(self, own: Computation, one: Instruction) -> int:
        if one.opcode == "iota":
            return 0
        sizes = self._parts_read(own, one)
        return sum(sizes[i] for i in range(len(one.operands)))

    def _parts_read(self, own: Computation, one: Instruction) -> list[int]:
        """Bytes of HBM read of each operand."""
        whole = [
            sum(a.hbm for a in own[name].result) if name in own else 0 for name in one.operands
        ]
        inside = one.called("calls")
        if inside is not None and inside in self.computations:
            return [self._part_of_parameter(inside, i, size) for i, size in enumerate(whole)]
        opcode = one.opcode.removesuffix("-start")
        if opcode in ("dynamic-slice", "slice", "gather") and whole and whole[0]:
            whole[0] = min(whole[0], sum(a.bytes for a in self._written(one)))
        elif one.opcode in ("dynamic-update-slice", "scatter"):
            whole[0] = 0
        return whole

    def _part_of_parameter(self, name: str, number: int, full: int) -> int:
        """Bytes that a fused computation reads of a parameter with ``full`` bytes of HBM."""
        own = self.computations[name]
        parameter = next(one for one in own.values() if one.number == number)
        return self._part_used(own, parameter, full) if full else 0

    def _part_used(self, own: Computation, value: Instruction, full: int) -> int:
        if value.root:  # passed on, to where it is used whole
            return full
        read = 0
        for user in own.values():
            for place, operand in enumerate(user.operands):
                if operand != value.name:
                    continue
                if user.opcode in ("dynamic-slice", "slice", "gather") and place == 0:
                    read += sum(array.bytes for array in user.result)
                elif user.opcode in ("dynamic-update-slice", "scatter") and place == 0:
                    continue
                elif user.opcode == "bitcast" or _renames(user, place):
                    read += self._part_used(own, user, full)
                elif inside := user.called("calls"):
                    inner = self.computations[inside]
                    parameter = next(one for one in inner.values() if one.number == place)
                    read += self._part_used(inner, parameter, full)
                else:
                    return full
        return min(read, full)

    def _written(self, one: Instruction) -> tuple[Array, ...]:
        """The arrays that an instruction writes."""
        if one.opcode == "copy-start":
            return one.result[:1]
        if one.opcode in ("slice-start", "dynamic-slice-start"):
            return one.result[1:2]
        if one.opcode in ("all-gather-start", "collective-permute-start"):
            # operands, then as many results, then context; of one transfer or several combined
            return one.result[len(one.operands) : 2 * len(one.operands)]
        if one.opcode == "async-start":
            inside = self.computations[one.called("calls") or ""]
            return next(inner.result for inner in inside.values() if inner.root)
        return one.result

    def _write(self, one: Instruction) -> int:
        if one.opcode == "dynamic-update-slice":
            return 0  # its operand, counted as read, is what is written
        inside = one.called("calls")
        if one.opcode == "fusion" and inside in self.computations:
            own = self.computations[inside]
            root = next(inner for inner in own.values() if inner.root)
            roots = [own[name] for name in root.operands] if root.opcode == "tuple" else [root]
            if len(roots) == len(one.result):
                pairs = zip(roots, one.result, strict=True)
                return sum(self._part_written(own, inner, array) for inner, array in pairs)
        return sum(array.hbm for array in self._written(one))

    def _part_written(self, own: Computation, root: Instruction, array: Array) -> int:
        while root.opcode == "bitcast":
            root = own[root.operands[0]]
        if not array.in_hbm:
            return 0
        if root.opcode == "dynamic-update-slice":
            return min(array.bytes, sum(update.bytes for update in own[root.operands[1]].result))
        if root.opcode == "scatter":
            return min(array.bytes, sum(update.bytes for update in own[root.operands[-1]].result))
        if root.opcode == "fusion" and (inside := root.called("calls")):
            inner = self.computations[inside]
            return self._part_written(inner, next(i for i in inner.values() if i.root), array)
        return array.bytes

    def _rounds(self, loop: Instruction) -> int:
        """Rounds of a loop that counts from 0 to a constant; `steps` where that is not known."""
        own = self.computations[loop.called("condition") or ""]
        root = next(one for one in own.values() if one.root)
        if root.opcode == "fusion":
            own_name = root.called("calls") or ""
            given = {i: own[name] for i, name in enumerate(root.operands)}
            inner = self.computations[own_name]
            root = next(one for one in inner.values() if one.root)
            own = {
                name: given.get(one.number, one) if one.number >= 0 else one
                for name, one in inner.items()
            }
        limits = [own[name] for name in root.operands if name in own]
        limits = [one.attributes for one in limits if one.opcode == "constant"]
        if root.opcode != "compare" or "direction=LT" not in root.attributes or len(limits) != 1:
            return self.steps
        return int(limits[0]) if limits[0].isdigit() else self.steps

    def _flops(self, own: Computation, one: Instruction) -> float:
        inside = one.called("calls")
        if inside in self.computations and one.opcode in ("fusion", "async-start"):
            inner = self.computations[inside]
            return sum(self._flops(inner, part) for part in inner.values())
        if one.opcode == "dot":
            return 2.0 * math.prod(one.result[0].shape) * _contracted(own, one)
        return _convolution_flops(own, one) if one.opcode == "convolution" else 0.0


def _renames(one: Instruction, place: int) -> bool:
    """Whether a fusion's whole result is an operand in its place, in another tiling."""
    return f"output_to_operand_aliasing={{{{}}: ({place}, {{}})}}" in one.attributes


def _branches(one: Instruction) -> list[str]:
    listed = re.search(r"branch_computations=\{([^}]*)\}", one.attributes)
    if listed:
        return re.findall(r"%?([\w.\-]+)", listed[1])
    return [one.called("true_computation") or "", one.called("false_computation") or ""]


def _contracted(own: Computation, one: Instruction) -> int:
    found = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.attributes)
    shape = own[one.operands[0]].result[0].shape
    return math.prod(shape[int(i)] for i in found[1].split(",") if i) if found else 1


def _convolution_flops(own: Computation, one: Instruction) -> float:
    """2 x outputs x products of each, without those with padding; batches are windows on TPUs."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.attributes)
    assert labels is not None, one.attributes
    left, right, out = (labels[i] for i in (1, 2, 3))
    shapes = [own[name].result[0].shape for name in one.operands] + [one.result[0].shape]
    sizes = [
        dict(zip(names, shape, strict=True))
        for names, shape in zip((left, right, out), shapes, strict=True)
    ]
    groups = re.search(r"(?:feature|batch)_group_count=(\d+)", one.attributes)
    window = dict(re.findall(r"(\w+)=(\S+)", _between(one.attributes, "window={", "}")))
    total = 2.0 * sizes[2]["b"] * sizes[2]["f"] * sizes[1]["i"]
    if groups and "batch_group_count" in groups[0]:
        total /= int(groups[1])
    spatial = sorted(name for name in out if name.isdigit())
    for i, name in enumerate(spatial):
        total *= _valid(sizes[0][name], sizes[1][name], sizes[2][name], window, i)
    return total


def _between(text: str, start: str, end: str) -> str:
    _, _, rest = text.partition(start)
    return rest.partition(end)[0]


def _valid(inputs: int, kernel: int, outputs: int, window: dict[str, str], axis: int) -> int:
    """Pairs of an output and a kernel position whose product is with an input, not padding."""

    def setting(name: str, default: int) -> int:
        return int(window[name].split("x")[axis]) if name in window else default

    stride, base = setting("stride", 1), setting("lhs_dilate", 1)
    dilation = setting("rhs_dilate", 1)
    low = int(window["pad"].split("x")[axis].split("_")[0]) if "pad" in window else 0
    span = (inputs - 1) * base + 1
    count = 0
    for k in range(kernel):
        at = k * dilation - low
        # at + o * stride must be a multiple of base within the span
        for o in range(outputs):
            place = at + o * stride
            count += 0 <= place < span and place % base == 0
    return count
