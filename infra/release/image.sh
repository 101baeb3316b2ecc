#!/usr/bin/env bash
# Builds the image of infra/Dockerfile with the engine that is here: docker where it answers, else podman, else buildah.
#
#   infra/release/image.sh [ARGUMENTS OF THE BUILD]
#
# IMAGE names it (default: wharfinger, as docker-compose.yml does). ENGINE takes another engine than the first that is found.
# Nothing of an earlier build is used, and times are those of the commit (or SOURCE_DATE_EPOCH): with buildah the same sources on
# the same base give the same image, to the digest. Podman gets the same settings.
set -euo pipefail
cd "$(dirname "$0")/../.."

image=${IMAGE:-wharfinger}
engine=${ENGINE:-}

refuse() {
  echo "image: $1" >&2
  exit 2
}

if [[ -z $engine ]]; then
  if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    engine=docker
  elif command -v podman >/dev/null; then
    engine=podman
  elif command -v buildah >/dev/null; then
    engine=buildah
  else
    refuse "no engine that builds images: no docker that answers, no podman and no buildah"
  fi
elif ! command -v "$engine" >/dev/null; then
  refuse "ENGINE=$engine is not on the path"
fi

seconds=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || true)}
[[ $seconds =~ ^[0-9]+$ ]] || refuse "no commit to take the time from: set SOURCE_DATE_EPOCH to seconds since 1970"

case $engine in
  docker) times=(--build-arg "SOURCE_DATE_EPOCH=$seconds") ;;
  # In the format of Docker the image would name the container that it was made in. The one of OCI has no health check; compose
  # file and charts bring their own.
  podman | buildah) times=(--timestamp "$seconds" --format oci --layers) ;;
  *) refuse "ENGINE=$engine: expected docker, podman or buildah" ;;
esac

echo "image: building $image with $engine"
exec "$engine" build --no-cache "${times[@]}" --file infra/Dockerfile --tag "$image" "$@" .
