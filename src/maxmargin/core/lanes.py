"""Short vectors of numbers that stay in registers, for SIMD in compiled loops.

LLVM vectorises a loop over the classes of one sample badly: the loop is short, its length is known only at
run time, and its sums would have to be in memory. Here a loop works on vectors of a fixed number of lanes
instead. `lanes` is a tuple of that length (its entries do not matter), so that the number is part of the
type; arrays are padded to a multiple of it. A number that is not a power of two is stored as several LLVM
vectors (24 lanes as 16 and 8), because LLVM would pad a single one and move its lanes one by one.

Every operation is written twice: as plain Python on small arrays, which documents it and runs where loops are
plain Python, and as LLVM instructions, written with llvmlite.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from maxmargin.core.jit import ON, REORDER, lowered

if ON:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import models, register_model

    Type: Any = types.Type
    PrimitiveModel: Any = models.PrimitiveModel
    register: Any = register_model
    FLAG, WORD = ir.IntType(32), ir.IntType(64)
else:
    Type = PrimitiveModel = object

    def register(kind: Any) -> Any:
        """Register nothing."""
        return lambda model: model


FLAGS = tuple(sorted(REORDER))


class Lanes(Type):
    """Numba's type of a vector: the type of its numbers and the number of lanes."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register(Lanes)
class LanesModel(PrimitiveModel):
    """A vector is one LLVM vector, or a struct of several."""

    def __init__(self, manager: Any, kind: Lanes) -> None:
        scalar = manager.lookup(kind.dtype).get_value_type()
        parts = [ir.VectorType(scalar, size) for size in _sizes(kind.count)]
        super().__init__(manager, kind, parts[0] if len(parts) == 1 else ir.LiteralStructType(parts))


def _sizes(count: int) -> list[int]:
    """The powers of two that add up to `count`, the largest first."""
    return [1 << bit for bit in reversed(range(count.bit_length())) if count >> bit & 1]


def _parts(builder: Any, value: Any) -> list[Any]:
    """The LLVM vectors of a vector."""
    if isinstance(value.type, ir.VectorType):
        return [value]
    return [builder.extract_value(value, k) for k in range(len(value.type.elements))]


def _whole(builder: Any, parts: list[Any]) -> Any:
    """The vector made of these LLVM vectors."""
    if len(parts) == 1:
        return parts[0]
    value = ir.Constant(ir.LiteralStructType([part.type for part in parts]), ir.Undefined)
    for k, part in enumerate(parts):
        value = builder.insert_value(value, part, k)
    return value


def _lanewise(builder: Any, operation: Callable[..., Any], *values: Any) -> Any:
    """Apply an operation on LLVM vectors to vectors."""
    parts = zip(*(_parts(builder, value) for value in values), strict=True)
    return _whole(builder, [operation(*group) for group in parts])


def _array(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """The fields of an array: address, shape and so on."""
    return cgutils.create_struct_proxy(kind)(context, builder, value=array)


def _pointers(context: Any, builder: Any, kind: Any, array: Any, offset: Any, vectors: list[Any]) -> Any:
    """Pointers to the entries from `offset` on, as LLVM vectors of the given types one after the other."""
    data = _array(context, builder, kind, array).data
    for vector in vectors:
        yield builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())
        offset = builder.add(offset, ir.Constant(offset.type, vector.count))


def _row_offset(context: Any, builder: Any, kind: Any, matrix: Any, row: Any, at: Any) -> Any:
    shape = _array(context, builder, kind, matrix).shape
    return builder.add(builder.mul(row, builder.extract_value(shape, 1)), at)


def _broadcast(builder: Any, x: Any, vector: Any) -> Any:
    """A number in every lane of an LLVM vector."""
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, x, ir.Constant(FLAG, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(FLAG, vector.count), None))


def _bytes(kind: Any) -> int:
    """The size of an entry of an array; numba's bool is a byte without a bit width."""
    return 1 if kind.dtype == types.boolean else kind.dtype.bitwidth // 8


def _read(context: Any, builder: Any, kind: Any, array: Any, offset: Any, lanes: Lanes) -> Any:
    scalar = context.get_value_type(lanes.dtype)
    vectors = [ir.VectorType(scalar, size) for size in _sizes(lanes.count)]
    parts = []
    for pointer in _pointers(context, builder, kind, array, offset, vectors):
        parts.append(builder.load(pointer))
        parts[-1].align = _bytes(kind)
    return _whole(builder, parts)


