# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the scripts share, to be sourced: finds the tree, installs what is missing, configures and builds. Every function
# is quiet unless something fails; then the log of the command that failed is shown.
#
# After prepare(): $tree, the top of the sources; $build, the folder that was built.

tree=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
build=

say() { printf '%s\n' "$*"; }
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Runs a command; its output is shown only if it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -ne 0 ]; then
        printf '%s failed (exit status %s):\n' "$1" "$status" >&2
        grep -v '^\[[0-9]*/[0-9]*\] ' "$log" | tail -n 60 >&2 # ninja's progress tells nothing
    fi
    rm -f "$log"
    return "$status"
}

compiler() { printf '%s' "${CC:-cc}"; }
has_compiler() { printf 'int main(void) { return 0; }' | $(compiler) -x c -o /dev/null - 2>/dev/null; }
has_header() { printf '#include <%s>\n' "$1" | $(compiler) -x c -E -o /dev/null - 2>/dev/null; }

# Package names (Debian, Ubuntu) of what is missing, one a line. Arguments: packages wanted beyond those of the build.
missing_packages() {
    has_compiler || printf '%s\n' gcc libc6-dev
    command -v g++ >/dev/null || say g++ # nvcc needs it, and so does the test of the header in C++
    command -v python3 >/dev/null || say python3
    command -v meson >/dev/null || say meson
    command -v ninja >/dev/null || command -v ninja-build >/dev/null || say ninja-build
    pkg-config --version >/dev/null 2>&1 || say pkg-config
    has_header cmocka.h || say libcmocka-dev
    has_header uthash.h || say uthash-dev
    has_header jansson.h || say libjansson-dev
    has_header lzma.h || say liblzma-dev
    local package
    for package in "$@"; do
        case $package in
        chromium | clang | clang-format-14 | fish | mandoc | patch | spin | tmux | valgrind | zsh) command -v "$package" >/dev/null || say "$package" ;;
        gcc-aarch64-linux-gnu) command -v aarch64-linux-gnu-gcc >/dev/null || say "$package" ;;
        libclang-rt-14-dev) # the fuzzer's library
            printf 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -fsanitize=fuzzer -x c -o /dev/null - 2>/dev/null || say "$package" ;;
        python3-jsonschema) python3 -c 'import jsonschema' 2>/dev/null || say "$package" ;;
        libncurses-dev) has_header curses.h || say "$package" ;;
        libmicrohttpd-dev) has_header microhttpd.h || say "$package" ;;
        prometheus) command -v promtool >/dev/null || say "$package" ;;
        python3-pip) python3 -m pip --version >/dev/null 2>&1 || say "$package" ;;
        libc6-dev-arm64-cross) [ -e /usr/aarch64-linux-gnu/lib/libc.so ] || say "$package" ;;
        qemu-user) command -v qemu-aarch64 >/dev/null || say "$package" ;;
        *) say "$package" ;;
        esac
    done
}

# Installs packages with apt-get, as root or through sudo.
install_packages() {
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        die "missing here: $*. No apt-get to install them with: please install them, or what they are called here."
    fi
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing here: $*. Neither root nor sudo: as root, run apt-get install $*"
        as_root=(sudo)
        if [ ! -t 0 ]; then
            as_root=(sudo -n)
            sudo -n true 2>/dev/null || die "missing here: $*. No password-less sudo: as root, run apt-get install $*"
        else
            sudo -v || die "missing here: $*. As root, run apt-get install $*"
        fi
    fi
    say "Installing with apt-get${as_root[*]:+ (${as_root[0]})}: $*"
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update ||
        die "apt-get update failed; still missing: $*"
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
        die "apt-get could not install: $*"
}

# Makes sure that the tools and headers of the build are there, and the packages named.
require() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}"
}

# Where build folders go: the top of the tree, or, when that cannot be written, the user's cache.
build_base() {
    local folder=$1
    if [ -d "$tree/$folder" ] && [ -w "$tree/$folder" ] || [ ! -e "$tree/$folder" ] && [ -w "$tree" ]; then
        printf '%s' "$tree/$folder"
    else
        printf '%s/poolcuda/%s/%s' "${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}" \
            "$(printf '%s' "$tree" | cksum | tr ' ' -)" "$folder"
    fi
}

# configure [MESON_OPTION…]: makes $build a build folder of this tree with these options. A stamp in it tells what it was
# made for: a folder made for another place (a copied tree), compiler or set of options is made afresh.
configure() {
    local stamp=$build/.poolcuda-stamp wanted
    wanted=$(printf '%s\n' "tree $tree" "build $build" "compiler $(compiler) $($(compiler) --version | head -n 1)" \
        "meson $(meson --version)" "toolkit ${CUDA_HOME:-} ${CUDA_PATH:-}" "options $*")
    if [ -e "$stamp" ]; then
        [ "$(cat "$stamp")" != "$wanted" ] || return 0
        find "$build" -mindepth 1 -maxdepth 1 ! -name '.poolcuda-*' -exec rm -rf {} +
    elif [ -e "$build/build.ninja" ]; then # made by hand: keep what can be kept
        quietly meson setup --reconfigure "$@" "$build" "$tree" 9>&- ||
            die "the build folder $build was not made by this script and cannot be used: remove it"
        return 0
    elif [ -n "$(find "$build" -mindepth 1 -maxdepth 1 ! -name '.poolcuda-*' -print -quit)" ]; then
        die "$build holds something else than a build"
    fi
    say unfinished >"$stamp"
    quietly meson setup "$@" "$build" "$tree" 9>&- || die "the build could not be configured"
    say "$wanted" >"$stamp"
}

# prepare FOLDER [MESON_OPTION…] [-- TARGET…]: configures and builds in FOLDER (a name below the top of the tree, or an
# absolute path), and sets $build. Builds everything, or of the targets named those that there are.
prepare() {
    local options=() targets=(all meson-test-prereq)
    case $1 in
    /*) build=$1 ;;
    *)
        build=$(build_base "$1")
        [ "$build" = "$tree/$1" ] || say "The tree cannot be written here: building in $build"
        ;;
    esac
    shift
    while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1") && shift; done
    mkdir -p "$build" || die "cannot make the build folder $build"
    [ -w "$build" ] || die "cannot write to the build folder $build (is it another user's?)"
    # One at a time: two scripts started together share the folder.
    exec 9>"$build/.poolcuda-lock"
    flock 9
    configure "${options[@]}"
    local ninja
    ninja=$(command -v ninja || command -v ninja-build)
    if [ $# -gt 0 ]; then
        shift
        mapfile -t targets < <("$ninja" -C "$build" -t targets all | sed -n 's/^\([^ ]*\): .*/\1/p' | grep -xF "$(printf '%s\n' "$@")")
    fi
    quietly "$ninja" -C "$build" "${targets[@]}" 9>&- || die "the build failed"
    exec 9>&-
}

# Takes what scripts/bundle-deps.sh has gathered, where it has, before what is installed.
use_bundle() {
    local deps=$tree/build-deps
    [ -d "$deps/lib" ] || return 0
    pkg-config --version >/dev/null 2>&1 || PATH=$deps/bin:$PATH
    PKG_CONFIG_PATH=$deps/lib/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    CPATH=$deps/include${CPATH:+:$CPATH}
    LIBRARY_PATH=$deps/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
    export PATH PKG_CONFIG_PATH CPATH LIBRARY_PATH
}
