"""Which tests also run on the oldest supported versions (`make test-lowest`): whole rooms, but for what is named here."""

from __future__ import annotations

import pytest

ROOMS = ("bundle", "checkpoint", "models", "runtime", "search", "tokenizer")
# The judge of that version differs from the newest one, which ours equals, and is wrong there or lacks a feature.
OTHER_JUDGE = {
    "tests/models/test_t5.py::test_settings_are_read_as_transformers_reads_them": "umt5 ignores tie_word_embeddings",
    "tests/models/test_bart.py::test_m2m_counts_real_tokens": "M2M100 counted cached padding otherwise",
    "tests/tokenizer/test_families.py::test_umt5_with_a_sentencepiece_model_alone": "umt5 got its files wrong",
    "tests/tokenizer/test_parts.py::test_added_tokens_are_cut_out_as_in_transformers": "added tokens were cut otherwise",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the rooms that make graphs and run them; slow tests measure memory, which no version changes."""
    for item in items:
        room = item.nodeid.removeprefix("tests/").partition("/")[0]
        known = any(item.nodeid.startswith(name) for name in OTHER_JUDGE)
        if room in ROOMS and not known and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.lowest)
