# SHARED_TENSOR_DEPS: the folder that scripts/fetch_deps fills. Installed with the package, so that its users find the
# same libtorch.

file(READ ${CMAKE_CURRENT_LIST_DIR}/dependencies.json SHARED_TENSOR_PINS)
string(JSON SHARED_TENSOR_DEPS_VERSION GET "${SHARED_TENSOR_PINS}" version)
string(JSON SHARED_TENSOR_TORCH_OLDEST GET "${SHARED_TENSOR_PINS}" torch version)
string(JSON SHARED_TENSOR_HTTPLIB_OLDEST GET "${SHARED_TENSOR_PINS}" httplib oldest_safe_version)

if(SHARED_TENSOR_DEPS_DIR)
  set(SHARED_TENSOR_DEPS ${SHARED_TENSOR_DEPS_DIR})
elseif(NOT "$ENV{SHARED_TENSOR_DEPS_DIR}" STREQUAL "")
  set(SHARED_TENSOR_DEPS $ENV{SHARED_TENSOR_DEPS_DIR})
elseif(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(SHARED_TENSOR_DEPS $ENV{XDG_CACHE_HOME}/shared_tensor/deps-${SHARED_TENSOR_DEPS_VERSION})
else()
  set(SHARED_TENSOR_DEPS $ENV{HOME}/.cache/shared_tensor/deps-${SHARED_TENSOR_DEPS_VERSION})
endif()
get_filename_component(SHARED_TENSOR_DEPS ${SHARED_TENSOR_DEPS} ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})

# Libraries of the folder's own, for machines that cannot install packages.
if(EXISTS ${SHARED_TENSOR_DEPS}/prefix)
  list(PREPEND CMAKE_PREFIX_PATH ${SHARED_TENSOR_DEPS}/prefix)
endif()
