"""One verb of the command line a file: module NAME holds the function NAME, whose docstring is the help.

A file without a leading underscore is a verb: nothing else has to be told. Such a module imports nothing heavy at its
top, for `onnxmt --help` imports them all.
"""

from collections.abc import Mapping

# The order of the help; a verb that is not listed here comes under "More".
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Make a bundle": ("migrate", "export", "quantize", "shortlist", "verify"),
    "Use it": ("translate", "serve", "inspect"),
    "Measure it": ("evaluate", "bench", "plan", "report"),
    "Keep versions": ("models",),
}
