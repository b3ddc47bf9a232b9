# One image for every role of Weir; docker-compose.yml gives each service its command.
# PYTHON_IMAGE and CADDY_IMAGE may name a digest (bin/pin-images writes it into .env).
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm
ARG CADDY_IMAGE=caddy:2.10.0-alpine

# The proxy that ends TLS. Its volumes take these owners when they are made.
FROM ${CADDY_IMAGE} AS proxy
COPY --chmod=0644 Caddyfile /etc/caddy/Caddyfile
# A copy has no file capabilities: with all capabilities dropped, the kernel would refuse to start the original.
RUN cp "$(command -v caddy)" /usr/local/bin/caddy && mkdir -p /data && chown 10001:10001 /data
USER 10001

# What installs stays behind: the image has what runs Weir (requirements.lock) and neither uv nor a build tool.
FROM ${PYTHON_IMAGE} AS packages
COPY requirements-uv.lock requirements-build.lock requirements.lock /
RUN pip install --no-cache-dir --require-hashes -r /requirements-uv.lock \
    && python -m venv --without-pip /opt/weir \
    && uv pip install --no-cache --compile-bytecode --python /opt/weir/bin/python --require-hashes \
        --build-constraints /requirements-build.lock --require-build-hashes -r /requirements.lock
# The charts' script (console/web/plotly_script.py); npm, too, stays behind.
COPY package.json package-lock.json /scripts/
RUN apt-get update && apt-get install -y --no-install-recommends npm \
    && npm --prefix /scripts ci --omit=dev --ignore-scripts

# Whoever checks out with a strict umask has files that only they can read; in the image its user has to.
FROM ${PYTHON_IMAGE} AS sources
COPY . /srv/weir
RUN chmod -R u=rwX,go=rX /srv/weir

FROM ${PYTHON_IMAGE}
# Java for Spark, and the ps that Spark's scripts call. No pip: nothing is installed in a running container.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && pip uninstall -y pip setuptools wheel \
    && useradd --create-home --uid 10001 weir
COPY --from=packages /opt/weir /opt/weir
WORKDIR /srv/weir
COPY --from=sources /srv/weir .
COPY --from=packages /scripts/node_modules node_modules
# Roots are read-only: what is not compiled here is compiled by each process, at each start.
RUN python -m compileall -q console controllers queues workers

ENV PATH=/opt/weir/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2 ARROW_DEFAULT_MEMORY_POOL=system WEIR_DATA=/var/lib/weir
# Volumes take these owners and modes when they are made.
RUN install -d -o weir -g weir -m 0700 /var/lib/weir && install -d -o weir -g weir -m 0755 /access
USER weir
