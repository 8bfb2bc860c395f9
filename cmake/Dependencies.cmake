# Everything that is not ours. Each package that an installed shared_tensor needs again is named beside its targets.

include(DependencyFolder)
find_package(Threads REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Zstd REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(cxxopts 3.0 REQUIRED)
find_package(Httplib REQUIRED)
# xxHash, for digests: its headers alone.
find_path(XXHASH_INCLUDE_DIR xxh3.h)
mark_as_advanced(XXHASH_INCLUDE_DIR)
if(NOT XXHASH_INCLUDE_DIR)
  message(FATAL_ERROR "xxHash 0.8 or newer is missing (xxh3.h): install libxxhash-dev, or run scripts/install_packages")
endif()
# spdlog and the fmt that it needs, for the log: their headers alone.
find_path(SPDLOG_INCLUDE_DIR spdlog/async_logger.h)
find_path(FMT_INCLUDE_DIR fmt/format.h)
mark_as_advanced(SPDLOG_INCLUDE_DIR FMT_INCLUDE_DIR)
if(NOT SPDLOG_INCLUDE_DIR OR NOT FMT_INCLUDE_DIR)
  message(FATAL_ERROR "spdlog 1.10 or newer, or fmt, is missing (spdlog/async_logger.h, fmt/format.h): install libspdlog-dev and libfmt-dev, or run scripts/install_packages")
endif()
if(SHARED_TENSOR_TORCH)
  find_package(LibTorch REQUIRED)
endif()
if(SHARED_TENSOR_BUILD_TESTS)
  find_package(Catch2 3.4 REQUIRED)
endif()

if(NOT SHARED_TENSOR_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "SHARED_TENSOR_CUDA is '${SHARED_TENSOR_CUDA}': use AUTO, ON or OFF")
endif()
# The header of the driver's API alone: the driver is opened where the library runs.
find_path(SHARED_TENSOR_CUDA_INCLUDE cuda.h NO_CACHE
  HINTS ${CUDAToolkit_ROOT}/include $ENV{CUDA_HOME}/include ${SHARED_TENSOR_DEPS}/site/nvidia/cu13/include
  PATHS /usr/local/cuda/include)
if(SHARED_TENSOR_CUDA STREQUAL "ON" AND NOT SHARED_TENSOR_CUDA_INCLUDE)
  message(FATAL_ERROR "SHARED_TENSOR_CUDA is ON, but cuda.h is missing: run scripts/fetch_deps, or set CUDAToolkit_ROOT.")
elseif(SHARED_TENSOR_CUDA_INCLUDE AND NOT SHARED_TENSOR_CUDA STREQUAL "OFF")
  set(SHARED_TENSOR_WITH_CUDA ON)
else()
  set(SHARED_TENSOR_WITH_CUDA OFF)
endif()
