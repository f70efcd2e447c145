# onnxmt as a service: no torch, no compiler, no root.
#   docker build -t onnxmt .                                     a bundle is mounted at /bundle, or the demo is served
#   docker build -t en-zh --target baked --build-arg BUNDLE=en-zh .   the bundle in folder en-zh is part of the image
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1
RUN python -m venv /opt/onnxmt
WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
# pip is of no use in the image, and what cannot install cannot be made to.
RUN /opt/onnxmt/bin/pip install '.[serve]' && /opt/onnxmt/bin/pip uninstall --yes pip

FROM python:${PYTHON}-slim AS runtime
# Two malloc arenas: with one for each thread, freed memory stays scattered, and the resident set grows.
ENV PATH=/opt/onnxmt/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2
COPY --from=build /opt/onnxmt /opt/onnxmt
COPY --chmod=755 deploy/start.sh /usr/local/bin/start-onnxmt
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin onnxmt
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=2s --start-period=10s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
ENTRYPOINT ["start-onnxmt"]

FROM runtime AS baked
ARG BUNDLE
COPY --chown=root:root ${BUNDLE} /bundle

FROM runtime
