"""What happens to decoded text after the pieces are joined."""

from __future__ import annotations

__all__ = ["clean_up_spaces"]

_CLEAN_UPS = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"),
    (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


def clean_up_spaces(text: str) -> str:
    """Remove spaces before English punctuation and contractions.

    Only for checkpoints that set `clean_up_tokenization_spaces` (transformers 5: off unless set).
    """
    for spaced, closed in _CLEAN_UPS:
        text = text.replace(spaced, closed)
    return text
