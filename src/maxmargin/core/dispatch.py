"""How a loop is compiled: once for Python, and as a part of every loop that calls it.

Numba compiles whatever a function calls as if Python were to call it too: with wrappers that
unpack Python objects, optimised and turned into machine code by itself, and then once more within
the caller. Here a loop that another loop calls is a part: it is typed and lowered once, linked into its
callers and optimised there, which halves the time to compile. So are numba's own functions, ``abs`` or
``np.zeros``, where a loop calls them; ``max`` and ``min`` of numbers need none. What Python calls is a
function of its own, and the only thing kept on disk. A part is one for all calls whose arguments differ in
what its code does not tell apart, such as whether an array may be written to. What numba once found out about
a call, ``i + 1`` or ``row[j]``, it is not made to find out again for the next one with the same types, which
takes another sixth off.

Of numba this file needs `CPUDispatcher`, `_FunctionCompiler`, `JITCodeLibrary.finalize`, `Flags`, the
passes of `SHORT` and how `PassManager` runs them, `PostProcessor`, the templates of overloaded functions,
`BaseFunction.get_call_type` and `do_minmax`, of llvmlite the lock around calls of LLVM and the options of
its passes; `tests/core/test_jit.py` fails when one of them changes.
"""

from __future__ import annotations

import contextlib
import gc
import operator
from collections.abc import Callable, Iterator
from typing import Any

from maxmargin.core.interrupt import uninterrupted

with uninterrupted():
    from llvmlite import binding
    from llvmlite.binding import ffi
    from numba.core import compiler, event, sigutils, types, typing, untyped_passes
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.compiler_machinery import PassManager
    from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
    from numba.core.imputils import lower_builtin
    from numba.core.postproc import PostProcessor
    from numba.core.registry import CPUDispatcher
    from numba.core.targetconfig import ConfigStack
    from numba.core.transforms import canonicalize_cfg
    from numba.core.typed_passes import (
        AnnotateTypes,
        NoPythonBackend,
        NopythonTypeInference,
        PreLowerStripPhis,
    )
    from numba.core.types.functions import BaseFunction
    from numba.core.typing.templates import (
        _OverloadFunctionTemplate,
        infer,
        infer_global,
        make_overload_template,
    )
    from numba.cpython.builtins import do_minmax

from maxmargin.core.borrowed import LoopLowering, writable

# What numba does with a function that has no closures, comprehensions, `literal_unroll`, `with` blocks
# or arithmetic of whole arrays, none of which loops use.
SHORT = (
    untyped_passes.TranslateByteCode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.RewriteSemanticConstants,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.RewriteDynamicRaises,
    untyped_passes.ReconstructSSA,
    NopythonTypeInference,
    PreLowerStripPhis,
    AnnotateTypes,
    LoopLowering,
    NoPythonBackend,
)


class PartLibrary(JITCodeLibrary):
    """Code to be linked into its callers, never run by itself.

    A part that calls no other loop is optimised at once, as short loops come out better by themselves than
    within a long function; what calls loops only when it is whole, or the innermost ones would be
    optimised again at every level.
    """

    # Whether it is a loop of ours rather than a function of numba.
    is_loop = True

    def finalize(self) -> None:
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # older versions of numba have none
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        if not any(getattr(library, "is_loop", False) for library in self._linking_libraries):
            self._optimize_final_module()
        self._finalize_dynamic_globals()
        self._finalized = True


class NumbaLibrary(PartLibrary):
    """Code of a function of numba, likewise."""

    is_loop = False


class LoopFlags(compiler.Flags):
    """Flags that are equal when numba's own functions, which inherit some of them, come out the same.

    Numba compiles ``len`` or ``np.empty`` anew for callers with other flags; it compares all of them,
    the wrappers included, and spends a tenth of its time on that.
    """

    __slots__ = ()

    def _inherited(self) -> tuple[Any, ...]:
        fastmath: Any = self.fastmath
        return self.nrt, self.forceinline, frozenset(fastmath.flags), self.error_model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoopFlags) and self._inherited() == other._inherited()

    def __hash__(self) -> int:
        return hash(self._inherited())


class ShortPasses(PassManager):
    """Runs one pass after the other.

    Numba also checks what each has left, looks for the lifetimes of variables, which none of `SHORT` needs,
    and tells it all to whoever listens.
    """

    def _runPass(self, index: int, one: Any, state: Any) -> None:
        one.analysis = self._analysis
        if state.func_ir is not None:
            state.func_ir.needs_lifetimes = False
        one.run_initialization(state)
        one.run_pass(state)
        one.run_finalizer(state)


