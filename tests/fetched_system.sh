#!/usr/bin/env bash
# Proves that the project builds where none of its libraries is installed, from their own sources, as
# cmake/Dependencies.cmake fetches them. Nothing is downloaded from their sites: the sources are those of Debian's source
# packages, which have the same folders. For maintainers, as root; ctest does not run it.
#   tests/fetched_system.sh [SUITE]   trixie by default, which has the Boost and the doctest that are pinned
#       --work-tree, --keep FOLDER, --mirror URL   as of tests/bare_system.sh
set -euo pipefail
usage() { sed -n '5,6s/^# //p' "$0" >&2; exit 2; }
suite=trixie source_of=commit system='' mirror=''
while (($#)); do
    if [[ $1 =~ ^--(keep|mirror)$ && $# == 1 ]]; then usage; fi
    case $1 in
        --work-tree) source_of=work-tree ;;
        --keep) system=$(realpath "$2"); shift ;;
        --mirror) mirror=$2; shift ;;
        -*) usage ;;
        *) suite=$1 ;;
    esac
    shift
done
# shellcheck source=tests/debian_system.sh
source "$(dirname "$0")/debian_system.sh"

make_system "$suite"
copy_project "$source_of"
echo "deb-src $mirror $suite main" >>"$system/etc/apt/sources.list"
install inside g++ cmake ninja-build xz-utils

# The newest Boost that the suite has: its packages' names have the version.
boost=$(inside "apt-cache search --names-only '^libboost1[.][0-9]+-dev$' | sort -V | sed -n '\$s/^lib\(.*\)-dev.*/\1/p'")
options=''
for source in DOCTEST=doctest CLI11=cli11 FMT=fmtlib NLOHMANN_JSON=nlohmann-json3 "BOOST_CONTEXT=$boost"; do
    package=${source#*=} folder=/root/${source#*=}
    read -r url archive _ hash < <(inside "apt-get source --only-source --print-uris -qq $package | grep -F .orig.tar")
    inside "/usr/lib/apt/apt-helper download-file $url /root/$archive $hash >/dev/null" || fail "could not download $archive"
    inside "mkdir $folder && tar -C $folder --strip-components=1 -xf /root/$archive"
    options+=" -D FETCHCONTENT_SOURCE_DIR_${source%%=*}=$folder"
    echo "---- ${source%%=*}: $archive"
done

inside "cmake --preset cpu $options" | tee "$system/configure.log"
[[ $(grep -c 'not installed, fetching' "$system/configure.log") == 5 ]] || fail 'not all five libraries were fetched'
# Each of the libraries is in one of these.
inside 'cmake --build --preset cpu --target variant rung-01 -- --quiet'
inside 'build/cpu/bin/rung-01'
if inside 'ldd build/cpu/bin/rung-01' | grep -E 'libfmt|libboost'; then fail 'a library of the system is in use'; fi
echo "fetched_system: all is well"
