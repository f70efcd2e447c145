"""PyTorch files, honest, damaged and malicious: tensors or one clear error, and nothing that a file names ever runs."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxmt.errors import CheckpointError, UnsafePickleError
from onnxmt.weights import Weights, open_weights
from tests.checkpoint.writers import (
    MAGIC,
    PROTOCOL,
    call,
    group,
    listed,
    mapping,
    named,
    number,
    program,
    read_or_refuse,
    storage,
    tensor,
    text,
    torch_legacy,
    torch_zip,
    write,
)

TEN = np.arange(10, dtype=np.float32).tobytes()
Body = Callable[[bytes | None], bytes]  # of the storages' fifth field: None in a zip, "no view" in a legacy stream


def save(folder: Path, kind: str, body: Body, storages: dict[str, bytes] | None = None, **extra: bytes) -> Path:
    places = {"0": TEN} if storages is None else storages
    whole = torch_zip(body(None), places, **extra) if kind == "zip" else torch_legacy(body(b"N"), places)
    return write(folder / "pytorch_model.bin", whole)


def simple(view: bytes | None) -> bytes:
    return mapping({"w": tensor(storage("0", 10, view=view), (2, 3), offset=4)})


both = pytest.mark.parametrize("kind", ["zip", "legacy"])


def opened(folder: Path) -> Weights:
    return open_weights(folder)


# Honest files, built byte by byte from the format's description.


@both
def test_a_hand_made_file(tmp_path: Path, kind: str) -> None:
    save(tmp_path, kind, simple)
    with opened(tmp_path) as weights:
        assert weights.read("w").tolist() == [[4, 5, 6], [7, 8, 9]]


@both
def test_old_spellings(tmp_path: Path, kind: str) -> None:
    """Parameters, _rebuild_tensor without v2, storages of CUDA, an OrderedDict made of pairs as Python 2 pickled it."""

    def body(view: bytes | None) -> bytes:
        first = call(named("torch._utils", "_rebuild_tensor"), storage("0", 10, view=view, module="torch.cuda"), number(1),
                     group(number(2)), group(number(3)))  # fmt: skip
        hooks = call(named("collections", "OrderedDict"))
        parameter = call(named("torch._utils", "_rebuild_parameter"), first, b"\x88", hooks)
        pairs = listed(listed(text("p"), parameter), listed(text("q"), first))
        return call(named("collections", "OrderedDict"), pairs)

    save(tmp_path, kind, body)
    with opened(tmp_path) as weights:
        assert weights.read("p").tolist() == [1, 4]
        assert weights.read("q").tolist() == [1, 4]
        assert weights.same_storage("p", "q")


def test_storage_views_of_old_torch(tmp_path: Path) -> None:
    view = group(text("view"), number(5), number(5))
    body = mapping({"w": tensor(storage("0", 10, view=view), (2,), offset=1)})
    write(tmp_path / "pytorch_model.bin", torch_legacy(body, {"0": TEN}))
    with opened(tmp_path) as weights:
        assert weights.read("w").tolist() == [6, 7]
    beyond = mapping({"w": tensor(storage("0", 10, view=group(text("view"), number(5), number(6))), (2,))})
    write(tmp_path / "pytorch_model.bin", torch_legacy(beyond, {"0": TEN}))
    with pytest.raises(CheckpointError, match="views numbers beyond the end of its storage of 10"):
        opened(tmp_path)
    outside = mapping({"w": tensor(storage("0", 10, view=view), (2,), offset=4)})
    write(tmp_path / "pytorch_model.bin", torch_legacy(outside, {"0": TEN}))
    with pytest.raises(CheckpointError, match="reaches number 5 of a storage that has 5"):
        opened(tmp_path)


def test_a_big_endian_archive(tmp_path: Path) -> None:
    data = np.arange(10, dtype=">f4").tobytes()
    save(tmp_path, "zip", simple, {"0": data}, byteorder=b"big")
    with opened(tmp_path) as weights:
        assert weights.read("w").tolist() == [[4, 5, 6], [7, 8, 9]]
        assert weights.read("w").dtype.isnative
    save(tmp_path, "zip", simple, {"0": TEN}, byteorder=b"middle")
    with pytest.raises(CheckpointError, match=r"byte order .*middle.*expected little or big"):
        opened(tmp_path)


# Malicious files. `canary` is a file that every one of them tries to make.


class Attack:
    """Pickles as a call of anything."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def attacks(canary: Path) -> dict[str, tuple[bytes, str]]:
    """Pickles without header, and the global that each is refused for."""
    command = f"touch {canary}"
    code = f"open({str(canary)!r}, 'w')"
    system = "posix.system" if os.name == "posix" else "nt.system"

    def pickled(value: Any, protocol: int = 2) -> bytes:
        return pickle.dumps(value, protocol=protocol)

    shell = named("os", "system") + group(text(command)) + b"R"
    return {
        "os.system": (pickled(Attack(os.system, command)), system),
        "builtins.eval": (pickled(Attack(eval, code)), "__builtin__.eval"),
        "exec in protocol 4": (pickled(Attack(exec, code), 4), "builtins.exec"),
        "protocol 0": (pickled(Attack(os.system, command), 0), system),
        "by hand": (program(shell), "os.system"),
        "nested in the dictionary": (pickled({"w": {"deep": [(Attack(os.system, command),)]}}), system),
        "as a dictionary key": (pickled({Attack(eval, code): 1}), "__builtin__.eval"),
        "getattr": (program(call(named("builtins", "getattr"), named("os", "system"), text("x"))), "builtins.getattr"),
        "getattr of an allowed global": (
            program(call(named("builtins", "getattr"), named("torch._utils", "_rebuild_tensor"), text("__globals__"))),
            "builtins.getattr",
        ),
        "operator.attrgetter": (program(call(named("operator", "attrgetter"), text("x"))), "operator.attrgetter"),
        "import alone": (program(named("antigravity", "x")), "antigravity.x"),
        "module of a dotted name": (program(named("collections", "OrderedDict.fromkeys")), "collections.OrderedDict.fromkeys"),
        "torch.load": (program(call(named("torch", "load"), text("x"))), "torch.load"),
        "torch's own eval": (program(call(named("torch._utils", "_import_dotted_name"), text("os"))), "_import_dotted_name"),
        "hub": (program(call(named("torch.hub", "load"), text("x"))), "torch.hub.load"),
        "storage of another module": (program(named("os", "FloatStorage")), "os.FloatStorage"),
        "unknown storage": (program(named("torch", "EvilStorage")), "torch.EvilStorage"),
        "stack global": (b"\x80\x04" + text("os") + text("system") + b"\x93" + text(command) + b"\x85R.", "os.system"),
        "stack global of numbers": (b"\x80\x04" + number(1) + number(2) + b"\x93.", "something without a name"),
        "inst": (b"(" + text(command) + b"ios\nsystem\n.", "INST 'os.system'"),
        "obj": (b"(" + named("os", "system") + text(command) + b"o.", "os.system"),
        "obj of an allowed global": (b"(" + named("collections", "OrderedDict") + b"o.", "OBJ"),
        "newobj": (program(named("collections", "OrderedDict") + b")\x81"), "NEWOBJ"),
        "newobj_ex": (b"\x80\x04" + named("collections", "OrderedDict") + b")}\x92.", "NEWOBJ_EX"),
        "extension code": (program(b"\x82\x01"), "EXT1"),
        "persistent id as text": (b"Pevil\n.", "PERSID"),
        "build on a tensor": (
            program(mapping({"w": tensor(storage("0", 10), (2,)) + b"}(" + text("__class__") + number(1) + b"ub"})),
            "BUILD",
        ),
        "next buffer": (b"\x80\x05\x97.", "NEXT_BUFFER"),
    }  # fmt: skip


