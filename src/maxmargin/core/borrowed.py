"""How loops hand arrays on: by address and shape, without owners.

Numba hands every array over as seven to nine numbers, among them a count of references, puts tuples of them
into memory and takes them out again for every entry that a loop reads. Loops pass tuples of dozens of arrays
to their parts, and all that was seven eighths of the text that LLVM had to read. But whoever calls a loop
holds on to its arrays until it returns, and loops take C-contiguous arrays: their addresses and shapes are
enough, the rest follows from the types. So here

- the arguments of a loop are borrowed: an address and a shape for every array, also on the way from Python;
- a loop that makes no arrays counts no references;
- variables that are set once, before all their uses, stay where they are instead of going through memory, and
  so do the structures that numba makes of views and pairs;
- what was put into a tuple is taken out of it before LLVM sees either, and so is arithmetic with constants.

A function that returns an array might return one of its arguments, and keeps numba's convention; so does one
with arrays that are not C-contiguous, and whatever is no loop.

Of numba this file needs `CPUCallConv`, `CPUContext.call_conv`, `ArgPacker`, `ArrayModel` and its fields,
`DataModelManager`, `Lower`, `NativeLowering`, `PostProcessor`, `PyCallWrapper`, `PythonAPI.to_native_value`,
`ValueStructProxy`, the structure that `arrayobj.make_array` gives and what it knows of blocks; of NumPy that
its arrays begin with address, number of dimensions and shape. `tests/core/test_borrowed.py` fails when one of
them changes.
"""

from __future__ import annotations

from collections import ChainMap
from functools import reduce
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from maxmargin.core.interrupt import uninterrupted

with uninterrupted():
    from llvmlite import ir
    from llvmlite.ir.instructions import InsertValue
    from numba.core import cgutils, types
    from numba.core import ir as statements
    from numba.core.analysis import compute_cfg_from_blocks, compute_use_defs, must_use_alloca
    from numba.core.callconv import CPUCallConv
    from numba.core.callwrapper import PyCallWrapper
    from numba.core.compiler_machinery import register_pass
    from numba.core.cpu import CPUContext
    from numba.core.datamodel import ArgPacker, DataModelManager, default_manager, models
    from numba.core.lowering import Lower
    from numba.core.postproc import PostProcessor
    from numba.core.pythonapi import PythonAPI
    from numba.core.typed_passes import NativeLowering
    from numba.extending import NativeValue
    from numba.np import arrayobj

# Bytes before the address in the structure of a NumPy array: what all objects of Python have.
HEAD = ir.ArrayType(ir.IntType(8), object.__basicsize__)
# Tuples of any kind, whose parts mypy does not know.
TUPLE: Any = types.BaseTuple
# Expressions that give nothing but what is there already.
TAKEN = {"getattr", "getitem", "static_getitem", "build_tuple", "exhaust_iter", "cast", "phi"}
# Instructions that do nothing but give a result.
PURE = {"insertvalue", "extractvalue", "add", "mul", "icmp", "select", "getelementptr", "load"}
# Comparisons of signed numbers.
COMPARE = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


class Borrowed(tuple[Any, ...]):
    """Types of arguments whose arrays are borrowed."""


def arrays_in(kind: Any) -> list[Any]:
    """The types of all arrays in a value of this type."""
    if isinstance(kind, TUPLE):
        return [array for part in kind for array in arrays_in(part)]
    return [kind] if isinstance(kind, types.Buffer) else []


def writable(kind: Any) -> Any:
    """The same type with arrays that may be written to; its values look the same."""
    if isinstance(kind, TUPLE) and arrays_in(kind):
        parts = [writable(part) for part in kind]
        return TUPLE.from_types(parts, getattr(kind, "instance_class", None))
    return kind.copy(readonly=False) if isinstance(kind, types.Array) else kind


def hash_of_tuples(kind: Any) -> int:
    """The same for all named tuples of a class, whose many types numba would go through for every look-up."""
    return hash(kind.instance_class)


setattr(types.NamedTuple, "__hash__", hash_of_tuples)  # noqa: B010 - a method that mypy does not let go


