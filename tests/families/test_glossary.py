"""Glossary terms are written with the tokens of every family; the models are random, so each term is against their will."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onnxmt import Translator
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from onnxmt.text.glossary import Glossary
from tests.families.checkpoints import FAMILIES
from tests.families.conftest import Migrated

pytestmark = pytest.mark.reference

TEXT = "The library opens at nine."


@pytest.mark.parametrize("name", FAMILIES)
def test_terms_are_written(migrated: Callable[[str], Migrated], name: str) -> None:
    target = FAMILIES[name].targets[0] if FAMILIES[name].targets else None
    with Translator.load(migrated(name).bundle, options=RuntimeOptions(threads=1)) as translator:
        for split in (True, False):
            for terms in ({"library": "machine"}, {"library": "brown fox", "nine": "machine"}, {"library": "北京"}):
                options = TranslateOptions(
                    glossary=Glossary.from_dict(terms), target=target, split=split, max_new_tokens=24, text=None
                )
                result = translator.translate_detailed(TEXT, options=options)
                assert [use.applied for use in result.glossary] == [True] * len(terms), (terms, result.text)
                for term in terms.values():
                    assert term in result.text


@pytest.mark.parametrize("name", FAMILIES)
def test_bytes_of_tokens_are_the_text(migrated: Callable[[str], Migrated], name: str) -> None:
    with Translator.load(migrated(name).bundle, options=RuntimeOptions(threads=1)) as translator:
        written = translator.tokenizer.written_bytes()
        ids = translator.tokenizer.encode(TEXT, target=FAMILIES[name].targets[0] if FAMILIES[name].targets else None)
        text = b"".join(written.get(token, b"") for token in ids).decode().strip()
        assert text.endswith(TEXT), text
        assert max(written) <= translator.tokenizer.vocabulary_limits.target
