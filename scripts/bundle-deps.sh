#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Gathers what the build needs into build-deps/; see usage() below.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
    cat <<'END'
Usage: scripts/bundle-deps.sh

Gathers the libraries and headers that the build needs beyond a C compiler, Python and the CUDA Toolkit (cmocka, jansson,
liblzma, uthash, and pkg-config) in build-deps/ at the top of the tree, which git ignores: for a machine without a network
and without these, to which the tree is then copied with that folder. scripts/gpu-check.sh finds them there. Needs
apt-get, dpkg and a network, but no rights; for processors of this machine's kind, with a glibc at least as new.
END
}
case ${1:-} in
'') ;;
--help | -h) usage && exit ;;
*) printf 'bundle-deps.sh: unknown option: %s\n' "$1" >&2 && usage >&2 && exit 2 ;;
esac

MOST_MIB=30
packages=(libcmocka0 libcmocka-dev libjansson4 libjansson-dev liblzma5 liblzma-dev uthash-dev pkgconf pkgconf-bin libpkgconf3)
for tool in apt-get dpkg-deb; do command -v "$tool" >/dev/null || die "$tool is missing"; done

deps=$tree/build-deps
fresh=$deps.new
rm -rf "$fresh"
mkdir -p "$fresh/packages"
(cd "$fresh/packages" && quietly apt-get download "${packages[@]}") ||
    die "could not download ${packages[*]} (is the list of packages there? apt-get update)"
for package in "$fresh"/packages/*.deb; do dpkg-deb -x "$package" "$fresh/unpacked"; done
rm -rf "$fresh/packages" "$fresh"/unpacked/usr/share/{doc,man,lintian,bug,doc-base} "$fresh/unpacked/etc"

# Links to absolute places would lead out of the folder.
root=$fresh/unpacked
libraries=$(dirname "$(find "$root" -name 'libcmocka.so.0')")
mv "$root/usr/include" "$fresh/include"
mkdir -p "$fresh/lib" "$fresh/bin"
find "$libraries" "$root/lib" -name '*.so*' \( -type f -o -type l \) -exec cp -P {} "$fresh/lib/" \; 2>/dev/null || true
for library in cmocka:0 jansson:4 lzma:5; do
    name=lib${library%:*}.so
    [ -e "$fresh/lib/$name.${library#*:}" ] || die "$name.${library#*:} is in none of the packages"
    ln -sf "$name.${library#*:}" "$fresh/lib/$name"
done
cp "$(find "$root" -path '*/bin/pkgconf' -type f | head -n 1)" "$fresh/bin/pkgconf"
cat >"$fresh/bin/pkg-config" <<'END'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/../lib exec "$here/pkgconf" "$@"
END
chmod +x "$fresh/bin/pkg-config"

# pkg-config finds the folder by the place of these files.
mkdir -p "$fresh/lib/pkgconfig"
describe() {
    # shellcheck disable=SC2016 # pkg-config expands them
    printf 'prefix=${pcfiledir}/../..\nName: %s\nDescription: %s\nVersion: %s\nCflags: -I${prefix}/include\nLibs: -L${prefix}/lib -l%s -Wl,-rpath,${prefix}/lib\n' \
        "$1" "$1" "$3" "$2" >"$fresh/lib/pkgconfig/$1.pc"
}
of() { sed -n 's/^Version: *//p' "$(find "$root" -name "$1.pc" | head -n 1)"; }
describe cmocka cmocka "$(of cmocka)"
describe jansson jansson "$(of jansson)"
describe liblzma lzma "$(of liblzma)"
rm -rf "$root"

size=$(du -sm "$fresh" | cut -f1)
[ "$size" -lt "$MOST_MIB" ] || die "what was gathered takes $size MiB: more than $MOST_MIB"
rm -rf "$deps"
mv "$fresh" "$deps"
say "Gathered in $deps ($size MiB): $(cd "$deps" && echo lib/*.so include/* bin/pkg-config)"
