"""What a spec keeps of a `tokenizers` pipeline; apart from the recipes so that reading it does not load the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxmt.errors import TokenizerError
from onnxmt.runtime.tokenizers.added_tokens import AddedToken
from onnxmt.runtime.tokenizers.settings import SettingsReader

__all__ = ["RECIPES", "PipelineSettings"]

RECIPES = ("nllb", "mbart", "mbart50", "t5", "bart", "as_it_is")


@dataclass(frozen=True, kw_only=True)
class PipelineSettings:
    """`recipe` is one of RECIPES; `names`: special tokens by role; the rest concerns single recipes.

    `extra_ids`: T5's sentinel tokens behind a SentencePiece vocabulary; `add_prefix_space`: byte-level BPE's.
    """

    recipe: str
    added: tuple[AddedToken, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    extra_ids: int = 0
    add_prefix_space: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "recipe": self.recipe,
            "added": [token.to_dict() for token in self.added],
            "names": dict(self.names),
            "extra_ids": self.extra_ids,
            "add_prefix_space": self.add_prefix_space,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str) -> PipelineSettings:
        """Read the JSON form; raises TokenizerError that names `where`."""
        reader = SettingsReader(data, where=where)
        settings = cls(
            recipe=reader.text("recipe"),
            added=tuple(
                AddedToken.from_dict(token, where=f"{where}, added token") for token in reader.objects("added")
            ),
            names=reader.text_map("names"),
            extra_ids=reader.index("extra_ids"),
            add_prefix_space=reader.flag("add_prefix_space"),
        )
        reader.finish()
        if settings.recipe not in RECIPES:
            raise TokenizerError(f"{where}: recipe {settings.recipe!r} is unknown; known: {', '.join(RECIPES)}")
        return settings
