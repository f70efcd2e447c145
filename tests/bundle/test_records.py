from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmt.records import RecordProblems, added, from_json, to_json


@dataclass(frozen=True, kw_only=True)
class Leaf:
    number: float
    kind: Literal["a", "b"]

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError(f"number is {self.number}; 0 or more is allowed")


@dataclass(frozen=True, kw_only=True)
class Tree:
    name: str
    count: int | None
    axes: tuple[int | str, ...]
    leaf: Leaf
    leaves: tuple[Leaf, ...]
    table: Mapping[str, int]
    free: Mapping[str, Any] | None
    flag: bool


GOOD = {
    "name": "n",
    "count": None,
    "axes": ["batch", 4],
    "leaf": {"number": 1, "kind": "a"},
    "leaves": [{"number": 0.5, "kind": "b"}],
    "table": {"Add": 3},
    "free": {"anything": [1, None]},
    "flag": True,
}


def changed(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


def test_reads_and_writes_back_the_same_json() -> None:
    tree = from_json(Tree, GOOD)

    assert tree.leaf == Leaf(number=1.0, kind="a")
    assert type(tree.leaf.number) is float
    assert tree.axes == ("batch", 4)
    assert json.loads(json.dumps(to_json(tree))) == GOOD


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({k: v for k, v in GOOD.items() if k != "name"}, ["the key name is missing"]),
        (changed(extra=1), ["the key extra is unknown"]),
        (changed(leaf={"number": 1, "kind": "a", "colour": 2}), ["the key leaf.colour is unknown"]),
        (changed(name=3), ["name is 3; a string was expected"]),
        (changed(flag=1), ["flag is 1; true or false was expected"]),
        (changed(count=True), ["count is True; an integer was expected"]),
        (changed(count=1.5), ["count is 1.5; an integer was expected"]),
        (changed(axes=["batch", None]), ["axes[1] is None; allowed: an integer or a string"]),
        (changed(axes="batch"), ["axes is 'batch'; a list was expected"]),
        (changed(table=[1]), ["table is [1]; an object was expected"]),
        (changed(table={"Add": "3"}), ["table.Add is '3'; an integer was expected"]),
        (changed(leaf={"number": 1, "kind": "c"}), ["leaf.kind is 'c'; allowed: 'a', 'b'"]),
        (changed(leaf=[]), ["leaf is []; an object was expected"]),
        (changed(leaves=[{"number": -1, "kind": "a"}]), ["leaves[0]: number is -1.0; 0 or more is allowed"]),
        ([], ["the file is []; an object was expected"]),
        (
            changed(name=None, flag=None),
            ["name is None; a string was expected", "flag is None; true or false was expected"],
        ),
    ],
)
def test_names_every_problem(value: Any, problems: list[str]) -> None:
    with pytest.raises(RecordProblems) as caught:
        from_json(Tree, value)

    assert list(caught.value.problems) == problems


@dataclass(frozen=True, kw_only=True)
class Grown:
    name: str
    kind: Literal["old", "new"] = added("old")


def test_a_key_that_was_added_later_may_be_absent_and_is_written_only_where_it_says_something() -> None:
    assert from_json(Grown, {"name": "n"}) == Grown(name="n", kind="old")
    assert from_json(Grown, {"name": "n", "kind": "new"}).kind == "new"
    assert to_json(Grown(name="n")) == {"name": "n"}
    assert to_json(Grown(name="n", kind="new")) == {"name": "n", "kind": "new"}
    with pytest.raises(RecordProblems) as caught:
        from_json(Grown, {"kind": "other"})
    assert caught.value.problems == ("the key name is missing", "kind is 'other'; allowed: 'old', 'new'")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "x"]), inner, max_size=4),
    max_leaves=8,
)


@given(key=st.sampled_from(list(GOOD)), value=JSON)
def test_any_json_is_either_read_or_refused_with_a_reason(key: str, value: Any) -> None:
    problems: tuple[str, ...] = ()
    try:
        tree = from_json(Tree, {**GOOD, key: value})
    except RecordProblems as error:
        problems = error.problems
        assert problems
    else:
        assert from_json(Tree, to_json(tree)) == tree
    assert all(key in problem for problem in problems)
