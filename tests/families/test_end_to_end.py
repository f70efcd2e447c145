"""Each family from a checkpoint to text: proved live, moved, and equal to what transformers writes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from onnxmt import Translator
from onnxmt.runtime.session import RuntimeOptions
from onnxmt.runtime.translation import TranslateOptions
from tests.cli.harness import invoke
from tests.families.checkpoints import FAMILIES, Judge
from tests.families.conftest import Migrated

pytestmark = pytest.mark.reference

TEXTS = [
    "The library opens at nine.",
    "A black cat is sleeping on the red sofa, and nobody checks the machine that makes 120 parts an hour.",
]
WITH_TARGETS = [name for name, family in FAMILIES.items() if family.targets]
FORCED = ["m2m_100", "nllb", "mbart50"]


def options(beams: int, target: str | None = None, **further: object) -> TranslateOptions:
    return TranslateOptions(beams=beams, target=target, max_new_tokens=24, split=False, **further)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FAMILIES)
def test_verification_is_live_and_passes(migrated: Callable[[str], Migrated], name: str) -> None:
    report, manifest = migrated(name).result.report, migrated(name).result.bundle.manifest
    assert report is not None
    assert report.passed
    assert manifest.verification.status == "live"
    layers = {row.layer: row for row in report.rows}
    assert layers["source tokens"].compared == layers["greedy tokens"].compared == layers["text"].compared == 6
    assert report.near_ties == 0 or layers["beam 4 tokens"].passed


@pytest.mark.parametrize("name", FAMILIES)
def test_text_is_that_of_transformers(migrated: Callable[[str], Migrated], name: str) -> None:
    made, family = migrated(name), FAMILIES[name]
    judge = Judge(name, made.checkpoint)
    targets = family.targets or (("",) if family.prefix else (None,))
    found = {}
    with Translator.load(made.bundle, options=RuntimeOptions(threads=1)) as translator:
        for target, beams in itertools.product(targets, (1, 4)):
            texts = translator.translate(TEXTS, options=options(beams, target or None))
            assert texts == [judge.translate(text, target=target, beams=beams) for text in TEXTS], (target, beams)
            found[target, beams] = texts
    assert all(text for texts in found.values() for text in texts), "an empty output proves little"
    for beams in (1, 4):
        assert len({tuple(found[target, beams]) for target in targets}) == len(targets), (
            "the targets make no difference"
        )


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_the_languages_of_the_migration_are_the_bundles_defaults(
    migrated: Callable[[str], Migrated], name: str
) -> None:
    made, family = migrated(name), FAMILIES[name]
    languages = made.result.bundle.manifest.languages
    assert languages.default_target == family.targets[0]
    assert languages.default_source == family.source
    assert set(family.targets) <= set(languages.target)
    with Translator.load(made.bundle, options=RuntimeOptions(threads=1)) as translator:
        default = translator.translate(TEXTS, options=options(1))
        assert default == translator.translate(TEXTS, options=options(1, family.targets[0]))
        assert default != translator.translate(TEXTS, options=options(1, family.targets[1]))


@pytest.mark.parametrize("name", FORCED)
def test_the_first_token_is_the_targets(migrated: Callable[[str], Migrated], name: str) -> None:
    """Case G4."""
    with Translator.load(migrated(name).bundle, options=RuntimeOptions(threads=1)) as translator:
        for target, beams in itertools.product(FAMILIES[name].targets, (1, 4)):
            token = translator.tokenizer.forced_bos_token_id(target)
            for translation in translator.translate_detailed(TEXTS, options=options(beams, target)):
                assert translation.tokens[0] == token


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_calls_for_different_targets_do_not_touch_each_other(migrated: Callable[[str], Migrated], name: str) -> None:
    """Case G4: two targets in turn, then from 16 threads that share one Translator."""
    targets = FAMILIES[name].targets
    with Translator.load(migrated(name).bundle, options=RuntimeOptions(threads=1)) as translator:

        def call(number: int) -> list[str]:
            how = options((1, 4)[number // 2 % 2], targets[number % 2])
            return translator.translate(TEXTS, options=how)

        alone = [call(number) for number in range(4)]
        assert alone[0] != alone[1]
        assert [call(number) for number in range(4)] == alone
        with ThreadPoolExecutor(max_workers=16) as pool:
            found = list(pool.map(call, range(48)))
    assert found == [alone[number % 4] for number in range(48)]


@pytest.mark.parametrize("name", ["nllb", "mbart", "t5"])
def test_the_command_line_takes_aliases(migrated: Callable[[str], Migrated], name: str) -> None:
    made = migrated(name)
    target, alias = {
        "nllb": ("fra_Latn", "French"), "mbart": ("ro_RO", "ro"), "t5": ("fr", "fra_Latn"),
    }[name]  # fmt: skip
    with Translator.load(made.bundle, options=RuntimeOptions(threads=1)) as translator:
        expected = translator.translate_detailed(TEXTS[0], options=options(4, target))
    arguments = ("--beams", "4", "--max-new-tokens", "24", "--no-split", "--json", "--source", "English")
    outcome = invoke("translate", "--model", made.bundle, *arguments, "--target", alias, TEXTS[0])
    assert outcome.code == 0, outcome.err
    (found,) = outcome.objects
    assert (found["text"], found["tokens"]) == (expected.text, list(expected.tokens))


@pytest.mark.parametrize("name", ["m2m_100", "t5", "small100"])
def test_a_bundle_proves_itself_again_without_its_checkpoint(migrated: Callable[[str], Migrated], name: str) -> None:
    """The recording holds its sentences and languages; another target is not what it proves."""
    bundle = migrated(name).bundle
    outcome = invoke("verify", bundle, "--json")
    assert outcome.code == 0, outcome.err + outcome.text
    report = json.loads(outcome.text)
    assert (report["status"], report["passed"], report["sentences"]["lines"]) == ("recording", True, 6)
    assert report["judge"]["target"] == FAMILIES[name].targets[0]
    other = invoke("verify", bundle, "--target", FAMILIES[name].targets[1])
    assert "was made for the target language" in other.error()


def test_another_target_is_verified_live(migrated: Callable[[str], Migrated]) -> None:
    made = migrated("nllb")
    outcome = invoke(
        "verify", made.bundle, "--reference", made.checkpoint, "--target", "fr", "--sentences",
        made.checkpoint.parent / "sentences.tsv",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err + outcome.text
    assert "eng_Latn → fra_Latn" in outcome.text
