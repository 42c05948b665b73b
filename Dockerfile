# One image for every service of docker-compose.yml: what a container does is its command, how it is checked its
# service's health check. No secret is read at build time and none is in a layer.

FROM python:3.11.17-slim@sha256:45037981b62b34b44602584fccbc4d884d5f7dc92c7ee86bb38a698a79fe1e51 AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src

# Every wheel is checked against the lock's hashes before any of it is used; nothing is built from source.
COPY requirements.lock ./
RUN pip wheel --require-hashes --only-binary :all: -r requirements.lock --wheel-dir /wheels

COPY pyproject.toml README.md ./
COPY src ./src
COPY docs/playbooks ./docs/playbooks
COPY workflows ./workflows
COPY db ./db
COPY beat ./beat
COPY workers ./workers
COPY api ./api
COPY console ./console
COPY supervisor ./supervisor
COPY cli ./cli

# From here on pip may use those wheels only (--no-index). What only developers need stays behind in this stage.
RUN pip install --no-index --find-links /wheels hatchling \
 && pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /wheels . \
 && python -m venv /opt/interlock \
 && /opt/interlock/bin/pip install --no-index --find-links /wheels 'interlock[server,embedded]'


FROM python:3.11.17-slim@sha256:45037981b62b34b44602584fccbc4d884d5f7dc92c7ee86bb38a698a79fe1e51
# Patches are applied, merged and rolled back with git (2.38 or newer).
RUN apt-get update && apt-get install --yes --no-install-recommends git && rm -rf /var/lib/apt/lists/*
RUN groupadd --system --gid 10001 interlock \
 && useradd --system --uid 10001 --gid interlock --home-dir /srv/interlock --shell /usr/sbin/nologin interlock
COPY --from=build /opt/interlock /opt/interlock
WORKDIR /srv/interlock
RUN mkdir work audit && chown interlock:interlock work audit
COPY examples ./examples

ENV PATH=/opt/interlock/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONSAFEPATH=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    INTERLOCK_HOME=/tmp/interlock \
    REMAP_SIGTERM=SIGQUIT

USER 10001:10001
CMD ["interlock", "--help"]
