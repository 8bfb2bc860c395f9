# shared_tensor::torch: for code that includes <shared_tensor/torch.hpp>, the libtorch that was found.
#
# shared_tensor_add_plugin(name source...): a plugin for `shared-tensor-server --load`. It sees the public headers and
# libtorch's, and exports nothing but its entry point.

if(TARGET Torch::cpu AND NOT TARGET shared_tensor::torch)
  add_library(shared_tensor::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(shared_tensor::torch INTERFACE Torch::cpu)
  # The server says so where it has another libtorch.
  target_compile_definitions(shared_tensor::torch INTERFACE SHARED_TENSOR_TORCH_VERSION="${LibTorch_VERSION}")
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
