# syntax=docker/dockerfile:1
# Shoal with ONNX Runtime on the CPU and the built-in model in the image: nothing is downloaded when it starts.

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY backends/ backends/
COPY batching/ batching/
COPY gateway/ gateway/
COPY loadtest/ loadtest/
COPY models/ models/
RUN python -m venv /opt/shoal && /opt/shoal/bin/pip install --no-cache-dir .
ENV SHOAL_CACHE_DIR=/opt/shoal/cache
RUN ["/opt/shoal/bin/python", "-c", "import os, pathlib; from models.zoo.embedded import ensure_cached; ensure_cached(pathlib.Path(os.environ['SHOAL_CACHE_DIR']))"]

FROM python:3.12-slim
RUN useradd --system --uid 10001 --no-create-home shoal
COPY --from=build /opt/shoal /opt/shoal
ENV PATH=/opt/shoal/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SHOAL_CACHE_DIR=/opt/shoal/cache
USER 10001
EXPOSE 8000 8001 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import httpx; httpx.get('http://127.0.0.1:8000/v2/health/ready').raise_for_status()"]
ENTRYPOINT ["shoal"]
CMD ["serve", "--http-address=0.0.0.0"]
