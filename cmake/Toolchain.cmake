# Compiler settings of the whole build. Warnings belong to our own targets only: see shared_tensor_own_code().

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
# Installed programs find libtorch where it was at build time, and our own libraries beside themselves.
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
list(APPEND CMAKE_INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  # CMake's own -O3 makes calls no faster, and the programs a tenth larger.
  string(REPLACE -O3 -O2 CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
  string(REPLACE -O3 -O2 CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")

  find_program(SHARED_TENSOR_CCACHE ccache)
  if(SHARED_TENSOR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # So that build folders of the same depth share what they compile, the Python wheel's too.
    set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${SHARED_TENSOR_CCACHE})
    set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
  endif()

  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=lld SHARED_TENSOR_HAS_LLD)
  if(SHARED_TENSOR_HAS_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

if(SHARED_TENSOR_SANITIZE STREQUAL "address")
  # vptr asks for type information that libtorch hides.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
elseif(SHARED_TENSOR_SANITIZE STREQUAL "thread")
  set(sanitizers -fsanitize=thread)
elseif(NOT SHARED_TENSOR_SANITIZE STREQUAL "")
  message(FATAL_ERROR "SHARED_TENSOR_SANITIZE is '${SHARED_TENSOR_SANITIZE}': use address, thread or nothing")
endif()
if(DEFINED sanitizers)
  add_compile_options(${sanitizers} -fno-omit-frame-pointer -g1)
  add_link_options(${sanitizers})
endif()
if(SHARED_TENSOR_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage -Wl,-u,__gcov_dump)  # the daemon ends with _exit and asks for it
endif()

# The warnings that all of our own code lives with.
function(shared_tensor_own_code target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
    -Wold-style-cast -Woverloaded-virtual -Wcast-align -Wformat=2 -Wimplicit-fallthrough)
  # gcc 12 sees overlaps in ordinary string additions (its bug 105651): a warning about nothing.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  # A class of a .cpp file may have members of types of its anonymous namespace, also where files are compiled together.
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  # Instrumented code confuses gcc's warnings about values: they are errors in ordinary builds only.
  if(SHARED_TENSOR_WERROR AND NOT SHARED_TENSOR_SANITIZE AND NOT SHARED_TENSOR_COVERAGE)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
