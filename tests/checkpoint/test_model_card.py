"""What a model card says about the licence, and when that needs a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxmt.checkpoint import licence_warning
from onnxmt.model_card import card_licence, read_card
from tests.checkpoint.writers import write

CARDS = {
    "plain": ("---\nlanguage: [en, zh]\nlicense: cc-by-4.0\ntags:\n- translation\n---\n# x", "cc-by-4.0"),
    "quoted": ('---\nlicense: "apache-2.0"\n---\n', "apache-2.0"),
    "single quotes": ("---\nlicense: 'mit'\n---\n", "mit"),
    "comment": ("---\nlicense: mit # as upstream\n---\n", "mit"),
    "windows": ("---\r\nlicense: mit\r\n---\r\n", "mit"),
    "byte order mark": ("\ufeff---\nlicense: mit\n---\n", "mit"),
    "list": ("---\nlicense:\n- mit\n- apache-2.0\ntags:\n- gpl-3.0\n---\n", "mit, apache-2.0"),
    "indented list": ("---\nlicense:\n  - mit\nx: y\n---\n", "mit"),
    "inline list": ("---\nlicense: [mit, 'apache-2.0']\n---\n", "mit, apache-2.0"),
    "other": ("---\nlicense: other\n---\n", "other"),
    "named": (
        "---\nlicense: other\nlicense_name: nllb-nc\nlicense_link: https://example.org/LICENSE#a\n---\n",
        "other (nllb-nc, https://example.org/LICENSE#a)",
    ),
    "link before": ("---\nlicense_link: LICENSE\nlicense: other\n---\n", "other (LICENSE)"),
    "name of a known licence": ("---\nlicense: mit\nlicense_name: x\n---\n", "mit"),
    "unknown": ("---\nlicense: unknown\n---\n", None),
    "empty": ("---\nlicense:\ntags: [a]\n---\n", None),
    "null": ("---\nlicense: null\n---\n", None),
    "none": ("---\nlanguage: en\n---\n", None),
    "after the front matter": ("---\nlanguage: en\n---\nlicense: mit\n", None),
    "without front matter": ("# Model\nlicense: mit\n", None),
    "nested": ("---\nmodel-index:\n  license: gpl\n---\n", None),
    "longer key": ("---\nlicense_details: gpl\nlicenses: mit\n---\n", None),
    "no text": ("", None),
    "unfinished": ("---\nlicense: mit\n", "mit"),
}


@pytest.mark.parametrize(("text", "licence"), CARDS.values(), ids=CARDS.keys())
def test_the_licence_of_a_card(tmp_path: Path, text: str, licence: str | None) -> None:
    path = write(tmp_path / "README.md", text.encode())
    assert card_licence(path) == licence


def test_a_card_that_is_no_text_states_nothing(tmp_path: Path) -> None:
    assert card_licence(write(tmp_path / "README.md", bytes(range(256)) * 2000)) is None


def test_the_first_card_with_a_licence_counts(tmp_path: Path) -> None:
    assert read_card(tmp_path) is None
    model_card = write(tmp_path / "MODEL_CARD.md", b"---\nlicense: mit\n---\n")
    assert read_card(tmp_path).path == model_card
    readme = write(tmp_path / "README.md", b"# notes\n")
    assert (read_card(tmp_path).path, read_card(tmp_path).licence) == (model_card, "mit")
    readme.write_bytes(b"---\nlicense: cc0-1.0\n---\n")
    assert (read_card(tmp_path).path, read_card(tmp_path).licence) == (readme, "cc0-1.0")
    readme.write_bytes(b"")
    model_card.write_bytes(b"")
    assert (read_card(tmp_path).path, read_card(tmp_path).licence) == (readme, None)


@pytest.mark.parametrize(
    ("licence", "warning"),
    [
        (None, "states no licence"),
        ("cc-by-nc-4.0", "cc-by-nc-4.0, does not allow commercial use"),
        ("CC-BY-NC-SA-4.0", "does not allow commercial use"),
        ("other (nllb-nc, https://example.org)", "does not allow commercial use"),
        ("fair-noncommercial-research-license", "does not allow commercial use"),
        ("other (seamless_non-commercial)", "does not allow commercial use"),
        ("intel-research", "seems to allow research only"),
        ("cc-by-nd-4.0", "does not allow changed copies"),
        ("cc-by-nc-nd-4.0", "does not allow commercial use"),
        ("other", "'other' without a name"),
        ("other (house-license)", None),
        ("apache-2.0", None),
        ("cc-by-4.0", None),
        ("cc-by-sa-4.0", None),
        ("openrail", None),
        ("mit, apache-2.0", None),
        ("ncsa", None),
        ("lgpl-lr", None),
    ],
)
def test_warnings(licence: str | None, warning: str | None) -> None:
    found = licence_warning(licence)
    assert (found is None) if warning is None else (found is not None and warning in found)
