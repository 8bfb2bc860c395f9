# httplib::httplib: cpp-httplib, its source compiled once into a static library, or the system's where that is new
# enough. TLS is always in: every file that includes the header must agree on it.

include(${CMAKE_CURRENT_LIST_DIR}/DependencyFolder.cmake)
include(FindPackageHandleStandardArgs)

find_path(Httplib_FOLDER httplib.cpp PATHS ${SHARED_TENSOR_DEPS}/httplib NO_DEFAULT_PATH NO_CACHE)
if(Httplib_FOLDER)
  file(STRINGS ${Httplib_FOLDER}/httplib.h _httplib_line REGEX "define CPPHTTPLIB_VERSION \"")
  string(REGEX REPLACE ".*\"([0-9.]+)\".*" "\\1" Httplib_VERSION "${_httplib_line}")
else()
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(Httplib_SYSTEM QUIET IMPORTED_TARGET cpp-httplib>=${SHARED_TENSOR_HTTPLIB_OLDEST})
    set(Httplib_VERSION ${Httplib_SYSTEM_VERSION})
    set(Httplib_FOLDER ${Httplib_SYSTEM_PREFIX})
  endif()
endif()

find_package_handle_standard_args(Httplib REQUIRED_VARS Httplib_FOLDER VERSION_VAR Httplib_VERSION
  REASON_FAILURE_MESSAGE "cpp-httplib ${SHARED_TENSOR_HTTPLIB_OLDEST} or newer is missing: run scripts/fetch_deps")

if(Httplib_FOUND AND NOT TARGET httplib::httplib)
  if(Httplib_SYSTEM_FOUND)
    add_library(httplib::httplib ALIAS PkgConfig::Httplib_SYSTEM)
  else()
    add_library(httplib STATIC ${Httplib_FOLDER}/httplib.cpp)
    add_library(httplib::httplib ALIAS httplib)
    target_include_directories(httplib SYSTEM PUBLIC ${Httplib_FOLDER})
    # Its namespace is ours: a program that uses another version of the same library beside us must not mix the two.
    target_compile_definitions(httplib PUBLIC CPPHTTPLIB_OPENSSL_SUPPORT httplib=shared_tensor_httplib)
    target_compile_options(httplib PRIVATE -w)
    target_link_libraries(httplib PUBLIC OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
    set_target_properties(httplib PROPERTIES CXX_CLANG_TIDY "" COMPILE_OPTIONS "-w")
  endif()
endif()