class ShortPipeline(compiler.CompilerBase):
    """The passes that a loop needs, without those that look for what it does not hold."""

    def define_pipelines(self) -> list[PassManager]:
        passes = ShortPasses("loop")
        for each in SHORT:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


class LoopCompiler(_FunctionCompiler):
    """Compiles a function for Python, or as a part of other loops."""

    library: type[PartLibrary] = PartLibrary
    pipeline: type[compiler.CompilerBase] = ShortPipeline

    def __init__(self, dispatcher: CPUDispatcher, part: bool) -> None:
        self.part = part
        options = dispatcher.targetoptions
        super().__init__(dispatcher.py_func, dispatcher.targetdescr, options, {}, self.pipeline)

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        context = self.targetdescr.target_context
        flags = self.targetdescr.options.parse_as_flags(LoopFlags(), self.targetoptions)
        flags.no_cfunc_wrapper = True
        flags.no_cpython_wrapper = flags.no_compile = self.part
        result = compiler.compile_extra(
            self.targetdescr.typing_context,
            context,
            self.py_func,
            args=args,
            return_type=return_type,
            flags=flags,
            locals=self.locals,
            library=self.library(context.codegen(), self.py_func.__qualname__) if self.part else None,
            pipeline_class=self.pipeline_class,
        )
        if self.part:
            # Callers look a part up by its entry point, which only has to be some object of its own.
            result = result._replace(entry_point=object())
            context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        else:
            for environment in result._find_referenced_environments():
                result.codegen.set_env(environment.env_name, environment)
        return result


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage: compiling makes millions of objects that live until its end."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            # What was made is old now, or all of it would be searched at once.
            gc.freeze()
            gc.unfreeze()
        gc.enable()


# What a function may cost, by LLVM's count, to be copied into callers within a compact loop (225 elsewhere).
COPIED = 50
# Types as parts take them, by numba's number of the type that they were asked for.
known_kinds: dict[int, Any] = {}


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """LLVM is called without telling numba's listeners, thousands of times, when a call begins and ends."""
    lock = ffi.lib._lock
    listeners, lock._cblist = lock._cblist, []
    try:
        yield
    finally:
        lock._cblist = listeners


@contextlib.contextmanager
def compact() -> Iterator[None]:
    """LLVM neither unrolls loops nor copies long functions into every caller.

    Numba 0.61 does not ask for these options, and compiles at length.
    """
    make = binding.create_pipeline_tuning_options

    def tuning(*args: Any, **options: Any) -> Any:
        made: Any = make(*args, **options)
        made.loop_unrolling, made.inlining_threshold = False, COPIED
        return made

    binding.create_pipeline_tuning_options = tuning
    try:
        yield
    finally:
        binding.create_pipeline_tuning_options = make


def as_taken(kind: Any) -> Any:
    """The type that a part has for an argument of this one.

    Whether an array may be written to, how wide a number that counts is and whether it is known beforehand
    makes a type of its own for numba, but no other code.
    """
    if kind._code not in known_kinds:
        taken = writable(types.unliteral(kind))
        known_kinds[kind._code] = types.int64 if taken in types.signed_domain else taken
    return known_kinds[kind._code]


