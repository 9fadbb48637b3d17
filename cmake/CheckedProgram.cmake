# What `ladder check` has to know to compile a user's program as kernels are compiled here: written to build/cpu/check.

add_library(checked_program STATIC ${CMAKE_SOURCE_DIR}/common/emulator/checked_program.cpp)
target_link_libraries(checked_program PRIVATE emulator flashladder_options text_formatting Boost::context)
set_target_properties(checked_program PROPERTIES EXCLUDE_FROM_ALL ON)

# Only what has a name of CUDA's: the emulator's own memory.h must not come before the system's.
set(check ${CMAKE_BINARY_DIR}/check)
foreach(header IN ITEMS cooperative_groups.h cooperative_groups/memcpy_async.h cooperative_groups/reduce.h
    cooperative_groups/scan.h cuda.h cuda/barrier cuda/pipeline cuda_awbarrier_primitives.h cuda_bf16.h cuda_fp16.h
    cuda_pipeline.h cuda_pipeline_primitives.h cuda_profiler_api.h cuda_runtime.h cuda_runtime_api.h curand_kernel.h
    curand_philox4x32_x.h device_launch_parameters.h driver_types.h math_constants.h vector_functions.h vector_types.h)
  file(CONFIGURE OUTPUT ${check}/include/${header} CONTENT "#include \"${CMAKE_SOURCE_DIR}/common/emulator/${header}\"\n")
endforeach()

# One argument a line, as compilers read them from a file.
function(write_arguments file)
  list(TRANSFORM ARGN REPLACE "^SHELL:" "")
  list(JOIN ARGN "\n" text)
  file(GENERATE OUTPUT ${check}/${file} CONTENT "${text}\n")
endfunction()
separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS}")
get_target_property(options kernel_options INTERFACE_COMPILE_OPTIONS)
# CUDA's language is more lenient than C++20.
# Binutils confuses file 0 and 1 of DWARF 5, which differ where #line names another file.
write_arguments(compile.rsp ${flags} -std=gnu++20 ${options} -gdwarf-4 -ffp-contract=off -fpermissive -Wno-narrowing -Wno-deprecated
  -Wno-attributes -Wno-unused-result
  "-include \"${CMAKE_SOURCE_DIR}/common/emulator/memory_functions.h\""
  "-include \"${CMAKE_SOURCE_DIR}/common/emulator/checked_program.h\"" "-I\"${check}/include\""
  "-idirafter \"${CMAKE_SOURCE_DIR}/common\"")
get_target_property(options emulator INTERFACE_LINK_OPTIONS)
list(TRANSFORM options REPLACE "^LINKER:" "-Wl,")
list(TRANSFORM CMAKE_DL_LIBS PREPEND -l OUTPUT_VARIABLE libraries)
set(archive "\"$<TARGET_FILE:checked_program>\"")
write_arguments(link.rsp ${flags} ${options} -Wl,--allow-shlib-undefined -Wl,--whole-archive ${archive} -Wl,--no-whole-archive
  "\"$<TARGET_FILE:emulator>\"" "\"$<TARGET_LINKER_FILE:fmt::fmt>\"" "\"$<TARGET_LINKER_FILE:Boost::context>\"" ${libraries}
  -lm)
file(GENERATE OUTPUT ${check}/compiler CONTENT "'${CMAKE_CXX_COMPILER}' ${CMAKE_CXX_COMPILER_ARG1}")
