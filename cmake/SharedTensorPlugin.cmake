# shared_tensor_add_plugin(name source...): a plugin for `shared-tensor-server --load`. It sees the public headers and
# libtorch's, and exports nothing but its entry point.

function(shared_tensor_add_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_compile_features(${name} PRIVATE cxx_std_20)
  # The daemon refuses a plugin that was built with another libtorch than its own.
  target_compile_definitions(${name} PRIVATE SHARED_TENSOR_TORCH_VERSION="${LibTorch_VERSION}")
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON PREFIX lib)
  if(TARGET shared_tensor_headers)
    target_link_libraries(${name} PRIVATE shared_tensor_headers Torch::cpu)
  else()
    target_link_libraries(${name} PRIVATE shared_tensor::headers Torch::cpu)
  endif()
  if(NOT SHARED_TENSOR_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
endfunction()