NAMES = list(attacks(Path("x")))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Python imports, compiles, executes, opens for writing or starts, as it tells its audit hooks."""
    events: list[str] = []
    active = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not active:
            return
        if event in (
            "import",
            "exec",
            "compile",
            "os.system",
            "os.posix_spawn",
            "subprocess.Popen",
            "pickle.find_class",
        ):
            events.append(event)
        elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            events.append(f"open {arguments[0]}")

    sys.addaudithook(hook)
    yield events
    active.clear()  # a hook cannot be removed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["zip", "legacy first", "legacy body", "legacy keys"])
def test_a_malicious_file_runs_nothing(tmp_path: Path, watched: list[str], place: str, name: str) -> None:
    canary = tmp_path / "canary"
    attack, forbidden = attacks(canary)[name]
    path = tmp_path / "pytorch_model.bin"
    honest = program(simple(b"N"))
    if place == "zip":
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("archive/data.pkl", attack)
            archive.writestr("archive/data/0", TEN)
        path.write_bytes(out.getvalue())
    elif place == "legacy first":
        if attack[:1] != b"\x80":
            attack = b"\x80\x02" + attack
        path.write_bytes(attack)
    else:
        parts = {"legacy body": attack + program(listed()), "legacy keys": honest + attack}
        path.write_bytes(MAGIC + PROTOCOL + program(mapping({})) + parts[place])
    modules = set(sys.modules)
    watched.clear()
    error = UnsafePickleError
    if name == "build on a tensor" and place != "zip":  # where no storage may be named, that is the first fault
        error = CheckpointError
        forbidden = ""
    with pytest.raises(error) as caught:
        open_weights(tmp_path)
    seen = list(watched)
    assert seen == []
    assert not canary.exists()
    assert set(sys.modules) == modules
    assert str(path) in str(caught.value)
    assert forbidden in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_audit_would_have_seen_it(tmp_path: Path, watched: list[str]) -> None:
    """The proof above is worth something only if the real unpickler trips it on the same bytes."""
    canary = tmp_path / "canary"
    pickle.loads(attacks(canary)["os.system"][0])
    assert canary.exists()
    assert "pickle.find_class" in watched
    assert "os.system" in watched


# Damage: sizes that lie, parts that are absent.


def tensor_of(**changes: Any) -> Body:
    options: dict[str, Any] = {
        "shape": (2, 3),
        "offset": 0,
        "count": 10,
        "key": "0",
        "strides": None,
        "kind": "FloatStorage",
    }
    options.update(changes)

    def body(view: bytes | None) -> bytes:
        place = storage(options["key"], options["count"], view=view, kind=options["kind"])
        return mapping({"w": tensor(place, options["shape"], offset=options["offset"], strides=options["strides"])})

    return body


LIES: dict[str, tuple[Body, str]] = {
    "offset beyond": (tensor_of(offset=5), "'w' reaches number 10 of a storage that has 10"),
    "strides beyond": (tensor_of(strides=(3, 5)), "'w' reaches number 13 of a storage that has 10"),
    "huge stride": (tensor_of(strides=(2**47, 1)), "'w' reaches number 140737488355330"),
    "endless stride": (tensor_of(strides=(2**400, 1)), "an impossible strides"),
    "endless shape": (tensor_of(shape=(2**70,), strides=(1,)), "an impossible shape"),
    "endless product": (tensor_of(shape=(2**40, 2**40), strides=(0, 0)), "the impossible shape"),
    "negative offset": (tensor_of(offset=-1), "an impossible storage offset"),
    "negative size": (tensor_of(shape=(-2,), strides=(1,)), "an impossible shape"),
    "negative stride": (tensor_of(strides=(3, -1)), "an impossible strides"),
    "repeated without end": (tensor_of(shape=(2**30, 2**10), strides=(0, 0)), "more numbers than the file's"),
    "more axes": (tensor_of(strides=(1,)), "2 sizes and 1 strides"),
    "too many axes": (tensor_of(shape=(1,) * 33, strides=(1,) * 33), "no usable shape"),
    "endless storage": (tensor_of(count=2**60), "an impossible storage size"),
    "no tensors": (lambda _: b"}", "holds no tensors at all"),
    "a list": (lambda _: b"]", "holds a list, where a dictionary of tensors"),
    "a tensor": (lambda view: tensor(storage("0", 10, view=view), (1,)), "holds a tensor, where"),
    "a storage": (lambda view: mapping({"w": storage("0", 10, view=view)}), "entry 'w' is a storage"),
    "a number as key": (lambda view: b"}(" + number(3) + tensor(storage("0", 10, view=view), (1,)) + b"u", "entry <int>"),
    "a tensor as key": (lambda view: b"}(" + tensor(storage("0", 10, view=view), (1,)) + b"Nu", "neither text nor a number"),
    "a call without arguments": (lambda _: call(named("torch._utils", "_rebuild_tensor_v2")), "made from 0 unexpected values"),
    "a call of text": (lambda _: call(text("os.system")), "a call of a str"),
    "an odd persistent id": (lambda _: text("storage") + b"Q", "a persistent id that is not a storage"),
    "a module as persistent id": (lambda _: group(text("module"), b"N", b"N", b"N") + b"Q", "not a storage"),
    "a set of no dictionary": (lambda _: b"](" + text("a") + b"Nu", "a list where a dict is expected"),
    "an odd number of items": (lambda _: b"}(" + text("a") + b"u", "damaged"),
    "an empty stack": (lambda _: b"R", "damaged"),
    "an unset memo": (lambda _: b"h\x07", "damaged"),
    "no mark": (lambda _: b"t", "damaged"),
    "an unknown instruction": (lambda _: b"\xff", "damaged"),
    "a short tuple": (lambda _: b"N\x87", "a tuple of more values than there are"),
    "two sizes of one storage": (
        lambda view: mapping({"v": tensor(storage("0", 10, view=view), (1,)), "w": tensor(storage("0", 9, view=view), (1,))}),
        "two different descriptions of one storage",
    ),
}  # fmt: skip


@both
@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(tmp_path: Path, kind: str, lie: str) -> None:
    body, message = LIES[lie]
    path = save(tmp_path, kind, body, {"0": TEN} if b"Storage" in body(None) else {})
    with pytest.raises(CheckpointError, match=message) as caught:
        open_weights(tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_memory_that_a_pickle_asks_for_is_not_taken(tmp_path: Path) -> None:
    """Python's own unpickler makes a table of 2^32 entries for a memo index of 2^31: 34 GB for eight bytes of file."""
    import tracemalloc

    bodies = [
        b"Nr\xff\xff\xff\x7f0",  # LONG_BINPUT with the index 2^31 - 1
        b"\x8e" + struct.pack("<Q", 2**62),  # BINBYTES8 of 4 exabytes
        b"B" + struct.pack("<I", 2**31 - 1) + b"x",
        b"X" + struct.pack("<I", 2**31 - 1) + b"x",
        b"\x8b" + struct.pack("<i", 2**31 - 1) + b"x",
        b"\x95" + struct.pack("<Q", 2**62),
    ]
    for body in bodies:
        for kind in ("zip", "legacy"):
            save(tmp_path, kind, lambda _, body=body: body)
            tracemalloc.start()
            try:
                with pytest.raises(CheckpointError):
                    open_weights(tmp_path)
                assert tracemalloc.get_traced_memory()[1] < 2**20
            finally:
                tracemalloc.stop()


