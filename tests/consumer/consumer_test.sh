#!/usr/bin/env bash
# Builds a user's project against Lockstep and runs it.
#
#   consumer_test.sh installed BUILD SOURCE   from an install prefix: find_package, then pkg-config
#   consumer_test.sh added BUILD SOURCE       by add_subdirectory: the plan folder
#   consumer_test.sh added-whole BUILD SOURCE by add_subdirectory: everything (minutes)
set -euo pipefail
how=$1 build=$2 source=$3
here=$source/tests/consumer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run_on_two_ranks() {
  "$1" run -n 2 -- "$2" | tee "$work/out"
  grep -q "consumer: 2 ranks agree" "$work/out"
}

case $how in
  installed)
    cmake --install "$build" --prefix "$work/prefix" > "$work/log"
    cmake -S "$here/installed" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" \
      -DCMAKE_BUILD_TYPE=Release > "$work/log"
    cmake --build "$work/build"
    run_on_two_ranks "$work/prefix/bin/lockstep" "$work/build/consumer"

    # The same by pkg-config, from a tree that was moved.
    mv "$work/prefix" "$work/moved"
    pc=$(dirname "$(find "$work/moved" -name lockstep.pc)")
    # shellcheck disable=SC2046
    c++ -std=c++20 -c "$here/consumer.cpp" -o "$work/consumer.o" \
      $(PKG_CONFIG_PATH=$pc pkg-config --cflags lockstep)
    # shellcheck disable=SC2046
    c++ "$work/consumer.o" -o "$work/by_pkg_config" $(PKG_CONFIG_PATH=$pc pkg-config --libs lockstep)
    run_on_two_ranks "$work/moved/bin/lockstep" "$work/by_pkg_config"
    ;;
  added)
    cmake -S "$here/added" -B "$work/build" -DLOCKSTEP_SOURCE="$source" > "$work/log"
    cmake --build "$work/build" --target planner
    find "$work/build" -name planner -type f -exec {} \; | tee "$work/out"
    grep -q "rank 2: leaves 6 to 7" "$work/out"
    ;;
  added-whole)
    cmake -S "$here/added" -B "$work/build" -DLOCKSTEP_SOURCE="$source" > "$work/log"
    cmake --build "$work/build" --target consumer
    run_on_two_ranks "$build/bin/lockstep" "$(find "$work/build" -name consumer -type f | head -1)"
    ;;
esac
