#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Builds everything and runs the tests; see usage() below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/test.sh [OPTION…]

Builds everything (and installs what the build lacks) and runs all tests. Failing cases are shown with their output,
skipped ones with their reason. The last line is "N passed, N failed, N skipped", counting test cases; the exit status
is 0 when none failed.

  --list               name the test cases (suite/program/case) and run none
  --only PATTERNS      run the cases whose name matches (*, ? and [] as in the shell; without them, a part of the name);
                       of several patterns, separated by blanks, one
  --sanitize WHICH     build with a sanitizer: address, undefined, both (address,undefined), or thread
  --cross ARCH         build for another processor (aarch64) with a cross compiler, and run the tests that need nothing
                       but libc under an emulator
  --debug, --release   build without optimisation; with all of it
  --werror             a warning of the compiler fails the build
  --build-dir DIR      build in DIR instead of build, build-WHICH, … at the top of the tree
  --random SEED COUNT  run COUNT random programs instead, the first from SEED, in each mode of POOL_FREE; each counts
  --mode sync|event    … in this one
  --long               10,000 random programs in each mode, where it is 500 else
  --mutants [NAME…]    apply each patch of tests/mutants (or those named) to a copy of the tree, one at a time, and run
                       the tests until one fails; exit status 1 when a patch survives, or does not apply or build
  --help               this text

The compiler is $CC, or cc.
END
}
usage_error() {
    printf 'test.sh: %s\n' "$*" >&2
    usage >&2
    exit 2
}