def test_names_in_messages_stay_short_and_on_one_line(tmp_path: Path) -> None:
    for name in ("x" * 10**6, "two\nlines\x1b[31m"):
        save(tmp_path, "zip", lambda _, name=name: mapping({name: b"N"}))
        with pytest.raises(CheckpointError) as caught:
            open_weights(tmp_path)
        assert len(str(caught.value)) < 500
        assert str(caught.value).isprintable()


def test_zip_faults(tmp_path: Path) -> None:
    def refused(data: bytes, message: str) -> None:
        write(tmp_path / "pytorch_model.bin", data)
        with pytest.raises(CheckpointError, match=message):
            open_weights(tmp_path)

    body = simple(None)
    refused(torch_zip(body, {}), "lies in the storage '0', which the file does not have")
    refused(torch_zip(body, {"0": TEN[:-4]}), "its storage '0' has 36 bytes, and 10 numbers of float32 take 40")
    refused(torch_zip(body, {"0": TEN + b"1234"}), "its storage '0' has 44 bytes")
    refused(torch_zip(body, {"0": TEN}, root="a/b"), r"no single \*/data\.pkl")
    refused(torch_zip(body, {"0": TEN}, **{"constants.pkl": b""}), r"a TorchScript program.*state_dict\(\)")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", program(body))
        archive.writestr("archive/data/0", TEN * 100)
    refused(out.getvalue(), "entry 'archive/data.pkl' is compressed or encrypted")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", program(body))
        archive.writestr("archive/data/0", TEN)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("archive/data/0", TEN)
    refused(out.getvalue(), "entry 'archive/data/0' is there twice")
    whole = bytearray(torch_zip(body, {"0": TEN}))
    whole[whole.rindex(b"PK\x03\x04")] = 0
    refused(bytes(whole), "does not begin where the archive says")


