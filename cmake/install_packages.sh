#!/usr/bin/env bash
# Installs the named Debian packages that are missing. Says what to run where it may not.
set -euo pipefail

missing=()
for package in "$@"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "Lockstep needs Debian packages that are not installed. As root:" >&2
  echo "  apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 3
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
