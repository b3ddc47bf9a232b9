# All services of Weir use one image; docker-compose.yml sets the command of each service.
# PYTHON_IMAGE and CADDY_IMAGE can contain a digest, which bin/pin-images writes into .env.
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm
ARG CADDY_IMAGE=caddy:2.10.0-alpine

# The proxy terminates TLS. A new volume inherits the owner of the folder in the image.
FROM ${CADDY_IMAGE} AS proxy
COPY --chmod=0644 Caddyfile /etc/caddy/Caddyfile
# The copy has no file capabilities. The original does, and can't start in a container that drops all capabilities.
RUN cp "$(command -v caddy)" /usr/local/bin/caddy && mkdir -p /data && chown 10001:10001 /data
USER 10001

# A separate stage installs the packages, so that the image contains requirements.lock but neither uv nor build tools.
FROM ${PYTHON_IMAGE} AS packages
COPY requirements-uv.lock requirements-build.lock requirements.lock /
RUN pip install --no-cache-dir --require-hashes -r /requirements-uv.lock \
    && python -m venv --without-pip /opt/weir \
    && uv pip install --no-cache --compile-bytecode --python /opt/weir/bin/python --require-hashes \
        --build-constraints /requirements-build.lock --require-build-hashes -r /requirements.lock
# The Plotly script for charts (console/web/plotly_script.py). The image contains the script but not npm.
COPY package.json package-lock.json /scripts/
RUN apt-get update && apt-get install -y --no-install-recommends npm \
    && npm --prefix /scripts ci --omit=dev --ignore-scripts

# With a strict umask, only the owner can read the files of the checkout. In the image, the user weir must read them.
FROM ${PYTHON_IMAGE} AS sources
COPY . /srv/weir
RUN chmod -R u=rwX,go=rX /srv/weir

FROM ${PYTHON_IMAGE}
# Spark requires Java, and its scripts call ps. Running containers install nothing, so the image contains no pip.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && pip uninstall -y pip setuptools wheel \
    && useradd --create-home --uid 10001 weir
COPY --from=packages /opt/weir /opt/weir
WORKDIR /srv/weir
COPY --from=sources /srv/weir .
COPY --from=packages /scripts/node_modules node_modules
# The root file system is read-only. Without this step, each process would compile the modules at each start.
RUN python -m compileall -q common console controllers queues workers

ENV PATH=/opt/weir/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=2 ARROW_DEFAULT_MEMORY_POOL=system WEIR_DATA=/var/lib/weir
# New volumes inherit the owners and modes of these folders.
RUN install -d -o weir -g weir -m 0700 /var/lib/weir && install -d -o weir -g weir -m 0755 /access
USER weir