def test_legacy_faults(tmp_path: Path) -> None:
    def refused(data: bytes, message: str) -> None:
        write(tmp_path / "pytorch_model.bin", data)
        with pytest.raises(CheckpointError, match=message):
            open_weights(tmp_path)

    body, view = simple(b"N"), b"N"
    refused(torch_legacy(body, {}), "lies in the storage '0', which the file does not have")
    refused(torch_legacy(body, {"0": TEN[:-4]}), "'0' has 9 numbers, and its tensors expect 10")
    refused(torch_legacy(body, {"0": TEN, "1": TEN}), "the storage '1' is listed but not used")
    refused(MAGIC + PROTOCOL + program(b"}") + program(body) + program(b"N"), "is not a list of keys")
    refused(MAGIC + program(number(1002)) + program(b"}"), "unknown PyTorch protocol; 1001 is known")
    refused(program(number(5)), "a pickle, but not one of torch.save")
    refused(program(mapping({"w": storage("0", 10, view=view)})), "a persistent id that is not a storage")
    refused(b"\x1f\x8b\x08" + bytes(20), "is not a PyTorch weights file: it starts with")
    refused(b"<html>503</html>", "it is a web page, probably of a failed download")


@both
def test_every_truncation_is_refused(tmp_path: Path, kind: str) -> None:
    path = save(tmp_path, kind, simple)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError) as caught:
            open_weights(tmp_path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@both
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_damaged_byte_is_refused_or_harmless(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    path = save(tmp_path, kind, simple)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole)
    read_or_refuse(tmp_path)


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # pickletools reads text instructions
@both
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(junk=st.binary(max_size=60))
def test_any_pickle_program_is_refused_or_harmless(tmp_path: Path, kind: str, junk: bytes) -> None:
    save(tmp_path, kind, lambda _: junk)
    read_or_refuse(tmp_path)
