# shared_tensor::torch: for code that includes <shared_tensor/torch.hpp>: what that header declares, and the libtorch that
# was found.
#
# shared_tensor_add_plugin(name source...): a plugin for `shared-tensor-server --load`. It sees the public headers and
# libtorch's, and exports nothing but its entry point.

get_property(_shared_tensor_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(TARGET Torch::cpu AND CXX IN_LIST _shared_tensor_languages AND NOT TARGET shared_tensor::torch)
  # The functions that <shared_tensor/torch.hpp> declares, compiled once for all targets of the build. Hidden: each module
  # has its own.
  set(_shared_tensor_source ${CMAKE_CURRENT_BINARY_DIR}/shared_tensor_torch_adapter.cpp)
  file(CONFIGURE OUTPUT ${_shared_tensor_source} CONTENT "#include <shared_tensor/detail/torch_adapter.hpp>\n")
  add_library(shared_tensor_torch_adapter STATIC EXCLUDE_FROM_ALL ${_shared_tensor_source})
  # A project's own checks are not for this file.
  set_target_properties(shared_tensor_torch_adapter PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    COMPILE_WARNING_AS_ERROR OFF CXX_CLANG_TIDY "" CXX_CPPCHECK "" CXX_INCLUDE_WHAT_YOU_USE "")
  target_compile_features(shared_tensor_torch_adapter PRIVATE cxx_std_20)
  # The headers of libtorch put their own paths into error messages.
  target_compile_options(shared_tensor_torch_adapter PRIVATE -fmacro-prefix-map=${LibTorch_FOUND_ROOT}/=)
  # The server says so where it has another libtorch.
  target_compile_definitions(shared_tensor_torch_adapter PUBLIC
    SHARED_TENSOR_TORCH_COMPILED SHARED_TENSOR_TORCH_VERSION="${LibTorch_VERSION}")
  target_link_libraries(shared_tensor_torch_adapter PUBLIC Torch::cpu)
  if(TARGET shared_tensor_headers)
    target_link_libraries(shared_tensor_torch_adapter PUBLIC shared_tensor_headers)
  else()
    target_link_libraries(shared_tensor_torch_adapter PUBLIC shared_tensor::headers)
  endif()

  add_library(shared_tensor::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(shared_tensor::torch INTERFACE shared_tensor_torch_adapter)
endif()

function(shared_tensor_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON PREFIX lib)
  if(TARGET shared_tensor_headers)
    target_link_libraries(${name} PRIVATE shared_tensor_headers)
  else()
    target_link_libraries(${name} PRIVATE shared_tensor::headers)
  endif()
  if(TARGET shared_tensor::torch)
    target_link_libraries(${name} PRIVATE shared_tensor::torch)
  endif()
  if(NOT SHARED_TENSOR_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
endfunction()
