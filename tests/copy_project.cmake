# Copies the project to TO and builds it there, so that the command-line tests can solve, break and reset chapters
# without touching a learner's files. Kept between runs: the second time there is little to do.
#   cmake -D FROM=... -D TO=... -D COMPILER=... -D BUILD=... -P copy_project.cmake
foreach(part IN ITEMS chapters cmake common solutions tests tools CMakeLists.txt CMakePresets.json)
  file(COPY ${FROM}/${part} DESTINATION ${TO})
endforeach()
# What was fetched, or is given as unpacked sources, is not fetched again.
file(STRINGS ${BUILD}/CMakeCache.txt given REGEX "^(FETCHCONTENT_SOURCE_DIR_|FLASHLADDER_FETCH:)")
list(TRANSFORM given PREPEND -D)
execute_process(
  COMMAND ${CMAKE_COMMAND} --preset cpu -D CMAKE_CXX_COMPILER=${COMPILER} -D FETCHCONTENT_BASE_DIR=${BUILD}/_deps ${given}
          --log-level=WARNING
  WORKING_DIRECTORY ${TO} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
execute_process(
  COMMAND ${CMAKE_COMMAND} --build build/cpu --target ladder stages rung-01
  WORKING_DIRECTORY ${TO} COMMAND_ERROR_IS_FATAL ANY)
