# One image for every role of Weir; docker-compose.yml gives each service its command.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 weir

WORKDIR /srv/weir
COPY requirements.lock .
RUN pip install --no-cache-dir --require-hashes -r requirements.lock
COPY . .

ENV PYTHONUNBUFFERED=1 WEIR_DATA=/var/lib/weir
RUN mkdir -p /var/lib/weir && chown weir /var/lib/weir
USER weir