class Part(CPUDispatcher):
    """A loop as other loops call it."""

    made_by: type[LoopCompiler] = LoopCompiler

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions=options)
        self._compiler = self.made_by(self, part=True)

    def compile(self, sig: Any) -> Any:
        """Compile it once. What LLVM takes is not counted for every part, as numba would."""
        args, returned = sigutils.normalize_signature(sig)
        if args not in self.overloads:
            about = {"dispatcher": self, "args": args, "return_type": returned}
            with self._compiling_counter, event.trigger_event("numba:compile", data=about):
                self.add_overload(self._compiler.compile(args, returned))
        result: Any = self.overloads[args]
        return result.entry_point

    def add_overload(self, result: Any) -> None:
        """Make it known to other loops only: there is nothing that Python could call."""
        self.overloads[tuple(result.signature.args)] = result

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The signature that a calling loop sees: one for all calls with the same kinds of arguments."""
        return super().get_call_template(
            [as_taken(kind) for kind in args], {name: as_taken(kind) for name, kind in kws.items()}
        )


class NumbaCompiler(LoopCompiler):
    """Compiles a function of numba, by all of its passes, as a part of loops."""

    library, pipeline = NumbaLibrary, compiler.Compiler


class NumbaPart(Part):
    """A function of numba as loops call it."""

    made_by = NumbaCompiler
    get_call_template = CPUDispatcher.get_call_template


def overload_by_part(
    function: Callable[..., Any], choose: Callable[..., Any], options: dict[str, Any]
) -> None:
    """Let compiled loops call `function`, each time as a part of the body that `choose` takes by the types.

    What `numba.extending.overload` does, whose bodies would be functions of their own.
    """
    template = make_overload_template(function, choose, options, strict=False, inline="never")
    template._get_jit_decorator = lambda self: lambda **given: lambda body: Part(body, given)
    infer(template)
    infer_global(function, types.Function(template))


processors_of_numba: Any = PostProcessor
find_lifetimes = processors_of_numba.run


def lifetimes_for_caller(processor: Any, emit_dels: bool = False, **options: Any) -> None:
    """What numba finds out about a function within its passes: for a loop the order of its blocks alone."""
    function = processor.func_ir
    if emit_dels or function.is_generator or getattr(function, "needs_lifetimes", True):
        find_lifetimes(processor, emit_dels, **options)
    else:
        function.blocks = canonicalize_cfg(function.blocks)


processors_of_numba.run = lifetimes_for_caller

functions_of_numba: Any = _OverloadFunctionTemplate
jit_decorator = functions_of_numba._get_jit_decorator


def decorator_for_caller(template: Any) -> Any:
    """How numba compiles a function of its own: for a loop as a part of it, for anybody else as ever."""
    if isinstance(ConfigStack.top_or_none(), LoopFlags):
        return lambda **given: lambda body: NumbaPart(body, given)
    return jit_decorator(template)


functions_of_numba._get_jit_decorator = decorator_for_caller

kinds_of_functions: Any = BaseFunction
find_call_type = kinds_of_functions.get_call_type
# Signature and implementation of every call in a loop, by function (with all its templates) and types.
known_calls: dict[Any, tuple[Any, Any]] = {}


# Numbers are compared by these in a loop, without a part for every mix of types.
ORDERS = {max: operator.gt, min: operator.lt}


def lower_order(order: Any) -> None:
    """Let `order`, a comparison, stand for the greatest or least of numbers."""

    @lower_builtin(("best", order), types.VarArg(types.Number))
    def best(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return do_minmax(context, builder, signature.args, values, order)


for each in ORDERS.values():
    lower_order(each)


def find_call(function: Any, context: Any, args: Any, kws: Any) -> tuple[Any, Any]:
    """Signature and implementation of a call."""
    order = ORDERS.get(function.typing_key)
    if (
        order is not None
        and len(args) > 1
        and not kws
        and all(isinstance(kind, types.Number) for kind in args)
    ):
        kinds = [types.unliteral(kind) for kind in args]
        return typing.signature(context.unify_types(*kinds), *kinds), ("best", order)
    signature = find_call_type(function, context, args, kws)
    return signature, function.get_impl_key(signature)


def call_type_for_caller(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """The signature of a call: numba tries one template after the other, for a loop only the first time."""
    flags = ConfigStack.top_or_none()
    if not isinstance(flags, LoopFlags):
        return find_call_type(function, context, args, kws)
    key = function, context, tuple(args), tuple(kws.items()), flags
    if key not in known_calls:
        known_calls[key] = find_call(function, context, args, kws)
    signature, implementation = known_calls[key]
    function._impl_keys[signature.args] = implementation
    return signature


kinds_of_functions.get_call_type = call_type_for_caller


class Loop(CPUDispatcher):
    """A compiled loop, called from Python or, through its part, by other loops."""

    # Whether its machine code is kept short.
    is_compact = False

    def __init__(
        self, py_func: Callable[..., Any], locals: Any = None, targetoptions: dict[str, Any] | None = None
    ) -> None:
        super().__init__(py_func, locals, targetoptions)
        self._compiler = LoopCompiler(self, part=False)
        self.part = Part(py_func, self.targetoptions)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The signature that a calling loop sees."""
        return self.part.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """The code that a calling loop is linked with."""
        return self.part.get_overload(sig)

    def compile(self, sig: Any) -> Any:
        """Compile it for Python."""
        with global_compiler_lock, unobserved(), compact() if self.is_compact else contextlib.nullcontext():
            return super().compile(sig)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        with uninterrupted(), uncollected():
            return super()._compile_for_args(*args, **kws)  # type: ignore[misc]
