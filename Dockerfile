# One image, three roles: `api`, `worker`, `migrate` (see docker-compose.yml).
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY service service
COPY workers workers
COPY migrations migrations
COPY clients/python clients/python
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ./clients/python . \
    && python -m venv /opt/epsilond \
    && /opt/epsilond/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
    && /opt/epsilond/bin/pip install --no-cache-dir --no-deps /wheels/*.whl

FROM python:${PYTHON}-slim
# numba's OpenMP threading layer links to libgomp, which the slim image lacks.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
# A fixed uid, so that a volume stays readable when the image is rebuilt. The folders exist here
# with this owner because a new named volume takes the owner of the folder it covers.
RUN groupadd --gid 10001 epsilond \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent epsilond \
    && install -d -o 10001 -g 10001 -m 0700 /data /var/cache/epsilond/numba
COPY --from=build /opt/epsilond /opt/epsilond
# numba's cache is keyed by CPU, so kernels compiled on the build machine would be compiled again
# wherever the CPU differs: the worker warms them at start instead, into NUMBA_CACHE_DIR.
ENV PATH=/opt/epsilond/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    EPSILOND_DATA_DIR=/data \
    NUMBA_CACHE_DIR=/var/cache/epsilond/numba
USER 10001:10001
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["epsilond"]
CMD ["api", "--host", "0.0.0.0", "--port", "8000"]