def may_borrow(returned: Any, arguments: Any) -> bool:
    """Whether a function with these types returns no array and takes C-contiguous ones alone."""
    taken = [array for kind in arguments for array in arrays_in(kind)]
    return not arrays_in(returned) and all(type(one) is types.Array and one.layout == "C" for one in taken)


def makes_arrays(context: Any, fndesc: Any, func_ir: Any) -> bool:
    """Whether a function has values with owners that are none of its arguments, or a part of one."""

    def owned(variable: Any) -> bool:
        return bool(context.data_model_manager[fndesc.typemap[variable.name]].contains_nrt_meminfo())

    for block in func_ir.blocks.values():
        for statement in block.body:
            if isinstance(statement, statements.DynamicRaise):  # it owns what it says
                return True
            value = getattr(statement, "value", None)
            if not isinstance(statement, statements.Assign) or not isinstance(value, statements.Expr):
                continue
            taken = value.op in TAKEN and not (value.op == "getitem" and owned(value.index))
            if not taken and owned(statement.target):
                return True
    return False


class BorrowedArrayModel(models.ArrayModel):
    """An array that is an address and a shape as an argument."""

    def _place(self, field: str) -> int:
        return int(self.get_field_position(field))

    def get_argument_type(self) -> Any:
        """Types of address and shape."""
        whole = super().get_argument_type()
        return whole[self._place("data")], whole[self._place("shape")]

    def as_argument(self, builder: Any, value: Any) -> Any:
        """Address and shape of an array."""
        shape = self._place("shape")
        sizes = [builder.extract_value(value, [shape, k]) for k in range(self._fe_type.ndim)]
        return builder.extract_value(value, self._place("data")), sizes

    def from_argument(self, builder: Any, value: Any) -> Any:
        """The array without an owner that has this address and shape."""
        data, sizes = value
        kind = self.get_value_type()
        fields = [ir.Constant(field, ir.Undefined) for field in kind.elements]
        for owner in ("meminfo", "parent"):
            fields[self._place(owner)] = ir.Constant(kind.elements[self._place(owner)], None)
        number = kind.elements[self._place("itemsize")]
        bits = 8 if isinstance(self._fe_type.dtype, types.Boolean) else self._fe_type.dtype.bitwidth
        stride = fields[self._place("itemsize")] = number(bits // 8)
        strides: list[Any] = []
        count = number(1)
        for size in reversed(sizes):
            strides.insert(0, stride)
            stride, count = builder.mul(stride, size), builder.mul(count, size)
        array = ir.Constant(kind, fields)
        array = builder.insert_value(array, count, self._place("nitems"))
        array = builder.insert_value(array, data, self._place("data"))
        for field, numbers in (("shape", sizes), ("strides", strides)):
            for k, x in enumerate(numbers):
                array = builder.insert_value(array, x, [self._place(field), k])
        return array


borrowing = DataModelManager(ChainMap({types.Array: BorrowedArrayModel}, default_manager._handlers))


class LoopCallConv(CPUCallConv):
    """Numba's convention, but for functions that borrow their arrays."""

    def _get_arg_packer(self, argtypes: Any) -> Any:
        if isinstance(argtypes, Borrowed):
            return ArgPacker(borrowing, argtypes)
        return super()._get_arg_packer(argtypes)

    def decorate_function(self, fn: Any, args: Any, fe_argtypes: Any, noalias: bool = False) -> None:
        """Name the arguments of a function that is declared, and note how it takes them."""
        super().decorate_function(fn, args, fe_argtypes, noalias)
        fn.borrows = isinstance(fe_argtypes, Borrowed)

    def call_function(
        self, builder: Any, callee: Any, resty: Any, argtys: Any, args: Any, attrs: Any = None
    ) -> Any:
        """Call a function in the way that it was declared."""
        if getattr(callee, "borrows", False):
            argtys = Borrowed(argtys)
        return super().call_function(builder, callee, resty, argtys, args, attrs)


setattr(CPUContext, "call_conv", property(LoopCallConv))  # noqa: B010 - no attribute that mypy knows


def is_number(value: Any, number: int) -> bool:
    """Whether a value is this constant."""
    return isinstance(value, ir.Constant) and isinstance(value.type, ir.IntType) and value.constant == number


class FoldingBuilder(ir.IRBuilder):
    """Leaves out what LLVM would have to find out that it is not needed.

    That is to take out of a structure what was put in, and arithmetic with constants: those of indices, of
    contiguous arrays and of ranges with a step of one.
    """

    def extract_value(self, agg: Any, idx: Any, name: str = "") -> Any:
        """A field of a structure."""
        path = tuple(idx) if isinstance(idx, (tuple, list)) else (idx,)
        while path:
            if isinstance(agg, InsertValue):
                at = tuple(agg.indices)
                if path[: len(at)] == at:
                    agg, path = agg.value, path[len(at) :]
                elif at[: len(path)] == path:  # a part of what is asked for was put in
                    break
                else:
                    agg = agg.aggregate
            elif isinstance(agg, ir.Constant) and isinstance(agg.constant, list):
                agg, path = agg.constant[path[0]], path[1:]
            elif isinstance(agg, ir.Constant) and agg.constant is None:  # all zero
                agg, path = ir.Constant(agg.type.elements[path[0]], None), path[1:]
            else:
                break
        return super().extract_value(agg, path, name) if path else agg

    def add(self, lhs: Any, rhs: Any, name: str = "", flags: Any = ()) -> Any:
        """A sum."""
        if is_number(lhs, 0):
            return rhs
        return lhs if is_number(rhs, 0) else super().add(lhs, rhs, name, flags)

    def mul(self, lhs: Any, rhs: Any, name: str = "", flags: Any = ()) -> Any:
        """A product."""
        if is_number(lhs, 1):
            return rhs
        return lhs if is_number(rhs, 1) else super().mul(lhs, rhs, name, flags)

    def sdiv(self, lhs: Any, rhs: Any, name: str = "", flags: Any = ()) -> Any:
        """A quotient."""
        return lhs if is_number(rhs, 1) else super().sdiv(lhs, rhs, name, flags)

    def srem(self, lhs: Any, rhs: Any, name: str = "", flags: Any = ()) -> Any:
        """A remainder."""
        return ir.Constant(lhs.type, 0) if is_number(rhs, 1) else super().srem(lhs, rhs, name, flags)

    def icmp_signed(self, cmpop: str, lhs: Any, rhs: Any, name: str = "") -> Any:
        """A comparison."""
        sides = lhs, rhs
        if all(isinstance(side, ir.Constant) and isinstance(side.constant, int) for side in sides):
            return ir.Constant(ir.IntType(1), int(COMPARE[cmpop](lhs.constant, rhs.constant)))
        return super().icmp_signed(cmpop, lhs, rhs, name)

    def select(self, cond: Any, lhs: Any, rhs: Any, name: str = "", flags: Any = ()) -> Any:
        """One of two values."""
        if isinstance(cond, ir.Constant) and isinstance(cond.constant, int):
            return lhs if cond.constant else rhs
        return super().select(cond, lhs, rhs, name, flags)


class InRegisters(cgutils._StructProxy):
    """The structures that numba reads and writes field by field: a value in loops, as long as that goes.

    They are in memory from where one is written to in another block than it was made in, or its address is
    asked for. So are those that walk along a range: LLVM then sees through them late enough to count with the
    index alone, not also with the steps that are left.
    """

    _fe_type: Any

    def __init__(self, context: Any, builder: Any, value: Any = None, ref: Any = None) -> None:
        walks = isinstance(self._fe_type, types.RangeIteratorType)
        if walks or ref is not None or not isinstance(builder, FoldingBuilder):
            super().__init__(context, builder, value, ref)
            return
        self._context, self._builder, self._block = context, builder, builder.block
        self._datamodel = context.data_model_manager[self._fe_type]
        self._be_type = self._get_be_type(self._datamodel)
        self._held = ir.Constant(self._be_type, None) if value is None else value

    def _is_held(self) -> bool:
        return "_held" in self.__dict__ and "_value" not in self.__dict__

    def _may_write(self, value: Any, kind: Any) -> bool:
        return self._is_held() and self._builder.block is self._block and value.type == kind

    def __getattr__(self, field: str) -> Any:
        if field not in ("_value", "_outer_ref") or "_held" not in self.__dict__:
            return super().__getattr__(field)
        # Whoever wants it in memory may come from one of several branches: it has to be there before them.
        address = cgutils.alloca_once(self._builder, self._be_type)
        with self._builder.goto_block(self._block):
            self._builder.store(self._held, address)
        self._outer_ref, self._value = self._make_refs(address)
        return self.__dict__[field]

    def __getitem__(self, index: int) -> Any:
        if not self._is_held():
            return super().__getitem__(index)
        kind = self._be_type.elements[index]
        if not isinstance(kind, ir.ArrayType):
            return self._builder.extract_value(self._held, index)
        numbers = [self._builder.extract_value(self._held, [index, k]) for k in range(kind.count)]
        return cgutils.pack_array(self._builder, numbers, kind.element)

    def __setitem__(self, index: int, value: Any) -> None:
        if self._may_write(value, self._be_type.elements[index]):
            self._held = self._builder.insert_value(self._held, value, index)
        else:
            super().__setitem__(index, value)

    def _getvalue(self) -> Any:
        return self._held if self._is_held() else super()._getvalue()

    def _setvalue(self, value: Any) -> None:
        if self._may_write(value, self._be_type):
            self._held = value
        else:
            super()._setvalue(value)


cgutils.ValueStructProxy.__bases__ = (InRegisters,)


class ShapeInRegisters:
    """Mixed into the structure of an array, whose shape numba reads from memory."""

    @property
    def shape(self) -> Any:
        """The shape."""
        held: Any = self
        return held[held._datamodel.get_field_position("shape")] if held._is_held() else super().shape  # type: ignore[misc]


structure_of: Any = arrayobj.make_array


def structure_for_caller(kind: Any) -> Any:
    """The structure of an array, which loops read without memory."""
    base = structure_of(kind)
    return type(base.__name__, (ShapeInRegisters, base), {}) if isinstance(kind, types.Array) else base


arrayobj.make_array = structure_for_caller


def prune(function: Any) -> None:
    """Leave out the instructions whose results nobody uses."""
    uses: dict[int, int] = {}
    for block in function.blocks:
        for instruction in block.instructions:
            incoming = [value for value, _ in getattr(instruction, "incomings", ())]
            for operand in (*instruction.operands, *incoming):
                uses[id(operand)] = uses.get(id(operand), 0) + 1
    for block in reversed(function.blocks):
        kept = []
        for instruction in reversed(block.instructions):
            if instruction.opname in PURE and not uses.get(id(instruction)):
                for operand in instruction.operands:
                    uses[id(operand)] -= 1
            else:
                kept.append(instruction)
        block.instructions[:] = reversed(kept)


class BorrowingAPI(PythonAPI):
    """Takes arrays, and tuples of them, from Python, which owns them; their types are known to be right."""

    def to_native_value(self, typ: Any, obj: Any) -> Any:
        """A value that Python passes."""
        builder = self.builder
        if isinstance(typ, TUPLE):
            parts = [self.to_native_value(kind, self.tuple_getitem(obj, k)) for k, kind in enumerate(typ)]
            failed = reduce(builder.or_, [part.is_error for part in parts], cgutils.false_bit)
            value = self.context.make_tuple(builder, typ, [part.value for part in parts])
            return NativeValue(value, is_error=failed)
        if not isinstance(typ, types.Array):
            return super().to_native_value(typ, obj)
        address = self.context.get_value_type(types.CPointer(typ.dtype))
        sizes = self.context.get_value_type(types.intp).as_pointer()
        layout = ir.LiteralStructType([HEAD, address, ir.IntType(32), sizes])
        array = builder.bitcast(obj, layout.as_pointer())
        data, shape = (builder.load(cgutils.gep_inbounds(builder, array, 0, k)) for k in (1, 3))
        shape = [builder.load(cgutils.gep_inbounds(builder, shape, k)) for k in range(typ.ndim)]
        return NativeValue(borrowing[typ].from_argument(builder, (data, shape)))


class BorrowingWrapper(PyCallWrapper):
    """What Python calls."""

    def build_wrapper(self, api: Any, builder: Any, closure: Any, args: Any, kws: Any) -> None:
        """Take the arguments from Python and call the loop."""
        builder.__class__, api.__class__ = FoldingBuilder, BorrowingAPI
        super().build_wrapper(api, builder, closure, args, kws)
        prune(builder.function)


class BorrowingLower(Lower):
    """From numba's statements to LLVM's, for a loop that borrows its arrays where it may."""

    def __init__(self, context: Any, library: Any, fndesc: Any, func_ir: Any, metadata: Any = None) -> None:
        if may_borrow(fndesc.restype, fndesc.argtypes):
            fndesc.argtypes = Borrowed(fndesc.argtypes)
            if not makes_arrays(context, fndesc, func_ir):
                context = context.subtarget(enable_nrt=False)
        if context.enable_nrt:
            PostProcessor(func_ir).run(emit_dels=True)
        super().__init__(context, library, fndesc, func_ir, metadata)

    def setup_function(self, fndesc: Any) -> None:
        """Begin the function."""
        super().setup_function(fndesc)
        self.builder.__class__ = FoldingBuilder

    def lower_normal_function(self, fndesc: Any) -> None:
        """Write the function."""
        super().lower_normal_function(fndesc)
        prune(self.function)

    def delvar(self, name: str) -> None:
        """Give up a variable: nothing has to be done but for references."""
        model = self.context.data_model_manager[self.typeof(name)]
        if self.context.enable_nrt and model.contains_nrt_meminfo():
            super().delvar(name)

    def _cast_var(self, var: Any, ty: Any) -> Any:
        """The value of a variable as an argument of this type."""
        name = getattr(var, "name", None)
        if name is not None and writable(self.typeof(name)) == ty:
            return self.loadvar(name)
        return super()._cast_var(var, ty)

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Write what Python calls; it has no references to count."""
        fndesc = self.fndesc
        if not isinstance(fndesc.argtypes, Borrowed):
            super().create_cpython_wrapper(release_gil)
            return
        context = self.context.subtarget(enable_nrt=False)
        module = context.create_module("wrapper")
        kind = context.call_conv.get_function_type(fndesc.restype, fndesc.argtypes)
        loop = ir.Function(module, kind, fndesc.llvm_func_name)
        BorrowingWrapper(context, module, loop, fndesc, self.env, self.call_helper, release_gil).build()
        self.library.add_ir_module(module)

    def _find_singly_assigned_variable(self) -> None:
        """Find the variables that need no memory: those that are set once, before all their uses.

        Numba takes those of one block alone. What counts references and leaves its block stays in memory, as
        numba may give it up where it was never set.
        """
        blocks = self.func_ir.blocks
        elsewhere: dict[str, set[int]] = {}  # blocks that use a variable and have not set it
        for label, names in compute_use_defs(blocks).usemap.items():
            for name in names:
                elsewhere.setdefault(name, set()).add(label)
        set_in: dict[str, list[int]] = {}
        given_up: dict[str, set[int]] = {}
        taken = set()
        for label, block in blocks.items():
            for statement in block.body:
                if isinstance(statement, statements.Del):
                    given_up.setdefault(statement.value, set()).add(label)
                elif isinstance(statement, statements.Assign):
                    set_in.setdefault(statement.target.name, []).append(label)
                    if isinstance(statement.value, statements.Arg):
                        taken.add(statement.target.name)
        unowned = taken if isinstance(self.fndesc.argtypes, Borrowed) else set()
        earlier = compute_cfg_from_blocks(blocks).dominators()

        def stays(name: str, at: int) -> bool:
            """Whether a variable that is set in one place and used in other blocks needs no memory."""
            model = self.context.data_model_manager[self.typeof(name)]
            if self.context.enable_nrt and name not in unowned and model.contains_nrt_meminfo():
                return False
            places = elsewhere[name] | given_up.get(name, set())
            return at not in elsewhere[name] and all(at in earlier[place] for place in places)

        once = {name: labels[0] for name, labels in set_in.items() if len(labels) == 1}
        for name in must_use_alloca(blocks):
            once.pop(name, None)
        self._blk_local_varmap: dict[str, Any] = {}
        self._singly_assigned_vars = {
            name for name, at in once.items() if name not in elsewhere or stays(name, at)
        }


@register_pass(mutates_CFG=True, analysis_only=False)
class LoopLowering(NativeLowering):
    """Numba's pass, for loops."""

    _name = "loop_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """What writes LLVM's statements."""
        return BorrowingLower
