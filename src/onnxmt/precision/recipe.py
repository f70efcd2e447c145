"""Precision recipes: the number format in which each component of a model is stored and computed."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from onnxmt.errors import UsageError

COMPONENTS = ("encoder", "decoder", "cross_kv", "lm_head", "embedding")
PRECISIONS = ("fp32", "fp16", "int8", "int8-dynamic", "int8-static", "int4")
KEEP, TRIM, SHORTLIST = "keep_fp32", "trim_head", "shortlist"
# Whose precision a component takes in a mixture that names no preset and not this component, the first that is named:
# cross-attention projections and head are parts of a decoder, and a tied head and embedding share one table only in one
# format.
_FOLLOWS = {"cross_kv": ("decoder",), "lm_head": ("embedding", "decoder"), "embedding": ("lm_head", "decoder")}
# int8-dynamic is not among them: what depends on the other sentences of a batch has to be asked for.
_FASTEST_FIRST = ("int4", "int8-static", "int8", "int8,encoder=fp32")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The precision of each component of a model.

    `encoder` and `decoder` are the linear layers of the two stacks, `cross_kv` the projections of the encoder's output
    to the decoder's cross-attention keys and values, `lm_head` the output projection, `embedding` the token tables.
    `keep_fp32` are fnmatch patterns over weight paths that stay in fp32, such as `decoder.layers.5.*`; a leading
    `model.` may be left out, and a layer that is stored stacked with others (q_proj, k_proj, v_proj) is kept when one
    of them is. fp16 is the format of a whole model, since activations and the cache have it too. With `trim_head` the
    output projection has rows for those tokens alone that the target side can produce, with `shortlist` for those that
    are likely for the sentence. Raises UsageError.
    """

    name: str
    encoder: str = "fp32"
    decoder: str = "fp32"
    cross_kv: str = "fp32"
    lm_head: str = "fp32"
    embedding: str = "fp32"
    keep_fp32: tuple[str, ...] = ()
    trim_head: bool = False
    shortlist: bool = False

    def __post_init__(self) -> None:
        problems = [
            f"{component}={found!r} is not known"
            for component, found in self.components.items()
            if found not in PRECISIONS
        ]
        if problems:
            raise UsageError(f"precision {'; '.join(problems)}; allowed: {', '.join(PRECISIONS)}")
        formats = set(self.components.values())
        if "fp16" in formats and len(formats) > 1:
            raise UsageError(
                f"precision {self.name!r} mixes fp16 with {', '.join(sorted(formats - {'fp16'}))}: fp16 is the format "
                "of a whole model, activations and cache included; use fp16, and --keep-fp32 for single layers"
            )
        if any(not pattern for pattern in self.keep_fp32):
            raise UsageError("a pattern of layers to keep in fp32 is empty; write one such as 'decoder.layers.5.*'")

    @property
    def components(self) -> dict[str, str]:
        """The precision of each component by name."""
        return {component: getattr(self, component) for component in COMPONENTS}

    @property
    def exact(self) -> bool:
        """True when every component is fp32, and whole: the graphs must then equal the reference."""
        return set(self.components.values()) == {"fp32"} and not self.trim_head and not self.shortlist

    @property
    def half(self) -> bool:
        """True when the model computes in fp16."""
        return self.encoder == "fp16"

    @property
    def calibrated(self) -> bool:
        """True when a component needs the ranges of activations, which are measured on text."""
        return "int8-static" in self.components.values()

    @property
    def batch_invariant(self) -> bool:
        """True when a sentence's tokens do not depend on its neighbours in the batch."""
        return "int8-dynamic" not in self.components.values()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user of this recipe should know, in one line each."""
        found = []
        if self.half:
            found.append(
                "fp16 is for GPU providers, and was not run on one here: it is unverified there. On a CPU it is slower "
                "than fp32 and int8"
            )
        if not self.batch_invariant:
            found.append(
                "int8-dynamic takes one scale for the activations of a whole batch: a sentence's translation can "
                "depend on its neighbours in the batch (int8 does not)"
            )
        return tuple(found)

    def precision_of(self, component: str, path: str, *, members: Sequence[str] = ()) -> str:
        """Return the precision of the weight at `path` of `component`; `members` are the layers stacked in it."""
        if any(matches(pattern, name) for pattern in self.keep_fp32 for name in (path, *members)):
            return "fp32"
        found: str = getattr(self, component)
        return found

    def unmatched(self, paths: Collection[str]) -> tuple[str, ...]:
        """Return the patterns of `keep_fp32` that match none of a model's weight paths."""
        return tuple(p for p in self.keep_fp32 if not any(matches(p, path) for path in paths))

    def keeping(self, patterns: Sequence[str]) -> Recipe:
        """Return this recipe with further layers kept in fp32, named after what it is."""
        kept = (*self.keep_fp32, *(p for p in dict.fromkeys(patterns) if p not in self.keep_fp32))
        name = canonical_name(self.components, kept, trim_head=self.trim_head, shortlist=self.shortlist)
        return dataclasses.replace(self, name=name, keep_fp32=kept)

    def with_head(self, *, trimmed: bool) -> Recipe:
        """Return this recipe with a trimmed head, or with a whole one, named after what it is."""
        name = canonical_name(self.components, self.keep_fp32, trim_head=trimmed)
        return dataclasses.replace(self, name=name, trim_head=trimmed)

    def with_shortlist(self) -> Recipe:
        """Return this recipe with a head of candidates, named after what it is.

        Its rows are gathered and multiplied in float32, so that tables in int8-dynamic and int8-static, which are
        stored for a product in 8 bits, become int8. Raises UsageError for fp32, fp16 and a trimmed head.
        """
        if self.trim_head:
            raise UsageError(
                f"precision {self.name!r} cannot have a shortlist: it scores fewer tokens than a trimmed head, which "
                "it replaces. Leave --trim-head out"
            )
        if self.half or self.exact:
            why = (
                "it is what is verified against PyTorch, and a shortlist changes what can be said"
                if self.exact
                else "fp16 is for GPU providers, where a head of candidates was not run"
            )
            raise UsageError(f"precision {self.name!r} cannot have a shortlist: {why}. Take int8, int4 or a mixture")
        tables = {c: "int8" for c in ("lm_head", "embedding") if self.components[c] in ("int8-dynamic", "int8-static")}
        parts = {**self.components, **tables}
        name = canonical_name(parts, self.keep_fp32, shortlist=True)
        return dataclasses.replace(self, name=name, shortlist=True, **tables)  # type: ignore[arg-type]  # names of fields

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain data for the manifest."""
        return {f.name: list(v) if isinstance(v := getattr(self, f.name), tuple) else v for f in fields(self)}


def matches(pattern: str, path: str) -> bool:
    """Whether a fnmatch pattern means the weight at `path`, with or without `model.` before and `.weight` after it."""
    names = {path, path.removeprefix("model.")}
    return any(fnmatch.fnmatchcase(form, pattern) for name in names for form in (name, f"{name}.weight"))


def canonical_name(
    components: Mapping[str, str], keep_fp32: Sequence[str] = (), *, trim_head: bool = False, shortlist: bool = False
) -> str:
    """Return the one name of a recipe: its commonest precision (the first of equals), what differs, what is kept.

    `recipe` reads it back. A mixture of equal parts is named by the component that comes first.
    """
    counts = Counter(components[component] for component in COMPONENTS)
    base = max(counts, key=lambda precision: counts[precision])
    parts = [base, *(f"{c}={components[c]}" for c in COMPONENTS if components[c] != base)]
    heads = [*([TRIM] if trim_head else []), *([SHORTLIST] if shortlist else [])]
    return ",".join([*parts, *heads, *(f"{KEEP}={pattern}" for pattern in keep_fp32)])


def _of(components: Mapping[str, str], keep_fp32: tuple[str, ...] = (), *, trim_head: bool = False) -> Recipe:
    return Recipe(
        name=canonical_name(components, keep_fp32, trim_head=trim_head),
        keep_fp32=keep_fp32,
        trim_head=trim_head,
        encoder=components["encoder"],
        decoder=components["decoder"],
        cross_kv=components["cross_kv"],
        lm_head=components["lm_head"],
        embedding=components["embedding"],
    )


def _uniform(precision: str) -> Recipe:
    return _of(dict.fromkeys(COMPONENTS, precision))


PRESETS: Mapping[str, Recipe] = {name: _uniform(name) for name in PRECISIONS}


def recipe(text: str, *, keep_fp32: Sequence[str] = (), trim_head: bool = False) -> Recipe:
    """Read a recipe: a preset (`int8`), a mixture (`encoder=fp32,decoder=int8`), or both (`int8,encoder=fp32`).

    A component that is not named has the preset's precision. Without a preset, cross_kv, lm_head and embedding follow
    the decoder (lm_head and embedding each other first), and all else is fp32. `keep_fp32=PATTERN` and `trim_head` may
    stand among them, `keep_fp32` adds patterns, and `trim_head` trims the head. Raises UsageError that names every
    fault, and for a trimmed head in fp32, which is the yardstick and what is verified. `shortlist`, which may stand in
    the name of a bundle's recipe, is refused: it is learnt from a text (`with_shortlist`).
    """
    parts = [part.strip() for part in text.split(",")]
    base = PRESETS.get(parts[0])
    given: dict[str, str] = {}
    kept: list[str] = []
    problems: list[str] = []
    for part in parts if base is None else parts[1:]:
        key, equals, value = (side.strip() for side in part.partition("="))
        if part == TRIM:
            trim_head = True
        elif part == SHORTLIST:
            raise UsageError(
                f"precision {text!r}: a shortlist is learnt from a parallel text: onnxmt shortlist BUNDLE SOURCE TARGET"
            )
        elif not equals:
            problems.append(f"{part!r} is no preset" + (" that can stand there" if part in PRESETS else ""))
        elif key == KEEP and value:
            kept.append(value)
        elif key not in COMPONENTS:
            problems.append(f"{key!r} is no component")
        elif key in given:
            problems.append(f"{key} is named twice")
        elif value not in PRECISIONS:
            problems.append(f"{part!r} is no precision")
        else:
            given[key] = value
    if problems:
        raise UsageError(
            f"precision {text!r} is not known: {'; '.join(problems)}; allowed: {', '.join(PRESETS)}, or a mixture such "
            f"as encoder=fp32,decoder=int8 of the components {', '.join(COMPONENTS)}"
        )
    components = {c: given.get(c) or _default(c, base, given) for c in COMPONENTS}
    patterns = tuple(dict.fromkeys((*kept, *keep_fp32)))
    if trim_head and set(components.values()) == {"fp32"}:
        raise UsageError(
            f"precision {text!r} cannot have a trimmed head (--trim-head): fp32 is what is verified against PyTorch, "
            "and a trimmed head changes its scores. Trim int8, int4 or another precision"
        )
    return _of(components, patterns, trim_head=trim_head)


def _default(component: str, base: Recipe | None, given: Mapping[str, str]) -> str:
    if base is not None:
        return base.components[component]
    return next((given[other] for other in _FOLLOWS.get(component, ()) if other in given), "fp32")


def search_order() -> tuple[Recipe, ...]:
    """Return the recipes that a search tries, from the fastest to the safest."""
    return tuple(recipe(text) for text in _FASTEST_FIRST)
