"""PyTorch's two weights formats, read without torch and without unpickling: tensors and nothing else.

A pickle is a small program. Python's unpickler runs it by importing and calling what it names; the machine below runs
the few instructions that `torch.save` needs for a dictionary of tensors, on values of its own, and can neither import
nor call anything. The formats are those of torch 2.13's serialization.py: a zip archive (`_load`) and the older stream
of pickles followed by raw storages (`_legacy_load`), which is what checkpoints of 2020 such as opus-mt hold.
"""

from __future__ import annotations

import math
import pickletools
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NoReturn, cast

from onnxmt.errors import CheckpointError, UnsafePickleError
from onnxmt.mapped_file import MappedFile, StoredTensor, item_size, shown, sizes

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
STORAGES = {
    "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16", "DoubleStorage": "float64",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip
CALLS = {
    ("collections", "OrderedDict"): "dict",
    ("torch._utils", "_rebuild_tensor"): "tensor",
    ("torch._utils", "_rebuild_tensor_v2"): "tensor",
    ("torch._utils", "_rebuild_parameter"): "parameter",
}
ADVICE = (
    "nothing of it was run; if you trust its origin, load it with PyTorch and save the weights as model.safetensors"
)


# What zipfile raises for an archive that is cut short or damaged somewhere: found by damaging archives.
ZIP_FAULTS = (
    zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, OverflowError, IndexError, OSError,
)  # fmt: skip


@dataclass(frozen=True)
class _Call:
    """One of the four functions that a file of tensors may name."""

    kind: str


@dataclass(frozen=True)
class _StorageType:
    dtype: str


@dataclass(frozen=True)
class _Storage:
    """A run of `count` numbers: those from `first` on of the storage that the file stores under `key`."""

    key: str
    dtype: str
    stored: int
    first: int
    count: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Place:
    """Where a stored storage lies in the file, in bytes."""

    start: int
    length: int


def read_torch_file(file: MappedFile) -> dict[str, StoredTensor]:
    """Return the tensors of a `torch.save` file by name, none of them read yet.

    UnsafePickleError when the file names anything but tensors; CheckpointError when it is damaged or of another kind.
    """
    if file.data[:4] == b"PK\x03\x04":
        return _read_zip(file)
    if file.data[:1] == b"\x80":
        return _read_legacy(file)
    raise CheckpointError(f"{file.path} is not a PyTorch weights file: {file.beginning()}")


def _read_zip(file: MappedFile) -> dict[str, StoredTensor]:
    entries = _zip_entries(file)
    roots = [name.removesuffix("/data.pkl") for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(roots) != 1:
        raise CheckpointError(f"{file.path} is a zip archive but no PyTorch weights file: it has no single */data.pkl")
    root = roots[0]
    order = b"little"
    if (mark := entries.get(f"{root}/byteorder")) is not None:
        order = file.data[mark.start : mark.start + mark.length]
    if order not in (b"little", b"big"):
        raise CheckpointError(f"{file.path} has the byte order {shown(repr(order))}; expected little or big")
    pickled = entries[f"{root}/data.pkl"]
    stream = BytesIO(file.data[pickled.start : pickled.start + pickled.length])
    result = _Machine(file, persistent_fields=4).run(stream)
    prefix = f"{root}/data/"
    places = {name.removeprefix(prefix): place for name, place in entries.items() if name.startswith(prefix)}
    return _state_dict(file, result, places, big_endian=order == b"big")


def _zip_entries(file: MappedFile) -> dict[str, _Place]:
    """The places of the archive's entries, which torch always stores uncompressed."""
    try:
        file.data.seek(0)
        with zipfile.ZipFile(cast(Any, file.data)) as archive:
            members = archive.infolist()
    except ZIP_FAULTS as error:
        raise CheckpointError(f"{file.path} is a damaged zip archive ({error}): copy or download it again") from error
    if any(member.filename.endswith("/constants.pkl") for member in members):
        raise CheckpointError(f"{file.path} is a TorchScript program, not weights: save its state_dict() instead")
    entries: dict[str, _Place] = {}
    for member in members:
        where = f"{file.path}: the archive's entry {shown(member.filename)}"
        if member.filename in entries:
            raise CheckpointError(f"{where} is there twice")
        stored = member.compress_type == zipfile.ZIP_STORED and member.file_size == member.compress_size
        if not stored or member.flag_bits & 1:
            raise CheckpointError(f"{where} is compressed or encrypted, which torch.save never does: save it again")
        header = file.data[member.header_offset : member.header_offset + 30] if member.header_offset >= 0 else b""
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise CheckpointError(f"{where} does not begin where the archive says: the file is damaged")
        # The two lengths must be the local header's own: torch pads it there, to align the data to 64 bytes.
        name_length, extra_length = struct.unpack("<HH", header[26:30])
        start = member.header_offset + 30 + name_length + extra_length
        if start + member.file_size > file.size:
            raise CheckpointError(f"{where} ends beyond the file's {file.size} bytes: the file is cut short")
        entries[member.filename] = _Place(start, member.file_size)
    return entries


def _read_legacy(file: MappedFile) -> dict[str, StoredTensor]:
    stream = file.data
    stream.seek(0)
    magic = _Machine(file, persistent_fields=0).run(stream)
    if magic != MAGIC_NUMBER:
        raise CheckpointError(f"{file.path} is a pickle, but not one of torch.save: its magic number is not there")
    version = _Machine(file, persistent_fields=0).run(stream)
    if version != PROTOCOL_VERSION:
        raise CheckpointError(f"{file.path} has an unknown PyTorch protocol; {PROTOCOL_VERSION} is known")
    _Machine(file, persistent_fields=0).run(stream)  # the writer's system: storages are little-endian whatever it says
    machine = _Machine(file, persistent_fields=5)
    result = machine.run(stream)
    keys = _Machine(file, persistent_fields=0).run(stream)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise CheckpointError(f"{file.path} is damaged: the list of its storages is not a list of keys")
    return _state_dict(file, result, _legacy_places(file, keys, machine.storages, stream.tell()))


def _legacy_places(
    file: MappedFile, keys: list[str], storages: Mapping[str, _Storage], position: int
) -> dict[str, _Place]:
    """The places of the storages, which follow each other after the last pickle, each behind its own 8-byte count."""
    places: dict[str, _Place] = {}
    for key in keys:
        where = f"{file.path}: the storage {shown(key)}"
        if key not in storages or key in places:
            raise CheckpointError(f"{where} is listed {'twice' if key in places else 'but not used'}: damaged file")
        count = int.from_bytes(file.data[position : position + 8], "little", signed=True)
        if position + 8 > file.size:
            raise CheckpointError(f"{where} begins beyond the file's {file.size} bytes: the file is cut short")
        if count != storages[key].stored:
            raise CheckpointError(f"{where} has {count} numbers, and its tensors expect {storages[key].stored}")
        length = count * item_size(storages[key].dtype)
        if position + 8 + length > file.size:
            raise CheckpointError(
                f"{where} ends at byte {position + 8 + length} and the file has {file.size}: it is cut short; "
                "copy or download it again"
            )
        places[key] = _Place(position + 8, length)
        position += 8 + length
    return places


def _state_dict(
    file: MappedFile, result: object, places: Mapping[str, _Place], *, big_endian: bool = False
) -> dict[str, StoredTensor]:
    """Check that `result` is a dictionary of tensors whose numbers all lie in the file, and place them."""
    if not isinstance(result, dict):
        raise CheckpointError(f"{file.path} holds a {_kind(result)}, where a dictionary of tensors is expected")
    tensors = {}
    for name, value in result.items():
        where = f"{file.path}: the weight {shown(name)}"
        if not isinstance(name, str) or not isinstance(value, _Tensor):
            raise CheckpointError(
                f"{file.path} is no plain dictionary of tensors: its entry {shown(name)} is a {_kind(value)}. "
                "Save the model's state_dict() alone"
            )
        storage = value.storage
        place = places.get(storage.key)
        if place is None:
            raise CheckpointError(f"{where} lies in the storage {shown(storage.key)}, which the file does not have")
        size = item_size(storage.dtype)
        if place.length != storage.stored * size:
            raise CheckpointError(
                f"{where}: its storage {shown(storage.key)} has {place.length} bytes, "
                f"and {storage.stored} numbers of {storage.dtype} take {storage.stored * size}"
            )
        _check_extent(file, value, where)
        start = place.start + (storage.first + value.offset) * size
        tensors[name] = StoredTensor(
            file=file, dtype=storage.dtype, shape=value.shape, strides=value.strides, start=start, big_endian=big_endian
        )
    return tensors


def _check_extent(file: MappedFile, tensor: _Tensor, where: str) -> None:
    storage = tensor.storage
    if storage.first + storage.count > storage.stored:
        raise CheckpointError(f"{where} views numbers beyond the end of its storage of {storage.stored}")
    if 0 in tensor.shape:
        return
    last = tensor.offset + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.strides, strict=True))
    if last >= storage.count:
        raise CheckpointError(f"{where} reaches number {last} of a storage that has {storage.count}")
    # A stride of 0 repeats numbers, so that a small file can describe a tensor of any size. Repeating is allowed only
    # as far as memory stays in proportion to the file.
    if math.prod(tensor.shape) > file.size:
        raise CheckpointError(f"{where} has the shape {tensor.shape}: more numbers than the file's {file.size} bytes")


