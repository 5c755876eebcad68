"""Short vectors of numbers that stay in registers: the SIMD words of the multi-class loops.

LLVM vectorises a loop over the classes of one sample badly: the loop is short, its length is
known only at run time, and its sums would have to live in memory. Here a loop works on vectors
of a fixed number of lanes instead. `lanes` is a tuple whose length is that number (its
entries do not matter), so that the number is part of the type; arrays are padded to a
multiple of it.

Every operation is written twice: as plain Python on small arrays, which says what it means
and is what runs under ``NUMBA_DISABLE_JIT=1``, and as the instructions it becomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

from maxmargin._jit._compile import REORDER

FLAGS = tuple(sorted(REORDER))
FLAG = ir.IntType(32)


class Lanes(types.Type):
    """Numba's view of a vector: the type of its numbers and how many there are."""

    def __init__(self, dtype: Any, count: int) -> None:
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):
    """A vector is one LLVM vector."""

    def __init__(self, manager: Any, kind: Lanes) -> None:
        scalar = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(scalar, kind.count))


def lowered(instructions: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a plain function by its instructions, unless loops run as plain Python."""
    off = getattr(numba.config, "DISABLE_JIT", False)
    return lambda plain: plain if off else intrinsic(instructions)


def _place(context: Any, builder: Any, kind: Any, array: Any, offset: Any, vector: Any) -> Any:
    data = context.make_array(kind)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())


def _row_offset(context: Any, builder: Any, kind: Any, matrix: Any, row: Any, at: Any) -> Any:
    shape = context.make_array(kind)(context, builder, value=matrix).shape
    return builder.add(builder.mul(row, builder.extract_value(shape, 1)), at)


def _spread(builder: Any, x: Any, vector: Any) -> Any:
    nothing = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(nothing, x, ir.Constant(FLAG, 0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(FLAG, vector.count), None))


def _read(context: Any, builder: Any, kind: Any, array: Any, offset: Any, vector: Any) -> Any:
    value = builder.load(_place(context, builder, kind, array, offset, vector))
    value.align = kind.dtype.bitwidth // 8
    return value


def _write(context: Any, builder: Any, kind: Any, array: Any, offset: Any, value: Any) -> Any:
    place = _place(context, builder, kind, array, offset, value.type)
    builder.store(value, place).align = kind.dtype.bitwidth // 8
    return context.get_dummy_value()


def _load(typing: Any, array: Any, at: Any, lanes: Any) -> Any:
    kind = Lanes(array.dtype, len(lanes))

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = context.get_value_type(kind)
        return _read(context, builder, signature.args[0], args[0], args[1], vector)

    return kind(array, types.int64, lanes), build


@lowered(_load)
def load(array, at, lanes):
    """array[at : at + len(lanes)]."""
    return array[at : at + len(lanes)].copy()


def _store(typing: Any, vector: Any, array: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _write(context, builder, signature.args[1], args[1], args[2], args[0])

    return types.void(vector, array, types.int64), build


@lowered(_store)
def store(vector, array, at):
    """array[at : at + lanes] = vector."""
    array[at : at + len(vector)] = vector


def _load_row(typing: Any, matrix: Any, row: Any, at: Any, lanes: Any) -> Any:
    kind = Lanes(matrix.dtype, len(lanes))

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offset = _row_offset(context, builder, signature.args[0], *args[:3])
        return _read(context, builder, signature.args[0], args[0], offset, context.get_value_type(kind))

    return kind(matrix, types.uint64, types.int64, lanes), build


@lowered(_load_row)
def load_row(matrix, row, at, lanes):
    """matrix[row, at : at + len(lanes)]."""
    return matrix[row, at : at + len(lanes)].copy()


def _store_row(typing: Any, vector: Any, matrix: Any, row: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        offset = _row_offset(context, builder, signature.args[1], *args[1:])
        return _write(context, builder, signature.args[1], args[1], offset, args[0])

    return types.void(vector, matrix, types.uint64, types.int64), build


@lowered(_store_row)
def store_row(vector, matrix, row, at):
    """matrix[row, at : at + lanes] = vector."""
    matrix[row, at : at + len(vector)] = vector


def _fill(typing: Any, x: Any, like: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _spread(builder, args[0], args[1].type)

    return like(like.dtype, like), build


@lowered(_fill)
def fill(x, like):
    """x in every lane of a vector like the given one."""
    return np.full_like(like, x)


def _binary(operation: str) -> Callable[..., Any]:
    def typed(typing: Any, a: Any, b: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, operation)(*args, flags=FLAGS)

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


def _add_product(typing: Any, a: Any, x: Any, b: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        product = builder.fmul(_spread(builder, args[1], args[0].type), args[2], flags=FLAGS)
        return builder.fadd(args[0], product, flags=FLAGS)

    return a(a, a.dtype, a), build


@lowered(_add_product)
def add_product(a, x, b):
    """a + x b for a number x."""
    return (a + x * b).astype(a.dtype)


def _larger(typing: Any, a: Any, b: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, b), build


@lowered(_larger)
def larger(a, b):
    """The larger one, lane by lane."""
    return np.where(a > b, a, b)


def _where_above(typing: Any, v: Any, t: Any, a: Any, b: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    return v(v, v, v, v), build


@lowered(_where_above)
def where_above(v, t, a, b):
    """a where v > t and b elsewhere, lane by lane."""
    return np.where(v > t, a, b)


def _halved(combine: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction over the lanes, by halves."""

    def typed(typing: Any, v: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value, count = args[0], v.count
            nothing = ir.Constant(value.type, ir.Undefined)
            while count > 1:
                count //= 2
                upper = [*range(count, 2 * count), *[0] * (v.count - count)]
                mask = ir.Constant(ir.VectorType(FLAG, v.count), upper)
                value = combine(builder, value, builder.shuffle_vector(value, nothing, mask))
            return builder.extract_element(value, ir.Constant(FLAG, 0))

        return v.dtype(v), build

    return typed


@lowered(_halved(lambda builder, a, b: builder.fadd(a, b, flags=FLAGS)))
def total(v):
    """Sum over the lanes."""
    return v.sum()


@lowered(_halved(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b)))
def largest(v):
    """Largest lane."""
    return v.max()


def _any_nonzero(typing: Any, v: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.fcmp_unordered("!=", args[0], ir.Constant(args[0].type, None))
        mask = ir.IntType(v.count)
        return builder.icmp_unsigned("!=", builder.bitcast(bits, mask), ir.Constant(mask, 0))

    return types.boolean(v), build


@lowered(_any_nonzero)
def any_nonzero(v):
    """Whether some lane differs from 0."""
    return bool(v.any())


def _prefetch(typing: Any, array: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        data = context.make_array(signature.args[0])(context, builder, value=args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, FLAG, FLAG, FLAG])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data_cache = (ir.Constant(FLAG, number) for number in (0, 3, 1))
        builder.call(function, [place, read, keep, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.int64), build


@lowered(_prefetch)
def prefetch(array, at):
    """Ask for array[at] to be brought near; changes nothing."""
