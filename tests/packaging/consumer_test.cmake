# Installs the build into a folder of its own, builds the consumer project against it, and runs its program.

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${what} failed (${code}):\n${text}")
  endif()
  set(output "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
run("installing" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
run("configuring the consumer" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER} -B ${WORK}/build -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DCMAKE_PREFIX_PATH=${WORK}/installed)
run("building the consumer" ${CMAKE_COMMAND} --build ${WORK}/build)
foreach(program IN ITEMS program program_of_library)
  run("the consumer's ${program}" ${WORK}/build/${program})
  if(NOT output MATCHES "3 functions\nprice: 119.00")
    message(FATAL_ERROR "the consumer's ${program} printed: ${output}")
  endif()
endforeach()

# Where the build makes the daemon, the installed one must load the consumer's plugin.
set(daemon ${WORK}/installed/bin/shared-tensor-server)
if(EXISTS ${daemon})
  run("the installed daemon" ${daemon} --load ${WORK}/build/libconsumer_plugin.so --print-config)
  if(NOT output MATCHES "consumer_plugin")
    message(FATAL_ERROR "the installed daemon printed: ${output}")
  endif()
endif()
