"""Twenty real documents of each format: every byte back when nothing is translated, the same structure when all is."""

from __future__ import annotations

import pytest

from onnxmt.runtime.documents import translate_document
from tests.formats.corpus import EACH, FORMATS, Real, real_documents
from tests.formats.fakes import Fake, marked
from tests.formats.judges import links, structure

REAL = [real for name in (*FORMATS, "pages") for real in real_documents(name)]


@pytest.mark.parametrize("name", FORMATS)
def test_there_are_enough(name: str) -> None:
    found = real_documents(name)
    if len(found) < EACH:
        pytest.skip(
            f"the packages of this environment hold {len(found)} {name} documents with prose, fewer than {EACH}"
        )
    assert sum(len(real.document.units) for real in found) > 100


@pytest.mark.parametrize("real", REAL, ids=lambda real: f"{real.format}:{real.name}")
def test_every_byte_stays_without_a_translation(real: Real) -> None:
    units = [unit.text for unit in real.document.units]
    assert real.document.render(units).text == real.text
    assert real.document.render([None] * len(units)).text == real.text


@pytest.mark.parametrize("real", REAL, ids=lambda real: f"{real.format}:{real.name}")
def test_structure_stays_when_every_word_is_another(real: Real) -> None:
    result = translate_document(Fake(), real.text, format=real.format, document=real.options)
    assert structure(result.text, real.format) == structure(real.text, real.format)
    assert (
        links(result.text) == links(real.text) or real.format == "po"
    )  # whose messages stand beside their translations
    assert [warning.message for warning in result.warnings] == []
    translated = [marked(unit.source) for unit in result.units]
    assert [unit.text for unit in result.units] == translated
