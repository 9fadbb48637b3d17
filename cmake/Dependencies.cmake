# Third-party libraries: the installed package where it is recent enough, else the pinned release.
#
# Debian 12 and Ubuntu 24.04: doctest-dev libcli11-dev libfmt-dev nlohmann-json3-dev, and, for the
# cpu backend, libboost-context-dev. With neither these nor a network, point
# FETCHCONTENT_SOURCE_DIR_<NAME, in capitals> at unpacked sources.
# Include this from the top-level CMakeLists.txt, after FLASHLADDER_BACKEND is set, and before any
# add_compile_options(): these would reach Boost's sources too when Boost is fetched.

option(FLASHLADDER_FETCH "Ignore installed third-party packages and fetch the pinned ones" OFF)

# Provides TARGET: from the installed package NAME, at least OLDEST, else from the archive of
# VERSION, whose headers lie in INCLUDE (BUILD: to be compiled, by the archive's own CMake files).
# Header-only ones become imported targets and their CMake files are never run. So they add no
# tests, installs, options or policy warnings to our build, and their headers are SYSTEM includes,
# as any imported target's. It is a macro because find_package(doctest) sets CMAKE_MODULE_PATH.
macro(flashladder_dependency NAME OLDEST TARGET VERSION INCLUDE URL SHA256)
  set(_why "${OLDEST} or later not installed")
  if(FLASHLADDER_FETCH)
    set(_why "FLASHLADDER_FETCH is on")
  elseif(NOT TARGET ${TARGET})
    find_package(${NAME} ${OLDEST} CONFIG QUIET)
  endif()
  if(NOT TARGET ${TARGET})
    message(STATUS "${NAME}: ${_why}, fetching ${VERSION}")
    include(FetchContent)
    # A SOURCE_SUBDIR without a CMakeLists.txt makes MakeAvailable stop after unpacking.
    FetchContent_Declare(${NAME} URL ${URL} URL_HASH SHA256=${SHA256} SOURCE_SUBDIR none)
    FetchContent_MakeAvailable(${NAME})
    FetchContent_GetProperties(${NAME} SOURCE_DIR _source)
    if("${INCLUDE}" STREQUAL "BUILD") # EXCLUDE_FROM_ALL: compile only what is linked, install none
      add_subdirectory(${_source} ${CMAKE_BINARY_DIR}/_deps/${NAME}-build EXCLUDE_FROM_ALL SYSTEM)
    else()
      add_library(${TARGET} INTERFACE IMPORTED)
      target_include_directories(${TARGET} INTERFACE ${_source}/${INCLUDE})
    endif()
  endif()
endmacro()

flashladder_dependency(doctest 2.4.9 doctest::doctest 2.4.11 .
  https://github.com/doctest/doctest/archive/refs/tags/v2.4.11.tar.gz
  632ed2c05a7f53fa961381497bf8069093f0d6628c5f26286161fbd32a560186)
flashladder_dependency(CLI11 2.1 CLI11::CLI11 2.5.0 include
  https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.5.0.tar.gz
  17e02b4cddc2fa348e5dbdbb582c59a3486fa2b2433e70a0c3bacb871334fd55)
flashladder_dependency(nlohmann_json 3.11 nlohmann_json::nlohmann_json 3.12.0 include
  https://github.com/nlohmann/json/releases/download/v3.12.0/json.tar.xz
  42f6e95cad6ec532fd372391373363b62a14af6d771056dbfc86160e6dfff7aa)

if(doctest_SOURCE_DIR) # fetched: where include(doctest) finds doctest_discover_tests()
  list(APPEND CMAKE_MODULE_PATH ${doctest_SOURCE_DIR}/scripts/cmake)
endif()

block() # settings for these alone
  set(BUILD_SHARED_LIBS OFF)
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
  # It has fmt::fmt-header-only too.
  flashladder_dependency(fmt 9 fmt::fmt 11.2.0 BUILD
    https://github.com/fmtlib/fmt/releases/download/11.2.0/fmt-11.2.0.zip
    203eb4e8aa0d746c62d8f903df58e0419e3751591bb53ff971096eaa0ebd4ec3)

  if(FLASHLADDER_BACKEND STREQUAL "cpu")
    set(BOOST_INCLUDE_LIBRARIES context)
    set(Boost_USE_STATIC_LIBS ON)
    if(NOT FLASHLADDER_FETCH)
      find_package(boost_context 1.74 CONFIG QUIET)
      if(NOT boost_context_FOUND)
        unset(Boost_USE_STATIC_LIBS) # some distributions have the shared library alone
      endif()
    endif()
    # Not find_package(Boost): with Boost's headers only, it leaves a Boost::headers that clashes.
    flashladder_dependency(boost_context 1.74 Boost::context 1.88.0 BUILD
      https://github.com/boostorg/boost/releases/download/boost-1.88.0/boost-1.88.0-cmake.tar.xz
      f48b48390380cfb94a629872346e3a81370dc498896f16019ade727ab72eb1ec)
  endif()
endblock()

# fmt is compiled once on the cpu backend, where it would be most of what the compiler has to do. A program for a GPU may
# start on another machine, and takes fmt along.
if(FLASHLADDER_BACKEND STREQUAL "cpu")
  add_library(text_formatting ALIAS fmt::fmt)
else()
  add_library(text_formatting ALIAS fmt::fmt-header-only)
endif()
