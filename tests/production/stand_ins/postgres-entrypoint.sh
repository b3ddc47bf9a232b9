# Makes the cluster, its owner and its database at the first start, as the published image does; then serves.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf '%s' "$POSTGRES_PASSWORD" > /tmp/password
  initdb --username "$POSTGRES_USER" --pwfile /tmp/password --auth scram-sha-256 --auth-local trust --encoding UTF8
  rm /tmp/password
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  pg_ctl --wait --options "-c listen_addresses=''" start
  [ "$POSTGRES_DB" = postgres ] || createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
  pg_ctl --wait --mode fast stop
fi
exec postgres -c listen_addresses='*'
