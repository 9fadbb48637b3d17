# How kernels (.cu files) are compiled on either backend.
#
#   add_kernels(<target> <file.cu> [UNFINISHED])   an object library: by nvcc, or by the C++ compiler with the emulator's
#                                                  checks. UNFINISHED code may leave variables and functions unused
#       or QUICK [WITH_VARIANTS]                   the same, as soon as the compiler can: not optimised, and without
#                                                  variants: those made by with_bf16_types_of (operations/attention/launch_forward.h)
#                                                  say so when they are launched
#       VARIANTS [<variants.cu>]                   of a rung with such a file, which includes <file.cu>: it is compiled in
#                                                  its place, but if QUICK without WITH_VARIANTS
#       or CHECK_INDICES                           an index too large for its array is an error, as in what is unfinished
#       or BESIDE_SOLUTION                         a learner's file in a program that has the solution too. It may leave
#                                                  as much unused

include(Architectures)

# A compiler that is newer than ours warns of more, and that stops nobody but us: .ci/run sets this variable.
option(FLASHLADDER_WERROR "Warnings are errors, but those of unfinished code" "$ENV{FLASHLADDER_WERROR}")

add_library(flashladder_options INTERFACE)
set(host_warnings -Wall -Wextra $<$<BOOL:${FLASHLADDER_WERROR}>:-Werror>)
# Reports name files from the project's folder on, whichever folder is built in, and if ccache says it from there on, too.
cmake_path(RELATIVE_PATH CMAKE_SOURCE_DIR BASE_DIRECTORY ${CMAKE_BINARY_DIR} OUTPUT_VARIABLE source_from_build)
# A product and a sum stay two operations, as on x86-64: a compiler for arm64 would fuse them and round once.
target_compile_options(flashladder_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${host_warnings};-ffp-contract=off;-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=;-ffile-prefix-map=${source_from_build}/=;-ffile-prefix-map=${CMAKE_BINARY_DIR}=.>")

# Options of kernels are those of a library, so that they come after -Wall.
add_library(kernel_options INTERFACE)
add_library(first_header INTERFACE)  # of kernels that have no precompiled one
# Functions are inlined as -O3 does it: what is passed by reference then stays in registers, and costs no hooks.
add_library(optimised_options INTERFACE)
target_compile_options(optimised_options INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-finline-functions;-finline-small-functions;-findirect-inlining>)
# Behind the check of an index the compiler moves nothing out of a loop, such as the divisions that are counted. So the
# indices of finished kernels are not checked.
add_library(finished_options INTERFACE)
target_compile_options(finished_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=bounds>)
add_library(unused_options INTERFACE)
target_compile_options(unused_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wno-error;-Wno-unused;-Wno-unused-parameter>" $<$<COMPILE_LANGUAGE:CUDA>:--diag-suppress=177,550>)
add_library(beside_solution_options INTERFACE)
target_link_libraries(beside_solution_options INTERFACE unused_options)
target_compile_definitions(beside_solution_options INTERFACE FLASHLADDER_MINE)  # harness/stage.h
add_library(unfinished_options INTERFACE)
target_compile_definitions(unfinished_options INTERFACE FLASHLADDER_UNFINISHED)  # waits give up: ptx/mbarrier.h
target_link_libraries(unfinished_options INTERFACE unused_options)
add_library(quick_options INTERFACE)
target_compile_options(quick_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O0>)

if(FLASHLADDER_BACKEND STREQUAL "gpu")
  set(CMAKE_CUDA_ARCHITECTURES "80-real;89-real;90a-real" CACHE STRING "as CMake's variable of this name")
  set(FLASHLADDER_TEST_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES} CACHE STRING "those of all kernels but the solutions")
  enable_language(CUDA)
  find_package(CUDAToolkit 12.4 REQUIRED)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  target_compile_definitions(flashladder_options INTERFACE FLASHLADDER_GPU)
  target_compile_options(flashladder_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;-Xcompiler=-Wall>"
    "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${FLASHLADDER_WERROR}>>:--Werror=all-warnings;-Xptxas=--warning-as-error>"
    $<$<COMPILE_LANGUAGE:CUDA>:-Xfatbin=-compress-all>)  # a tenth of the size, where a program has to travel
  # A program built here starts on another machine: no library of this one is needed, nor libcuda before it is used.
  target_link_options(flashladder_options INTERFACE -static-libstdc++ -static-libgcc)
else()
  # With a g++ that is older than the system's, Debian links its older libstdc++, and libfmt needs the newer one that it
  # will find when it runs.
  target_link_options(flashladder_options INTERFACE -Wl,--allow-shlib-undefined)
  # The hooks in front of every load and store, and where an index is too large; see common/emulator/hooks.cpp. A struct
  # such as float4 must stay whole to be seen as one access, and loops must not be vectorised, or accesses of several
  # iterations would be merged.
  # On a GPU expf sets no errno, so it may be moved out of loops; and kernels look at floats as float4, which nvcc allows.
  # Nor does nvcc warn of what a host compiler finds suspicious in kernels. -g1: reports need lines and no more. -O1: what
  # -O3 takes three times as long to compile runs no faster, for the hooks take the time.
  # The frame pointer leads from a hook to the caller of the function that it is in.
  # The compiler must not know memcpy and its kin. g++ puts no hooks in front of what it makes of them, nor of what a loop
  # does of which it has made one. clang, where a struct is copied and its copy then passed or copied, passes or copies
  # the original instead: unseen, or once more. Nor may headers call others, as _FORTIFY_SOURCE makes them: Ubuntu's g++
  # has it on.
  target_compile_options(kernel_options INTERFACE -O1 -g1 -fsanitize=thread -fno-tree-vectorize -fno-math-errno
    -U_FORTIFY_SOURCE -fno-builtin-memcpy -fno-builtin-memmove -fno-builtin-memset -fno-strict-aliasing
    -fno-omit-frame-pointer -Wno-sign-compare -Wno-unknown-pragmas -Wno-psabi)
  # A large local array is touched page by page, so that it cannot lie beyond the guard page of a thread's stack.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    target_compile_options(kernel_options INTERFACE -fstack-clash-protection)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Of a call, g++ puts no hook in front of the load of a struct that is passed by value, nor of the store of one that
    # is returned. Where no copy is elided, both are left to a constructor or an assignment, which have hooks. From -O2 on
    # it would pass what a reference leads to by value, too, and make one of functions that do the same at other lines.
    target_compile_options(kernel_options INTERFACE -fno-elide-constructors -fno-tree-sra -fno-ipa-sra -fno-ipa-icf
      -fsanitize=bounds "SHELL:--param tsan-distinguish-volatile=1" -fno-tree-loop-distribute-patterns)
  else()
    # No calls at a function's end that leave its frame, for reports name the callers. GNU's assembler knows fewer sections,
    # and says so.
    target_compile_options(kernel_options INTERFACE -fno-slp-vectorize -fno-integrated-as -fsanitize=array-bounds
      -fno-optimize-sibling-calls -Wa,--no-warn
      "SHELL:-mllvm -tsan-distinguish-volatile=1" "SHELL:-mllvm -tsan-instrument-read-before-write=1"
      "SHELL:-mllvm -tsan-instrument-func-entry-exit=0")
    # Those hooks are for 1, 2, 4, 8 and 16 bytes. In front of other loads and stores, as of a struct of 7 bytes that is
    # passed in a register, AddressSanitizer puts calls. -Xclang, for the driver would not have both; it is to leave
    # variables as they are.
    target_compile_options(kernel_options INTERFACE "SHELL:-Xclang -fsanitize=kernel-address"
      "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0" "SHELL:-mllvm -asan-stack=0"
      "SHELL:-mllvm -asan-globals=0" "SHELL:-mllvm -asan-opt=0")
  endif()
endif()

set(memory_functions ${CMAKE_SOURCE_DIR}/common/emulator/memory_functions.h)
if(FLASHLADDER_BACKEND STREQUAL "cpu")
  target_compile_options(first_header INTERFACE "SHELL:-include \"${memory_functions}\"")
endif()

if(FLASHLADDER_BACKEND STREQUAL "gpu")
  # Registers, shared memory and spills of every solution, and of the learner's files that are built, as ptxas told them;
  # the instructions that they must have. Fails on a spill, on serialized wgmma, and where an instruction is missing.
  add_custom_target(resource-report
    COMMAND ${CMAKE_COMMAND} -D NVCC=${CMAKE_CUDA_COMPILER} -D BUILD=${CMAKE_BINARY_DIR}
            -P ${CMAKE_SOURCE_DIR}/cmake/ResourceReport.cmake
    VERBATIM USES_TERMINAL)
endif()

# The harness's headers, compiled once for all QUICK kernels without variants: half of what these took, and the tests have
# hundreds. An #include that is missing in such a kernel is not noticed: a solution is compiled without this, too.
function(quick_headers)
  if(NOT TARGET quick_headers)
    file(CONFIGURE OUTPUT quick_headers.cpp CONTENT "")
    add_library(quick_headers OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/quick_headers.cpp)
    target_link_libraries(quick_headers PRIVATE harness kernel_options unfinished_options quick_options)
    target_compile_definitions(quick_headers PRIVATE FLASHLADDER_NO_VARIANTS)
    file(GLOB stages CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/common/operations/*/stage.h)
    # By a file of our own: CMake gives the one that it writes the time of CMakeLists.txt, whatever has come since.
    set(headers ${memory_functions} ${stages} ${CMAKE_SOURCE_DIR}/common/operations/attention/launch_forward.h)
    list(TRANSFORM headers REPLACE ".+" "#include \"\\0\"\n")
    list(JOIN headers "" headers)
    file(CONFIGURE OUTPUT quick_headers.h CONTENT "${headers}" @ONLY)
    target_precompile_headers(quick_headers PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/quick_headers.h)
  endif()
endfunction()

function(add_kernels target file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "UNFINISHED;QUICK;WITH_VARIANTS;BESIDE_SOLUTION;CHECK_INDICES" "VARIANTS" "")
  set(compiled ${file})
  if(arg_VARIANTS AND (NOT arg_QUICK OR arg_WITH_VARIANTS))
    set(compiled ${arg_VARIANTS})
  endif()
  add_library(${target} OBJECT ${compiled})
  if(NOT compiled STREQUAL file)
    cmake_path(GET compiled PARENT_PATH folder)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${folder} OUTPUT_VARIABLE included)  # the same in every folder, for ccache
    target_compile_definitions(${target} PRIVATE "FLASHLADDER_RUNG=\"${included}\"")
  endif()
  target_link_libraries(${target} PRIVATE harness kernel_options
                        $<$<OR:$<BOOL:${arg_UNFINISHED}>,$<BOOL:${arg_QUICK}>>:unfinished_options>
                        $<IF:$<BOOL:${arg_QUICK}>,quick_options,optimised_options>
                        $<$<NOT:$<OR:$<BOOL:${arg_UNFINISHED}>,$<BOOL:${arg_QUICK}>,$<BOOL:${arg_CHECK_INDICES}>>>:finished_options>
                        $<$<BOOL:${arg_BESIDE_SOLUTION}>:beside_solution_options>)
  if(arg_QUICK AND NOT arg_WITH_VARIANTS)
    target_compile_definitions(${target} PRIVATE FLASHLADDER_NO_VARIANTS)
    if(FLASHLADDER_BACKEND STREQUAL "cpu")
      quick_headers()
      target_precompile_headers(${target} REUSE_FROM quick_headers)
    endif()
  else()
    target_link_libraries(${target} PRIVATE first_header)
  endif()
  if(FLASHLADDER_BACKEND STREQUAL "cpu")
    set_source_files_properties(${compiled} PROPERTIES LANGUAGE CXX)
    return()
  endif()
  cmake_path(ABSOLUTE_PATH file)  # EXISTS takes no other
  if(EXISTS ${file})
    if(target MATCHES "^solution-")
      architectures_of(${file} architectures ${CMAKE_CUDA_ARCHITECTURES})
    else()
      architectures_of(${file} architectures ${FLASHLADDER_TEST_ARCHITECTURES})
    endif()
    set(launcher sh ${CMAKE_SOURCE_DIR}/cmake/keep_output.sh ${CMAKE_CUDA_COMPILER_LAUNCHER})  # before one that is given
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${architectures}" CUDA_COMPILER_LAUNCHER "${launcher}")
    target_compile_options(${target} PRIVATE --resource-usage)
    if(target MATCHES "^solution-")
      add_dependencies(resource-report ${target})
    endif()
  endif()
endfunction()
