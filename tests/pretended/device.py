"""A pretended GPU: tensors that say they are on "cuda", and hold their numbers in main memory.

Everything is computed, so a whole training runs, and its results can be compared with those of a CPU. What CUDA refuses
is refused: tensors of two devices in one operation. What CUDA waits for is noted with the line that asked for it: where
the host needs a number of the device, it waits until all that was queued is done. So is what two streams do to the same
memory without waiting for each other (`streams`). Nothing is known of speed, memory and kernels.

`start` makes "cuda" a device of this process, for good. The only kernels of the device are `empty` and `empty_strided`:
all else goes through `Pretended.__torch_dispatch__`, which lies below autograd and autocast, to the kernels of the CPU.
PyTorch's own Python (`torch.cuda`) stays; the functions of its C library that a CPU build lacks are put in place.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import torch
import torch._dynamo  # it looks at more of CUDA where there is some: it has to come first
from torch.utils._pytree import tree_leaves, tree_map

from tests.pretended import streams

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 80 << 30  # bytes that a device says it has


class Wait(NamedTuple):
    """A place where the host waits for the device."""

    kind: str  # "upload" (a copy to the device that blocks), "download", or "value" (a size that depends on numbers)
    operation: str  # PyTorch's name for it
    lines: tuple[str, ...]  # the innermost that are not PyTorch's, the innermost first

    def __str__(self) -> str:
        return f"{self.kind:<9}{self.operation:<28}{' < '.join(self.lines)}"


_waits: list[Wait] = []  # of all threads
_VALUES = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero"}
_VALUES |= {"aten::_unique2", "aten::unique_dim", "aten::unique_consecutive"}
_COPIES = {"aten::copy_", "aten::_to_copy", "aten::_copy_from_and_resize"}
_INDEXING = {"aten::index", "aten::_unsafe_index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_NOT_SHOWN = ("/site-packages/torch/", "/site-packages/accelerate/", "/contextlib.py", str(Path(__file__)))


@contextlib.contextmanager
def waiting() -> Iterator[list[Wait]]:
    found: list[Wait] = []
    first = len(_waits)
    try:
        yield found
    finally:
        found += _waits[first:]


def _wait(kind: str, operation: str, depth: int = 4) -> None:
    frame, lines = sys._getframe(1), list[str]()
    while frame is not None and len(lines) < depth:
        file = frame.f_code.co_filename
        if not any(part in file for part in _NOT_SHOWN):
            short = file.rpartition("site-packages/")[2].removeprefix(f"{ROOT}/")
            lines.append(f"{short}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    _waits.append(Wait(kind, operation.removeprefix("aten::"), tuple(lines)))


class Pretended(torch.Tensor):
    """A tensor on a pretended GPU; `inner` holds its numbers, and views share their `memory`."""

    inner: torch.Tensor
    memory: streams.Memory
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(
        cls, inner: torch.Tensor, device: torch.device, memory: streams.Memory | None = None, what: str = "empty"
    ) -> Pretended:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=device,
        )
        made.inner = inner
        made.memory = memory or streams.Memory(_stream(device), what)
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Pretended({self.inner}, device='{self.device}')"

    def __reduce_ex__(self, protocol: Any) -> Any:  # files hold ordinary tensors
        return self.inner.__reduce_ex__(protocol)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu()")

    def record_stream(self, stream: Any) -> None:
        self.memory.kept.add(streams.key(stream))

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.inner.untyped_storage()

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, value: Pretended) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.inner, self.memory = value.inner, value.memory

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        ours = {id(tensor.inner): tensor for tensor in tensors if isinstance(tensor, Pretended)}
        device = next(iter(ours.values())).device if ours else torch.device("cuda", current())
        written = {
            id(leaf) for n, key in _writes(func) for leaf in tree_leaves(args[n] if n < len(args) else kwargs.get(key))
        }
        _refuse_mixes(func, args, kwargs, tensors, written)
        waits, stream = _note_waits(name, args, kwargs, device), _stream(device)
        for other in {tensor.device for tensor in ours.values()} - {device}:
            streams.wait(stream, streams.reached(_stream(other)))  # as copies between two devices do
        streams.launch(stream)
        for tensor in ours.values():
            tensor.memory.use(stream, name, id(tensor) in written)
        if kwargs.get("device") is not None:
            device, kwargs["device"] = _indexed(torch.device(kwargs["device"])), torch.device("cpu")
        # where autocast is on for both, what is computed for the GPU follows the GPU's
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            wider = name in ("aten::mm", "aten::addmm") and "dtype" in func._overloadname
            run = functools.partial(_widening, func) if wider else func
            out = run(*tree_map(_inner, list(args)), **tree_map(_inner, kwargs))
        if waits:
            streams.wait_on_host(streams.reached(stream))
        memories = {tensor.inner.untyped_storage()._cdata: tensor.memory for tensor in ours.values()}
        for tensor in ours.values():
            if tensor.inner.shape != tensor.shape:  # it was resized or reshaped in place
                tensor.data = Pretended(tensor.inner, tensor.device, tensor.memory)

        def outer(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or device.type == "cpu":
                return value
            if id(value) in ours:
                return ours[id(value)]
            return Pretended(value, device, memories.get(value.untyped_storage()._cdata), name)

        return tree_map(outer, out)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, Pretended) else value


def _indexed(device: torch.device) -> torch.device:
    return torch.device("cuda", current()) if device.type == "cuda" and device.index is None else device


def _stream(device: torch.device) -> streams.Stream:
    return device.index, int(_guard.pretended_stream(device.index, -1))


@functools.cache
def _writes(func: Any) -> list[tuple[int, str]]:
    """Return the places and names of the arguments that an operation writes."""
    return [(place, one.name) for place, one in enumerate(func._schema.arguments) if one.is_write]


def _refuse_mixes(func: Any, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor], written: set[int]) -> None:
    """Raise what CUDA raises where two devices meet. A single number of the CPU may meet tensors of a GPU."""
    name, generator = func._schema.name, kwargs.get("generator")
    if generator is not None and _Generator.known.get(generator._cdata, generator).device.type != "cuda":
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    if name in _COPIES:
        return
    if name in _INDEXING:  # CUDA takes indices of the CPU, and moves them
        indices = [index for index in args[1] if isinstance(index, torch.Tensor)]
        if any(index.device not in (args[0].device, torch.device("cpu")) for index in indices):
            raise RuntimeError(f"indices should be on the same device as the indexed tensor ({args[0].device})")
        tensors = [args[0], *(value for value in args[2:3] if isinstance(value, torch.Tensor))]
    met = {one.device for one in tensors if one.dim() or one.device.type != "cpu" or id(one) in written}
    if len(met) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, not on {sorted(map(str, met))} (in {name})")


def _note_waits(name: str, args: Any, kwargs: dict[str, Any], device: torch.device) -> bool:
    """Note the waits of an operation, and return whether there are any."""
    before = len(_waits)
    if name in _VALUES:
        _wait("value", name)
    elif name in _INDEXING:
        for index in args[1]:
            if isinstance(index, torch.Tensor) and index.device.type == "cpu" and device.type == "cuda":
                _wait("upload", name)
            if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
                _wait("value", name)
    elif name == "aten::repeat_interleave" and len(args) == 1 and kwargs.get("output_size") is None:
        _wait("value", name)
    elif name in _COPIES and not (kwargs.get("non_blocking") or (name == "aten::copy_" and args[2:3] == (True,))):
        target = args[0].device if name == "aten::copy_" else torch.device(kwargs.get("device") or device)
        source = args[1].device if name == "aten::copy_" else args[0].device
        if source.type != target.type:
            _wait("upload" if source.type == "cpu" else "download", name)
    return len(_waits) > before


def _widening(func: Any, *args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
    """Multiply 16-bit matrices into a wider type (`mm.dtype`, `addmm.dtype_out`), for which the CPU has no kernel."""
    *matrices, dtype = args
    product = getattr(torch, func._schema.name.removeprefix("aten::"))
    made: torch.Tensor = product(*(matrix.to(dtype) for matrix in matrices), **kwargs)
    return made if out is None else out.copy_(made)


# ---- the device itself

_library: Any = None  # its kernels live as long as it does
_guard: Any = None


def current() -> int:
    return int(_guard.pretended_device(-1))


def start(devices: int = 1) -> None:
    """Make "cuda" a device of this process, for good.

    Raises:
        RuntimeError: this PyTorch is built for CUDA.
    """
    global _guard, _library
    if torch.version.cuda or torch.version.hip:
        raise RuntimeError(f"a pretended GPU needs PyTorch for the CPU, and this is {torch.__version__}")

    _guard = ctypes.CDLL(str(_built()))
    _guard.pretended_stream.restype = ctypes.c_long
    _guard.pretended_stream.argtypes = [ctypes.c_int, ctypes.c_long]
    _guard.pretended_start(devices)
    _library = torch.library.Library("aten", "IMPL")
    _library.impl("empty.memory_format", _empty, "CUDA")
    _library.impl("empty_strided", _empty_strided, "CUDA")
    _fill_in_what_a_cpu_build_lacks(devices)
    # as on CUDA, a parameter that is moved to the device stays the same object
    torch.__future__.set_swap_module_params_on_conversion(True)
    # `torch.tensor` fills main memory and moves it then. Whether our kernels see that is a switch of each thread.
    torch._C._set_only_lift_cpu_tensors(True)
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def begin_lifting(thread: threading.Thread) -> None:
        torch._C._set_only_lift_cpu_tensors(True)
        begin(thread)

    threading.Thread._bootstrap_inner = begin_lifting  # type: ignore[attr-defined]


def _built() -> Path:
    """Return the compiled guard; it is built where there is none of this source and this PyTorch: 7 s."""
    from torch.utils.cpp_extension import include_paths, library_paths

    source = Path(__file__).with_name("guard.cpp")
    name = hashlib.sha256(source.read_bytes() + torch.__version__.encode()).hexdigest()[:12]
    target = ROOT / "build" / "pretended" / f"guard-{name}.so"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_suffix(f".{threading.get_native_id()}")
        places = [*(f"-I{path}" for path in include_paths()), *(f"-L{path}" for path in library_paths())]
        options = ["-O0", "-std=c++20", "-shared", "-fPIC"]
        options.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
        subprocess.run(["g++", *options, *places, str(source), "-o", str(new), "-ltorch_cpu", "-lc10"], check=True)
        new.replace(target)
    return target


def _empty(size: Any, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> torch.Tensor:
    inner = torch.empty(size, dtype=dtype, device="cpu", memory_format=memory_format or torch.contiguous_format)
    return Pretended(inner, _indexed(device))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    return Pretended(torch.empty_strided(size, stride, dtype=dtype, device="cpu"), _indexed(device))


def _fill_in_what_a_cpu_build_lacks(devices: int) -> None:
    properties = SimpleNamespace(
        name="Pretended", total_memory=MEMORY, major=9, minor=0, multi_processor_count=132, gcnArchName=""
    )

    def visible() -> int:
        listed = os.environ.get("CUDA_VISIBLE_DEVICES")
        return devices if listed is None else min(devices, len(listed.split(","))) if listed else 0

    def exchange(index: int) -> int:
        return int(_guard.pretended_device(index))

    def synchronize() -> None:
        _wait("value", "synchronize")
        streams.wait_on_host(streams.given(current()))

    def stream_data(device: int, stream: int | None = None) -> tuple[int, int, int]:
        device = current() if device is None or device < 0 else device
        return (int(_guard.pretended_stream(device, -1)) if stream is None else stream, device, streams.CUDA)

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        _guard.pretended_stream(device_index, stream_id)

    idle = ("init", "emptyCache", "resetPeakMemoryStats", "resetAccumulatedMemoryStats")
    c: dict[str, Any] = {
        **dict.fromkeys(idle, lambda *_: None),
        **dict.fromkeys(("setDevice", "exchangeDevice", "maybeExchangeDevice"), exchange),
        "isInBadFork": False,
        "getDeviceCount": visible,
        "getDevice": current,
        "synchronize": synchronize,
        "memoryStats": lambda device: {},
        "getCurrentStream": stream_data,
        "getDefaultStream": lambda device: stream_data(device, 0),
        "setStream": set_stream,
    }
    torch._C._has_cuda = True
    for name, value in c.items():
        setattr(torch._C, f"_cuda_{name}", value)
    cuda: dict[str, Any] = {
        "_initialized": True,
        "_exchange_device": exchange,
        "_maybe_exchange_device": exchange,
        "_get_device_properties": lambda device: properties,
        "get_device_properties": lambda device=None: properties,
        "device_count": visible,
        "mem_get_info": lambda device=None: (MEMORY, MEMORY),
        "default_generators": (torch.default_generator,) * devices,
    }
    for name, value in cuda.items():
        setattr(torch.cuda, name, value)
    torch.Generator = _Generator  # type: ignore[misc]
    for base, ours in ((torch._C._CudaStreamBase, streams.StreamBase), (torch._C._CudaEventBase, streams.EventBase)):
        for name, value in vars(ours).items():
            if callable(value) or isinstance(value, (property, staticmethod)):
                setattr(base, name, value)


class _Generator(torch.Generator):
    """Random numbers of the CPU, for a device. PyTorch hands on what it holds, so that it is known by its address."""

    known: ClassVar[weakref.WeakValueDictionary[int, _Generator]] = weakref.WeakValueDictionary()

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made = super().__new__(cls)
        made.place = _indexed(torch.device(device))
        cls.known[made._cdata] = made
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place  # type: ignore[no-any-return, has-type]
