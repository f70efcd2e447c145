"""What Prometheus sees. No label holds text, a key or an address."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from onnxmt.runtime.translator import Translator
from onnxmt.serve.guard import memory_held, resident_memory

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 30)
_TOKENS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

        def histogram(name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"onnxmt_{name}", what, labels, buckets=buckets, registry=registry)

        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"onnxmt_{name}", what, labels, registry=registry)

        def gauge(name: str, what: str) -> Gauge:
            return Gauge(f"onnxmt_{name}", what, registry=registry)

        self.requests = counter("requests", "Requests answered.", "route", "code")
        self.duration = histogram("request_duration_seconds", "From arrival to the last byte.", _SECONDS, "route")
        self.in_flight = gauge("requests_in_flight", "Requests that are being answered.")
        self.queue_wait = histogram("queue_wait_seconds", "Time before the translation began.", _SECONDS)
        self.compute = histogram("compute_seconds", "Time of the batch that held the request.", _SECONDS)
        self.input_tokens = histogram("input_tokens", "Source tokens a request.", _TOKENS)
        self.output_tokens = histogram("output_tokens", "Generated tokens a request.", _TOKENS)
        self.batch_texts = histogram("batch_texts", "Texts a batch.", _SIZES)
        self.batch_requests = histogram("batch_requests", "Requests a batch.", _SIZES)
        self.queue_size = gauge("queue_size", "Requests that wait.")
        self.queue_characters = gauge("queue_characters", "Characters of the requests that wait.")
        self.characters = counter("characters", "Source characters translated.")
        self.warnings = counter("warnings", "Warnings on translations.", "kind")
        self.rejected = counter("rejected", "Requests turned away, by reason.", "reason")
        self.stopped = counter("stopped", "Requests dropped or stopped because their client had left.")
        self.ready = gauge("ready", "1 when the model is loaded and warm.")
        self.memory_limit = gauge("memory_limit_bytes", "Memory above which requests get 503; 0: none.")
        self.memory = gauge("resident_memory_bytes", "Resident memory of the process.")
        self.memory.set_function(_as_float(resident_memory))
        self.memory_held = gauge("memory_held_bytes", "Memory that the kernel cannot take back: what the limit is for.")
        self.memory_held.set_function(_as_float(memory_held))
        self._model = Gauge(
            "onnxmt_model_info",
            "The model that is served.",
            ("name", "version", "precision", "provider", "threads"),
            registry=registry,
        )

    def describe(self, translator: Translator) -> None:
        """Say which model is served."""
        manifest = translator.bundle.manifest
        self._model.labels(
            manifest.name, str(manifest.version or ""), manifest.recipe, translator.provider, str(translator.threads)
        ).set(1)

    def forget(self, translator: Translator) -> None:
        """Say that this model is not served any more."""
        manifest = translator.bundle.manifest
        self._model.remove(
            manifest.name, str(manifest.version or ""), manifest.recipe, translator.provider, str(translator.threads)
        )

    def page(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


def _as_float(read: Callable[[], int]) -> Callable[[], float]:
    return lambda: float(read())
