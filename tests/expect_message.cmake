# Compiles SNIPPET with DEFINITIONS: that must fail and say SENTENCE, or, where that is empty, succeed.
separate_arguments(DEFINITIONS UNIX_COMMAND "${DEFINITIONS}")
execute_process(
  COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I ${COMMON} -I ${COMMON}/emulator ${DEFINITIONS}
          ${SNIPPET}
  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
string(FIND "${said}" "${SENTENCE}" found)
if(SENTENCE STREQUAL "" AND NOT status EQUAL 0)
  message(FATAL_ERROR "what is right does not compile:\n${said}")
elseif(NOT SENTENCE STREQUAL "" AND status EQUAL 0)
  message(FATAL_ERROR "compiles, though it should not: ${SENTENCE}")
elseif(found EQUAL -1)
  message(FATAL_ERROR "fails, but does not say '${SENTENCE}':\n${said}")
endif()
