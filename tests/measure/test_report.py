"""The report: what stands in it for which bundle, and that nothing in a bundle can act in a reader's browser."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from onnxmt.bundle import Bundle, read_bundle, update_manifest
from onnxmt.errors import BundleError, MissingExtraError
from onnxmt.manifest import UNVERIFIED, Manifest
from onnxmt.measure.outputs import Output
from onnxmt.measure.quality import EVALUATION_NAME, write_evaluation
from onnxmt.measure.report import REPORT_NAME, add_report, render_report, renew_report
from onnxmt.measure.report_plots import LayerError, Point, error_plot, score_plot
from onnxmt.measure.report_sentences import SHOWN, Piece, differences
from onnxmt.measure.texts import EvaluationSet
from onnxmt.migration import MigrateOptions, export
from onnxmt.precision import PRESETS
from onnxmt.quantization import QuantizeOptions, quantize
from tests.cli.checkpoints import write_checkpoint
from tests.cli.harness import GOLDEN, invoke

SOURCES = ("The dog barks.", "It is raining.", "Good morning.")
REFERENCES = ("狗在叫。", "正在下雨。", "早上好。")
FP32 = ("狗在叫。", "在下雨。", "早上好。")
INT8 = ("狗在笑。", "雨雨雨雨雨雨雨雨", "早上好。")
EVIL = "<script>alert('x')</script><img src=http://e.example/a.png onerror=alert(1)>\" onload=\"x"


class Seen(HTMLParser):
    """The elements and the visible text of a page; complains about tags that do not match."""

    VOID = ("meta", "br")

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.pieces: list[str] = []
        self.feed(page.decode("utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def quality(**changes: Any) -> dict[str, Any]:
    """What the gate writes, with figures chosen for the test."""
    part = {
        "lines": 3, "bleu": 30.25, "chrf": 28.5, "fp32_bleu": 30.75, "fp32_chrf": 29.0,
        "bleu_drop": {"value": 0.5, "lower": -0.25, "upper": 1.25, "p_value": 0.2},
        "chrf_drop": {"value": 0.5, "lower": -0.5, "upper": 1.0, "p_value": 0.2},
        "identical": 0.335, "agreement_chrf": 81.25, "length_ratio": 1.03,
    }  # fmt: skip
    faults = {
        "fp32": {"empty": 0, "repeating": 0, "unfinished": 0},
        "candidate": {"empty": 0, "repeating": 7, "unfinished": None},
    }
    domains = [{"kind": "domain", "name": "weather", **part, "bleu": 12.34}]
    return {
        "bleu": 30.25, "chrf": 28.5, "agreement_chrf": 81.25, "identical": 0.335, "beams": 4, "gate": "passed",
        "how": {
            "set": "shipped", "sha256": "ab12", "lines": 3, "references": 1, "target_language": "zh",
            "signatures": {"bleu": "nrefs:1|tok:zh|version:2.6.0"}, "threads": 2, "provider": "CPUExecutionProvider",
            "versions": {"sacrebleu": "2.6.0"},
        },
        "misses": [],
        "modes": {
            "greedy": {"beams": 1, **part, "bleu": 29.5, "faults": faults, "parts": domains},
            "beam 4": {"beams": 4, **part, "faults": faults, "parts": domains},
        },
        "limits": {"max_bleu_drop": 1.5, "max_chrf_drop": 1.05, "part_factor": 2},
        "worst": [{"line": 2, "mode": "greedy", "domain": "weather", "chrf_loss": 12.34, "looped": True}],
        "notes": ["a note"], "fp32_sizes": {"encoder.onnx": 20_000, "decoder.onnx": 30_000, "weights.bin": 442_368},
        **changes,
    }  # fmt: skip


def write_texts(folder: Path, *, sources: tuple[str, ...] = SOURCES, int8: tuple[str, ...] = INT8) -> None:
    """Write an evaluation.json, in beam 4 with fewer differences than in greedy."""
    texts = EvaluationSet(
        name="shipped", sources=sources, references=(REFERENCES,), domains=("animals", "weather", "talk"), shipped=True
    )
    sides = {
        "fp32": {mode: [Output(text=text) for text in FP32] for mode in ("greedy", "beam 4")},
        "int8": {
            "greedy": [Output(text=text) for text in int8],
            "beam 4": [Output(text=text) for text in (int8[0], *FP32[1:])],
        },
    }
    write_evaluation(folder, texts, sides)


Maker = Callable[..., Bundle]


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """The golden bundle with another manifest, and with the files named written anew."""

    def made(*, written: tuple[str, ...] = (), **changes: Any) -> Bundle:
        folder = tmp_path / "bundle"
        if not folder.exists():
            shutil.copytree(GOLDEN, folder)
        bundle = read_bundle(folder)
        return update_manifest(bundle, dataclasses.replace(bundle.manifest, **changes), written=written)

    return made


@pytest.fixture
def int8(make: Maker, tmp_path: Path) -> Bundle:
    """An int8 bundle with quality and texts."""
    bundle = make()
    write_texts(bundle.folder)
    return as_int8(make, quality())


def as_int8(make: Maker, found: dict[str, Any] | None, **changes: Any) -> Bundle:
    bundle = make()
    precision = dataclasses.replace(
        bundle.manifest.precision, **dict.fromkeys(("encoder", "decoder", "cross_kv", "lm_head", "embedding"), "int8")
    )
    verification = dataclasses.replace(bundle.manifest.verification, graphs="fp32")
    written = (EVALUATION_NAME,) if (bundle.folder / EVALUATION_NAME).exists() else ()
    return make(
        written=written, recipe="int8", precision=precision, quality=found, **{"verification": verification, **changes}
    )


def test_the_page_says_what_the_manifest_says(int8: Bundle) -> None:
    text = Seen(render_report(int8)).text

    for words in (
        "tiny-en-zh int8",
        "verified in fp32",
        "made of tiny-en-zh, from a folder",
        "licence not stated",
        "the model states no licence: find out whether you may use it and pass it on",
        "Quality gate passed: int8 beside fp32 on 3 lines of the set shipped",
        "at most 1.50 BLEU and 1.05 chrF below fp32",
        "30.25 beam 4, fp32 30.75",
        "weather 3 30.75 12.34 0.50 -0.25 to 1.25 29.00 28.50 0.50 34% 81.2 1.03",
        "Outputs in fp32: 0 empty, 0 repeating, 0 unfinished; in int8: 0 empty, 7 repeating, – unfinished.",
        "bleu signature nrefs:1|tok:zh|version:2.6.0",
        "Note: a note",
        "logits step 2 55 0 1.2e-05 0.001 1.000000 passed",
        "greedy tokens 55 0 – – – passed",
        "16 of 16 layers passed",
        "torch 2.13.0+cpu",
        "opset 18",
    ):
        assert words in text, words


def test_sizes_stand_beside_those_of_fp32(int8: Bundle) -> None:
    text = Seen(render_report(int8)).text
    other = sum(e.bytes for e in int8.manifest.files if not e.path.endswith((".onnx", ".bin")))
    mine, fp32 = other + 18_026 + 21_518 + 110_592, other + 492_368

    assert "weights.bin 111 kB 442 kB 25% ea7642ea9e35" in text
    assert "config.json 880 B 880 B same d287e494f13b" in text
    assert f"all {mine / 1000:.3g} kB {fp32 / 1000:.3g} kB {mine / fp32:.0%}" in text


def test_translations_stand_side_by_side_worst_first_with_their_differences_marked(int8: Bundle) -> None:
    page = render_report(int8).decode()
    first, second = page.index("line 2, weather, greedy"), page.index("line 1, animals, beam 4")

    assert first < second
    assert "line 3, " not in page  # no difference
    assert '<span class="loop">runs in circles</span>, chrF loss 12.3' in page
    assert "In beam 4, 1 of 3 lines differ from fp32" in page
    shown = page[second:]
    assert '<dt>source</dt><dd lang="en" dir="auto">The dog barks.</dd>' in shown
    assert '<dd lang="zh" dir="auto">狗在<mark class="gone">叫</mark>。</dd>' in shown
    assert '<dd lang="zh" dir="auto">狗在<mark class="new">笑</mark>。</dd>' in shown
    assert '<dt>reference</dt><dd lang="zh" dir="auto">狗在叫。</dd>' in shown


def test_differences_are_found_by_character() -> None:
    before, after = differences("价格是5元。", "价格是50元")

    assert before == (
        Piece(text="价格是5", changed=False),
        Piece(text="元", changed=False),
        Piece(text="。", changed=True),
    )
    assert after == (
        Piece(text="价格是5", changed=False),
        Piece(text="0", changed=True),
        Piece(text="元", changed=False),
    )


def test_a_set_of_thousands_shows_its_worst_and_stays_small(make: Maker) -> None:
    lines, folder = 3000, make().folder
    texts = EvaluationSet(
        name="shipped",
        sources=tuple(f"Sentence {i}, " + "with many words " * 40 for i in range(lines)),
        references=(("参考" * 300,) * lines,),
        shipped=True,
    )
    sides = {
        name: {mode: [Output(text=name * 9 + str(i)) for i in range(lines)] for mode in ("greedy", "beam 4")}
        for name in ("fp32", "int8")
    }
    write_evaluation(folder, texts, sides)

    page = render_report(as_int8(make, quality(worst=[])))

    assert page.count(b"<dt>source</dt>") == SHOWN
    assert "3000 of 3000 lines differ from fp32" in page.decode()
    assert f"The first {SHOWN} are shown; evaluation.json holds all." in page.decode()
    assert len(page) < 300_000


def test_unverified_is_said_before_everything_else(make: Maker) -> None:
    seen = Seen(render_report(make(verification=UNVERIFIED)))

    assert {"class": "alarm bad", "role": "note"} in seen.all("div")
    assert seen.text.index("UNVERIFIED Nothing has compared these graphs") < seen.text.index("Verification")
    assert "Unverified: nothing has compared these graphs with PyTorch." in seen.text
    assert seen.all("svg") == []


def test_a_verified_bundle_raises_no_alarm_but_for_its_licence(make: Maker) -> None:
    assert [a["class"] for a in Seen(render_report(make())).all("div") if "alarm" in str(a.get("class"))] == [
        "alarm warn"
    ]


def test_a_failed_layer_and_a_missed_gate_are_alarms(make: Maker) -> None:
    verification = make().manifest.verification
    rows = (dataclasses.replace(verification.rows[2], passed=False, different=4), *verification.rows[3:])
    failed = dataclasses.replace(verification, rows=rows)
    missed = quality(gate="missed", misses=["greedy, weather (3 lines): BLEU fell"])

    page = render_report(as_int8(make, missed, verification=failed)).decode()

    assert "VERIFICATION FAILED" in page
    assert "QUALITY GATE MISSED" in page
    assert "<li>Missed: greedy, weather (3 lines): BLEU fell</li>" in page
    assert re.search(r'<tr class="fault"><th scope="row" class="words">cross K/V layer 0</th>.*MISSED</td></tr>', page)


def test_batch_dependence_is_said_of_dynamic_quantisation_alone(make: Maker, int8: Bundle) -> None:
    precision = dataclasses.replace(int8.manifest.precision, decoder="int8-dynamic")
    words = "a sentence's translation can depend on its neighbours"

    assert words in Seen(render_report(make(precision=precision, recipe="int8,decoder=int8-dynamic"))).text
    assert words not in Seen(render_report(make(precision=int8.manifest.precision, recipe="int8"))).text


def test_what_was_not_measured_is_said(make: Maker) -> None:
    seen = Seen(render_report(make()))

    assert "Not measured: this bundle was made without evaluation." in seen.text
    assert "Not measured: no benchmark was run on this bundle." in seen.text
    assert "P99 latency not measured" in seen.text
    assert "side by side" not in seen.text
    assert len(seen.all("svg")) == 1


def test_the_size_in_fp32_may_be_unknown(make: Maker) -> None:
    text = Seen(render_report(as_int8(make, None))).text

    assert "The size in fp32 is not known" in text
    assert "Quality gate not measured made without evaluation" in text
    assert "weights.bin 111 kB ea7642ea9e35" in text


def test_texts_of_the_users_own_are_not_quoted(make: Maker) -> None:
    text = Seen(render_report(as_int8(make, quality()))).text

    assert "The translations are not in this bundle" in text
    assert "Lines that lost most: 2 (greedy)" in text


def test_without_references_agreement_is_the_headline(make: Maker) -> None:
    modes = {"beam 4": {"beams": 4, "lines": 3, "bleu": None, "agreement_chrf": 81.25, "identical": 0.5, "parts": []}}
    seen = Seen(render_report(as_int8(make, quality(bleu=None, chrf=None, modes=modes))))

    assert "chrF to fp32 81.2 beam 4, no references" in seen.text
    assert "all 3 50% 81.2 –" in seen.text
    assert len(seen.all("svg")) == 1  # no score, so no plot of it


def test_speed_has_a_table_its_facts_and_a_plot(int8: Bundle, make: Maker) -> None:
    results = [
        {"engine": "torch", "precision": "fp32", "beams": 4, "batch": 1, "median_ms": 90.5, "p99_ms": 120.0},
        {"engine": "onnxmt", "precision": "int8", "beams": 4, "batch": 1, "median_ms": 9.25, "p99_ms": 12.5},
        {"engine": "onnxmt", "precision": "int8", "beams": 4, "batch": 8, "median_ms": 41.0, "peak_rss_mb": 150},
    ]
    seen = Seen(render_report(make(speed={"p99_ms": 12.5, "results": results, "machine": {"cores": 2}})))

    assert "P99 latency 12.5 ms" in seen.text
    assert "engine precision beams batch median ms p99 ms peak rss mb" in seen.text
    assert "onnxmt int8 4 8 41 – 150" in seen.text
    assert "machine cores 2" in seen.text
    labels = [str(a.get("aria-label")) for a in seen.all("div") if a.get("role") == "img"]
    assert (
        "BLEU against median time of one sentence (ms). torch fp32: BLEU 30.75 at 90.5; int8: BLEU 30.25 at 9.25; the lowest BLEU allowed is 29.25."
        in labels
    )


def test_whatever_quality_and_speed_hold_the_page_is_made(int8: Bundle, make: Maker) -> None:
    for odd in (
        {"x": [1, {"y": None}]},
        {"modes": {"greedy": None}, "bleu": "high", "how": 5, "worst": [{"line": "a"}]},
    ):
        seen = Seen(render_report(make(quality=odd, speed=odd)))
        assert "Quality" in seen.text


def test_names_and_texts_cannot_act_in_a_browser(make: Maker) -> None:
    folder = make().folder
    write_texts(folder, sources=(EVIL, *SOURCES[1:]), int8=(EVIL, *INT8[1:]))
    bundle = as_int8(make, quality(notes=[EVIL], misses=[EVIL]))
    manifest = bundle.manifest
    row = dataclasses.replace(manifest.verification.rows[2], layer=EVIL + "$\\frac{1}$\x00")
    evil = make(
        name=EVIL,
        architecture=EVIL,
        source=dataclasses.replace(manifest.source, model=EVIL, revision=EVIL),
        licence=dataclasses.replace(manifest.licence, id=EVIL, warning=EVIL),
        verification=dataclasses.replace(manifest.verification, judge={EVIL: EVIL}, rows=(row,)),
        tools={"onnxmt": EVIL, EVIL: EVIL},
        speed={EVIL: EVIL, "results": [{EVIL: EVIL, "engine": EVIL}]},
        cpu={EVIL: EVIL},
    )

    page = render_report(evil)
    seen = Seen(page)

    assert b"&lt;script&gt;" in page
    assert EVIL.split(">")[0] in seen.text  # shown as it is
    assert not {"script", "img", "iframe", "object", "link", "base", "form"} & {tag for tag, _ in seen.elements}
    assert [name for _, attributes in seen.elements for name in attributes if name.startswith("on")] == []
    assert offline(seen)


def test_the_recipe_of_a_later_version_is_shown_as_it_is(make: Maker) -> None:
    precision = dataclasses.replace(make().manifest.precision, decoder="int2<b>$x$")

    assert (
        "int2<b>$x$ not measured"
        not in Seen(page := render_report(make(precision=precision, recipe="int2<b>$x$"))).text
    )
    assert b"int2&lt;b&gt;$x$" in page


def test_half_a_surrogate_pair_does_not_stop_the_page(int8: Bundle) -> None:
    manifest = dataclasses.replace(int8.manifest, quality=quality(notes=["broken \ud800"]))

    assert b"broken ?" in render_report(Bundle(folder=int8.folder, manifest=manifest))


def offline(seen: Seen) -> bool:
    """Whether nothing in the page would be fetched, or leads out of it."""
    links = [
        a[key] for _, a in seen.elements for key in ("src", "href", "srcset", "action", "data", "poster") if a.get(key)
    ]
    styles = [str(a["style"]) for _, a in seen.elements if a.get("style")]
    return all(str(link).startswith("#") for link in links) and not any(
        re.search(r"url\((?!#)|@import|https?:", style) for style in styles
    )


def test_one_file_that_opens_offline(int8: Bundle) -> None:
    page = render_report(int8)
    seen = Seen(page)

    assert offline(seen)
    assert not re.search(rb"https?://|@import|url\((?!#)", page)
    policy = next(a["content"] for a in seen.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none';")
    assert len(page) < 100_000


def test_accessible_names_and_unique_ids(int8: Bundle) -> None:
    seen = Seen(render_report(int8))
    ids = [str(a["id"]) for _, a in seen.elements if a.get("id")]

    assert seen.all("html") == [{"lang": "en"}]
    assert len(seen.all("table")) == len(seen.all("caption")) == 4
    assert (
        len(seen.all("svg")) == len([a for a in seen.all("div") if a.get("role") == "img" and a.get("aria-label")]) == 2
    )
    assert len(ids) == len(set(ids))
    targets = {str(a["href"])[1:] for _, a in seen.elements if a.get("href")}
    clips = set(re.findall(r"url\(#([^)]*)\)", render_report(int8).decode()))
    assert targets | clips <= set(ids)


def test_the_same_bundle_gives_the_same_bytes(int8: Bundle) -> None:
    assert render_report(int8) == render_report(read_bundle(int8.folder))


def test_add_report_lists_the_page_and_touches_nothing_the_second_time(int8: Bundle) -> None:
    before = render_report(int8)
    added = add_report(int8)

    assert read_bundle(int8.folder).path(REPORT_NAME).read_bytes() == before
    stamp = (int8.folder / "manifest.json").stat().st_mtime_ns
    assert add_report(added) is added
    assert (int8.folder / "manifest.json").stat().st_mtime_ns == stamp
    assert render_report(added) == before  # its own size is not in it


def test_a_damaged_evaluation_is_named(int8: Bundle) -> None:
    (int8.folder / EVALUATION_NAME).write_text("{}")

    with pytest.raises(BundleError, match=r"evaluation\.json cannot be read as a recorded evaluation"):
        render_report(int8)


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_missing_extra_is_named(int8: Bundle, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtraError, match=rf"the report needs the Python package '{module}'.*onnxmt\[eval\]"):
        render_report(int8)


def test_plots_are_drawn_whatever_the_figures() -> None:
    errors = [LayerError(layer="a", error=0.0, limit=None), LayerError(layer="价$", error=1e3, limit=0.001)]
    points = [
        Point(label="x_$y", cost=0.5, score=0.0),
        Point(label="z", cost=2.0, score=0.0, interval=(0.0, 0.0), own=True),
    ]

    drawn = error_plot(errors, name="e"), score_plot(points, name="s", cost="MB", score="BLEU", allowed=None)

    assert ">?$</text>" in drawn[0]
    assert ">x_$y 0.00</text>" in drawn[1]
    assert "lowest allowed" not in drawn[1]
    assert all(svg.startswith("<svg ") and "xmlns" not in svg and "metadata" not in svg for svg in drawn)
    assert error_plot([LayerError(layer="a", error=0.0, limit=None)], name="e").startswith("<svg ")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("report") / "tiny-en-zh")


def test_every_new_bundle_has_its_report(checkpoint: Path, tmp_path: Path) -> None:
    result = export(checkpoint, tmp_path / "out", options=MigrateOptions(precision=PRESETS["int8"]))

    bundle = read_bundle(tmp_path / "out")
    assert bundle.path(REPORT_NAME).read_bytes() == render_report(bundle)
    assert "UNVERIFIED" in bundle.path(REPORT_NAME).read_text(encoding="utf-8")
    assert not any("report" in warning for warning in result.warnings)


def test_without_the_extra_a_bundle_is_made_and_the_extra_is_named(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)

    result = export(checkpoint, tmp_path / "out")

    assert not (tmp_path / "out" / REPORT_NAME).exists()
    assert result.warnings[-1] == (
        "the bundle has no report.html: the report needs the Python package 'jinja2', which is not installed. Install "
        "it with: pip install 'onnxmt[eval]', then make it with: onnxmt report BUNDLE"
    )


def test_the_command_writes_into_the_bundle_or_elsewhere(int8: Bundle, tmp_path: Path) -> None:
    page = render_report(int8)

    assert invoke("report", int8.folder).lines == [str(int8.folder / REPORT_NAME)]
    assert read_bundle(int8.folder).path(REPORT_NAME).read_bytes() == page
    assert invoke("report", int8.folder, "-o", tmp_path / "page.html").lines == [str(tmp_path / "page.html")]
    assert (tmp_path / "page.html").read_bytes() == page
    assert invoke("report", int8.folder, "-o", "-").out == page
    found = json.loads(invoke("report", int8.folder, "--json").text)
    assert found == {"bundle": str(int8.folder), "report": str(int8.folder / REPORT_NAME), "bytes": len(page)}


def test_the_packaged_demo_is_not_changed(tmp_path: Path) -> None:
    assert "name a file, as in -o demo.html" in invoke("report", "demo").error()
    assert "no bundle at" in invoke("report", tmp_path / "none").error()


def test_a_manifest_with_every_optional_part_absent_still_reads(make: Maker) -> None:
    manifest = Manifest.from_dict(make().manifest.to_dict())

    assert "by default" not in Seen(render_report(make())).text
    languages = dataclasses.replace(manifest.languages, default_source="eng", default_target=None)
    assert "by default eng → –" in Seen(render_report(make(languages=languages))).text


def test_a_new_proof_or_precision_has_a_new_report(checkpoint: Path, tmp_path: Path) -> None:
    bundle = export(checkpoint, tmp_path / "fp32").bundle
    verified = update_manifest(
        bundle, dataclasses.replace(bundle.manifest, verification=read_bundle(GOLDEN).manifest.verification)
    )
    assert b"UNVERIFIED" in verified.path(REPORT_NAME).read_bytes()

    assert renew_report(verified) is None

    page = read_bundle(tmp_path / "fp32").path(REPORT_NAME).read_bytes()
    assert b"UNVERIFIED" not in page
    options = QuantizeOptions(precision=PRESETS["int8"], gate="off")
    quantize(tmp_path / "fp32", tmp_path / "int8", options=options)
    quantized = read_bundle(tmp_path / "int8")
    assert quantized.path(REPORT_NAME).read_bytes() == render_report(quantized) != page


def test_a_report_that_cannot_be_renewed_is_said_to_be_old(int8: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert renew_report(int8) is None  # it has none
    assert not (int8.folder / REPORT_NAME).exists()
    added = add_report(int8)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    note = renew_report(added)

    assert note is not None
    assert note.startswith(
        "report.html still says what was known before: the report needs the Python package 'matplotlib'"
    )