def _write(context: Any, builder: Any, kind: Any, array: Any, offset: Any, value: Any) -> Any:
    parts = _parts(builder, value)
    pointers = _pointers(context, builder, kind, array, offset, [part.type for part in parts])
    for part, pointer in zip(parts, pointers, strict=True):
        builder.store(part, pointer).align = _bytes(kind)
    return context.get_dummy_value()


def _load(array: Any, at: Any, lanes: Any) -> Any:
    kind = Lanes(array.dtype, len(lanes))

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _read(context, builder, signature.args[0], args[0], args[1], kind)

    return kind(array, types.int64, lanes), build


@lowered(_load)
def load(array, at, lanes):
    """array[at : at + len(lanes)]."""
    return array[at : at + len(lanes)].copy()


def _store(vector: Any, array: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _write(context, builder, signature.args[1], args[1], args[2], args[0])

    return types.void(vector, array, types.int64), build


@lowered(_store)
def store(vector, array, at):
    """array[at : at + lanes] = vector."""
    array[at : at + len(vector)] = vector


def _load_row(matrix: Any, row: Any, at: Any, lanes: Any) -> Any:
    kind = Lanes(matrix.dtype, len(lanes))

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offset = _row_offset(context, builder, signature.args[0], *args[:3])
        return _read(context, builder, signature.args[0], args[0], offset, kind)

    return kind(matrix, types.uint64, types.int64, lanes), build


@lowered(_load_row)
def load_row(matrix, row, at, lanes):
    """matrix[row, at : at + len(lanes)]."""
    return matrix[row, at : at + len(lanes)].copy()


def _store_row(vector: Any, matrix: Any, row: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offset = _row_offset(context, builder, signature.args[1], *args[1:])
        return _write(context, builder, signature.args[1], args[1], offset, args[0])

    return types.void(vector, matrix, types.uint64, types.int64), build


@lowered(_store_row)
def store_row(vector, matrix, row, at):
    """matrix[row, at : at + lanes] = vector."""
    matrix[row, at : at + len(vector)] = vector


def _fill(x: Any, like: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _lanewise(builder, lambda part: _broadcast(builder, args[0], part.type), args[1])

    return like(like.dtype, like), build


@lowered(_fill)
def fill(x, like):
    """x in every lane of a vector like the given one."""
    return np.full_like(like, x)


def _binary(operation: str) -> Callable[..., Any]:
    def typed(a: Any, b: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _lanewise(builder, lambda a, b: getattr(builder, operation)(a, b, flags=FLAGS), *args)

        return a(a, b), build

    return typed


@lowered(_binary("fadd"))
def add(a, b):
    """a + b."""
    return a + b


@lowered(_binary("fsub"))
def subtract(a, b):
    """a - b."""
    return a - b


@lowered(_binary("fmul"))
def multiply(a, b):
    """a * b, lane by lane."""
    return a * b


@lowered(_binary("fdiv"))
def divide(a, b):
    """a / b, lane by lane; infinite or NaN, without a warning, where b is 0."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return a / b


def _add_product(a: Any, x: Any, b: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def operation(a: Any, b: Any) -> Any:
            product = builder.fmul(_broadcast(builder, args[1], a.type), b, flags=FLAGS)
            return builder.fadd(a, product, flags=FLAGS)

        return _lanewise(builder, operation, args[0], args[2])

    return a(a, a.dtype, a), build


@lowered(_add_product)
def add_product(a, x, b):
    """a + x b for a number x; infinite, without a warning, on overflow."""
    with np.errstate(over="ignore"):
        return (a + x * b).astype(a.dtype)


def _maximum(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _larger(a: Any, b: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _lanewise(builder, lambda a, b: _maximum(builder, a, b), *args)

    return a(a, b), build


@lowered(_larger)
def larger(a, b):
    """The larger one, lane by lane."""
    return np.where(a > b, a, b)


def _where_above(v: Any, t: Any, a: Any, b: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def operation(v: Any, t: Any, a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", v, t), a, b)

        return _lanewise(builder, operation, *args)

    return v(v, v, v, v), build


@lowered(_where_above)
def where_above(v, t, a, b):
    """a where v > t and b elsewhere, lane by lane."""
    return np.where(v > t, a, b)


def _halved(combine: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction over the lanes by halves."""

    def halve(builder: Any, value: Any) -> Any:
        count = value.type.count
        nothing = ir.Constant(value.type, ir.Undefined)
        while count > 1:
            count //= 2
            upper = [*range(count, 2 * count), *[0] * (value.type.count - count)]
            mask = ir.Constant(ir.VectorType(FLAG, value.type.count), upper)
            value = combine(builder, value, builder.shuffle_vector(value, nothing, mask))
        return builder.extract_element(value, ir.Constant(FLAG, 0))

    def typed(v: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = [halve(builder, part) for part in _parts(builder, args[0])]
            return functools.reduce(lambda a, b: combine(builder, a, b), numbers)

        return v.dtype(v), build

    return typed


@lowered(_halved(lambda builder, a, b: builder.fadd(a, b, flags=FLAGS)))
def total(v):
    """Sum over the lanes."""
    return v.sum()


@lowered(_halved(_maximum))
def largest(v):
    """Largest lane."""
    return v.max()


def _any_nonzero(v: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        answer = ir.Constant(ir.IntType(1), 0)
        for part in _parts(builder, args[0]):
            bits = builder.fcmp_unordered("!=", part, ir.Constant(part.type, None))
            mask = ir.IntType(part.type.count)
            some = builder.icmp_unsigned("!=", builder.bitcast(bits, mask), ir.Constant(mask, 0))
            answer = builder.or_(answer, some)
        return answer

    return types.boolean(v), build


@lowered(_any_nonzero)
def any_nonzero(v):
    """Whether some lane differs from 0."""
    return bool(v.any())


def _as_reals(v: Any, like: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def operation(a: Any, b: Any) -> Any:
            if isinstance(v.dtype, types.Integer):
                return builder.sitofp(a, b.type)
            wider = v.dtype.bitwidth < like.dtype.bitwidth
            return a if a.type == b.type else (builder.fpext if wider else builder.fptrunc)(a, b.type)

        return _lanewise(builder, operation, *args)

    return like(v, like), build


@lowered(_as_reals)
def as_reals(v, like):
    """The numbers of a vector converted to the type of another vector."""
    return v.astype(like.dtype)


def _store_above(v: Any, t: Any, array: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def operation(v: Any, t: Any) -> Any:
            byte = ir.VectorType(ir.IntType(8), v.type.count)
            return builder.zext(builder.fcmp_ordered(">", v, t), byte)

        bits = _lanewise(builder, operation, *args[:2])
        return _write(context, builder, signature.args[2], args[2], args[3], bits)

    return types.void(v, v, array, types.int64), build


@lowered(_store_above)
def store_above(v, t, array, at):
    """array[at : at + lanes] = v > t, for an array of bool."""
    array[at : at + len(v)] = v > t


def _bits(builder: Any, parts: list[Any]) -> Any:
    """Vectors of one bit each as one integer, the first lane its lowest bit."""
    answer, at = ir.Constant(WORD, 0), 0
    for part in parts:
        bits = builder.bitcast(part, ir.IntType(part.type.count))
        bits = bits if part.type.count == WORD.width else builder.zext(bits, WORD)
        answer = builder.or_(answer, builder.shl(bits, ir.Constant(WORD, at)))
        at += part.type.count
    return answer


def _bits_nonzero(v: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        unlike = builder.icmp_unsigned if isinstance(v.dtype, types.Integer) else builder.fcmp_unordered
        parts = _parts(builder, args[0])
        return _bits(builder, [unlike("!=", a, ir.Constant(a.type, None)) for a in parts])

    return types.uint64(v), build


@lowered(_bits_nonzero)
def bits_nonzero(v):
    """The lanes, at most 64, that differ from 0, as bits of an integer."""
    return np.uint64(sum(1 << k for k in np.flatnonzero(v).tolist()))


def _bits_not_below(v: Any, t: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(*(_parts(builder, vector) for vector in args), strict=True)
        return _bits(builder, [builder.fcmp_unordered(">=", a, b) for a, b in pairs])

    return types.uint64(v, v), build


@lowered(_bits_not_below)
def bits_not_below(v, t):
    """The lanes, at most 64, where v is not less than t, as bits of an integer; NaN is not less."""
    return np.uint64(sum(1 << k for k in np.flatnonzero(~(v < t)).tolist()))


def _lowest_bit(bits: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), build


@lowered(_lowest_bit)
def lowest_bit(bits):
    """The position of the lowest bit of a nonzero integer."""
    return (int(bits) & -int(bits)).bit_length() - 1


def _prefetch(array: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        data = _array(context, builder, signature.args[0], args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, FLAG, FLAG, FLAG])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        read, keep, data_cache = (ir.Constant(FLAG, number) for number in (0, 3, 1))
        builder.call(function, [place, read, keep, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.int64), build


@lowered(_prefetch)
def prefetch(array, at):
    """Prefetch array[at] into the cache; changes nothing."""