class _Machine:
    """Runs one pickle for tensors alone; `storages` are those that it named, by key."""

    def __init__(self, file: MappedFile, *, persistent_fields: int) -> None:
        self.storages: dict[str, _Storage] = {}
        self._file = file
        self._persistent_fields = persistent_fields
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self, stream: Any) -> object:
        """Run the pickle that begins at the stream's position, and leave the stream behind its end."""
        try:
            for opcode, argument, _ in pickletools.genops(stream):
                if opcode.name == "STOP":
                    return self._stack.pop()
                if opcode.name not in _INSTRUCTIONS:
                    self._refuse(opcode.name, argument)
                _INSTRUCTIONS[opcode.name](self, argument)
        except CheckpointError:
            raise
        except (ValueError, IndexError, KeyError, TypeError, struct.error, OverflowError) as error:
            raise self._damaged(str(error)) from error
        raise self._damaged("it has no end")

    def _damaged(self, detail: str) -> CheckpointError:
        detail = " ".join(detail.split())
        return CheckpointError(f"{self._file.path} is cut short or damaged in its pickle part: {detail}")

    def _refuse(self, opcode: str, argument: object) -> NoReturn:
        """INST, OBJ, NEWOBJ, EXT…, BUILD on an object: ways to make what is not a tensor."""
        name = f" {shown(argument.replace(' ', '.', 1))}" if isinstance(argument, str) else ""
        raise UnsafePickleError(
            f"{self._file.path} is refused: it holds the pickle instruction {opcode}{name}, "
            f"which a file of tensors does not need; {ADVICE}"
        )

    def _since_mark(self) -> list[Any]:
        mark = self._marks.pop()
        items = self._stack[mark:]
        del self._stack[mark:]
        return items

    # The instructions. Each takes the instruction's argument, where it has one.

    def ignore(self, _: object) -> None:
        """PROTO and FRAME change nothing here."""

    def push(self, value: object) -> None:
        self._stack.append(value)

    def mark(self, _: object) -> None:
        self._marks.append(len(self._stack))

    def put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def memoize(self, _: object) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    def tuple_of(self, count: int) -> None:
        items = tuple(self._stack[len(self._stack) - count :])
        if len(items) != count:
            raise IndexError("a tuple of more values than there are")
        del self._stack[len(self._stack) - count :]
        self._stack.append(items)

    def tuple_since_mark(self, _: object) -> None:
        self._stack.append(tuple(self._since_mark()))

    def append(self, _: object) -> None:
        value = self._stack.pop()
        self._top(list).append(value)

    def appends(self, _: object) -> None:
        values = self._since_mark()
        self._top(list).extend(values)

    def set_item(self, _: object) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set(key, value)

    def set_items(self, _: object) -> None:
        items = self._since_mark()
        for key, value in zip(items[::2], items[1::2], strict=True):
            self._set(key, value)

    def _set(self, key: object, value: object) -> None:
        if not isinstance(key, (str, int)):
            raise TypeError("a dictionary key that is neither text nor a number")
        self._top(dict)[key] = value

    def _top(self, kind: type[Any]) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise TypeError(f"a {_kind(self._stack[-1])} where a {kind.__name__} is expected")
        return self._stack[-1]

    def named(self, argument: str) -> None:
        """GLOBAL: genops joins module and name with a space."""
        module, _, name = argument.partition(" ")
        self._push_global(module, name)

    def named_on_stack(self, _: object) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._push_global(module, name)

    def _push_global(self, module: object, name: object) -> None:
        if isinstance(module, str) and isinstance(name, str):
            if module in ("torch", "torch.cuda") and name in STORAGES:
                return self._stack.append(_StorageType(STORAGES[name]))
            if (module, name) in CALLS:
                return self._stack.append(_Call(CALLS[module, name]))
        texts = isinstance(module, str) and isinstance(name, str)
        full = shown(f"{module}.{name}") if texts else "something without a name"
        raise UnsafePickleError(
            f"{self._file.path} is refused: it names {full}, and a weights file may name only tensors; {ADVICE}"
        )

    def reduce(self, _: object) -> None:
        arguments, call = self._stack.pop(), self._stack.pop()
        if not isinstance(call, _Call) or not isinstance(arguments, tuple):
            raise TypeError(f"a call of a {_kind(call)} with a {_kind(arguments)}")
        if call.kind == "dict" and arguments == ():
            self._stack.append({})
        elif call.kind == "dict" and len(arguments) == 1 and isinstance(arguments[0], list):  # as Python 2 pickled it
            self._stack.append({})
            for key, value in arguments[0]:
                self._set(key, value)
        elif call.kind == "parameter" and len(arguments) == 3 and isinstance(arguments[0], _Tensor):
            self._stack.append(arguments[0])
        elif call.kind == "tensor" and 4 <= len(arguments) <= 7:
            self._stack.append(self._tensor(*arguments[:4]))
        else:
            raise TypeError(f"a {call.kind} made from {len(arguments)} unexpected values")

    def _tensor(self, storage: object, offset: object, shape: object, strides: object) -> _Tensor:
        where = f"{self._file.path}: a tensor"
        if not isinstance(storage, _Storage):
            raise TypeError("a tensor without a storage")
        (first,) = sizes((offset,), "storage offset", where)
        checked_shape, checked_strides = sizes(shape, "shape", where), sizes(strides, "strides", where)
        if len(checked_shape) != len(checked_strides):
            raise CheckpointError(f"{where} has {len(checked_shape)} sizes and {len(checked_strides)} strides")
        return _Tensor(storage, first, checked_shape, checked_strides)

    def build(self, _: object) -> None:
        """Attributes of a dictionary, such as the version numbers of a state_dict's modules, are not needed."""
        self._stack.pop()
        if not isinstance(self._stack[-1], dict):
            self._refuse("BUILD", None)

    def persistent(self, _: object) -> None:
        """A storage: ('storage', type, key, device, count); the legacy stream adds a view (key, first, count)."""
        identity = self._stack.pop()
        fields = self._persistent_fields
        if not isinstance(identity, tuple) or not fields or len(identity) != fields + 1 or identity[0] != "storage":
            raise TypeError("a persistent id that is not a storage")
        kind, key, _, count = identity[1:5]
        if not isinstance(kind, _StorageType) or not isinstance(key, str):
            raise TypeError("a storage without a type or a key")
        (stored,) = sizes((count,), "storage size", f"{self._file.path}: the storage {shown(key)}")
        known = self.storages.setdefault(key, _Storage(key, kind.dtype, stored, 0, stored))
        if (known.dtype, known.stored) != (kind.dtype, stored):
            raise TypeError("two different descriptions of one storage")
        view = identity[5] if fields == 5 else None
        if view is not None:
            if not isinstance(view, tuple) or len(view) != 3:
                raise TypeError("a storage view that is not (key, first, count)")
            first, length = sizes(view[1:], "storage view", f"{self._file.path}: the storage {shown(key)}")
            known = _Storage(key, kind.dtype, stored, first, length)
        self._stack.append(known)


def _kind(value: object) -> str:
    """The type of a value of the machine, as a person would name it; never its content, which may be endless."""
    return type(value).__name__.strip("_").lower()


_Instruction = Callable[[_Machine, Any], None]
# Those that pickle protocols 2 to 5 use for dictionaries of tensors. Everything else is refused.
_INSTRUCTIONS: dict[str, _Instruction] = {
    "PROTO": _Machine.ignore, "FRAME": _Machine.ignore, "MARK": _Machine.mark,
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    **dict.fromkeys(
        ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
         "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES"),
        _Machine.push,
    ),
    "BINPUT": _Machine.put, "LONG_BINPUT": _Machine.put, "MEMOIZE": _Machine.memoize,
    "BINGET": _Machine.get, "LONG_BINGET": _Machine.get,
    "TUPLE": _Machine.tuple_since_mark,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": _Machine.append, "APPENDS": _Machine.appends,
    "SETITEM": _Machine.set_item, "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.named, "STACK_GLOBAL": _Machine.named_on_stack,
    "REDUCE": _Machine.reduce, "BUILD": _Machine.build, "BINPERSID": _Machine.persistent,
}  # fmt: skip