list='' only='' sanitize='' cross='''' type='' werror='' folder='' mutants='' names=() random=() mode='' long=''
while [ $# -gt 0 ]; do
    case $1 in
    --only=* | --sanitize=* | --cross=* | --build-dir=* | --mode=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    esac
    case $1 in
    --only | --sanitize | --cross | --build-dir | --mode) [ $# -ge 2 ] && [ -n "$2" ] || usage_error "$1 needs a value" ;;
    esac
    case $1 in
    --list) list=yes ;;
    --only) only=$2 && shift ;;
    --sanitize) sanitize=$2 && shift ;;
    --cross) cross=$2 && shift ;;
    --build-dir) folder=$(realpath -m -- "$2") && shift ;;
    --debug | --release) type=${1#--} ;;
    --werror) werror=yes ;;
    --random)
        [ $# -ge 3 ] && [[ $2 =~ ^[0-9]{1,18}$ && $3 =~ ^[1-9][0-9]{0,8}$ ]] ||
            usage_error "--random needs two numbers: a seed, and how many programs (at least 1)"
        random=("$2" "$3") && shift 2
        ;;
    --mode) mode=$2 && shift ;;
    --long) long=yes ;;
    --mutants)
        mutants=yes
        while [ $# -ge 2 ] && [[ $2 != -* ]]; do names+=("$2") && shift; done
        ;;
    --help | -h) usage && exit ;;
    *) usage_error "unknown option: $1" ;;
    esac
    shift
done
case $sanitize in
'' | address | undefined | address,undefined | thread) ;;
*) usage_error "--sanitize takes address, undefined, address,undefined or thread, not: $sanitize" ;;
esac

packages=(patch) for_aarch64=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
case $cross in
'') ;;
aarch64) packages+=("${for_aarch64[@]}") ;;
*) usage_error "--cross takes aarch64, not: $cross" ;;
esac
[ -z "$cross" ] || [ -z "$sanitize$mutants$long${random[*]}" ] ||
    usage_error "--cross goes not with --sanitize, --mutants, --random or --long"
[ "$cross" != "$(uname -m)" ] || usage_error "this machine is $cross itself: leave out --cross"

case $mode in
'' | sync | event) ;;
*) usage_error "--mode takes sync or event, not: $mode" ;;
esac
[ -z "$mode" ] || [ ${#random[@]} -gt 0 ] || usage_error "--mode goes with --random only"
[ ${#random[@]} -eq 0 ] || [ -z "$list$only$long" ] || usage_error "--random goes not with --list, --only or --long"

if [ -n "$mutants" ]; then
    [ -z "$list$only$sanitize$type$werror$long${random[*]}" ] || usage_error "--mutants goes with no other option than --build-dir"
    crossing=$(cd "$tree/tests/mutants" && grep -l '^Cross: aarch64' -- *.patch || true)
    if [ ${#names[@]} -eq 0 ] || grep -qxF "$(printf '%s.patch\n' "${names[@]%.patch}")" <<<"$crossing"; then
        packages+=("${for_aarch64[@]}")
    fi
    require "${packages[@]}"
    exec python3 -B "$tree/scripts/mutants.py" "$tree" "${folder:-$(build_base build-mutants)}" "${names[@]}"
fi

options=(--buildtype="${type:-debugoptimized}" ${werror:+-Dwerror=true})
script=scripts/testcases.py
[ ${#random[@]} -eq 0 ] || script=tests/random/programs.py
command=(python3 -B "$tree/$script")
arguments=()
[ -z "$list" ] || arguments+=(--list)
[ -z "$only" ] || arguments+=(--only "$only")

# Settings under which the sanitizers suit programs with a preloaded library; the user's own come last, and win.
case $sanitize in
*address*)
    # The preloaded library stands before libasan in the list of libraries. The leak checker needs ptrace, which some
    # containers refuse.
    leaks=1
    probe=$(mktemp)
    printf 'int main(void) { return 0; }' | $(compiler) -x c -fsanitize=address -o "$probe" - 2>/dev/null &&
        "$probe" 2>/dev/null || leaks=0
    rm -f "$probe"
    [ "$leaks" = 1 ] || say "The leak checker cannot run here: leaks are not looked for."
    export ASAN_OPTIONS="verify_asan_link_order=0:halt_on_error=1:abort_on_error=1:detect_leaks=$leaks:${ASAN_OPTIONS:-}"
    ;;&
*undefined*)
    export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1:${UBSAN_OPTIONS:-}"
    options+=(-Dc_args="-fno-sanitize-recover=all ${CFLAGS:-}")
    ;;
thread)
    # It would hold up each of the many processes for a second at its end.
    TSAN_OPTIONS="halt_on_error=1:die_after_fork=0:second_deadlock_stack=1:atexit_sleep_ms=50:${TSAN_OPTIONS:-}"
    export TSAN_OPTIONS="suppressions='$tree/tests/support/tsan.supp':$TSAN_OPTIONS"
    # Where addresses are more random than the sanitizer's layout of memory allows.
    if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -gt 28 ] && setarch -R true 2>/dev/null; then
        command=(setarch -R "${command[@]}")
    fi
    ;;
esac
slowdown=1
if [ -n "$sanitize" ]; then
    options+=(-Db_sanitize="$sanitize" -Db_lundef=false)
    slowdown=5
fi
if [ -n "$cross" ]; then
    options+=(--cross-file "$tree/scripts/$cross.cross" -Dlibc_only=true)
    slowdown=5
fi
if [ -n "$long" ]; then
    export RANDOM_COUNT=10000
    slowdown=$((slowdown * 20))
fi
if [ ${#random[@]} -gt 0 ]; then
    arguments=("${random[@]}" --sanitizer "${sanitize:-none}" ${mode:+--mode "$mode"})
else
    arguments+=(--timeout-multiplier "$slowdown")
fi

# A build that fails counts as a failed case.
[ -n "$list" ] || trap 'say "0 passed, 1 failed, 0 skipped"' EXIT
require "${packages[@]}"
# No comma in a folder's name: the linker's options would be cut there.
prepare "${folder:-build${cross:+-$cross}${type:+-$type}${sanitize:+-${sanitize/,/-}}}" "${options[@]}" >&2
trap - EXIT
"${command[@]}" "$build" "${arguments[@]}"
